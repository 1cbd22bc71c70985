"""A page's WebGPU device: Python decides, and `engine.js` encodes, submits and maps for it."""
