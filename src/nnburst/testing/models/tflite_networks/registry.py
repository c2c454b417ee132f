"""How networks are registered, and what their tensors have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnburst.testing.models.tflite_builder import TfliteBuilder

Fill = Callable[[TfliteBuilder, str], None]

#: A function that makes the file, by name.
NETWORKS: dict[str, Callable[[], bytes]] = {}

#: Quantisation of inputs and outputs by type; none for real numbers.
QUANTIZATION: dict[str, dict[str, Any]] = {
    "UINT8": {"scale": 0.03125, "zero_point": 120},
    "INT8": {"scale": 0.03125, "zero_point": -5},
}
OUTPUT: dict[str, dict[str, Any]] = {
    "UINT8": {"scale": 0.0625, "zero_point": 100},
    "INT8": {"scale": 0.0625, "zero_point": 3},
}
EVERY = ("FLOAT32", "UINT8", "INT8")
DTYPES = {
    "FLOAT32": "<f4",
    "INT32": "<i4",
    "UINT8": "u1",
    "INT8": "i1",
    "BOOL": "u1",
    "INT64": "<i8",
}


def network(name: str, *kinds: str) -> Callable[[Fill], Fill]:
    """Register the decorated function as a network for each of the types, or for FLOAT32."""

    def register(build: Fill) -> Fill:
        for kind in kinds or ("FLOAT32",):

            def made(kind: str = kind) -> bytes:
                builder = TfliteBuilder()
                build(builder, kind)
                return builder.finish()

            NETWORKS[f"{name}-{kind}"] = made
        return build

    return register


def simple(
    operator: str,
    shapes: Sequence[Sequence[int]],
    out: Sequence[int],
    kinds: Sequence[str] = ("FLOAT32",),
    options: str = "",
    *,
    constants: Sequence[Any] = (),
    out_kind: str = "",
    same: bool = False,
    tag: str = "",
    **fields: object,
) -> None:
    """Register a network of one operator for each type.

    Args:
        operator: which.
        shapes: of its computed inputs, all of one type.
        out: shape of its output.
        kinds: the types.
        options: class of its options.
        constants: values of its inputs after the computed ones, integers.
        out_kind: type of the output if it is not that of the inputs.
        same: the output is quantised like the inputs.
        tag: tells networks of one operator apart.
        fields: of the options.
    """

    @network(operator + tag, *kinds)
    def build(b: TfliteBuilder, kind: str) -> None:
        inputs = [b.input(kind, shape, **QUANTIZATION.get(kind, {})) for shape in shapes]
        inputs += [b.constant("INT32", np.asarray(value, "<i4")) for value in constants]
        quantization = (QUANTIZATION if same else OUTPUT).get(kind, {})
        output = b.output(out_kind, out) if out_kind else b.output(kind, out, **quantization)
        b.operator(operator, inputs, [output], options, **fields)


IMAGE = (1, 4, 5, 3)
