"""A package around an executor of one's own: what `nnburst new-executor` writes."""
