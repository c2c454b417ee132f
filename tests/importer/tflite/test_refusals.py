"""Operators that NNAPI cannot express are refused by name, index and reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Runner
from nnburst.testing.models.tflite_builder import TfliteBuilder

Add = Callable[[TfliteBuilder], None]
Array = npt.NDArray[Any]
Q = {"scale": 0.5}


def unary(
    operator: str, kind: str = "FLOAT32", out: str = "", options: str = "", **fields: object
) -> Add:
    """One operator on a 2×4 tensor."""

    def add(b: TfliteBuilder) -> None:
        quantization = Q if "INT8" in kind else {}
        x = b.input(kind, (2, 4), **quantization)
        y = b.output(out or kind, (2, 4), **quantization)
        b.operator(operator, [x], [y], options, **fields)

    return add


def binary(operator: str, kind: str, other: str, options: str = "", **fields: object) -> Add:
    """One operator on two 2×4 tensors."""

    def add(b: TfliteBuilder) -> None:
        x, y = (b.input(k, (2, 4), **(Q if "INT8" in k else {})) for k in (kind, other))
        z = b.output(kind, (2, 4), **(Q if "INT8" in kind else {}))
        b.operator(operator, [x, y], [z], options, **fields)

    return add


def convolution(kind: str, filters: int, **weights: object) -> Add:
    """CONV_2D of an image of 1×4×4×2 with filters of 3×2×2×2."""

    def add(b: TfliteBuilder) -> None:
        x = b.input(kind, (1, 4, 4, 2), **(Q if "INT8" in kind else {}))
        name = "FLOAT32" if kind == "FLOAT32" else "INT8"
        w = b.constant(
            name, np.ones((3, 2, 2, filters), "<f4" if name == "FLOAT32" else "i1"), **weights
        )
        y = b.output(kind, (1, 4, 4, 3), **(Q if "INT8" in kind else {}))
        b.operator("CONV_2D", [x, w, -1], [y], "Conv2DOptions", strideW=1, strideH=1)

    return add


def gather_in_batches(b: TfliteBuilder) -> None:
    x, rows = b.input("FLOAT32", (2, 4)), b.constant("INT32", np.zeros((2, 1), "<i4"))
    y = b.output("FLOAT32", (2, 1))
    b.operator("GATHER", [x, rows], [y], "GatherOptions", axis=1, batchDims=1)


def computed_permutation(b: TfliteBuilder) -> None:
    x, order = b.input("FLOAT32", (2, 4)), b.input("INT32", (2,))
    b.operator("TRANSPOSE", [x, order], [b.output("FLOAT32", (4, 2))])


def slice_with(mask: str) -> Add:
    def add(b: TfliteBuilder) -> None:
        x, y = b.input("FLOAT32", (2, 4)), b.output("FLOAT32", (2, 4))
        ends = [b.constant("INT32", np.array(v, "<i4")) for v in ([0, 0], [2, 4], [1, 1])]
        b.operator("STRIDED_SLICE", [x, *ends], [y], "StridedSliceOptions", **{mask: 1})

    return add


def integers(operator: str, options: str = "", **fields: object) -> Add:
    """An operator on two tensors of integers."""
    return binary(operator, "INT32", "INT32", options, **fields)


def mean_with_another_step(b: TfliteBuilder) -> None:
    x, axes = b.input("INT8", (2, 4), **Q), b.constant("INT32", np.array([1], "<i4"))
    b.operator("MEAN", [x, axes], [b.output("INT8", (2,), scale=0.25)], "ReducerOptions")


def comparison_of_two_steps(b: TfliteBuilder) -> None:
    x, y = b.input("INT8", (2, 4), **Q), b.input("INT8", (2, 4), scale=0.25)
    b.operator("EQUAL", [x, y], [b.output("BOOL", (2, 4))])


def products_of_one_matrix(b: TfliteBuilder) -> None:
    x, y = b.input("FLOAT32", (3, 2, 4)), b.input("FLOAT32", (1, 4, 5))
    b.operator("BATCH_MATMUL", [x, y], [b.output("FLOAT32", (3, 2, 5))], "BatchMatMulOptions")


def larger_transposed_convolution(b: TfliteBuilder) -> None:
    shape, x = b.constant("INT32", np.array([1, 6, 6, 2], "<i4")), b.input("FLOAT32", (1, 2, 2, 1))
    w, y = b.constant("FLOAT32", np.ones((2, 2, 2, 1), "<f4")), b.output("FLOAT32", (1, 6, 6, 2))
    b.operator(
        "TRANSPOSE_CONV",
        [shape, w, x],
        [y],
        "TransposeConvOptions",
        padding=1,
        strideH=3,
        strideW=3,
    )


def computed_differently(
    operator: str,
    before: tuple[int, ...] = (2, 4),
    after: tuple[int, ...] = (2, 4),
    *,
    steers: Sequence[Array] = (),
    given: Sequence[str] = ("x",),
    results: Sequence[str] = ("y",),
    options: str = "",
    **fields: object,
) -> Add:
    """An operator on 8-bit integers whose inputs `x` have another step than its outputs `y`.

    Args:
        operator: name of the operator.
        before: shape of its inputs.
        after: shape of its outputs.
        steers: further inputs, which are constants.
        given: its first inputs: `x`, `y` with the output's step, or the name of a type.
        results: its outputs: `y`, or the name of a type.
        options: name of its options.
        fields: the options.
    """

    def tensor(make: Callable[..., int], name: str, shape: tuple[int, ...]) -> int:
        scales = {"x": 0.1, "y": 0.2}
        if name in scales:
            return make("INT8", shape, scale=scales[name], zero_point=3)
        return make(name, shape)

    def add(b: TfliteBuilder) -> None:
        inputs = [tensor(b.input, name, before) for name in given]
        inputs += [b.constant("INT32", array, shape=list(array.shape)) for array in steers]
        outputs = [tensor(b.output, name, after) for name in results]
        b.operator(operator, inputs, outputs, options, **fields)

    return add


def lookup_with_another_step(b: TfliteBuilder) -> None:
    at, table = b.input("INT32", (2,)), b.constant("INT8", np.ones((3, 4), "i1"), **Q)
    b.operator("EMBEDDING_LOOKUP", [at, table], [b.output("INT8", (2, 4), scale=0.25)])


def table_with_another_step(b: TfliteBuilder) -> None:
    wanted, keys = b.input("INT32", (2,)), b.constant("INT32", np.array([1, 2, 3], "<i4"))
    values = b.constant("UINT8", np.ones((3, 4), "u1"), **Q)
    outputs = [b.output("UINT8", (2, 4), scale=0.25), b.output("UINT8", (2,), scale=1.0)]
    b.operator("HASHTABLE_LOOKUP", [wanted, keys, values], outputs)


def split_with_another_step(b: TfliteBuilder) -> None:
    axis, x = b.constant("INT32", np.array([1], "<i4")), b.input("INT8", (2, 4), **Q)
    parts = [b.output("INT8", (2, 2), scale=scale) for scale in (0.5, 0.25)]
    b.operator("SPLIT", [axis, x], parts, "SplitOptions", numSplits=2)


def tangent_of_another_step(b: TfliteBuilder) -> None:
    b.operator("TANH", [b.input("INT8", (2, 4), **Q)], [b.output("INT8", (2, 4), scale=1 / 256)])


def shares_of_another_step(b: TfliteBuilder) -> None:
    x, y = b.input("UINT8", (2, 4), **Q), b.output("UINT8", (2, 4), scale=1 / 256, zero_point=1)
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", beta=1.0)


def _numbers(*values: object) -> list[Array]:
    return [np.array(value, "<i4") for value in values]


BLOCKS = {"steers": _numbers([2, 2], [[0, 0], [0, 0]])}
WINDOW = {
    "options": "Pool2DOptions",
    "strideW": 2,
    "strideH": 2,
    "filterWidth": 2,
    "filterHeight": 2,
}
IMAGE, SMALL = (1, 4, 4, 1), (1, 2, 2, 1)
#: Operators whose kernels in the file's own engine do not look at steps: their results are stored integers.
STORED: dict[str, Add] = {
    "RESHAPE": computed_differently("RESHAPE", after=(4, 2), options="ReshapeOptions"),
    "SQUEEZE": computed_differently("SQUEEZE", (1, 4), (4,)),
    "TRANSPOSE": computed_differently("TRANSPOSE", after=(4, 2), steers=_numbers([1, 0])),
    "REVERSE_V2": computed_differently("REVERSE_V2", steers=_numbers([0])),
    "TILE": computed_differently("TILE", after=(4, 4), steers=_numbers([2, 1])),
    "PAD": computed_differently("PAD", after=(4, 4), steers=_numbers([[1, 1], [0, 0]])),
    "MIRROR_PAD": computed_differently(
        "MIRROR_PAD", after=(4, 4), steers=_numbers([[1, 1], [0, 0]]), options="MirrorPadOptions"
    ),
    "TOPK_V2": computed_differently(
        "TOPK_V2", after=(2, 2), steers=_numbers([2]), results=("y", "INT32")
    ),
    "SPACE_TO_DEPTH": computed_differently(
        "SPACE_TO_DEPTH", IMAGE, (1, 2, 2, 4), options="SpaceToDepthOptions", blockSize=2
    ),
    "DEPTH_TO_SPACE": computed_differently(
        "DEPTH_TO_SPACE", (1, 2, 2, 4), IMAGE, options="DepthToSpaceOptions", blockSize=2
    ),
    "SPACE_TO_BATCH_ND": computed_differently("SPACE_TO_BATCH_ND", IMAGE, (4, 2, 2, 1), **BLOCKS),
    "BATCH_TO_SPACE_ND": computed_differently("BATCH_TO_SPACE_ND", (4, 2, 2, 1), IMAGE, **BLOCKS),
    "RESIZE_BILINEAR": computed_differently("RESIZE_BILINEAR", SMALL, IMAGE, steers=_numbers([4, 4])),
    "RESIZE_NEAREST_NEIGHBOR": computed_differently(
        "RESIZE_NEAREST_NEIGHBOR", SMALL, IMAGE, steers=_numbers([4, 4])
    ),
    "MAX_POOL_2D": computed_differently("MAX_POOL_2D", IMAGE, SMALL, **WINDOW),
    "AVERAGE_POOL_2D": computed_differently("AVERAGE_POOL_2D", IMAGE, SMALL, **WINDOW),
    "MAXIMUM": computed_differently("MAXIMUM", given="xx"),
    "MINIMUM of two steps": computed_differently("MINIMUM", given="yx"),
    "SELECT": computed_differently("SELECT", given=("BOOL", "x", "x")),
    "SELECT_V2 of two steps": computed_differently("SELECT_V2", given=("BOOL", "y", "x")),
    "PACK": computed_differently("PACK", after=(1, 2, 4), options="PackOptions", valuesCount=1),
    "UNPACK": computed_differently("UNPACK", (1, 4), (4,), options="UnpackOptions", num=1),
    "SPLIT": split_with_another_step,
    "EMBEDDING_LOOKUP": lookup_with_another_step,
    "HASHTABLE_LOOKUP": table_with_another_step,
}  # fmt: skip

REFUSED: dict[str, tuple[Add, str]] = {
    "no operation": (unary("CEIL"), r"operator 0 \(CEIL\) cannot be imported: NNAPI has no"),
    "custom": (unary("TFLite_Thing"), r"operator 0 \(CUSTOM 'TFLite_Thing'\)"),
    "type without operation": (unary("EXP", "INT8"), "input is TENSOR_QUANT8_ASYMM_SIGNED"),
    "integers beyond 32 bits": (unary("NEG", "INT64"), r"tensor 0 \('tensor0'\): type INT64"),
    "text": (unary("RELU", "STRING"), "type STRING is not one of NNAPI's"),
    "activation": (
        binary("ADD", "FLOAT32", "FLOAT32", "AddOptions", fusedActivationFunction=4),
        "fused TANH",
    ),
    "two types": (binary("ADD", "INT8", "UINT8", "AddOptions"), "input 1 is TENSOR_QUANT8_ASYMM,"),
    "wrong options": (binary("ADD", "FLOAT32", "FLOAT32", "MulOptions"), "options are MulOptions"),
    "product of scales": (binary("MUL", "INT8", "INT8", "MulOptions"), "does not exceed"),
    "activation of integers": (
        integers("ADD", "AddOptions", fusedActivationFunction=1),
        "an activation of integers is fused",
    ),
    "quotient of integers": (integers("DIV", "DivOptions"), "input 0 is TENSOR_INT32"),
    "cast to 8 bits": (unary("CAST", "INT32", "UINT8", "CastOptions"), "int32 to 8 bits"),
    "mean with another step": (mean_with_another_step, "differ in their quantisation"),
    "comparison of two steps": (comparison_of_two_steps, "differ in their quantisation"),
    "tangent of another step": (
        tangent_of_another_step,
        "output has scale 0.00390625 and zero point 0, NNAPI's 0.0078125 and 0",
    ),
    "shares of another step": (
        shares_of_another_step,
        "output has scale 0.00390625 and zero point 1, NNAPI's 0.00390625 and 0",
    ),
    "products of one matrix": (products_of_one_matrix, r"batches \(\(3,\), \(1,\)\) differ"),
    "larger transposed convolution": (larger_transposed_convolution, "an extent of 6, expected 5"),
    "batched gather": (gather_in_batches, "1 batch dimensions"),
    "computed permutation": (computed_permutation, r"input 1 \(permutation\) is computed"),
    "new axis": (slice_with("newAxisMask"), "new_axis_mask is set"),
    "ellipsis": (slice_with("ellipsisMask"), "ellipsis_mask is set"),
    "weights of another type": (
        convolution("UINT8", 2, scale=0.5),
        "NNAPI takes TENSOR_QUANT8_ASYMM",
    ),
    "zero points per channel": (
        convolution("INT8", 2, scale=[1, 2, 3], zero_point=4),
        "zero points per channel",
    ),
    "channels": (convolution("FLOAT32", 3), "2 channels, 3 in the filter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_operator_and_reason(name: str) -> None:
    add, reason = REFUSED[name]
    b = TfliteBuilder()
    add(b)
    if name == "product of scales":
        b.raw.tensors[-1].quantization.scale = [0.25]
    with pytest.raises(nnburst.InvalidArgument, match=reason):
        nnburst.load(b.finish(), as_graph=False)


@pytest.mark.parametrize("name", STORED)
def test_stored_integers_that_stand_for_other_numbers_are_refused_and_run_as_a_graph(
    name: str,
) -> None:
    """NNAPI's operations demand equal steps, or compute with the numbers that the integers stand for."""
    b = TfliteBuilder()
    STORED[name](b)
    content = b.finish()
    with pytest.raises(nnburst.InvalidArgument, match="differ in their quantisation"):
        nnburst.load(content, as_graph=False)
    assert "differ in their quantisation" in nnburst.load(content).refusal


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_scale_is_refused(scale: float) -> None:
    b = TfliteBuilder()
    unary("RELU", "INT8")(b)
    b.raw.tensors[0].quantization.scale = [scale]
    with pytest.raises(nnburst.InvalidArgument, match=r"tensor 0.*expected a positive number"):
        nnburst.load(b.finish(), as_graph=False)


