"""Outcomes of computations as the application gets them: nothing, or an exception."""

from __future__ import annotations

from typing import Final

from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError, error_for_code
from nnburst.runtime.argument import Outcome

INTERRUPTED: Final = Outcome(ResultCode.OP_FAILED, message="it was interrupted")


def outcome_of(error: BaseException) -> Outcome:
    """What an exception in the middle of a computation comes to."""
    return Outcome.of(error) if isinstance(error, NnburstError) else INTERRUPTED


def succeeded(outcome: Outcome) -> Outcome:
    """The outcome itself.

    Raises:
        NnburstError: it is not a success.
    """
    if outcome.code != ResultCode.NO_ERROR:
        raise error_for_code(outcome.code, outcome.message, outcome.output_shapes)
    return outcome
