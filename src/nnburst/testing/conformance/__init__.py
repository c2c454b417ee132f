"""Conformance: vectors, the suites that run them, the ways to an executor, and how results compare."""
