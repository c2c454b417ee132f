"""Measures many clients of one service: the share of each, and the cost of all together."""
