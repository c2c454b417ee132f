"""Runs conformance vectors in several suites and by several runners, and compares the results."""
