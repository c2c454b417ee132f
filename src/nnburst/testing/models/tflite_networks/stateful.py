"""Networks with states, and with subgraphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks.registry import DTYPES, network
from nnburst.testing.models.tflite_networks.weighted import bias_tensor, weights


@network("SVDF")
def _svdf(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3))
    feature = b.constant(kind, weights((8, 3), kind))
    time = b.constant(kind, weights((8, 5), kind))
    bias = bias_tensor(b, kind, 4)
    state = b.tensor(kind, (2, 40), isVariable=True, name="state")
    y = b.output(kind, (2, 4))
    b.operator("SVDF", [x, feature, time, bias, state], [y], "SVDFOptions", rank=2)


@network("RNN")
def _rnn(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3))
    inputs = [b.constant(kind, weights(shape, kind)) for shape in ((4, 3), (4, 4), (4,))]
    state = b.tensor(kind, (2, 4), isVariable=True)
    y = b.output(kind, (2, 4))
    b.operator("RNN", [x, *inputs, state], [y], "RNNOptions", fusedActivationFunction=4)


@network("UNIDIRECTIONAL_SEQUENCE_RNN")
def _sequence_rnn(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 5, 3))
    inputs = [b.constant(kind, weights(shape, kind)) for shape in ((4, 3), (4, 4), (4,))]
    state = b.tensor(kind, (2, 4), isVariable=True)
    b.operator(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        [x, *inputs, state],
        [b.output(kind, (2, 5, 4))],
        "SequenceRNNOptions",
        fusedActivationFunction=4,
    )


def lstm_inputs(b: TfliteBuilder, kind: str) -> list[int]:
    """Weights and states of an LSTM of 3 inputs and 4 units, without peepholes or projection."""
    taken = [b.constant(kind, weights((4, 3), kind) / 2) for _ in range(4)]
    recurrent = [b.constant(kind, weights((4, 4), kind) / 2) for _ in range(4)]
    biases = [b.constant(kind, weights((4,), kind)) for _ in range(4)]
    states = [b.tensor(kind, (2, 4), isVariable=True) for _ in range(2)]
    return [*taken, *recurrent, -1, -1, -1, *biases, -1, -1, *states]


@network("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _sequence_lstm(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 5, 3))
    b.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [x, *lstm_inputs(b, kind)],
        [b.output(kind, (2, 5, 4))],
        "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
    )


@network("LSTM")
def _lstm(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3))
    inputs = [x, *lstm_inputs(b, kind)]
    y = b.output(kind, (2, 4))
    b.operator("LSTM", inputs, [y], "LSTMOptions", fusedActivationFunction=4)


@network("VARIABLE", "FLOAT32", "INT8")
def _variable(b: TfliteBuilder, kind: str) -> None:
    """A running sum that starts at 1.5."""
    quantization: dict[str, Any] = {"scale": 0.25} if kind == "INT8" else {}
    start, first = b.subgraph()
    for part in (b, first):
        handle = part.tensor("RESOURCE", ())
        part.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="sum")
        if part is first:
            stored = 1.5 if kind == "FLOAT32" else 6
            value = np.full((2, 3), stored, DTYPES[kind])
            given = part.constant(kind, value, **quantization)
            part.operator("ASSIGN_VARIABLE", [handle, given], [], "AssignVariableOptions")
    b.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=start)
    x = b.input(kind, (2, 3), **quantization)
    before = b.tensor(kind, (2, 3), **quantization)
    after = b.output(kind, (2, 3), **quantization)
    b.operator("READ_VARIABLE", [handle], [before], "ReadVariableOptions")
    b.operator("ADD", [x, before], [after], "AddOptions")
    b.operator("ASSIGN_VARIABLE", [handle, after], [], "AssignVariableOptions")


@network("IF")
def _if(b: TfliteBuilder, kind: str) -> None:
    """The sum or the difference, by which input is larger at one place."""
    x, y = b.input(kind, (1,)), b.input(kind, (1,))
    larger = b.tensor("BOOL", (1,))
    numbers = []
    for operator in ("ADD", "SUB"):
        number, branch = b.subgraph()
        inputs = [branch.input(kind, (1,)) for _ in range(2)]
        options = f"{operator.capitalize()}Options"
        branch.operator(operator, inputs, [branch.output(kind, (1,))], options)
        numbers.append(number)
    b.operator("GREATER", [x, y], [larger])
    b.operator(
        "IF",
        [larger, x, y],
        [b.output(kind, (1,))],
        "IfOptions",
        thenSubgraphIndex=numbers[0],
        elseSubgraphIndex=numbers[1],
    )


@network("WHILE")
def _while(b: TfliteBuilder, kind: str) -> None:
    """Doubles until a count of three."""
    condition, asked = b.subgraph()
    count, _ = asked.input("INT32", (1,)), asked.input(kind, (1,))
    limit = asked.constant("INT32", np.array([3], "<i4"))
    asked.operator("LESS", [count, limit], [asked.output("BOOL", (1,))])
    body, looped = b.subgraph()
    count, value = looped.input("INT32", (1,)), looped.input(kind, (1,))
    one = looped.constant("INT32", np.array([1], "<i4"))
    looped.operator("ADD", [count, one], [looped.output("INT32", (1,))], "AddOptions")
    looped.operator("ADD", [value, value], [looped.output(kind, (1,))], "AddOptions")
    zero = b.constant("INT32", np.array([0], "<i4"))
    b.operator(
        "WHILE",
        [zero, b.input(kind, (1,))],
        [b.output("INT32", (1,)), b.output(kind, (1,))],
        "WhileOptions",
        condSubgraphIndex=condition,
        bodySubgraphIndex=body,
    )
