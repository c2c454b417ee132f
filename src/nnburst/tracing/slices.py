"""Marks the beginning and the end of a request's work, and joins the marks of one request across processes.

    with trace(Layer.DRIVER, Phase.EXECUTION, "miss"):
        ...

Until `set_tracer` is called, `trace` does nothing, at the cost of one comparison.

NNAPI: nnapi/Tracing.h NNTRACE_FULL; slices are named `[NN_<layer>_<phase>]detail`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Final, Protocol


class Layer(StrEnum):
    """The part of the system that does the work of a slice."""

    APPLICATION = "LA"
    RUNTIME = "LR"
    UTILITY = "LU"
    IPC = "LI"
    DRIVER = "LD"
    CPU = "LC"
    OTHER = "LO"


class Phase(StrEnum):
    """The purpose of the work."""

    OVERALL = "PO"
    INITIALIZATION = "PI"
    PREPARATION = "PP"
    COMPILATION = "PC"
    EXECUTION = "PE"
    TERMINATION = "PT"
    UNSPECIFIED = "PU"
    WARMUP = "PWU"
    BENCHMARK = "PBM"
    INPUTS_AND_OUTPUTS = "PIO"
    TRANSFORMATION = "PTR"
    COMPUTATION = "PCO"
    RESULTS = "PR"


class Tracer(Protocol):
    """Makes the context manager of a slice. Called from any thread."""

    def __call__(self, name: str) -> AbstractContextManager[object]:
        """A slice that lasts as long as the context."""


_NOTHING: Final = nullcontext()
_tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    """Let `tracer` make the slices of this process from now on; None ends tracing."""
    global _tracer
    _tracer = tracer


def traced(run: Callable[[], None], layer: Layer, phase: Phase, detail: str) -> Callable[[], None]:
    """Wrap `run` in a slice; return `run` itself if no tracer is set now."""
    if _tracer is None:
        return run

    def within() -> None:
        with trace(layer, phase, detail):
            run()

    return within


def trace(layer: Layer, phase: Phase, detail: str) -> AbstractContextManager[object]:
    """A slice around a piece of work."""
    if _tracer is None:
        return _NOTHING
    return _tracer(f"[NN_{layer}_{phase}]{detail}")


#: Number of requests of one burst before its numbers could be another burst's.
_BITS = 32


def flow_base(fd: int) -> int:
    """The first number for the requests of a burst, which client and driver compute in the same way.

    It need not be sent: both sides have the file of the burst's request ring, whose inode number is unique
    on a machine.

    Args:
        fd: descriptor of that file.
    """
    return (os.fstat(fd).st_ino << _BITS) & (2**63 - 1)
