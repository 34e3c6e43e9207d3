"""The parts of the model generator."""
