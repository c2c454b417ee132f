"""What an execution that raises instead of reporting counts as: executors are other people's code."""

from __future__ import annotations

import logging

from nnburst.executor.base import Outcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import NnburstError

logger = logging.getLogger(__name__)


def outcome_of(error: BaseException) -> Outcome:
    """The outcome for the client about what an executor raised.

    SystemExit counts like any other: an executor does not end the thread of a burst or of a lane.
    """
    if isinstance(error, NnburstError):
        return Outcome(error.status, error.output_shapes, str(error))
    if isinstance(error, MemoryError):
        return Outcome(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, (), "out of memory")
    logger.error(
        "an execution raised instead of returning an error: answered with GENERAL_FAILURE",
        exc_info=error,
    )
    return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"{type(error).__name__}: {error}")
