"""When a pick is still valid: digests of everything that a candidate is made of."""
