"""One subgraph while it is translated: which value each tensor of the file has become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnburst.formats.tflite.reader import MalformedTflite
from nnburst.importer.constants import ConstantPool
from nnburst.importer.refused import Refused
from nnburst.importer.subgraph import SubgraphWriter, Value
from nnburst.importer.tensor_type import TensorType
from nnburst.importer.tflite.constants import constant_tensor
from nnburst.importer.tflite.tensors import tensor_type
from nnburst.importer.tflite.tflite_file import TENSOR_COST, TfliteFile, text


class Graph(SubgraphWriter):
    """Values of a subgraph's tensors, and the NNAPI subgraph that grows from them.

    Attributes:
        file: the file.
        subgraph: the file's subgraph.
        is_dynamic_range: whether an operator so far multiplies real numbers with quantised weights.
    """

    def __init__(self, file: TfliteFile, index: int, constants: ConstantPool) -> None:
        """Start subgraph `index` with its inputs; constants go to `constants`."""
        super().__init__(file.bytes, constants)
        self.file = file
        self.subgraph = file.subgraph(index)
        self.is_dynamic_range = False
        self._values: dict[int, Value] = {}
        self._count = self.subgraph.TensorsLength()
        for tensor in indexes(file, self.subgraph, "Inputs"):
            if tensor in self._values:
                raise MalformedTflite(f"tensor {tensor} is an input twice")
            self._values[tensor] = self.add_input(self.computed_type(tensor))

    def tensor(self, index: int) -> Any:  # noqa: ANN401 - generated code without types
        """Tensor `index` of the file."""
        if not 0 <= index < self._count:
            raise MalformedTflite(f"tensor {index} of {self._count}")
        return self.subgraph.Tensors(index)

    def name(self, index: int) -> str:
        """Name of a tensor."""
        return text(self.tensor(index).Name())

    def computed_type(self, index: int) -> TensorType:
        """The operand that a tensor becomes whose value the file does not hold."""
        self.file.bytes.spend(TENSOR_COST)
        try:
            return tensor_type(self.file.bytes, self.tensor(index), constant=False)
        except Refused as refused:
            raise Refused(f"tensor {index} ({self.name(index)!r}): {refused}") from None

    def value(self, index: int) -> Value:
        """What tensor `index` holds.

        Raises:
            InvalidArgument: nothing has written it, or NNAPI has no such operand.
        """
        found = self._values.get(index)
        if found is None:
            self.file.bytes.spend(TENSOR_COST)
            try:
                constant = constant_tensor(self.file, self.tensor(index))
            except Refused as refused:
                raise Refused(f"tensor {index} ({self.name(index)!r}): {refused}") from None
            if constant is None:
                self.computed_type(index)  # has the better message if NNAPI has no such operand
                raise MalformedTflite(
                    f"tensor {index} ({self.name(index)!r}) is read but never written"
                )
            constant = replace(constant, name=f"tensor {index} ({self.name(index)!r})")
            found = self._values[index] = Value(constant.type, None, constant)
        return found

    def define(self, index: int, value: Value) -> None:
        """Let tensor `index` hold `value`."""
        if index in self._values:
            raise MalformedTflite(f"tensor {index} ({self.name(index)!r}) is written twice")
        self._values[index] = value


def indexes(file: TfliteFile, table: Any, field: str) -> list[int]:  # noqa: ANN401
    """A vector of tensor indexes of a subgraph or operator, charged; empty if it is absent."""
    count = getattr(table, f"{field}Length")()
    file.bytes.spend(64 * count)
    return [int(i) for i in getattr(table, f"{field}AsNumpy")().tolist()] if count else []
