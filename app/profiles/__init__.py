"""Launch profiles: what a user wants to run, as a frozen value with a history."""
