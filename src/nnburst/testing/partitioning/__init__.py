"""Plans that are known from the original, and the devices that they were made for."""

from nnburst.testing.partitioning.run import SUITE, run_partitioning

__all__ = ["SUITE", "run_partitioning"]
