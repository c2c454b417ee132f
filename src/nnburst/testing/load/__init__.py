"""Loads drivers for hours: soak and stress tests, whose clients are processes."""
