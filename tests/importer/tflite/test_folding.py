"""Shapes that a file computes are constants once the extents are known."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Runner
from nnburst.executor.litert.interpreter import quiet_once
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.models.tflite_builder import TfliteBuilder

Fill = Callable[[TfliteBuilder, int, int], None]


def ints(b: TfliteBuilder, *values: int) -> int:
    return b.constant("INT32", np.array(values, "<i4"))


def number(b: TfliteBuilder, value: int) -> int:
    return b.constant("INT32", np.array(value, "<i4"))


def of_one(name: str, options: str = "", **fields: object) -> Fill:
    return lambda b, x, y: b.operator(name, [x], [y], options, **fields)


def of_two(name: str, *other: int, options: str = "", **fields: object) -> Fill:
    return lambda b, x, y: b.operator(name, [x, ints(b, *other)], [y], options, **fields)


def sliced(begin: list[int], end: list[int], strides: list[int], **masks: int) -> Fill:
    def fill(b: TfliteBuilder, x: int, y: int) -> None:
        bounds = [ints(b, *each) for each in (begin, end, strides)]
        b.operator("STRIDED_SLICE", [x, *bounds], [y], "StridedSliceOptions", **masks)

    return fill


def packed(b: TfliteBuilder, x: int, y: int) -> None:
    first = b.tensor("INT32", ())
    bounds = [ints(b, n) for n in (1, 2, 1)]
    b.operator("STRIDED_SLICE", [x, *bounds], [first], "StridedSliceOptions", shrinkAxisMask=1)
    b.operator("PACK", [first, number(b, 7)], [y], "PackOptions", valuesCount=2)


def joined(b: TfliteBuilder, x: int, y: int) -> None:
    b.operator("CONCATENATION", [x, ints(b, -1, 8)], [y], "ConcatenationOptions")


#: What is computed of (3, 4, 5), and how many elements that has.
FOLDS: dict[str, tuple[Fill, int]] = {
    "ADD": (of_two("ADD", 1, 2, -3, options="AddOptions"), 3),
    "CONCATENATION": (joined, 5),
    "FLOOR_DIV": (of_two("FLOOR_DIV", -2, 3, 2, options="FloorDivOptions"), 3),
    "FLOOR_MOD": (of_two("FLOOR_MOD", -2, 3, 2, options="FloorModOptions"), 3),
    "GATHER": (of_two("GATHER", 2, 0, options="GatherOptions"), 2),
    "MAXIMUM": (of_two("MAXIMUM", 4, 4, 4, options="MaximumMinimumOptions"), 3),
    "MINIMUM": (of_two("MINIMUM", 4, 4, 4, options="MaximumMinimumOptions"), 3),
    "MUL": (of_two("MUL", 2, 2, 3, options="MulOptions"), 3),
    "NEG": (of_one("NEG", "NegOptions"), 3),
    "PACK": (packed, 2),
    "REDUCE_PROD": (of_two("REDUCE_PROD", 0, options="ReducerOptions", keepDims=True), 1),
    "SUM": (of_two("SUM", 0, options="ReducerOptions", keepDims=True), 1),
    "SUB": (of_two("SUB", 1, 2, 9, options="SubOptions"), 3),
    "STRIDED_SLICE": (sliced([0], [3], [2]), 2),
    "backwards": (sliced([2], [0], [-1]), 2),
    "masked": (sliced([1], [1], [1], endMask=1), 2),
}


def network(name: str) -> bytes:
    """The input, plus what is computed of the constant."""
    fill, size = FOLDS[name]
    b = TfliteBuilder()
    x, known = b.input("INT32", (size,)), b.tensor("INT32", (size,))
    fill(b, ints(b, 3, 4, 5), known)
    b.operator("ADD", [x, known], [b.output("INT32", (size,))], "AddOptions")
    return b.finish()


def by_the_engine(content: bytes, x: np.ndarray[Any, Any]) -> list[int]:
    with quiet_once():
        engine: Any = import_module("ai_edge_litert.interpreter").Interpreter(model_content=content)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    found: list[int] = engine.get_tensor(engine.get_output_details()[0]["index"]).tolist()
    return found


@pytest.mark.parametrize("name", FOLDS)
def test_what_is_computed_of_constants_is_a_constant_and_the_engines(name: str) -> None:
    content = network(name)
    imported = nnburst.load(content, as_graph=False)
    assert [op.type for op in imported.model.main.operations] == [OperationType.ADD]
    x = np.arange(FOLDS[name][1], dtype=np.int32) * 100
    assert Runner(imported).run([x])[0].tolist() == by_the_engine(content, x)


def test_a_shape_that_is_taken_apart_and_put_together_again_reshapes() -> None:
    """The operators that converters write for a batch that is left open."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (2, 6)), b.output("FLOAT32", (2, 3, 2))
    shape, batch, whole = b.tensor("INT32", (2,)), b.tensor("INT32", ()), b.tensor("INT32", (3,))
    b.operator("SHAPE", [x], [shape], "ShapeOptions")
    bounds = [ints(b, n) for n in (0, 1, 1)]
    b.operator("STRIDED_SLICE", [shape, *bounds], [batch], "StridedSliceOptions", shrinkAxisMask=1)
    b.operator("PACK", [batch, number(b, 3), number(b, 2)], [whole], "PackOptions", valuesCount=3)
    b.operator("RESHAPE", [x, whole], [y], "ReshapeOptions")
    imported = nnburst.load(b.finish())
    assert imported.refusal == ""
    given = np.arange(12, dtype=np.float32).reshape(2, 6)
    [found] = Runner(imported).run([given])
    assert found.tolist() == given.reshape(2, 3, 2).tolist()


@pytest.mark.parametrize(
    ("name", "options", "second"),
    [
        ("GATHER", "GatherOptions", np.zeros(4096, "<i4")),
        ("ADD", "AddOptions", np.ones((4096, 1), "<i4")),
        ("FLOOR_MOD", "FloorModOptions", np.ones((4096, 1), "<i4")),
    ],
)
def test_two_small_constants_make_no_large_one(
    name: str, options: str, second: np.ndarray[Any, Any]
) -> None:
    b = TfliteBuilder()
    x, known = b.input("INT32", (4096,)), b.tensor("INT32", (4096,))
    row = b.constant("INT32", np.ones((1, 4096), "<i4"))
    other = b.constant("INT32", second)
    b.operator(name, [row, other], [known], options)
    b.operator("ADD", [x, known], [b.output("INT32", (4096,))], "AddOptions")
    content = b.finish()
    tracemalloc.start()
    try:
        with contextlib.suppress(InvalidArgument):
            nnburst.load(content, as_graph=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 16 << 20


def test_numbers_beyond_32_bits_and_divisions_by_0_are_left_to_the_translation() -> None:
    for fill in (
        of_two("MUL", 2**30, 2**30, 2**30, options="MulOptions"),
        of_two("FLOOR_DIV", 0, 0, 0, options="FloorDivOptions"),
    ):
        b = TfliteBuilder()
        x, known = b.input("INT32", (3,)), b.tensor("INT32", (3,))
        fill(b, ints(b, 3, 4, 5), known)
        b.operator("ADD", [x, known], [b.output("INT32", (3,))], "AddOptions")
        try:
            imported = nnburst.load(b.finish(), as_graph=False)
        except InvalidArgument:
            continue
        assert len(imported.model.main.operations) == 2
