"""Checks plans against those of the original framework, on the same simulated devices.

Random plans are also executed and compared with the whole model.
"""

from nnburst.testing.partitioning.run import SUITE, run_partitioning

__all__ = ["SUITE", "run_partitioning"]
