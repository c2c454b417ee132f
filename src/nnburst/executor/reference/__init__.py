"""Computes every operation in numpy, exact to the last bit."""
