"""A Python for musl, made from sources, and the wheel for musl on it: selftest and suites."""
