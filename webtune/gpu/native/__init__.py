"""A device of wgpu-py: its adapters, the link to the bundled library, programs and timing."""
