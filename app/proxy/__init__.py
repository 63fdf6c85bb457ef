"""The relay: bytes pass through unchanged, a copy is observed, and each request is told of exactly once."""
