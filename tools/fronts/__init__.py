"""Compares nnburst's front with servers that other packages give, at 1 to 64 clients in one run."""
