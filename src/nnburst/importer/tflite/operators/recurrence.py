"""Translates the recurrent operators, variables and control flow of a .tflite file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from nnburst.formats.tflite_reader import MalformedTflite, names
from nnburst.hal.enums import OperationType
from nnburst.importer.subgraph import SubgraphIndex, Value
from nnburst.importer.tensors import Refused
from nnburst.importer.tflite.graph import Variable
from nnburst.importer.tflite.operator import BOOL8, FLOAT, Operator, operator

#: NNAPI: activations of recurrent operations and their numbers; an LSTM has no RELU1.
_ACTIVATIONS: Final = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3, "TANH": 4}
#: Inputs of both LSTMs before the states, which are the same in the file and in NNAPI.
_LSTM_WEIGHTS: Final = 18
_LAYER_NORM: Final = range(20, 24)


@dataclass(frozen=True, slots=True)
class _State:
    """A state of one operator: its operands before and after the operator."""

    variable: Variable
    before: Value
    after: Value


@operator("SVDF")
def _svdf(op: Operator) -> None:
    options = op.options("SVDFOptions")
    inputs, [state] = _operands(op, 4), _states(op, 4)
    scalars = [options.Rank(), _activation(options)]
    op.emit(OperationType.SVDF, [*inputs, state.before, *scalars], [state.after, op.output()])
    _keep(state)


@operator("RNN")
def _rnn(op: Operator) -> None:
    activation = _activation(op.options("RNNOptions"))
    inputs, [state] = _operands(op, 4), _states(op, 4)
    op.emit(OperationType.RNN, [*inputs, state.before, activation], [state.after, op.output()])
    _keep(state)


@operator("UNIDIRECTIONAL_SEQUENCE_RNN")
def _sequence_rnn(op: Operator) -> None:
    options = op.options("SequenceRNNOptions")
    inputs, [state] = _operands(op, 4), _states(op, 4)
    scalars = [_activation(options), int(options.TimeMajor())]
    op.emit(
        OperationType.UNIDIRECTIONAL_SEQUENCE_RNN,
        [*inputs, state.before, *scalars],
        [op.output(), state.after],
    )
    _keep(state)


@operator("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _sequence_lstm(op: Operator) -> None:
    options = op.options("UnidirectionalSequenceLSTMOptions")
    op.require(
        not options.DiagonalRecurrentTensors(), "recurrent weights are diagonal, expected full ones"
    )
    inputs, states = _operands(op, _LSTM_WEIGHTS), _states(op, 18, 19)
    before = [state.before for state in states]
    scalars = [*_lstm_scalars(op, options), bool(options.TimeMajor())]
    op.emit(
        OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
        [*inputs, *before, *scalars, *_layer_norm(op)],
        [op.output(), *(state.after for state in states)],
    )
    _keep(*states)


@operator("LSTM")
def _lstm(op: Operator) -> None:
    options = op.options("LSTMOptions")
    kernel = names("LSTMKernelType").get(options.KernelType())
    op.require(kernel == "FULL", f"kernel {kernel}, expected FULL")
    inputs, states = _operands(op, _LSTM_WEIGHTS), _states(op, 18, 19)
    before = [state.before for state in states]
    batch, units = before[1].type.dimensions[0], before[1].type.dimensions[-1]
    gates = 3 if inputs[1] is None else 4  # without an input gate, there is one part less
    scratch = op.temporary(op.input().type.reshaped(batch, gates * units))
    layer_norm = _layer_norm(op)
    op.emit(
        OperationType.LSTM,
        [*inputs, *before, *_lstm_scalars(op, options), *(layer_norm if any(layer_norm) else [])],
        [scratch, *(state.after for state in states), op.output()],
    )
    _keep(*states)


def _operands(op: Operator, count: int) -> list[Value | None]:
    """The first inputs as real numbers: quantised constants are dequantised."""
    op.require_type(op.input(), FLOAT, "input")
    return [_optional_real(op, position) for position in range(count)]


def _layer_norm(op: Operator) -> list[Value | None]:
    return [_optional_real(op, position) for position in _LAYER_NORM]


def _optional_real(op: Operator, position: int) -> Value | None:
    left_out = op.optional_tensor(position) is None
    return None if left_out else op.real_input(position, op.input())


def _activation(options: Any) -> int:  # noqa: ANN401 - generated code without types
    name = names("ActivationFunctionType").get(options.FusedActivationFunction())
    if name not in _ACTIVATIONS:
        raise Refused(f"activation {name}, expected one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _lstm_scalars(op: Operator, options: Any) -> list[Any]:  # noqa: ANN401
    activation = _activation(options)
    op.require(
        activation != _ACTIVATIONS["RELU_N1_TO_1"],
        "activation is RELU_N1_TO_1, which NNAPI's LSTM does not have",
    )
    clips = options.CellClip(), options.ProjClip()
    return [activation, *(op.real(clip, op.input()) for clip in clips)]


def _states(op: Operator, *positions: int) -> list[_State]:
    found = []
    for position in positions:
        tensor = op.optional_tensor(position)
        if tensor is None:
            raise Refused(f"input {position} (state) is missing")
        variable = op.variables.in_place(op.graph, tensor)
        before = variable.read(op.graph, op.graph.computed_type(tensor))
        found.append(_State(variable, before, op.temporary(before.type)))
    return found


def _keep(*states: _State) -> None:
    for state in states:
        state.variable.assign(state.after)


@operator("VAR_HANDLE")
def _var_handle(op: Operator) -> None:
    _require_tensors(op, 0, 1)
    op.variables.handle(op.output_tensors[0], op.options("VarHandleOptions"))


@operator("READ_VARIABLE")
def _read_variable(op: Operator) -> None:
    _require_tensors(op, 1, 1)
    variable = op.variables.resource(op.input_tensors[0])
    op.becomes(variable.read(op.graph, op.output_type()))


@operator("ASSIGN_VARIABLE")
def _assign_variable(op: Operator) -> None:
    _require_tensors(op, 2, 0)
    op.variables.resource(op.input_tensors[0]).assign(op.input(1))


@operator("CALL_ONCE")
def _call_once(op: Operator) -> None:
    _require_tensors(op, 0, 0)
    op.variables.initialize(op.options("CallOnceOptions").InitSubgraphIndex())


def _require_tensors(op: Operator, inputs: int, outputs: int) -> None:
    found = len(op.input_tensors), len(op.output_tensors)
    if found != (inputs, outputs):
        raise MalformedTflite(f"{found} inputs and outputs, expected {(inputs, outputs)}")


@operator("IF")
def _if(op: Operator) -> None:
    options = op.options("IfOptions")
    condition, *values = op.inputs() or [op.input()]
    op.require_type(condition, BOOL8, "condition")
    branches = [
        SubgraphIndex(op.reference(index))
        for index in (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    ]
    op.emit(OperationType.IF, [condition, *branches, *values])


@operator("WHILE")
def _while(op: Operator) -> None:
    options = op.options("WhileOptions")
    parts = [
        SubgraphIndex(op.reference(index))
        for index in (options.CondSubgraphIndex(), options.BodySubgraphIndex())
    ]
    op.emit(OperationType.WHILE, [*parts, *op.inputs()])
