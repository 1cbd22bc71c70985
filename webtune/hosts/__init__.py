"""The composition roots: where a device, a store and a host are put together into a tuner."""
