"""Look up, tune, keep, run: what happens between a call and its launch."""
