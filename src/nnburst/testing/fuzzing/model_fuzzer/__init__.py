"""The suite's mutations of models, requests and packets against a live driver."""

from nnburst.testing.fuzzing.model_fuzzer.campaign import fuzz
from nnburst.testing.fuzzing.model_fuzzer.report import (
    EVERYTHING,
    KINDS,
    FuzzFailure,
    FuzzReport,
    FuzzSelection,
)

__all__ = ["fuzz", "FuzzSelection", "EVERYTHING", "FuzzReport", "FuzzFailure", "KINDS"]
