"""Builds small .tflite files with the format's own classes.

    builder = TfliteBuilder()
    x = builder.input("INT8", (1, 4), scale=0.5)
    y = builder.output("INT8", (1, 4), scale=0.5)
    builder.operator("RELU", [x], [y])
    content = builder.finish()

Needs `ai-edge-litert`, as the importer does; the engine is not loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt


@functools.cache
def schema() -> Any:  # noqa: ANN401 - generated code without types
    """The module with the classes, which the wheel `ai-edge-litert` carries."""
    return import_module("ai_edge_litert.schema_py_generated")


class SubgraphBuilder:
    """Collects the tensors and operators of one subgraph."""

    def __init__(self, owner: TfliteBuilder) -> None:
        """A part of the file that `owner` builds."""
        self.owner = owner
        self.raw = schema().SubGraphT()
        self.raw.tensors, self.raw.operators = [], []
        self.raw.inputs, self.raw.outputs = [], []

    def tensor(
        self,
        kind: str,
        shape: Sequence[int],
        *,
        scale: float | Sequence[float] | None = None,
        zero_point: int = 0,
        axis: int = 0,
        name: str = "",
        buffer: int = 0,
        **fields: object,
    ) -> int:
        """Add a tensor and return its index.

        Args:
            kind: name of the element type.
            shape: extents.
            scale: quantisation step, or one per index of dimension `axis`.
            zero_point: stored value of 0, of every channel.
            axis: dimension of the scales.
            name: of the tensor; made up unless given.
            buffer: of its bytes.
            fields: other fields of a TensorT.
        """
        raw = schema().TensorT()
        raw.type = getattr(schema().TensorType, kind)
        raw.shape, raw.buffer = list(shape), buffer
        raw.name = name or f"tensor{len(self.raw.tensors)}"
        if scale is not None:
            raw.quantization = schema().QuantizationParametersT()
            raw.quantization.scale = list(np.atleast_1d(scale))
            raw.quantization.zeroPoint = [zero_point] * len(raw.quantization.scale)
            raw.quantization.quantizedDimension = axis
        for field, value in fields.items():
            setattr(raw, field, value)
        self.raw.tensors.append(raw)
        return len(self.raw.tensors) - 1

    def input(self, kind: str, shape: Sequence[int], **fields: Any) -> int:  # noqa: ANN401
        """Add a tensor that is an input."""
        self.raw.inputs.append(self.tensor(kind, shape, **fields))
        return int(self.raw.inputs[-1])

    def output(self, kind: str, shape: Sequence[int], **fields: Any) -> int:  # noqa: ANN401
        """Add a tensor that is an output."""
        self.raw.outputs.append(self.tensor(kind, shape, **fields))
        return int(self.raw.outputs[-1])

    def constant(self, kind: str, values: npt.NDArray[Any], **fields: Any) -> int:  # noqa: ANN401
        """Add a tensor with a value; `shape` is that of the array unless given."""
        fields.setdefault("shape", values.shape)
        return self.tensor(kind, buffer=self.owner.buffer(values.tobytes()), **fields)

    def operator(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        **fields: object,
    ) -> None:
        """Add an operator; `options` names the class of its options and `fields` fills them."""
        raw = schema().OperatorT()
        raw.opcodeIndex = self.owner.operator_code(kind)
        raw.inputs, raw.outputs = list(inputs), list(outputs)
        if options:
            raw.builtinOptionsType = getattr(schema().BuiltinOptions, options)
            raw.builtinOptions = getattr(schema(), f"{options}T")()
            for field, value in fields.items():
                setattr(raw.builtinOptions, field, value)
        self.raw.operators.append(raw)

    def custom_operator(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: bytes = b""
    ) -> None:
        """Add an operator that is not built in; `options` are its own bytes."""
        self.operator(name, inputs, outputs)
        if options:
            self.raw.operators[-1].customOptions = np.frombuffer(options, np.uint8)


class TfliteBuilder(SubgraphBuilder):
    """Builds a file: itself the main subgraph, with `subgraph` for others."""

    def __init__(self) -> None:
        """Start with an empty main subgraph and the empty buffer 0."""
        super().__init__(self)
        self.model = schema().ModelT()
        self.model.version = 3
        self.model.description = "built for a test"
        self.model.subgraphs = [self.raw]
        self.model.buffers = [schema().BufferT()]
        self.model.operatorCodes = []
        self.model.metadata, self.model.signatureDefs = [], []

    def subgraph(self) -> tuple[int, SubgraphBuilder]:
        """A further subgraph: its index and its builder."""
        added = SubgraphBuilder(self)
        self.model.subgraphs.append(added.raw)
        return len(self.model.subgraphs) - 1, added

    def buffer(self, data: bytes) -> int:
        """Add a buffer and return its index."""
        raw = schema().BufferT()
        raw.data = np.frombuffer(data, np.uint8)
        self.model.buffers.append(raw)
        return len(self.model.buffers) - 1

    def operator_code(self, kind: str) -> int:
        """Index of the code of an operator; one that is not built in is a custom operator."""
        number = getattr(schema().BuiltinOperator, kind, schema().BuiltinOperator.CUSTOM)
        raw = schema().OperatorCodeT()
        raw.builtinCode, raw.deprecatedBuiltinCode, raw.version = number, min(number, 127), 1
        if number == schema().BuiltinOperator.CUSTOM:
            raw.customCode = kind
        self.model.operatorCodes.append(raw)
        return len(self.model.operatorCodes) - 1

    def metadata(self, name: str, data: bytes) -> None:
        """Add metadata."""
        raw = schema().MetadataT()
        raw.name, raw.buffer = name, self.buffer(data)
        self.model.metadata.append(raw)

    def signature(self, key: str, inputs: dict[str, int], outputs: dict[str, int]) -> None:
        """Name tensors of the main subgraph."""
        raw = schema().SignatureDefT()
        raw.signatureKey, raw.subgraphIndex = key, 0
        raw.inputs, raw.outputs = _tensor_maps(inputs), _tensor_maps(outputs)
        self.model.signatureDefs.append(raw)

    def finish(self) -> bytes:
        """The file."""
        builder = schema().flatbuffers.Builder(1 << 12)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _tensor_maps(tensors: dict[str, int]) -> list[Any]:
    maps = []
    for name, index in tensors.items():
        raw = schema().TensorMapT()
        raw.name, raw.tensorIndex = name, index
        maps.append(raw)
    return maps
