"""What we have: devices, the engine's own account of itself, model files."""
