"""Runs the driver process: its command line, its supervisor and its workers."""
