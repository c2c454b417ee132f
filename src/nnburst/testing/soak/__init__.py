"""Soak: hours of mixed load on one driver, and whether anything grows."""
