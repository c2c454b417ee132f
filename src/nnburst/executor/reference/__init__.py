"""The reference executor: every operation, in numpy, right to the last bit."""
