"""VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE."""

from __future__ import annotations

from nnburst.formats.tflite.reader import MalformedTflite
from nnburst.importer.tflite.operator import Operator, operator


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
