"""Variables of a network as inputs and outputs of the model.

A file keeps state between executions in two ways: resources that VAR_HANDLE names and READ_VARIABLE
and ASSIGN_VARIABLE use, which CALL_ONCE sets before the first execution; and tensors marked as
variables, which recurrent operators write in place. NNAPI's models have no memory: what is read first
becomes an input, what is assigned last an output.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite.reader import MalformedTflite
from nnburst.formats.tflite.schema import schema
from nnburst.hal.operand_types import DTYPES
from nnburst.importer.constants import Constant, ConstantPool
from nnburst.importer.refused import Refused
from nnburst.importer.subgraph import Value
from nnburst.importer.tensor_type import TensorType
from nnburst.importer.tflite.constants import constant_tensor
from nnburst.importer.tflite.graph import Graph
from nnburst.importer.tflite.tflite_file import OPERATOR_COST, TfliteFile, text


@dataclass(slots=True)
class Variable:
    """A variable while the main subgraph is translated.

    Attributes:
        name: in the file.
        initial: value before the first execution; None for zeros.
        given: its value when an execution begins; None until it is read before it is assigned.
        current: its value at this point; None until it is read or assigned.
    """

    name: str
    initial: Constant | None = None
    given: Value | None = None
    current: Value | None = None

    def read(self, graph: Graph, kind: TensorType) -> Value:
        """The value at this point, which is of type `kind`."""
        if self.current is None:
            self.given = self.current = graph.add_input(kind)
        self._check(kind, self.current.type)
        return self.current

    def assign(self, value: Value) -> None:
        """Let it hold `value` from now on."""
        if self.current is not None:
            self._check(self.current.type, value.type)
        self.current = value

    def first(self, pool: ConstantPool) -> npt.NDArray[Any]:
        """Its value before the first execution: an array of its own, read-only."""
        assert self.given is not None
        kind, dtype = self.given.type, DTYPES[self.given.type.type]
        pool.charge(kind.elements * dtype.itemsize)
        value = np.full(kind.dimensions, kind.zero_point, dtype)
        if self.initial is not None:
            self._check(kind, self.initial.type)
            value[...] = pool.read(self.initial)
        value.flags.writeable = False
        return value

    def _check(self, wanted: TensorType, found: TensorType) -> None:
        if wanted != found:
            raise Refused(f"variable {self.name!r} is {wanted} in one place and {found} in another")


class Variables:
    """All variables of a network."""

    def __init__(self, file: TfliteFile) -> None:
        self._file = file
        self._all: dict[Hashable, Variable] = {}
        self._resources: dict[int, Variable] = {}

    def handle(self, tensor: int, options: Any) -> None:  # noqa: ANN401 - VarHandleOptions
        """VAR_HANDLE: tensor `tensor` of the main subgraph stands for a variable."""
        self._resources[tensor] = self._named(options)

    def resource(self, tensor: int) -> Variable:
        """The variable that a tensor stands for."""
        if tensor not in self._resources:
            raise MalformedTflite(f"tensor {tensor} stands for no variable")
        return self._resources[tensor]

    def in_place(self, graph: Graph, tensor: int) -> Variable:
        """The variable behind a tensor that its operator writes in place."""
        if not graph.tensor(tensor).IsVariable():
            raise Refused(f"tensor {tensor} holds a state but is not marked as a variable")
        if tensor not in self._all:
            self._all[tensor] = Variable(graph.name(tensor))
        return self._all[tensor]

    def read_ones(self) -> list[Variable]:
        """The variables whose values go on from one execution to the next, in the order of their inputs.

        One that is not read before it is assigned is left out: its earlier value has no effect.
        """
        read = [variable for variable in self._all.values() if variable.given is not None]
        return sorted(read, key=_input_operand)

    def initialize(self, index: int) -> None:
        """CALL_ONCE: note what subgraph `index` of the file assigns.

        Raises:
            InvalidArgument: it does something else, or assigns what it computes.
        """
        graph = self._file.subgraph(index)
        handles: dict[int, Variable] = {}
        for at, raw in enumerate(self._file.entries(graph.OperatorsLength(), graph.Operators)):
            self._file.bytes.spend(OPERATOR_COST)
            name = self._file.operator_name(raw)
            if name == "VAR_HANDLE" and raw.OutputsLength() == 1:
                handles[int(raw.Outputs(0))] = self._named(_var_handle_options(raw))
            elif name == "ASSIGN_VARIABLE" and raw.InputsLength() == 2:
                self._assign(graph, raw, handles)
            else:
                raise Refused(f"initialising subgraph {index} uses {name} (operator {at})")

    def _assign(self, graph: Any, raw: Any, handles: dict[int, Variable]) -> None:  # noqa: ANN401
        handle, tensor = int(raw.Inputs(0)), int(raw.Inputs(1))
        if handle not in handles or not 0 <= tensor < graph.TensorsLength():
            raise MalformedTflite(f"tensors {handle} and {tensor} of an initial assignment")
        variable = handles[handle]
        variable.initial = constant_tensor(self._file, graph.Tensors(tensor))
        if variable.initial is None:
            raise Refused(f"the initial value of variable {variable.name!r} is computed")

    def _named(self, options: Any) -> Variable:  # noqa: ANN401
        key = text(options.Container()), text(options.SharedName())
        if key not in self._all:
            self._all[key] = Variable("/".join(part for part in key if part))
        return self._all[key]


def _input_operand(variable: Variable) -> int:
    """The operand that holds its value when an execution begins."""
    assert variable.given is not None
    assert variable.given.index is not None
    return variable.given.index


_VAR_HANDLE: Final = "VarHandleOptions"


def _var_handle_options(raw: Any) -> Any:  # noqa: ANN401
    """The options of a VAR_HANDLE."""
    union = raw.BuiltinOptions()
    if union is None or raw.BuiltinOptionsType() != getattr(schema().BuiltinOptions, _VAR_HANDLE):
        raise MalformedTflite("a VAR_HANDLE without its options")
    options = getattr(schema(), _VAR_HANDLE)()
    options.Init(union.Bytes, union.Pos)
    return options
