"""An ONNX file as one operation: dev.nnburst.onnx, with the file's bytes in a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnburst.formats.onnx.external_data import ExternalData
from nnburst.formats.onnx.model import OnnxFile, ValueInfo, tensors_of
from nnburst.formats.onnx.rewriting import with_shapes
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions.whole_graph import BY_NAME, FILE, GRAPH, NAME, Element, GraphParams
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import DataLocation, ExtraParams, MemoryPool, Operand
from nnburst.hal.model_builder import ModelBuilder, UsedExtension
from nnburst.importer.imported_model import ImportedModel


def whole_graph(
    content: bytes, file: OnnxFile, external: ExternalData, shapes: Mapping[str, Sequence[int]]
) -> ImportedModel:
    """The model.

    Args:
        content: of the file.
        file: what was read of it.
        external: reads the files beside it, each of which becomes a pool.
        shapes: of inputs that the file leaves open, so that requests need not carry them and the engine has
            its outputs' beforehand.

    Raises:
        InvalidArgument: an input or output is of no type that the extension has.
    """
    graph = file.graph
    inputs = [info for info in graph.inputs if info.name not in graph.initializers]
    others = {
        tensor.external.get("location", ""): external.file_of(tensor)
        for _, tensor in tensors_of(file)
        if tensor.is_external
    }
    if shapes:
        content = with_shapes(content, {name: _checked(name, s) for name, s in shapes.items()})
    parts: list[bytes | memoryview] = [content, *others.values()]
    pools = tuple(np.frombuffer(part, np.uint8) for part in parts)
    params = GraphParams(
        tuple(info.name for info in inputs),
        tuple(info.name for info in graph.outputs),
        tuple(others),
    )
    builder = ModelBuilder()
    used = builder.extension(NAME)
    files = [
        builder.operand(_file(used, at, pool.nbytes, params.pack() if at == 0 else None))
        for at, pool in enumerate(pools)
    ]
    given = [builder.input(*_border("input", info, used, shapes)) for info in inputs]
    results = [builder.output(*_border("output", info, used, {})) for info in graph.outputs]
    builder.operation(used.operation_type(GRAPH), [*files, *given], results)
    model = builder.build(pools=[MemoryPool(pool.nbytes, at) for at, pool in enumerate(pools)])
    return ImportedModel(
        model=model,
        pools=pools,
        input_names=params.inputs,
        output_names=params.outputs,
        metadata={key: value.encode() for key, value in file.metadata.items()},
        description=file.description,
        operators=("the whole graph",),
    )


def _file(used: UsedExtension, pool: int, size: int, params: ExtraParams) -> Operand:
    return Operand(
        type=used.operand_type(FILE),
        dimensions=(size,),
        lifetime=OperandLifeTime.CONSTANT_REFERENCE,
        location=DataLocation(pool, 0, size),
        extra_params=params,
    )


def _border(
    side: str, info: ValueInfo, used: UsedExtension, shapes: Mapping[str, Sequence[int]]
) -> tuple[Any, ...]:
    """Type, dimensions, scale and zero point of an input or output."""
    if not info.is_tensor or info.element not in BY_NAME:
        raise InvalidArgument(
            f"{side} {info.name!r} is {info.element}: {NAME} has tensors of numbers"
        )
    element: Element = BY_NAME[info.element]
    kind = element.core if element.core is not None else used.operand_type(element.extension)
    scale = 1.0 if element.name in ("uint8", "int8") else 0.0
    dims = _dimensions(info, shapes.get(info.name))
    # What a file declares of outputs whose extents depend on data is often wrong; engines only warn.
    return kind, () if side == "output" and 0 in dims else dims, scale, 0


def _checked(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    if not all(0 < extent <= INT32_MAX for extent in shape):
        raise InvalidArgument(f"shapes[{name!r}]: {list(shape)}, expected extents above 0")
    return tuple(int(extent) for extent in shape)


def _dimensions(info: ValueInfo, wanted: Sequence[int] | None) -> tuple[int, ...]:
    if wanted is not None:
        return tuple(wanted) or (1,)
    if info.shape is None:
        return ()
    return tuple(e if isinstance(e, int) and e > 0 else 0 for e in info.shape) or (1,)
