"""Translates ONNX's recurrent operators: LSTM and RNN by NNAPI's sequence forms, GRU step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from nnburst.formats.protobuf import Malformed
from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.node import Node, operator
from nnburst.importer.onnx.operators.activation import add, mul, sub
from nnburst.importer.onnx.operators.elementwise import unary
from nnburst.importer.onnx.operators.matmul import fully_connected
from nnburst.importer.onnx.operators.shape import one_more, seen, transposed
from nnburst.importer.onnx.operators.slicing import concatenated, gathered, sliced
from nnburst.importer.onnx.tensor import Array, Tensor, constant
from nnburst.importer.subgraph import Argument, Missing, Value
from nnburst.importer.tensors import TensorType

_O = OperationType
_T = OperandType

#: The most steps that a GRU is unrolled into.
_MOST_STEPS: Final = 64
#: NNAPI: activations of recurrent operations by number.
_ACTIVATIONS: Final = {"relu": 1, "tanh": 4, "sigmoid": 6}


class Sequence:
    """The inputs and attributes that LSTM, GRU and RNN have in common.

    Attributes:
        x: the sequence, time × batch × inputs.
        hidden: number of outputs of a direction.
        directions: number of directions.
    """

    def __init__(self, node: Node, gates: int) -> None:
        """Read the inputs of a node whose weights stack this many gates."""
        self.node = node
        self.first = node.integer("layout") == 1  # the batch is
        x = node.real()
        node.require(x.rank == 3, f"an input of {x.rank} axes")
        self.x = transposed(x, (1, 0, 2)) if self.first else x
        direction = node.string("direction", "forward")
        node.require(
            direction in ("forward", "reverse", "bidirectional"),
            f"direction is {direction}, expected forward, reverse or bidirectional",
        )
        self.reverse = direction == "reverse"
        self.directions = 2 if direction == "bidirectional" else 1
        self.weights = node.array(1, "weights").astype(x.dtype, copy=False)
        self.recurrent = node.array(2, "recurrent weights").astype(x.dtype, copy=False)
        self.hidden = node.integer("hidden_size", self.recurrent.shape[-1])
        if self.hidden != self.recurrent.shape[-1]:
            raise Malformed(f"hidden_size {self.hidden} for {list(self.recurrent.shape)}")
        node.graph.budget.spend(64 * gates * self.hidden)
        bias = np.zeros((self.directions, 2 * gates * self.hidden), x.dtype)
        self.bias = bias if node.optional(3) is None else node.array(3, "bias").astype(x.dtype)
        node.require(
            node.attribute("clip") is None,
            "clip is given, which NNAPI's operation does not have",
        )
        self._check(gates)

    def _check(self, gates: int) -> None:
        size, wanted = self.x.shape[2], self.directions
        shapes = (
            (self.weights, (wanted, gates * self.hidden, size)),
            (self.recurrent, (wanted, gates * self.hidden, self.hidden)),
            (self.bias, (wanted, 2 * gates * self.hidden)),
        )
        for array, shape in shapes:
            if array.shape != shape:
                raise Malformed(f"weights of shape {list(array.shape)}, expected {list(shape)}")
        lengths = self.node.optional(4)
        if lengths is not None:
            given = self.node.array(4, "sequence_lens")
            self.node.require(
                bool(np.all(given == self.x.shape[0])),
                "sequence_lens differ, expected the length of the input",
            )

    def activations(self, *names: str) -> None:
        """Refuse a direction with other activations than these."""
        given = self.node.attribute("activations") or []
        found = [name.decode().lower() for name in given]
        wanted = [name for _ in range(self.directions) for name in names]
        self.node.require(found in ([], wanted), f"activations {found}, expected {wanted}")

    def initial(self, position: int, direction: int) -> Tensor:
        """A state before the first step: batch × outputs."""
        given = self.node.optional(position)
        shape = (self.x.shape[1], self.hidden)
        if given is None:
            self.node.graph.budget.spend(4 * shape[0] * shape[1])
            return constant(np.zeros(shape, self.x.dtype))
        given = transposed(given, (1, 0, 2)) if self.first else given
        window = [slice(direction, direction + 1, 1), *(slice(0, e, 1) for e in shape)]
        return seen(self.node, sliced(self.node, self.node.graph.real(given), window), shape)

    def inputs(self, direction: int) -> Tensor:
        """The sequence in the order in which a direction reads it."""
        return self._turned(self.x, direction)

    def _turned(self, x: Tensor, direction: int) -> Tensor:
        if not (self.reverse or direction):
            return x
        return gathered(self.node, x, self.node.graph.counted(self.x.shape[0])[::-1], 0)

    def finish(self, outputs: list[Tensor], states: list[list[Tensor]]) -> None:
        """Set the node's outputs: all steps, and each state after the last one.

        Args:
            outputs: outputs of each direction, time × batch × outputs.
            states: each state of each direction, batch × outputs.
        """
        node = self.node
        if node.is_used(0):
            every = [one_more(self._turned(y, at), 1) for at, y in enumerate(outputs)]
            whole = concatenated(node, every, 1) if len(every) > 1 else every[0]
            node.put(transposed(whole, (2, 0, 1, 3)) if self.first else whole, 0)
        for position, each in enumerate(states, 1):
            if node.is_used(position):
                parts = [one_more(state, 0) for state in each]
                state = concatenated(node, parts, 0) if len(parts) > 1 else parts[0]
                node.put(transposed(state, (1, 0, 2)) if self.first else state, position)


@operator("LSTM")
def _lstm(node: Node) -> None:
    """ONNX stacks gates as i o f c, NNAPI as i f c o. Peepholes are i o f; biases are added up."""
    sequence = Sequence(node, 4)
    sequence.activations("sigmoid", "tanh", "tanh")
    node.require(
        not node.integer("input_forget"),
        "input_forget is 1, expected 0: NNAPI's gates are not coupled so",
    )
    outputs, hidden, cell = [], [], []
    for direction in range(sequence.directions):
        y, h, c = _lstm_direction(sequence, direction)
        outputs.append(y)
        hidden.append(h)
        cell.append(c)
    sequence.finish(outputs, [hidden, cell])


def _lstm_direction(sequence: Sequence, direction: int) -> tuple[Tensor, Tensor, Tensor]:
    node, graph, n = sequence.node, sequence.node.graph, sequence.hidden

    def cut(array: Array, order: tuple[int, ...] = (0, 2, 3, 1)) -> list[Value]:
        parts = [np.ascontiguousarray(array[gate * n : (gate + 1) * n]) for gate in order]
        return [graph.literal(part, part.shape) for part in parts]

    bias = sequence.bias[direction]
    x = graph.stored(sequence.inputs(direction))
    missing = Missing(x.type.type)
    peepholes: Iterable[Argument] = [missing] * 3
    if node.optional(7) is not None:
        given = node.array(7, "peepholes")[direction].astype(sequence.x.dtype)
        peepholes = cut(given, (0, 2, 1))
    state = graph.stored(sequence.initial(5, direction))
    cell = graph.stored(sequence.initial(6, direction))
    inputs: list[Argument] = [
        x,
        *cut(sequence.weights[direction]),
        *cut(sequence.recurrent[direction]),
        *peepholes,
        *cut(bias[: 4 * n] + bias[4 * n :]),
        missing,
        missing,
        state,
        cell,
        _ACTIVATIONS["tanh"],
        graph.number(0, x.type),
        graph.number(0, x.type),
        True,
        *[missing] * 4,
    ]
    steps, batch = sequence.x.shape[:2]
    results = [
        TensorType(x.type.type, (steps, batch, n)),
        *[TensorType(x.type.type, (batch, n))] * 2,
    ]
    made = graph.emit_several(_O.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, results)
    found = [
        Tensor(
            kind.dimensions, sequence.x.dtype, value=value, order=tuple(range(len(kind.dimensions)))
        )
        for kind, value in zip(results, made, strict=True)
    ]
    return found[0], found[1], found[2]


@operator("RNN")
def _rnn(node: Node) -> None:
    sequence = Sequence(node, 1)
    given = [name.decode().lower() for name in node.attribute("activations") or [b"tanh"]]
    node.require(len(set(given)) == 1 and given[0] in _ACTIVATIONS, f"activations {given}")
    graph, n = node.graph, sequence.hidden
    outputs, states = [], []
    for direction in range(sequence.directions):
        x = graph.stored(sequence.inputs(direction))
        bias = sequence.bias[direction]
        parts = [sequence.weights[direction], sequence.recurrent[direction], bias[:n] + bias[n:]]
        literals = [graph.literal(np.ascontiguousarray(part), part.shape) for part in parts]
        state = graph.stored(sequence.initial(5, direction))
        steps, batch = sequence.x.shape[:2]
        kind = TensorType(x.type.type, (steps, batch, n))
        made = node.emit(
            _O.UNIDIRECTIONAL_SEQUENCE_RNN,
            [x, *literals, state, _ACTIVATIONS[given[0]], 1],
            kind,
        )
        y = Tensor(kind.dimensions, sequence.x.dtype, value=made, order=(0, 1, 2))
        outputs.append(y)
        last = gathered(node, y, np.array([steps - 1], np.int32), 0)
        states.append(seen(node, last, (batch, n)))
    sequence.finish(outputs, [states])


@operator("GRU")
def _gru(node: Node) -> None:
    """ONNX stacks gates as z r h. NNAPI has no GRU: each step becomes a few products."""
    sequence = Sequence(node, 3)
    sequence.activations("sigmoid", "tanh")
    steps = sequence.x.shape[0]
    node.require(steps <= _MOST_STEPS, f"{steps} steps, unrolled are at most {_MOST_STEPS}")
    outputs, states = [], []
    for direction in range(sequence.directions):
        step = _gru_step(sequence, direction)
        state = sequence.initial(5, direction)
        x, every = sequence.inputs(direction), []
        for at in range(steps):
            window = [slice(at, at + 1, 1), *(slice(0, e, 1) for e in x.shape[1:])]
            state = step(seen(node, sliced(node, x, window), x.shape[1:]), state)
            every.append(one_more(state, 0))
        outputs.append(concatenated(node, every, 0) if steps > 1 else every[0])
        states.append(state)
    sequence.finish(outputs, [states])


def _gru_step(sequence: Sequence, direction: int) -> Callable[[Tensor, Tensor], Tensor]:
    node, n = sequence.node, sequence.hidden
    after = bool(node.integer("linear_before_reset"))
    w, r, bias = (a[direction] for a in (sequence.weights, sequence.recurrent, sequence.bias))

    def matrix(array: Array, gate: int) -> Tensor:
        return constant(np.ascontiguousarray(array[gate * n : (gate + 1) * n].T))

    def offset(gate: int) -> Tensor:
        return constant(np.ascontiguousarray(bias[gate * n : (gate + 1) * n]))

    inputs, recurrent = (
        [matrix(w, gate) for gate in range(3)],
        [matrix(r, gate) for gate in range(3)],
    )
    offsets = [offset(gate) for gate in range(6)]

    def times(x: Tensor, matrices: list[Tensor], at: int, gate: int) -> Tensor:
        return fully_connected(node, x, matrices[gate], offsets[at + gate], None)

    def step(x: Tensor, h: Tensor) -> Tensor:
        z, reset = (
            unary(node, _O.LOGISTIC, add(node, times(x, inputs, 0, g), times(h, recurrent, 3, g)))
            for g in (0, 1)
        )
        if after:
            old = mul(node, reset, times(h, recurrent, 3, 2))
        else:
            old = times(mul(node, reset, h), recurrent, 3, 2)
        new = unary(node, _O.TANH, add(node, times(x, inputs, 0, 2), old))
        return add(node, mul(node, sub(node, 1.0, z), new), mul(node, z, h))

    return step
