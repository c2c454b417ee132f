"""Imports an ONNX file as one operation of the extension dev.nnburst.onnx, with its bytes in a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnburst.formats.onnx_model import OnnxFile, ValueInfo, read_model, tensors_of
from nnburst.formats.onnx_tensor import ExternalData, file_name
from nnburst.formats.onnx_writer import with_largest, with_shapes
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import InvalidArgument, spelt
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import DataLocation, ExtraParams, MemoryPool, Operand
from nnburst.hal.model_builder import ModelBuilder, UsedExtension
from nnburst.hal.whole_graph import (
    BY_NAME,
    FILE,
    GRAPH,
    ONNX,
    SLOT_EXTENTS,
    Element,
    GraphParams,
    GraphState,
)
from nnburst.importer.imported_model import ImportedModel, unused_name


def whole_graph(
    content: bytes,
    file: OnnxFile,
    external: ExternalData,
    shapes: Mapping[str, Sequence[int]],
    *,
    fixed: bool = True,
    states: Mapping[str, str] | None = None,
    largest: Sequence[str] = (),
    extents_hold: bool = False,
) -> ImportedModel:
    """Import an ONNX file as a model of one operation.

    Args:
        content: bytes of the file.
        file: the parsed file.
        external: reads external data files, each of which becomes a pool.
        shapes: shapes of inputs that the file leaves open, so that requests need not give them and the engine
            finds the shapes of its outputs beforehand.
        fixed: whether these shapes are written into the graph for the engine, too. The engine then refuses a
            file if a part that never runs does not fit them.
        states: pairs of an input and an output, by name, that are states and stay in the driver.
        largest: names of outputs that are replaced with the index of the largest element along the last axis.
        extents_hold: see `GraphParams`.

    Raises:
        InvalidArgument: the type of an input or output is not one of the extension's.
    """
    if largest:
        content = with_largest(content, _indexes(file, largest))
        file = read_model(content)
    kept = _states(file, states or {}, shapes)
    graph = file.graph
    inputs = [info for info in graph.inputs if info.name not in graph.initializers]
    others = _files(file, external)
    wanted = {
        name: _checked(name, shape) for name, shape in shapes.items() if name not in (states or {})
    }
    if wanted and fixed:
        content = with_shapes(content, wanted)
    parts: list[bytes | memoryview] = [content, *others.values()]
    pools = tuple(np.frombuffer(part, np.uint8) for part in parts)
    inputs = [info for info in inputs if info.name not in (states or {})]
    staying = {state.output for state in kept}
    outputs_of = [info for info in graph.outputs if info.name not in staying]
    params = GraphParams(
        tuple(info.name for info in inputs),
        tuple(info.name for info in outputs_of),
        tuple(others),
        kept,
        extents_hold=extents_hold,
    )
    builder = ModelBuilder()
    used = builder.extension(ONNX)
    files = [
        builder.operand(_file(used, at, pool.nbytes, params.pack() if at == 0 else None))
        for at, pool in enumerate(pools)
    ]
    given = [builder.input(*_border("input", info, used, shapes)) for info in inputs]
    if kept:
        slot = used.operand_type(BY_NAME["uint64"].extension)
        given.append(builder.input(slot, SLOT_EXTENTS))
    results = [builder.output(*_border("output", info, used, {})) for info in outputs_of]
    builder.operation(used.operation_type(GRAPH), [*files, *given], results)
    model = builder.build(pools=[MemoryPool(pool.nbytes, at) for at, pool in enumerate(pools)])
    return ImportedModel(
        model=model,
        pools=pools,
        input_names=(*params.inputs, *([unused_name("slot", params.inputs)] if kept else [])),
        output_names=params.outputs,
        metadata={key: value.encode() for key, value in file.metadata.items()},
        description=file.description,
        operators=("the whole graph",),
        output_shapes=tuple(_dimensions(info, None) for info in outputs_of),
        row_dimension=_row_dimension((*inputs, *outputs_of)),
    )


def _files(file: OnnxFile, external: ExternalData) -> dict[str, memoryview]:
    """The bytes of external data files by the first location that the file has for each."""
    found: dict[str, tuple[str, memoryview]] = {}
    for _, tensor in tensors_of(file):
        if tensor.is_external:
            location = tensor.external.get("location", "")
            found.setdefault(file_name(location), (location, external.file_of(tensor)))
    return dict(found.values())


def _row_dimension(tensors: Sequence[ValueInfo]) -> str:
    """The name of the first dimension that these tensors have in common; empty without one."""
    names = {info.shape[0] if info.shape else None for info in tensors}
    name = names.pop() if len(names) == 1 else None
    return name if isinstance(name, str) else ""


def _states(
    file: OnnxFile, states: Mapping[str, str], shapes: Mapping[str, Sequence[int]]
) -> tuple[GraphState, ...]:
    """Describe the states; an open extent begins as 0, unless `shapes` gives it."""
    inputs = {
        info.name: info for info in file.graph.inputs if info.name not in file.graph.initializers
    }
    outputs = {info.name for info in file.graph.outputs}
    found = []
    for before, after in states.items():
        if before not in inputs or after not in outputs:
            side, name = ("input", before) if before not in inputs else ("output", after)
            raise InvalidArgument(f"{spelt('states')}: {name!r} is not an {side} of the graph")
        info = inputs[before]
        if info.shape is None and before not in shapes:
            raise InvalidArgument(
                f"{spelt('states')}: the rank of {before!r} is open, expected it in {spelt('shapes')}"
            )
        extents = shapes.get(before)
        if extents is None:
            extents = _known_extents(info.shape or ())
        found.append(GraphState(before, after, tuple(int(extent) for extent in extents)))
    return tuple(found)


def _indexes(file: OnnxFile, largest: Sequence[str]) -> dict[str, tuple[str, Sequence[int | str]]]:
    """Names and extents of the index tensors that replace outputs."""
    outputs = {info.name: info for info in file.graph.outputs}
    found: dict[str, tuple[str, Sequence[int | str]]] = {}
    for name in largest:
        if name not in outputs or not outputs[name].shape:
            raise InvalidArgument(
                f"largest: {name!r}, expected an output with extents among {list(outputs)}"
            )
        extents = (outputs[name].shape or ())[:-1]
        kept = [e if isinstance(e, int) and e > 0 else f"{name}_{n}" for n, e in enumerate(extents)]
        found[name] = (f"{name}_largest", kept)
    return found


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
            f"{side} {info.name!r} is {info.element}: {ONNX} has tensors of numbers"
        )
    element: Element = BY_NAME[info.element]
    kind = element.core if element.core is not None else used.operand_type(element.extension)
    scale = 1.0 if element.name in ("uint8", "int8") else 0.0
    dims = _dimensions(info, shapes.get(info.name))
    # Files often declare wrong extents for outputs that depend on data, for which engines only warn.
    return kind, () if side == "output" and 0 in dims else dims, scale, 0


def _checked(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    if not all(0 < extent <= INT32_MAX for extent in shape):
        raise InvalidArgument(f"{spelt('shapes', name)}: {list(shape)}, expected extents above 0")
    return tuple(int(extent) for extent in shape)


def _dimensions(info: ValueInfo, wanted: Sequence[int] | None) -> tuple[int, ...]:
    if wanted is not None:
        return tuple(wanted) or (1,)
    if info.shape is None:
        return ()
    return _known_extents(info.shape) or (1,)


def _known_extents(shape: Sequence[int | str | None]) -> tuple[int, ...]:
    """The extents, 0 for one that is open."""
    return tuple(e if isinstance(e, int) and e > 0 else 0 for e in shape)
