"""Measures many clients of one service: the share of each, and the total cost."""
