"""The pure core: what decides. No clock, no device, no file, no JavaScript."""
