"""Draws pairs of operations, of which the second reads a result of the first, and longer chains.

Engines fuse operations, so one that is right alone can be wrong with the next. A pair is drawn six times, so
that several ranks, numbers of inputs, constants on either side, open shapes and a result that is also an
output occur; and once more with tensors without elements if both operations accept these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.validation.operation import CONTROL_FLOW
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import (
    JOINED,
    SIZES,
    GraphBuilder,
    RandomGraph,
    Unsuitable,
)
from nnburst.testing.models.random_graphs.chain_builder import (
    EMPTIED,
    EMPTY,
    REALMS,
    Tensor,
    is_integer,
)
from nnburst.testing.models.random_graphs.control_flow import ControlFlowBuilder
from nnburst.testing.models.random_graphs.graphs import FAMILIES

assert FAMILIES  # the import fills JOINED

#: Attempts to draw the first and the second operation before a pair counts as one without usable values.
_FIRSTS, _NEXTS = 12, 8


class Pair(NamedTuple):
    """Two operations.

    Attributes:
        producer: the first one.
        kind: its primary type.
        activation: its fused activation; 0 also if it has none.
        consumer: the operation that reads one of its results.
    """

    producer: OperationType
    kind: OperandType
    activation: int
    consumer: OperationType

    def __str__(self) -> str:
        fused = ("", "+RELU", "+RELU1", "+RELU6")[self.activation]
        return f"{self.producer.name}{fused} {self.consumer.name} {self.kind.name}"


# -- The possible pairs ----------------------------------------------------------------------------


class _Asking(GraphBuilder):
    """Records the types of the tensors that an operation draws, and whether it draws an activation."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.default_rng(seed), SIZES["pair"])
        self.found: set[Tensor] = set()
        self.activated = False

    def scalar(self, value: float | bool, kind: OperandType | None = None) -> int:
        if is_integer(value):
            self.found.add((OperandType.INT32, 0))
        return super().scalar(value, kind)

    def activation(self, kind: OperandType) -> int:
        self.activated = kind is not OperandType.TENSOR_INT32
        return super().activation(kind)

    def fresh(
        self,
        kind: OperandType,
        dims: tuple[int, ...],
        low: float = -4,
        high: float = 4,
        meta: Meta | None = None,
    ) -> int:
        self.found.add((kind, len(dims)))
        return super().fresh(kind, dims, low, high, meta)


class _Face(NamedTuple):
    """The types that an operation of one primary type reads and writes, and whether it has an activation."""

    reads: frozenset[Tensor]
    gives: frozenset[OperandType]
    activated: bool


@cache
def _face(operation: OperationType, kind: OperandType) -> _Face:
    if operation in CONTROL_FLOW:
        runs = [_face(o, kind) for o in _run_by_graphs(kind)]
        return _Face(
            frozenset().union(*(face.reads for face in runs)),
            frozenset().union(*(face.gives for face in runs)),
            any(face.activated for face in runs),
        )
    reads: set[Tensor] = set()
    gives: set[OperandType] = set()
    activated = False
    for seed in range(30):
        builder = _Asking(seed)
        try:
            _, outputs = JOINED[operation].make(builder, kind)
        except Unsuitable:
            continue
        reads |= builder.found
        gives |= {meta.kind for meta in outputs}
        activated |= builder.activated
    return _Face(frozenset(reads), frozenset(gives), activated)


@cache
def _reads(operation: OperationType) -> frozenset[Tensor]:
    return frozenset().union(*(_face(operation, kind).reads for kind in _kinds(operation)))


@cache
def _kinds_read(operation: OperationType) -> frozenset[OperandType]:
    return frozenset(kind for kind, _ in _reads(operation))


@cache
def _run_by_graphs(kind: OperandType) -> list[OperationType]:
    """Operations of this primary type that an IF or a WHILE runs."""
    return [o for o, t in sorted(JOINED.items()) if kind in t.kinds and o not in ONLY_READERS]


@cache
def _kinds(operation: OperationType) -> list[OperandType]:
    """Primary types of an operation of pairs."""
    if operation in CONTROL_FLOW:
        return sorted({kind for template in JOINED.values() for kind in template.kinds})
    return list(JOINED[operation].kinds)


#: Operations that are drawn in pairs and chains.
OPERATIONS: Final = tuple(sorted({*JOINED, *CONTROL_FLOW}))


def pairs(
    kinds: Sequence[OperandType], consumers: Sequence[OperationType] | None = None
) -> Iterator[Pair]:
    """Every pair whose first operation has one of these primary types.

    Args:
        kinds: primary types of the first operation.
        consumers: second operations; every operation by default.
    """
    for producer in OPERATIONS:
        for kind in _kinds(producer):
            if kind not in kinds or producer in ONLY_READERS:
                continue
            face = _face(producer, kind)
            for activation in range(4 if face.activated else 1):
                for consumer in OPERATIONS if consumers is None else consumers:
                    if face.gives & _kinds_read(consumer):
                        yield Pair(producer, kind, activation, consumer)


