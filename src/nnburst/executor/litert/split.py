"""Splits models that the engine runs only in part, and gives the rest to another executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from nnburst.executor.base import (
    Argument,
    Bytes,
    Cached,
    CachingPrepared,
    Execution,
    Octets,
    Outcome,
    Prepared,
)
from nnburst.executor.graph.memory import aligned_bytes
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.litert import cache
from nnburst.executor.litert.network import Survey
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import ErrorStatus, OperandLifeTime
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import DataLocation, Model, Operand, Subgraph
from nnburst.hal.types import OutputShape

_MOVING = (
    OperandLifeTime.TEMPORARY_VARIABLE,
    OperandLifeTime.SUBGRAPH_INPUT,
    OperandLifeTime.SUBGRAPH_OUTPUT,
)


class SplitPart(msgspec.Struct, frozen=True):
    """Consecutive operations of a model, as a model of their own.

    Attributes:
        model: the part; its operands have the same indexes as in the whole model.
        lowered: whether the engine runs it.
        static: whether the extents of its outputs are known.
        numbers: its operations' numbers in the whole model, without those that make constants real.
    """

    model: Model
    lowered: bool
    static: bool
    numbers: tuple[int, ...] = ()


def cut(model: Model, found: Survey) -> list[SplitPart]:
    """Cut a model into parts that are run one after the other.

    An operation that makes weights real goes with each part that reads them.
    """
    count = len(model.main.operations)
    open_from = next((n for n in range(count) if n not in found.static), count)
    static = [n for n in range(open_from) if n not in found.weights]
    groups = [
        (lowered, list(numbers))
        for lowered, numbers in groupby(static, key=lambda n: found.lowered[n])
    ]
    parts = [_part(model, found, numbers, lowered, True) for lowered, numbers in groups]
    left = [n for n in range(open_from, count) if n not in found.weights]
    if left:
        parts.append(_part(model, found, left, False, False))
    return parts


def _part(
    model: Model,
    found: Survey,
    numbers: Sequence[int],
    lowered: bool,
    static: bool,
) -> SplitPart:
    main = model.main
    wanted = {i for n in numbers for i in main.operations[n].inputs}
    first = [n for n in sorted(found.weights) if main.operations[n].outputs[0] in wanted]
    operations = tuple(main.operations[n] for n in (*first, *numbers))
    written = {i for o in operations for i in o.outputs}
    private = {main.operations[n].outputs[0] for n in first}
    read = {i for o in operations for i in o.inputs}
    later = {i for o in main.operations[numbers[-1] + 1 :] for i in o.inputs}
    inputs = tuple(i for i in sorted(read - written) if main.operands[i].lifetime in _MOVING)
    outputs = tuple(i for i in sorted(written - private) if i in later or i in main.output_indexes)
    operands = tuple(
        _operand(operand, index, found.types, inputs, outputs, used=index in read | written)
        for index, operand in enumerate(main.operands)
    )
    graph = Subgraph(operands, operations, inputs, outputs)
    return SplitPart(msgspec.structs.replace(model, main=graph), lowered, static, tuple(numbers))


def _operand(
    operand: Operand,
    index: int,
    types: Mapping[int, TensorType],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    used: bool,
) -> Operand:
    """An operand of the whole model, declared for a part."""
    if not used:
        return Operand(operand.type, location=DataLocation())
    if index not in (*inputs, *outputs):
        return operand
    lifetime = OperandLifeTime.SUBGRAPH_INPUT
    if index in outputs:
        lifetime = OperandLifeTime.SUBGRAPH_OUTPUT
    known = types.get(index)
    if known is None:
        return msgspec.structs.replace(operand, lifetime=lifetime)
    return msgspec.structs.replace(
        operand,
        lifetime=lifetime,
        dimensions=known.dimensions,
        scale=known.scale,
        zero_point=known.zero_point,
    )


class SplitPrepared(Prepared):
    """A model in parts. `bind` may be called from several threads at once."""

    def __init__(
        self,
        model: Model,
        types: Mapping[int, TensorType],
        parts: Sequence[tuple[SplitPart, Prepared]],
    ) -> None:
        """Own prepared parts.

        Args:
            model: the whole model.
            types: types of those operands whose extents are known.
            parts: the parts in the order of execution.
        """
        self._model = model
        self._graph = model.main
        self._types = types
        self._parts = list(parts)
        self.num_threads = max(p.num_threads for _, p in self._parts)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> SplitExecution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        graph = self._graph
        arguments = dict(zip(graph.input_indexes, inputs, strict=True))
        given = dict(zip(graph.output_indexes, outputs, strict=True))
        read = {i for o in graph.operations for i in o.inputs}
        copies: list[tuple[Bytes, Bytes]] = []
        shapes: dict[int, OutputShape] = {}
        runs: list[tuple[Execution, tuple[int, ...]]] = []
        for part, prepared in self._parts:
            main = part.model.main
            for index in main.output_indexes:
                target = given.get(index)
                if part.static:
                    arguments[index] = self._place(index, target, index in read, copies, shapes)
                elif target is not None:
                    arguments[index] = target
            execution = prepared.bind(
                [arguments[i] for i in main.input_indexes],
                [arguments[i] for i in main.output_indexes],
            )
            runs.append((execution, () if part.static else main.output_indexes))
        return SplitExecution(runs, copies, shapes, graph.output_indexes)

    def _place(
        self,
        index: int,
        target: Argument | None,
        read: bool,
        copies: list[tuple[Bytes, Bytes]],
        shapes: dict[int, OutputShape],
    ) -> Argument:
        """The argument that a part writes an operand to: the request's own if only the request reads it."""
        meta = self._types[index]
        size = meta.byte_size
        room = None if target is None else target.buffer
        fits = room is not None and room.size >= size
        if target is not None:
            shapes[index] = OutputShape(meta.dimensions, fits)
        if room is not None and fits and not read:
            return Argument(room[:size], meta.dimensions)
        private = aligned_bytes(size)
        if room is not None and fits:
            copies.append((room[:size], private))
        return Argument(private, meta.dimensions)

    def to_cache(self) -> Cached | None:
        """All parts for a cache; None if one of them cannot be cached."""
        kept: list[tuple[cache.CachedPart, Octets]] = []
        for part, prepared in self._parts:
            cached = prepared.to_cache() if isinstance(prepared, CachingPrepared) else None
            if cached is None:
                return None
            kept.append(cache.as_part(cached, static=part.static))
        return cache.pack(self._model, kept, self._types)

    def close(self) -> None:
        """Free every part."""
        for _, prepared in self._parts:
            prepared.close()