def test_output_that_is_an_input_or_a_constant_is_copied() -> None:
    b = TfliteBuilder()
    x = b.input("FLOAT32", (3,))
    flags, counts = b.input("BOOL", (2,)), b.input("INT32", (2,))
    constant = b.constant("FLOAT32", np.float32([1, 2]))
    b.raw.outputs = [x, constant, x, flags, counts]
    runner = Runner(nnburst.load(b.finish()))
    given = [np.float32([3, 4, 5]), np.array([1, 0], "u1"), np.array([7, 8], "<i4")]
    found = [array.tolist() for array in runner.run(given)]
    assert found == [[3, 4, 5], [1, 2], [3, 4, 5], [1, 0], [7, 8]]


@pytest.mark.parametrize(
    "operator", ["RELU", "LOGISTIC", "FLOOR", "ADD", "BATCH_MATMUL", "SOFTMAX"]
)
def test_more_axes_than_the_operation_takes_are_refused(operator: str) -> None:
    builder = TfliteBuilder()
    count = 2 if operator in ("ADD", "BATCH_MATMUL") else 1
    given = [builder.input("FLOAT32", (1, 2, 2, 2, 2)) for _ in range(count)]
    builder.operator(operator, given, [builder.output("FLOAT32", (1, 2, 2, 2, 2))])
    rule = rf"operator 0 \({operator}\) cannot .* takes up to 4 axes, its input has 5: \[1, 2, 2, 2, 2\]"
    with pytest.raises(nnburst.InvalidArgument, match=rule):
        nnburst.load(builder.finish(), as_graph=False)
