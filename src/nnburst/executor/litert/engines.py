"""Shares the engines of one network among the threads that compute, and binds executions to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nnburst.executor.base import Argument, Execution, NativeCall, Outcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.types import OutputShape, changes_dimensions, has_passed

#: The most engines of one network; more threads than that share them and take turns.
MAX_ENGINES: Final = 16


class EngineBinding(Protocol):
    """A request bound to an engine."""

    @property
    def native(self) -> NativeCall | None:
        """The call that runs the request without Python; None if only `run` can."""

    def run(self) -> str:
        """Run once; the reason if it fails, else ""."""

    def close(self) -> None:
        """Release the memory."""


class Engine(Protocol):
    """A network ready to run."""

    def bind(
        self, inputs: Sequence[memoryview], outputs: Sequence[memoryview | None]
    ) -> EngineBinding:
        """Bind memory: exactly the bytes of each argument."""


def room_for(argument: Argument, extents: tuple[int, ...], size: int) -> memoryview | None:
    """The `size` bytes of an argument for an output of these extents; None if it has fewer.

    Raises:
        GeneralFailure: the request declares other extents.
    """
    declared = argument.dimensions
    if len(declared) == len(extents) and changes_dimensions(declared, extents):
        raise GeneralFailure(f"an output is {extents}, not {declared}")
    return room_of(argument, size)


def room_of(argument: Argument, size: int) -> memoryview | None:
    """The first `size` bytes of an argument; None if it has fewer."""
    if argument.memory is None or argument.memory.nbytes < size:
        return None
    return argument.memory[:size]


def outcome_of(
    shapes: tuple[OutputShape, ...], declared: Sequence[tuple[int, ...]] = ()
) -> Outcome:
    """The outcome of a run whose outputs have these shapes; those of `declared` are a failure otherwise."""
    if not all(shape.is_sufficient for shape in shapes):
        message = "an output buffer is too small for what is computed"
        return Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes, message)
    for shape, said in zip(shapes, declared, strict=False):
        if changes_dimensions(said, shape.dimensions):
            why = f"an output is {shape.dimensions}, not {said}"
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), why)
    return Outcome(ErrorStatus.NONE, shapes)


class _Place:
    """An engine, the thread that uses it, and the number of requests that are bound to it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.owner: int | None = None
        self.bindings = 0


class Engines:
    """A set of equal engines that threads reserve. Thread-safe.

    A burst has one thread, which binds and runs its requests; the thread keeps its engine as long as it has
    bound requests. An execution that binds, runs and closes frees the engine for others at once.
    """

    def __init__(self, make: Callable[[], Engine], most: int = MAX_ENGINES) -> None:
        """Make the first engine, which shows errors of the network now; make at most `most` in all."""
        self._make = make
        self._most = most
        self._lock = threading.Lock()
        self._places = [_Place(make())]

    def bind(
        self, inputs: Sequence[memoryview], outputs: Sequence[memoryview | None]
    ) -> tuple[EngineBinding, Callable[[], None]]:
        """Bind a request to an engine of the calling thread; also returns the function to call at `close`."""
        place = self._take()
        try:
            return place.engine.bind(inputs, outputs), lambda: self._release(place)
        except BaseException:
            self._release(place)
            raise

    def close(self) -> None:
        """Release all engines; each is freed with the last request that is bound to it."""
        with self._lock:
            self._places = []

    def _take(self) -> _Place:
        thread = threading.get_ident()
        with self._lock:
            place = self._find(thread)
            if place is not None:
                return self._enter(place, thread)
        made = _Place(self._make())
        with self._lock:
            self._places.append(made)
            return self._enter(made, thread)

    def _find(self, thread: int) -> _Place | None:
        """The thread's own engine, a free one or, if no more may be made, the least used one; else None."""
        for wanted in (thread, None):
            for place in self._places:
                if place.owner == wanted:
                    return place
        if len(self._places) < self._most:
            return None
        return min(self._places, key=lambda place: place.bindings)

    def _enter(self, place: _Place, thread: int) -> _Place:
        place.owner = thread
        place.bindings += 1
        return place

    def _release(self, place: _Place) -> None:
        with self._lock:
            place.bindings -= 1
            if place.bindings == 0:
                place.owner = None


class LiteRtExecution(Execution):
    """A request bound to an engine. One thread runs it at a time."""

    def __init__(
        self,
        binding: EngineBinding,
        shapes: tuple[OutputShape, ...],
        release: Callable[[], None],
        *,
        finds_shapes: bool = False,
    ) -> None:
        """Own `binding`; call `release` at `close`. For `finds_shapes` see `Execution`."""
        self.finds_shapes = finds_shapes
        self._binding: EngineBinding | None = binding
        self._release = release
        self._outcome = outcome_of(shapes)

    @property
    def native(self) -> NativeCall | None:
        """The call that runs the request without Python; None if only `run` can."""
        if self._binding is None or self._outcome.status != ErrorStatus.NONE:
            return None
        native = self._binding.native
        shapes = self._outcome.output_shapes
        return None if native is None else NativeCall(native.run, native.execution, shapes)

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002 - no loops are lowered
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`."""
        if self._binding is None:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        if has_passed(deadline_ns):
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        failure = self._binding.run()
        if failure:
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"LiteRT: {failure}")
        return self._outcome

    def close(self) -> None:
        """Release the engine and the request's memory."""
        binding, self._binding = self._binding, None
        if binding is not None:
            binding.close()
            self._release()