class SplitExecution(Execution):
    """A request bound to the parts of a model. One thread runs it at a time."""

    def __init__(
        self,
        runs: list[tuple[Execution, tuple[int, ...]]],
        copies: list[tuple[Bytes, Bytes]],
        shapes: dict[int, OutputShape],
        order: Sequence[int],
    ) -> None:
        """Own the executions.

        Args:
            runs: the execution of each part, with the numbers of the outputs whose shapes it reports.
            copies: outputs of the request, and the private memory that they are copied from.
            shapes: shapes of the other outputs.
            order: operand indexes of the model's outputs.
        """
        self._runs = runs
        self._copies = copies
        self._shapes = shapes
        self._order = order

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`."""
        if not self._runs:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        shapes = dict(self._shapes)
        for execution, reported in self._runs:
            outcome = execution.run(deadline_ns, loop_timeout_ns)
            if outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
                return outcome
            if reported:
                shapes.update(zip(reported, outcome.output_shapes, strict=True))
        for target, private in self._copies:
            np.copyto(target, private)
        ordered = tuple(shapes[i] for i in self._order)
        if all(shape.is_sufficient for shape in ordered):
            return Outcome(ErrorStatus.NONE, ordered)
        message = "an output buffer is too small for what is computed"
        return Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, ordered, message)

    def close(self) -> None:
        """Close every part's execution."""
        runs, self._runs = self._runs, []
        for execution, _ in runs:
            execution.close()
        self._copies = []
