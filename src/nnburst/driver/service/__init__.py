"""Runs the driver process: command line, supervisor, workers."""
