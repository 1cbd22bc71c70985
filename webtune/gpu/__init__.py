"""Devices behind one contract, `base`: `native` is on wgpu-py, `browser` in a page with WebGPU.

Both have the same five modules: `adapters` opens a device, `device` keeps the contract, `link`
translates errors and ends waits, `programs` compiles, and `timing` takes spans. `clock` has the
arithmetic that both share.
"""
