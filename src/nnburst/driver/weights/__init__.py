"""Weights that the workers of one user's clients share, packed by processes that read no client's message."""
