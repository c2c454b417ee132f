"""One model, with requests in flight: a few lanes to the driver, each a burst that outlives it."""

from __future__ import annotations

import importlib
import math
import queue
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nnburst.client.burst.burst import Burst
from nnburst.client.burst.stateful_burst import StatefulBurst
from nnburst.client.memory.arguments import Parameter
from nnburst.client.resilient.resilient_burst import ResilientBoundRequest, ResilientBurst
from nnburst.client.resilient.resilient_device import ResilientDevice
from nnburst.control.model_id import model_id
from nnburst.hal.closing import Closing
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument, MissedDeadline
from nnburst.hal.model import Model
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.serving.datatypes import data_type
from nnburst.serving.sequences import Sequences
from nnburst.serving.statistics import Statistics
from nnburst.serving.tensors import Array, Tensor, Value, value_of


@dataclass(frozen=True)
class SequenceWord:
    """What a request has about its sequence: `sequence_id`, `sequence_start`, `sequence_end`."""

    key: Hashable
    starts: bool
    ends: bool


class Executed(NamedTuple):
    """What an execution gave.

    Attributes:
        values: of the wanted outputs, by index.
        queue_ns: nanoseconds until there was a lane.
        inference_ns: nanoseconds of the execution.
    """

    values: dict[int, Value]
    queue_ns: int
    inference_ns: int


def read_network(source: str) -> ImportedModel:
    """A model from a file that `nnburst.load` reads, or what `module:attribute` is or returns.

    Raises:
        NnburstError: it cannot be read.
        InvalidArgument: the attribute is not a model.
    """
    module, colon, attribute = source.rpartition(":")
    if not colon:
        return load(source)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"--model: {source}: {error}") from None
    made = found() if callable(found) else found
    if isinstance(made, Model):
        return ImportedModel(made)
    if isinstance(made, ImportedModel):
        return made
    raise InvalidArgument(f"--model: {source} is a {type(made).__name__}, expected a model")


