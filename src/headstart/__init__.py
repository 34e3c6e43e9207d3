"""Serve GGUF models to many agent sessions and compute the prefix they share once."""
