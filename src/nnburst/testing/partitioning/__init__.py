"""Plans that are known from the original, and the devices that they were made for.

cases.py     the file: models, made-up devices, expected plans
device.py    a made-up device
described.py a plan in the words of the file
run.py       making each plan anew and comparing every field
"""

from nnburst.testing.partitioning.run import SUITE, run_partitioning

__all__ = ["SUITE", "run_partitioning"]
