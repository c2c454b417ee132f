"""What `nnburst inspect` reports of an imported model, as `--json` writes it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType, operation_name
from nnburst.hal.model import Model, Operand, Subgraph, SymmPerChannelQuantParams
from nnburst.hal.operand_types import is_extension, size_bytes
from nnburst.hal.signature import type_name
from nnburst.importer.imported_model import ImportedModel

_CONSTANT: Final = (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_REFERENCE)


def contents(imported: ImportedModel) -> dict[str, Any]:
    """Everything but who can run it."""
    model = imported.model
    main = model.main
    every = [operand for graph in (main, *model.referenced) for operand in graph.operands]
    return {
        "description": imported.description,
        "metadata": {name: len(value) for name, value in imported.metadata.items()},
        "signatures": [
            {"key": s.key, "inputs": dict(s.inputs), "outputs": dict(s.outputs)}
            for s in imported.signatures
        ],
        "states": [
            {"name": s.name, "input": s.input_index, "output": s.output_index}
            for s in imported.states
        ],
        "inputs": _operands(model, imported.input_names, main.input_indexes),
        "outputs": _operands(model, imported.output_names, main.output_indexes),
        "operations": _operations(imported),
        "operation_counts": dict(Counter(operation_name(o.type) for o in main.operations)),
        "dynamic_range": {
            "operations": _dynamic_range(main),
            "exact": not model.relax_computation_float32_to_float16,
        },
        "subgraphs": len(model.referenced),
        "operands": len(every),
        "constant_bytes": sum(o.location.length for o in every if o.lifetime in _CONSTANT),
        "temporary_bytes": sum(
            _size(o) for o in every if o.lifetime is OperandLifeTime.TEMPORARY_VARIABLE
        ),
    }


def _operands(
    model: Model, names: tuple[str, ...], indexes: tuple[int, ...]
) -> list[dict[str, Any]]:
    shown = []
    for name, index in zip(names, indexes, strict=True):
        operand = model.main.operands[index]
        shown.append(
            {
                "name": name,
                "type": type_name(operand.type),
                "shape": list(operand.dimensions),
                "scale": operand.scale,
                "zero_point": operand.zero_point,
                "bytes": _size(operand),
            }
        )
    return shown


def _operations(imported: ImportedModel) -> list[dict[str, Any]]:
    main = imported.model.main
    origins = imported.operators or ("",) * len(main.operations)
    return [
        {
            "number": number,
            "type": operation_name(operation.type),
            "from": origin,
            "inputs": [
                described(main.operands[i]) for i in operation.inputs if main.operands[i].dimensions
            ],
            "outputs": [described(main.operands[i]) for i in operation.outputs],
            "constant_bytes": sum(
                main.operands[i].location.length
                for i in set(operation.inputs)
                if main.operands[i].lifetime in _CONSTANT
            ),
        }
        for number, (operation, origin) in enumerate(zip(main.operations, origins, strict=True))
    ]


def _dynamic_range(main: Subgraph) -> list[int]:
    """Numbers of the operations that compute real numbers with constants of 8 bits."""
    weights = {
        operation.outputs[0]
        for operation in main.operations
        if operation.type == OperationType.DEQUANTIZE
        and main.operands[operation.inputs[0]].lifetime in _CONSTANT
    }
    return [n for n, o in enumerate(main.operations) if weights.intersection(o.inputs)]


def _size(operand: Operand) -> int:
    """Bytes of an operand; 0 if they are not known."""
    if is_extension(operand.type):
        return 0
    return size_bytes(OperandType(operand.type), operand.dimensions)


def described(operand: Operand) -> str:
    """Type, extents and quantisation in a few words."""
    words = [type_name(operand.type)]
    if operand.dimensions:
        words.append("x".join(map(str, operand.dimensions)))
    if isinstance(operand.extra_params, SymmPerChannelQuantParams):
        params = operand.extra_params
        words.append(f"{len(params.scales)} scales along {params.channel_dim}")
    elif operand.scale:
        words.append(f"scale {operand.scale:.6g} zero {operand.zero_point}")
    return " ".join(words)