class Network(Closing):
    """A model that is served under a name. Thread-safe.

    Attributes:
        name: in requests.
        inputs: those that requests have; states are not among them.
        outputs: likewise.
        statistics: of its requests.
        failure: why it is not served; empty while it is, or is being prepared.
    """

    def __init__(self, name: str, source: str, lanes: int, max_sequences: int) -> None:
        """Read the model; `prepare` makes it ready.

        Args:
            name: in requests.
            source: a file or `module:attribute`.
            lanes: executions at once.
            max_sequences: states at once, if it has any.

        Raises:
            NnburstError: it cannot be read, or has tensors that KServe has no type for.
        """
        self.name = name
        self.statistics = Statistics()
        self.failure = ""
        self._model = read_network(source)
        self._lane_count = lanes
        self._lanes: queue.LifoQueue[_Lane] = queue.LifoQueue()
        self._sequences = Sequences(self._begin_sequence, max_sequences)
        self._ready = False
        self.inputs: Sequence[Tensor] = ()
        self.outputs: Sequence[Tensor] = ()

    @property
    def is_ready(self) -> bool:
        """Whether requests are executed."""
        return self._ready

    @property
    def model_id(self) -> int:
        """What the driver counts its executions under."""
        return model_id(self._model.model)

    @property
    def has_state(self) -> bool:
        """Whether requests must belong to a sequence."""
        return bool(self._model.states)

    @property
    def sequences(self) -> int:
        """States at the moment."""
        return len(self._sequences)

    @property
    def recoveries(self) -> int:
        """How often the model was prepared again because its driver had died."""
        return self._prepared.recoveries if self._ready else 0

    def prepare(self, device: ResilientDevice) -> None:
        """Prepare the model and open the lanes.

        Raises:
            NnburstError: the driver refuses, or is not there.
        """
        self._prepared = device.prepare(self._model)
        states = self._model.states
        self.inputs = _tensors(
            self._prepared.inputs, self._model, "input", [state.input_index for state in states]
        )
        self.outputs = _tensors(
            self._prepared.outputs, self._model, "output", [state.output_index for state in states]
        )
        if not states:
            for _ in range(self._lane_count):
                # Who spins here takes the core that others in this process could use.
                self._lanes.put(_Lane(self._prepared.open_burst(spin_window=0)))
        self._ready = True

    def execute(
        self,
        arrays: Sequence[Array],
        wanted: Sequence[int],
        timeout: float,
        sequence: SequenceWord | None,
    ) -> Executed:
        """Execute once.

        Args:
            arrays: the inputs.
            wanted: indexes of outputs.
            timeout: seconds, waiting for a lane included.
            sequence: which state; None for networks without.

        Raises:
            InvalidArgument: the sequence is not there, or there is one and the network has no state.
            MissedDeadline: the timeout passed.
            DeadObject: the driver died of it or meanwhile; it is not repeated.
        """
        if not self._ready:
            raise DeviceUnavailable(
                f"model {self.name!r} is not ready: {self.failure or 'preparing'}"
            )
        if (sequence is not None) != self.has_state:
            raise InvalidArgument(
                f"model {self.name!r} has {'a' if self.has_state else 'no'} state:"
                f" sequence_id is {'needed' if self.has_state else 'not for it'}"
            )
        if sequence is not None:
            return self._execute_sequence(arrays, wanted, timeout, sequence)
        began = time.monotonic_ns()
        try:
            lane = self._lanes.get(timeout=timeout)
        except queue.Empty:
            raise MissedDeadline("timeout: every lane was busy until the deadline") from None
        try:
            started = time.monotonic_ns()
            values = lane.execute(arrays, wanted, _left(timeout, began, started))
            return Executed(values, started - began, time.monotonic_ns() - started)
        finally:
            self._lanes.put(lane)

    def close(self) -> None:
        """Give everything back."""
        self._ready = False
        self._sequences.close()

    def _execute_sequence(
        self, arrays: Sequence[Array], wanted: Sequence[int], timeout: float, word: SequenceWord
    ) -> Executed:
        began = time.monotonic_ns()
        sequence = self._sequences.find(word.key, starts=word.starts)
        if not sequence.lock.acquire(timeout=timeout):
            raise MissedDeadline(f"timeout: sequence {word.key} was busy until the deadline")
        ends = word.ends
        try:
            started = time.monotonic_ns()
            values = sequence.execute(arrays, wanted, _left(timeout, began, started))
            return Executed(values, started - began, time.monotonic_ns() - started)
        except DeadObject:
            ends = True  # its state is lost
            raise
        finally:
            sequence.lock.release()
            if ends:
                self._sequences.remove(word.key)

    def _begin_sequence(self) -> tuple[Burst, StatefulBurst]:
        burst = self._prepared.current.open_burst(spin_window=0)
        return burst, StatefulBurst(burst, self._model.states)


class _Lane:
    """A burst, and its request if all shapes are known. One thread at a time."""

    def __init__(self, burst: ResilientBurst) -> None:
        current = burst.current
        known = all(parameter.known for parameter in (*current.inputs, *current.outputs))
        self._burst = burst
        self._bound: ResilientBoundRequest | None = burst.bind() if known else None

    def execute(
        self, arrays: Sequence[Array], wanted: Sequence[int], timeout: float
    ) -> dict[int, Value]:
        if self._bound is None:
            result = self._burst.execute(arrays, timeout=timeout, copy=False)
        else:
            for view, array in zip(self._bound.inputs, arrays, strict=True):
                if view is not None:
                    view[...] = array
            result = self._bound.run(timeout)
        return {index: value_of(result.outputs[index]) for index in wanted}


def _left(timeout: float, began: int, now: int) -> float:
    """Seconds left of `timeout`; moments in nanoseconds."""
    left = timeout - (now - began) / 1e9
    if left <= 0:
        raise MissedDeadline("timeout: passed before the execution could begin")
    return left


def _tensors(
    parameters: Sequence[Parameter], model: ImportedModel, kind: str, states: Sequence[int]
) -> list[Tensor]:
    names = model.input_names if kind == "input" else model.output_names
    main = model.model.main
    operands = main.input_indexes if kind == "input" else main.output_indexes
    found = []
    for index, parameter in enumerate(parameters):
        if index in states:
            continue
        name = names[index] if index < len(names) and names.count(names[index]) == 1 else ""
        operand = main.operands[operands[index]]
        found.append(
            Tensor(
                name or f"{kind}_{index}",
                data_type(np.dtype(parameter.dtype)),
                tuple(extent or -1 for extent in parameter.dimensions),
                0.0 if math.isclose(operand.scale, 0) else operand.scale,
                operand.zero_point,
            )
        )
    return found
