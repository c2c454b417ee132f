"""Conformance vectors, the suites and runners that execute them, and the comparison of results."""
