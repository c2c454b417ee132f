"""Single operations of every type, rank and extent, with results computed on the spot."""
