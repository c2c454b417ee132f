"""Faults: processes that are killed or stopped at random points, and what they leave behind."""
