"""The suite's mutations of models, requests and packets against a live driver.

campaign.py  all of them over many models
report.py    what was sent, how it was answered, what should not have happened
target.py    a model staged on a device, and a valid request for it
models.py    VM1 to VM23: refused by getSupportedOperations and prepareModel
requests.py  VR1 to VR7: refused by every way to execute
asking.py    the ways to execute, and what is heard of them
launches.py  calls that only launch: their answer and their notification
packets.py   VB1 to VB6: refused by bursts
"""

from nnburst.testing.fuzzing.model_fuzzer.campaign import fuzz
from nnburst.testing.fuzzing.model_fuzzer.report import (
    EVERYTHING,
    KINDS,
    Failure,
    FuzzReport,
    Selection,
)

__all__ = ["fuzz", "Selection", "EVERYTHING", "FuzzReport", "Failure", "KINDS"]
