"""The mathematics of speculative decoding: limits of drafts, acceptance. Pure."""
