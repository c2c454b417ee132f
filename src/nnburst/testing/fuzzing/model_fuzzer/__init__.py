"""The suite's mutations of models, requests and packets against a live driver."""

from nnburst.testing.fuzzing.model_fuzzer.campaign import fuzz
from nnburst.testing.fuzzing.model_fuzzer.report import (
    EVERYTHING,
    KINDS,
    Failure,
    FuzzReport,
    Selection,
)

__all__ = ["fuzz", "Selection", "EVERYTHING", "FuzzReport", "Failure", "KINDS"]
