"""Subscribers of events: the log, the metrics, the start-up banner."""
