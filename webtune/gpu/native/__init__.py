"""Devices of wgpu-py."""
