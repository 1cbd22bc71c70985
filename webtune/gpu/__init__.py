"""Devices behind one protocol: `native` knows wgpu, `browser` knows JavaScript."""
