"""Paceline: launch profiles, placement checks and a faithful relay for llama-server."""

__version__ = "0.1.0"
