"""Models the state of `test_life_cycle.py`: closed and dead objects, and those that depend on them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import nnburst
from faults.processes import Supervisor
from nnburst import Closed, DeadObject, NnburstError
from nnburst.control.address import socket_path
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.testing.faults.footprint import Footprint, footprint

T = TypeVar("T")
F32 = OperandType.TENSOR_FLOAT32


def sum_model() -> Model:
    """a + b over four floats."""
    builder = nnburst.ModelBuilder()
    a, b, c = builder.input(F32, (4,)), builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    return builder.build()


@dataclass(eq=False, repr=False)
class Thing:
    """An object under test, and its expected state.

    Attributes:
        real: the object; None once it is not referred to any more.
        hangs_on: objects that it depends on: if one of them is closed or dead, so is this one.
        closed: whether it was closed itself.
        dead: whether its process was killed.
    """

    real: Any
    hangs_on: tuple[Thing, ...] = ()
    closed: bool = False
    dead: bool = False

    @property
    def is_closed(self) -> bool:
        return self.closed or any(thing.is_closed for thing in self.hangs_on)

    @property
    def is_dead(self) -> bool:
        return self.dead or any(thing.is_dead for thing in self.hangs_on)

    @property
    def device(self) -> Thing:
        """The device that it belongs to; itself for a device."""
        return self.hangs_on[0].device if self.hangs_on else self

    def __repr__(self) -> str:
        states = [name for name in ("closed", "dead") if getattr(self, f"is_{name}")]
        return f"<{type(self).__name__}: {type(self.real).__name__} {' '.join(states)}>"


@dataclass(eq=False, repr=False)
class Driver(Thing):
    """A device; `held` is what its process held before its first use."""

    held: Footprint | None = None


@dataclass(eq=False, repr=False)
class Pool(Thing):
    """A pool, and a view of it that stays whatever happens to the pool.

    A pool depends on nothing, since it is the client's memory. `home` is the device that made it, `requests`
    the number of requests that were bound in it, each with memory of its own.
    """

    home: Thing | None = None
    requests: int = 0
    kept: Any = None
    number: int = 0

    @property
    def device(self) -> Thing:
        assert self.home is not None
        return self.home


@dataclass(eq=False, repr=False)
class OpenBurst(Thing):
    """A burst; `out` are its submitted requests that are not collected yet, oldest first."""

    limit: int = 1
    out: list[Outcome] = field(default_factory=list)

    def collect(self, until: int) -> None:
        """Results come in order: earlier ones are collected on the way."""
        del self.out[:until]


@dataclass(eq=False, repr=False)
class Bound(Thing):
    """A bound request; `number` is what its inputs hold."""

    burst: OpenBurst | None = None
    number: int = 0
    runs: int = 0


@dataclass(eq=False, repr=False)
class Repeated(Thing):
    """A reusable execution and the input, in no pool, that is copied with each run."""

    array: Any = None


@dataclass(eq=False, repr=False)
class Kept(Thing):
    """A buffer of the driver, its model, and the expected value of its elements (None: uninitialised)."""

    model: Thing | None = None
    number: int | None = None


@dataclass(eq=False, repr=False)
class Outcome(Thing):
    """A pending execution, its expected result, and whether it was fetched."""

    value: int = 0
    fetched: bool = False
    signaller: Any = None
    bound: Bound | None = None
    run: int = 0


def attempt(
    work: Callable[[], T],
    *things: Thing,
    may_work: bool = False,
    refused: type[NnburstError] | None = None,
) -> T | None:
    """The result of `work`; if it must fail, check that it fails as it should, and return None.

    Args:
        work: a call that uses `things`.
        things: objects that it needs.
        may_work: whether it may succeed although one is closed or dead, since it was begun before that.
        refused: error that it must raise if nothing is closed or dead, and may raise otherwise.

    Raises:
        AssertionError: it fails with an unexpected error, or succeeds where it must fail.
    """
    closed = any(thing.is_closed for thing in things)
    dead = any(thing.is_dead for thing in things)
    try:
        value = work()
    except NnburstError as error:
        explained = (
            (closed and isinstance(error, Closed))
            or (dead and isinstance(error, DeadObject))
            or (refused is not None and isinstance(error, refused))
        )
        if explained:
            return None
        raise AssertionError(f"nothing explains {type(error).__name__}: {error}") from error
    assert may_work or not closed, "it works on what is closed"
    assert may_work or not dead, "it works on what is dead"
    assert refused is None, f"it works, expected {refused}"
    return value


class Served:
    """A driver that many examples connect to, and what it held before the first came."""

    def __init__(self) -> None:
        """Start it in a directory of its own."""
        self._stack = contextlib.ExitStack()
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        with patch.dict(os.environ, {"XDG_RUNTIME_DIR": directory}):
            self.supervisor = Supervisor("lives", "reference")
            self.path: Path = socket_path("lives")
        self._stack.callback(self.supervisor.kill)
        self.baseline = footprint(self.supervisor.pid)

    def close(self) -> None:
        """End it."""
        self._stack.close()
