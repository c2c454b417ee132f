"""Checks plans against those of the original, on the devices that they were made for.

Random plans are executed, too, and compared with the whole model.
"""

from nnburst.testing.partitioning.run import SUITE, run_partitioning

__all__ = ["SUITE", "run_partitioning"]
