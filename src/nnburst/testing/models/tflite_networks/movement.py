"""Networks of operators that split, pad, look up, or make shapes."""

from __future__ import annotations

import numpy as np

from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks.registry import DTYPES, EVERY, QUANTIZATION, network


@network("SPLIT", *EVERY)
def _split(b: TfliteBuilder, kind: str) -> None:
    axis = b.constant("INT32", np.array(-1, "<i4"), shape=[])
    x = b.input(kind, (2, 6), **QUANTIZATION.get(kind, {}))
    outputs = [b.output(kind, (2, 2), **QUANTIZATION.get(kind, {})) for _ in range(3)]
    b.operator("SPLIT", [axis, x], outputs, "SplitOptions", numSplits=3)


@network("SPLIT_V")
def _split_v(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 6))
    sizes = b.constant("INT32", np.array([1, 5], "<i4"))
    axis = b.constant("INT32", np.array(1, "<i4"), shape=[])
    outputs = [b.output(kind, (2, 1)), b.output(kind, (2, 5))]
    b.operator("SPLIT_V", [x, sizes, axis], outputs, "SplitVOptions", numSplits=2)


@network("UNPACK", *EVERY)
def _unpack(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3, 4), **QUANTIZATION.get(kind, {}))
    outputs = [b.output(kind, (2, 4), **QUANTIZATION.get(kind, {})) for _ in range(3)]
    b.operator("UNPACK", [x], outputs, "UnpackOptions", num=3, axis=1)


@network("PADV2", *EVERY)
def _pad_v2(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3), **QUANTIZATION.get(kind, {}))
    paddings = b.constant("INT32", np.array([(1, 0), (0, 2)], "<i4"))
    value = b.constant(kind, np.array(3, DTYPES[kind]), shape=[], **QUANTIZATION.get(kind, {}))
    y = b.output(kind, (3, 5), **QUANTIZATION.get(kind, {}))
    b.operator("PADV2", [x, paddings, value], [y])


@network("GATHER", *EVERY)
def _gather(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (4, 3), **QUANTIZATION.get(kind, {}))
    rows = b.constant("INT32", np.array([3, 0, 3], "<i4"))
    y = b.output(kind, (3, 3), **QUANTIZATION.get(kind, {}))
    b.operator("GATHER", [x, rows], [y], "GatherOptions", axis=0)


@network("EMBEDDING_LOOKUP")
def _embedding_lookup(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (4, 3))
    rows = b.constant("INT32", np.array([3, 0], "<i4"))
    b.operator("EMBEDDING_LOOKUP", [rows, x], [b.output(kind, (2, 3))])


@network("TOPK_V2")
def _top_k(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 6))
    k = b.constant("INT32", np.array(2, "<i4"), shape=[])
    b.operator("TOPK_V2", [x, k], [b.output(kind, (2, 2)), b.output("INT32", (2, 2))])


@network("FILL")
def _fill(b: TfliteBuilder, kind: str) -> None:
    x, filled = b.input(kind, (2, 3)), b.tensor(kind, (2, 3))
    shape = b.constant("INT32", np.array([2, 3], "<i4"))
    value = b.constant(kind, np.array(1.5, "<f4"), shape=[])
    b.operator("FILL", [shape, value], [filled])
    b.operator("ADD", [x, filled], [b.output(kind, (2, 3))], "AddOptions")


@network("SHAPE")
def _shape(b: TfliteBuilder, kind: str) -> None:
    x, shape = b.input(kind, (2, 3)), b.output("INT32", (2,))
    rank = b.output("INT32", ())
    b.operator("SHAPE", [x], [shape], "ShapeOptions", outType=2)
    b.operator("RANK", [x], [rank])


@network("HASHTABLE_LOOKUP")
def _hashtable_lookup(b: TfliteBuilder, kind: str) -> None:
    values = b.input(kind, (3, 2))
    lookups = b.constant("INT32", np.array([7, 5, 1], "<i4"))
    keys = b.constant("INT32", np.array([1, 2, 7], "<i4"))
    b.operator(
        "HASHTABLE_LOOKUP",
        [lookups, keys, values],
        [b.output(kind, (3, 2)), b.output("UINT8", (3,))],
    )
