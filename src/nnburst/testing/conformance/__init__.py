"""Runs conformance vectors by suites and runners, and compares the results."""
