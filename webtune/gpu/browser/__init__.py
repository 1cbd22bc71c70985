"""A page's WebGPU device."""
