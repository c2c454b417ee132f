"""A package around an executor of one's own: what `nnburst new-executor` writes.

executor.py.in   the executor, as docs/testing_drivers.md shows it
write.py         the package around it
"""
