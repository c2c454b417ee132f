"""Provides tools for testing drivers and clients: vectors, suites, fuzzers, faults, models and load."""