_O = OperationType
#: Operations that are never the first of a pair: the naive QUANTIZED_LSTM rounds less than the original, so
#: its results give no bounds for the next operation.
ONLY_READERS: Final = frozenset({_O.QUANTIZED_LSTM})


# -- Graphs ----------------------------------------------------------------------------------------


def graph_of(pair: Pair, number: int) -> RandomGraph | None:
    """One of the graphs of a pair; None if no values were found for which both are defined.

    Args:
        pair: the operations.
        number: number of the graph, 0 to SHAPES - 1. The tensors of the last one have no elements: None also
            if an operation does not accept these.
    """
    seed = [int(pair.producer), int(pair.kind), pair.activation, int(pair.consumer), number]
    if number == EMPTY and not (
        {pair.producer, pair.consumer} <= EMPTIED and pair.kind in JOINED[_O.SLICE].kinds
    ):
        return None
    for attempt in range(_FIRSTS):
        builder = ControlFlowBuilder(
            np.random.default_rng([*seed, attempt]),
            SIZES["pair"],
            number=number if number == EMPTY else (number + attempt // len(REALMS)) % EMPTY,
            fused=pair.activation,
            realm=REALMS[attempt % len(REALMS)],
        )
        if number == EMPTY:
            builder.cut(pair.kind)
        if _grown(builder, pair.producer, pair.kind) and _next(builder, pair.consumer):
            return builder.finish(f"{pair} {number}", "pair")
    return None


def chain(kind: OperandType, length: int, seed: int) -> RandomGraph | None:
    """A random chain; None if no operation was found that could read one of its results.

    Args:
        kind: primary type of the first operation.
        length: number of operations.
        seed: the same seed gives the same chain.
    """
    rng = np.random.default_rng([int(kind), length, seed])
    number = seed % EMPTY
    realm = REALMS[int(rng.integers(len(REALMS)))]
    builder = ControlFlowBuilder(rng, SIZES["pair"], number=number, realm=realm)
    builder.fused = int(rng.integers(4))
    usable = [o for o in OPERATIONS if kind in _kinds(o)]
    for _ in range(8 * length):
        if not builder.operations:
            _grown(builder, builder.choice(usable), kind)
        else:
            given = {builder.face(i) for i in builder.operations[-1].outputs}
            _next(builder, builder.choice([o for o in OPERATIONS if given & _reads(o)]))
        if len(builder.operations) == length:
            return builder.finish(f"chain {kind.name} {length} {seed}", "pair")
    return None


def _grown(builder: ControlFlowBuilder, operation: OperationType, kind: OperandType) -> bool:
    """Add an operation; False without adding it if it is unusable or does not read the required operand."""
    operands, operations = len(builder.operands), len(builder.operations)
    referenced = len(builder.referenced)
    try:
        run = operation if operation in JOINED else _run(builder, operation, kind)
        template = JOINED[run]
        inputs, outputs = template.make(builder, kind)
        if builder.read is None or builder.read in inputs:
            builder.add(run, inputs, outputs, template.criteria, exact=template.exact)
            if operation == _O.IF:
                builder.put_into_if()
            elif operation == _O.WHILE:
                builder.put_into_while()
            return True
    except (Unsuitable, ArithmeticError, ValueError):
        pass
    del builder.operands[operands:]
    del builder.operations[operations:]
    del builder.referenced[referenced:]
    builder.shadows = {at: v for at, v in builder.shadows.items() if at[1] < operands}
    return False


def _run(builder: ControlFlowBuilder, operation: OperationType, kind: OperandType) -> OperationType:
    """Draw the operation that an IF or a WHILE is to run.

    Raises:
        Unsuitable: there is no such operation.
    """
    is_first = len(builder.operations) == builder.cuts
    if operation == _O.IF and builder.chance(0.5):
        builder.decide_by_read()
    read = None if builder.read is None else builder.face(builder.read)
    usable = [
        o
        for o in _run_by_graphs(kind)
        if (builder.number != EMPTY or o in EMPTIED)
        and (read is None or read in _face(o, kind).reads)
        and (not (is_first and builder.fused) or _face(o, kind).activated)
    ]
    if not usable:
        raise Unsuitable
    return OperationType(builder.choice(usable))


def _next(builder: ControlFlowBuilder, consumer: OperationType) -> bool:
    results = [
        i
        for i in builder.operations[-1].outputs
        if builder.face(i) in _reads(consumer) and math.isfinite(builder.operands[i].slack)
    ]
    if not results:
        return False
    for _ in range(_NEXTS):
        read = int(builder.choice(results))
        kind, face = builder.meta(read).kind, builder.face(read)
        kinds = [k for k in _kinds(consumer) if face in _face(consumer, k).reads]
        builder.aim(read)
        # Mostly of the same primary type: others read it by one operand only, such as a condition.
        primary = kind if kind in kinds and builder.rng.random() < 0.8 else builder.choice(kinds)
        if _grown(builder, consumer, primary):
            return True
    return False
