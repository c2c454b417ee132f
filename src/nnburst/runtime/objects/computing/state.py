"""Where an execution is in its life."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where an execution is in its life."""

    PREPARATION = "in preparation"
    COMPUTATION = "computing"
    COMPLETED = "completed"
