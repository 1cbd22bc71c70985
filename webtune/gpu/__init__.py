"""Devices behind one protocol. What knows wgpu lives in `native`, what knows JavaScript in `browser`."""
