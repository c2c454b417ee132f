"""The reference executor: computes every operation in numpy, exact to the last bit."""
