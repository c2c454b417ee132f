"""Makes small .tflite networks, at least one for each operator of the importer and type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnburst.testing.models.tflite_builder import TfliteBuilder, schema

Fill = Callable[[TfliteBuilder, str], None]

#: A function that makes the file, by name.
NETWORKS: dict[str, Callable[[], bytes]] = {}

#: Quantisation of inputs and outputs by type; empty for real numbers.
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
        operator: name of the operator.
        shapes: shapes of its computed inputs, all of one type.
        out: shape of its output.
        kinds: types of which each gets a network.
        options: class of its options.
        constants: values of its inputs after the computed ones, integers.
        out_kind: type of the output if it is not that of the inputs.
        same: whether the output is quantised like the inputs.
        tag: suffix that distinguishes networks of one operator.
        fields: fields of the options.
    """

    @network(operator + tag, *kinds)
    def build(b: TfliteBuilder, kind: str) -> None:
        inputs = [b.input(kind, shape, **QUANTIZATION.get(kind, {})) for shape in shapes]
        inputs += [b.constant("INT32", np.asarray(value, "<i4")) for value in constants]
        quantization = (QUANTIZATION if same else OUTPUT).get(kind, {})
        output = b.output(out_kind, out) if out_kind else b.output(kind, out, **quantization)
        b.operator(operator, inputs, [output], options, **fields)


IMAGE = (1, 4, 5, 3)


# -- Operators without weights ---------------------------------------------------------------------


for plain_unary in ("ABS", "NEG", "EXP", "SIN", "FLOOR"):
    simple(plain_unary, [(2, 3)], (2, 3))
for plain_unary in ("RELU", "RELU6", "RELU_N1_TO_1"):
    simple(plain_unary, [(2, 3)], (2, 3), EVERY, same=True)
simple("RELU", [(2, 60)], (2, 60), ("UINT8", "INT8"), tag="-requantized")
simple("HARD_SWISH", [(2, 3)], (2, 3), EVERY)
simple("SQUARE", [(2, 3)], (2, 3))
simple("SQUARED_DIFFERENCE", [(2, 3), (2, 3)], (2, 3))
simple("LEAKY_RELU", [(2, 60)], (2, 60), EVERY, "LeakyReluOptions", alpha=0.125)
simple("ADD", [(2, 3), (1, 3)], (2, 3), (*EVERY, "INT32"), "AddOptions")
simple("ADD", [(2, 3), (2, 3)], (2, 3), EVERY, "AddOptions", tag="-relu", fusedActivationFunction=1)
simple("SUB", [(2, 3), (2, 3)], (2, 3), EVERY, "SubOptions")
simple("MUL", [(2, 3), (3,)], (2, 3), EVERY, "MulOptions")
simple("DIV", [(2, 3), (2, 3)], (2, 3), ("FLOAT32",), "DivOptions")
simple("ADD_N", [(2, 3)] * 3, (2, 3))
for binary in ("MAXIMUM", "MINIMUM"):
    simple(binary, [(2, 3), (1, 3)], (2, 3), (*EVERY, "INT32"), same=True)
for comparison in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
    simple(comparison, [(2, 3), (3,)], (2, 3), ("FLOAT32", "INT32"), out_kind="BOOL")
simple("CAST", [(2, 3)], (2, 3), ("INT32",), "CastOptions", out_kind="FLOAT32")

simple("RESHAPE", [IMAGE], (3, 20), EVERY, constants=[(3, 20)], same=True)
simple("SQUEEZE", [(1, 4, 1, 3)], (4, 3), ("FLOAT32",), "SqueezeOptions", squeezeDims=[0, 2])
simple("EXPAND_DIMS", [(4, 3)], (4, 1, 3), ("FLOAT32",), constants=[1])
simple("TRANSPOSE", [IMAGE], (1, 5, 4, 3), EVERY, constants=[(0, 2, 1, 3)], same=True)
simple("REVERSE_V2", [(2, 3)], (2, 3), ("FLOAT32",), constants=[(1,)])
simple("SLICE", [IMAGE], (1, 2, 3, 3), EVERY, constants=[(0, 1, 1, 0), (1, 2, 3, -1)], same=True)
simple(
    "STRIDED_SLICE",
    [IMAGE],
    (1, 2, 3),
    EVERY,
    "StridedSliceOptions",
    constants=[(0, 1, 0, 0), (1, 2, 5, 3), (1, 1, 3, 1)],
    same=True,
    shrinkAxisMask=2,
)
simple("PAD", [IMAGE], (1, 6, 8, 3), EVERY, constants=[[(0, 0), (1, 1), (1, 2), (0, 0)]], same=True)
simple(
    "MIRROR_PAD", [(3, 4)], (5, 7), ("FLOAT32",), "MirrorPadOptions", constants=[[(1, 1), (2, 1)]]
)
simple("TILE", [(2, 3)], (4, 9), ("FLOAT32",), constants=[(2, 3)])
for name, reduced in (
    ("MEAN", EVERY),
    ("REDUCE_MAX", EVERY),
    ("REDUCE_MIN", EVERY),
    ("SUM", ()),
    ("REDUCE_PROD", ()),
):
    simple(name, [IMAGE], (1, 3), reduced, "ReducerOptions", constants=[(1, -2)], same=True)
    simple(name, [(4, 3)], (1, 3), (), "ReducerOptions", constants=[0], tag="-keep", keepDims=True)
simple(
    "ARG_MAX",
    [(3, 7)],
    (3,),
    EVERY,
    "ArgMaxOptions",
    constants=[-1],
    out_kind="INT32",
    outputType=2,
)
simple(
    "ARG_MIN", [(3, 7)], (7,), (), "ArgMinOptions", constants=[0], out_kind="INT32", outputType=2
)
simple("CONCATENATION", [(2, 3), (2, 4)], (2, 7), EVERY, "ConcatenationOptions", same=True, axis=-1)
simple("PACK", [(2, 3), (2, 3)], (2, 2, 3), EVERY, "PackOptions", same=True, axis=1, valuesCount=2)
simple(
    "SPACE_TO_DEPTH",
    [(1, 4, 6, 2)],
    (1, 2, 3, 8),
    EVERY,
    "SpaceToDepthOptions",
    same=True,
    blockSize=2,
)
simple(
    "DEPTH_TO_SPACE",
    [(1, 2, 3, 8)],
    (1, 4, 6, 2),
    EVERY,
    "DepthToSpaceOptions",
    same=True,
    blockSize=2,
)
simple(
    "SPACE_TO_BATCH_ND",
    [(1, 4, 5, 2)],
    (4, 2, 3, 2),
    EVERY,
    constants=[(2, 2), [(0, 0), (0, 1)]],
    same=True,
)
for crops, size in (([(0, 0), (0, 0)], (4, 6)), ([(1, 0), (0, 2)], (3, 4))):
    simple(
        "BATCH_TO_SPACE_ND",
        [(4, 2, 3, 2)],
        (1, *size, 2),
        EVERY,
        constants=[(2, 2), crops],
        same=True,
        tag="-cropped" if size == (3, 4) else "",
    )
for resize in ("BILINEAR", "NEAREST_NEIGHBOR"):
    words = "".join(word.capitalize() for word in ("resize", *resize.lower().split("_")))
    simple(
        f"RESIZE_{resize}", [(1, 3, 4, 2)], (1, 6, 5, 2), EVERY, f"{words}Options",
        constants=[(6, 5)], same=True,
    )  # fmt: skip
    simple(
        f"RESIZE_{resize}", [(1, 3, 4, 2)], (1, 6, 5, 2), (), f"{words}Options",
        constants=[(6, 5)], tag="-half", halfPixelCenters=True,
    )  # fmt: skip
for pool in ("AVERAGE", "MAX"):
    simple(
        f"{pool}_POOL_2D", [IMAGE], (1, 2, 3, 3), EVERY, "Pool2DOptions", same=True,
        strideW=2, strideH=2, filterWidth=2, filterHeight=3, padding=0, fusedActivationFunction=3,
    )  # fmt: skip
simple(
    "L2_POOL_2D", [IMAGE], (1, 2, 4, 3), (), "Pool2DOptions",
    strideW=1, strideH=1, filterWidth=2, filterHeight=3, padding=1,
)  # fmt: skip
simple("LOG_SOFTMAX", [(2, 5)], (2, 5))
simple("L2_NORMALIZATION", [(2, 5)], (2, 5), (), "L2NormOptions")
simple("BATCH_MATMUL", [(2, 3, 4), (2, 5, 4)], (2, 3, 5), (), "BatchMatMulOptions", adjY=True)


# -- Operators on single elements ------------------------------------------------------------------


@network("SOFTMAX", *EVERY)
def _softmax(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 5), **QUANTIZATION.get(kind, {}))
    forced = {"UINT8": {"scale": 1 / 256}, "INT8": {"scale": 1 / 256, "zero_point": -128}}
    y = b.output(kind, (2, 5), **forced.get(kind, {}))
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", beta=1.0)


@network("LOGISTIC", *EVERY)
def _logistic(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 50), **QUANTIZATION.get(kind, {}))
    forced = {"UINT8": {"scale": 1 / 256}, "INT8": {"scale": 1 / 256, "zero_point": -128}}
    b.operator("LOGISTIC", [x], [b.output(kind, (2, 50), **forced.get(kind, {}))])


@network("TANH", *EVERY)
def _tanh(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 50), **QUANTIZATION.get(kind, {}))
    forced = {"UINT8": {"scale": 1 / 128, "zero_point": 128}, "INT8": {"scale": 1 / 128}}
    b.operator("TANH", [x], [b.output(kind, (2, 50), **forced.get(kind, {}))])


def positive(b: TfliteBuilder, shape: Sequence[int]) -> int:
    """Add a computed tensor of numbers above 0."""
    x, y = b.input("FLOAT32", shape), b.tensor("FLOAT32", shape)
    b.operator("EXP", [x], [y])
    return y


for unary in ("LOG", "SQRT", "RSQRT"):

    @network(unary)
    def _of_positive(b: TfliteBuilder, kind: str, unary: str = unary) -> None:
        b.operator(unary, [positive(b, (2, 3))], [b.output(kind, (2, 3))])


@network("POW")
def _pow(b: TfliteBuilder, kind: str) -> None:
    x = positive(b, (2, 3))
    b.operator("POW", [x, b.input(kind, (2, 3))], [b.output(kind, (2, 3))])


@network("PRELU", *EVERY)
def _prelu(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, IMAGE, **QUANTIZATION.get(kind, {}))
    slopes = np.array([[[1, 2, 3]]], DTYPES[kind])
    alpha = b.constant(kind, slopes, **({"scale": 0.125} if kind != "FLOAT32" else {}))
    b.operator("PRELU", [x, alpha], [b.output(kind, IMAGE, **OUTPUT.get(kind, {}))])


@network("LOGICAL")
def _logical(b: TfliteBuilder, kind: str) -> None:
    x, y = b.input(kind, (2, 3)), b.input(kind, (2, 3))
    above, below, both = (b.tensor("BOOL", (2, 3)) for _ in range(3))
    b.operator("GREATER", [x, y], [above])
    b.operator("LOGICAL_NOT", [above], [below])
    b.operator("LOGICAL_OR", [above, below], [both])
    b.operator("LOGICAL_AND", [both, above], [b.output("BOOL", (2, 3))])
    b.operator("SELECT_V2", [above, x, y], [b.output(kind, (2, 3))])
    b.operator("SELECT", [below, x, y], [b.output(kind, (2, 3))])
    axes = b.constant("INT32", np.array([1], "<i4"))
    for operator in ("REDUCE_ANY", "REDUCE_ALL"):
        b.operator(operator, [above, axes], [b.output("BOOL", (2,))], "ReducerOptions")


# -- Operators that move elements ------------------------------------------------------------------


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


# -- Quantised operators ---------------------------------------------------------------------------


@network("QUANTIZE", "UINT8", "INT8")
def _quantize(b: TfliteBuilder, kind: str) -> None:
    """Quantise real numbers, and requantise the result to another step."""
    x = b.input("FLOAT32", (2, 60))
    first = b.tensor(kind, (2, 60), **QUANTIZATION[kind])
    other = "INT8" if kind == "UINT8" else "UINT8"
    second = b.output(other, (2, 60), **OUTPUT[other])
    b.operator("QUANTIZE", [x], [first])
    b.operator("QUANTIZE", [first], [second])


@network("QUANTIZE-border", "INT8")
def _border(b: TfliteBuilder, kind: str) -> None:
    """An int8 network with uint8 input and output."""
    x = b.input("UINT8", (4, 64), scale=0.03125, zero_point=123)
    signed, limited = (b.tensor(kind, (4, 64), **QUANTIZATION[kind]) for _ in range(2))
    b.operator("QUANTIZE", [x], [signed])
    b.operator("RELU", [signed], [limited])
    b.operator("QUANTIZE", [limited], [b.output("UINT8", (4, 64), scale=0.03125, zero_point=123)])
    b.operator("DEQUANTIZE", [limited], [b.output("FLOAT32", (4, 64))])


# -- Sparse weights --------------------------------------------------------------------------------


#: A 4×4 matrix with two blocks of 1×2 per row of blocks, and rows without any.
MATRIX = np.array([[0, 0, 1, 2], [0, 0, 0, 0], [3, 4, 5, 6], [0, 0, 7, 8]], "<f4")


def vector(kind: str, values: list[int]) -> dict[str, Any]:
    """A SparseIndexVector: its type and the vector."""
    made = getattr(schema(), f"{kind}T")()
    made.values = values
    return {"type": getattr(schema().SparseIndexVector, kind), "vector": made}


def dense_level(size: int) -> Any:  # noqa: ANN401 - generated code without types
    """A level that has every index."""
    made = schema().DimensionMetadataT()
    made.format, made.denseSize = schema().DimensionType.DENSE, size
    return made


def listed_level(segments: dict[str, Any], indexes: dict[str, Any]) -> Any:  # noqa: ANN401
    """A level that lists its indexes."""
    made = schema().DimensionMetadataT()
    made.format = schema().DimensionType.SPARSE_CSR
    made.arraySegmentsType, made.arraySegments = segments["type"], segments["vector"]
    made.arrayIndicesType, made.arrayIndices = indexes["type"], indexes["vector"]
    return made


def sparsity(order: list[int], block_map: list[int], levels: list[Any]) -> Any:  # noqa: ANN401
    """SparsityParameters."""
    made = schema().SparsityParametersT()
    made.traversalOrder, made.blockMap, made.dimMetadata = order, block_map, levels
    return made


def stored(blocks: bool) -> tuple[npt.NDArray[np.float32], Any]:
    """The values of `MATRIX` and how they are stored: row by row, or by blocks of 1×2."""
    values = MATRIX[MATRIX != 0]
    if not blocks:
        listed = listed_level(
            vector("Uint8Vector", [0, 2, 2, 6, 8]),
            vector("Int32Vector", [2, 3, 0, 1, 2, 3, 2, 3]),
        )
        return values, sparsity([0, 1], [], [dense_level(4), listed])
    listed = listed_level(
        vector("Uint16Vector", [0, 1, 1, 3, 4]), vector("Uint8Vector", [1, 0, 1, 1])
    )
    return values, sparsity([0, 1, 2], [1], [dense_level(4), listed, dense_level(2)])


@network("DENSIFY")
def _densify(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 4))
    products = x
    for blocks in (False, True):
        values, how = stored(blocks)
        sparse = b.constant(kind, values, shape=(4, 4), sparsity=how)
        dense, last = b.tensor(kind, (4, 4)), products
        products = b.output(kind, (2, 4)) if blocks else b.tensor(kind, (2, 4))
        b.operator("DENSIFY", [sparse], [dense], "DensifyOptions")
        b.operator("FULLY_CONNECTED", [last, dense, -1], [products], "FullyConnectedOptions")


# -- Operators with weights ------------------------------------------------------------------------


def weights(shape: Sequence[int], kind: str = "INT8") -> np.ndarray[Any, Any]:
    """Weights that use the whole range."""
    random = np.random.default_rng(sum(shape))
    if kind == "FLOAT32":
        return random.uniform(-1, 1, shape).astype("<f4")
    limits = np.iinfo(DTYPES[kind])
    low = -127 if kind == "INT8" else limits.min
    return random.integers(low, limits.max, shape, DTYPES[kind], endpoint=True)


def weight_tensor(b: TfliteBuilder, kind: str, shape: Sequence[int], axis: int | None) -> int:
    """A constant filter; scales along `axis` if it is not None."""
    if kind == "FLOAT32":
        return b.constant(kind, weights(shape, kind))
    if axis is None:
        zero_point = 130 if kind == "UINT8" else 0
        return b.constant(kind, weights(shape, kind), scale=2**-8, zero_point=zero_point)
    scales = [2.0 ** -(8 + i % 3) for i in range(shape[axis])]
    return b.constant("INT8", weights(shape), scale=scales, axis=axis)


def bias_tensor(b: TfliteBuilder, kind: str, units: int) -> int:
    """A constant bias."""
    values = np.arange(-units, units, 2)
    if kind == "FLOAT32":
        return b.constant(kind, (values / 8).astype("<f4"))
    return b.constant("INT32", (values * 500).astype("<i4"), scale=0.03125 * 2**-8)


def convolution(
    name: str, kind: str, shape: Sequence[int], out: Sequence[int], axis: int | None,
    options: str, operator: str = "CONV_2D", **fields: object,
) -> None:  # fmt: skip
    """Register a network of one convolution of an image of 4×5×4."""

    @network(f"{operator}-{name}", kind)
    def build(b: TfliteBuilder, kind: str) -> None:
        x = b.input(kind, (2, 4, 5, 4), **QUANTIZATION.get(kind, {}))
        filters = weight_tensor(b, kind, shape, axis)
        coarse = {k: {**q, "scale": 0.5} for k, q in OUTPUT.items()}
        y = b.output(kind, out, **coarse.get(kind, {}))
        inputs = [x, filters, bias_tensor(b, kind, out[-1])]
        b.operator(operator, inputs, [y], options, strideW=1, strideH=1, **fields)


for kind, axis in (("FLOAT32", None), ("UINT8", None), ("INT8", None), ("INT8", 0)):
    tag = "" if axis is None else "channels-"
    convolution(
        f"{tag}same", kind, (6, 3, 2, 4), (2, 4, 5, 6), axis, "Conv2DOptions",
        fusedActivationFunction=1,
    )  # fmt: skip
    convolution(
        f"{tag}dilated", kind, (6, 2, 2, 4), (2, 2, 3, 6), axis, "Conv2DOptions",
        padding=1, dilationWFactor=2, dilationHFactor=2,
    )  # fmt: skip
    depthwise = None if axis is None else 3
    convolution(
        f"{tag}valid", kind, (1, 3, 2, 8), (2, 2, 4, 8), depthwise, "DepthwiseConv2DOptions",
        "DEPTHWISE_CONV_2D", padding=1, depthMultiplier=2, fusedActivationFunction=3,
    )  # fmt: skip
convolution("grouped", "FLOAT32", (6, 3, 2, 2), (2, 4, 5, 6), None, "Conv2DOptions")


@network("CONV_2D-hybrid")
def _hybrid(b: TfliteBuilder, kind: str) -> None:
    """Real numbers with quantised weights that DEQUANTIZE makes real."""
    x = b.input(kind, (1, 4, 4, 2))
    stored = b.constant("INT8", weights((3, 2, 2, 2)), scale=[0.5, 0.25, 0.125], axis=0)
    filters = b.tensor(kind, (3, 2, 2, 2))
    b.operator("DEQUANTIZE", [stored], [filters])
    y = b.output(kind, (1, 4, 4, 3))
    bias = bias_tensor(b, kind, 3)
    b.operator("CONV_2D", [x, filters, bias], [y], "Conv2DOptions", strideW=1, strideH=1)


@network("TRANSPOSE_CONV", *EVERY)
def _transpose_conv(b: TfliteBuilder, kind: str) -> None:
    shape = b.constant("INT32", np.array([1, 6, 8, 3], "<i4"))
    x = b.input(kind, (1, 3, 4, 2), **QUANTIZATION.get(kind, {}))
    filters = weight_tensor(b, kind, (3, 2, 2, 2), 0 if kind == "INT8" else None)
    coarse = {k: {**q, "scale": 0.25} for k, q in OUTPUT.items()}
    y = b.output(kind, (1, 6, 8, 3), **coarse.get(kind, {}))
    b.operator(
        "TRANSPOSE_CONV", [shape, filters, x], [y], "TransposeConvOptions", strideW=2, strideH=2
    )


def fully_connected(
    name: str, kind: str, axis: int | None, out: Sequence[int], **f: object
) -> None:
    """Register a network of one FULLY_CONNECTED on 6 rows of 8."""

    @network(f"FULLY_CONNECTED-{name}", kind)
    def build(b: TfliteBuilder, kind: str) -> None:
        x = b.input(kind, (2, 3, 8), **QUANTIZATION.get(kind, {}))
        filters = weight_tensor(b, kind, (5, 8), axis)
        coarse = {k: {**q, "scale": 0.25} for k, q in OUTPUT.items()}
        y = b.output(kind, out, **coarse.get(kind, {}))
        inputs = [x, filters, bias_tensor(b, kind, 5)]
        b.operator("FULLY_CONNECTED", inputs, [y], "FullyConnectedOptions", **f)


for kind in EVERY:
    fully_connected("flat", kind, None, (6, 5), fusedActivationFunction=1)
    fully_connected("kept", kind, None, (2, 3, 5), keepNumDims=True)
fully_connected("channels", "INT8", 0, (6, 5))


# -- Networks with variables, control flow and recurrent operators ---------------------------------


@network("SVDF")
def _svdf(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3))
    feature = b.constant(kind, weights((8, 3), kind))
    time = b.constant(kind, weights((8, 5), kind))
    bias = bias_tensor(b, kind, 4)
    state = b.tensor(kind, (2, 40), isVariable=True, name="state")
    y = b.output(kind, (2, 4))
    b.operator("SVDF", [x, feature, time, bias, state], [y], "SVDFOptions", rank=2)


@network("RNN")
def _rnn(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3))
    inputs = [b.constant(kind, weights(shape, kind)) for shape in ((4, 3), (4, 4), (4,))]
    state = b.tensor(kind, (2, 4), isVariable=True)
    y = b.output(kind, (2, 4))
    b.operator("RNN", [x, *inputs, state], [y], "RNNOptions", fusedActivationFunction=4)


@network("UNIDIRECTIONAL_SEQUENCE_RNN")
def _sequence_rnn(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 5, 3))
    inputs = [b.constant(kind, weights(shape, kind)) for shape in ((4, 3), (4, 4), (4,))]
    state = b.tensor(kind, (2, 4), isVariable=True)
    b.operator(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        [x, *inputs, state],
        [b.output(kind, (2, 5, 4))],
        "SequenceRNNOptions",
        fusedActivationFunction=4,
    )


def lstm_inputs(b: TfliteBuilder, kind: str) -> list[int]:
    """Weights and states of an LSTM of 3 inputs and 4 units, without peepholes or projection."""
    taken = [b.constant(kind, weights((4, 3), kind) / 2) for _ in range(4)]
    recurrent = [b.constant(kind, weights((4, 4), kind) / 2) for _ in range(4)]
    biases = [b.constant(kind, weights((4,), kind)) for _ in range(4)]
    states = [b.tensor(kind, (2, 4), isVariable=True) for _ in range(2)]
    return [*taken, *recurrent, -1, -1, -1, *biases, -1, -1, *states]


@network("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _sequence_lstm(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 5, 3))
    b.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [x, *lstm_inputs(b, kind)],
        [b.output(kind, (2, 5, 4))],
        "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
    )


@network("LSTM")
def _lstm(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 3))
    inputs = [x, *lstm_inputs(b, kind)]
    y = b.output(kind, (2, 4))
    b.operator("LSTM", inputs, [y], "LSTMOptions", fusedActivationFunction=4)


@network("VARIABLE", "FLOAT32", "INT8")
def _variable(b: TfliteBuilder, kind: str) -> None:
    """A running sum that starts at 1.5."""
    quantization: dict[str, Any] = {"scale": 0.25} if kind == "INT8" else {}
    start, first = b.subgraph()
    for part in (b, first):
        handle = part.tensor("RESOURCE", ())
        part.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="sum")
        if part is first:
            stored = 1.5 if kind == "FLOAT32" else 6
            value = np.full((2, 3), stored, DTYPES[kind])
            given = part.constant(kind, value, **quantization)
            part.operator("ASSIGN_VARIABLE", [handle, given], [], "AssignVariableOptions")
    b.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=start)
    x = b.input(kind, (2, 3), **quantization)
    before = b.tensor(kind, (2, 3), **quantization)
    after = b.output(kind, (2, 3), **quantization)
    b.operator("READ_VARIABLE", [handle], [before], "ReadVariableOptions")
    b.operator("ADD", [x, before], [after], "AddOptions")
    b.operator("ASSIGN_VARIABLE", [handle, after], [], "AssignVariableOptions")


@network("IF")
def _if(b: TfliteBuilder, kind: str) -> None:
    """The sum or the difference, depending on which input is larger at one position."""
    x, y = b.input(kind, (1,)), b.input(kind, (1,))
    larger = b.tensor("BOOL", (1,))
    numbers = []
    for operator in ("ADD", "SUB"):
        number, branch = b.subgraph()
        inputs = [branch.input(kind, (1,)) for _ in range(2)]
        options = f"{operator.capitalize()}Options"
        branch.operator(operator, inputs, [branch.output(kind, (1,))], options)
        numbers.append(number)
    b.operator("GREATER", [x, y], [larger])
    b.operator(
        "IF",
        [larger, x, y],
        [b.output(kind, (1,))],
        "IfOptions",
        thenSubgraphIndex=numbers[0],
        elseSubgraphIndex=numbers[1],
    )


@network("WHILE")
def _while(b: TfliteBuilder, kind: str) -> None:
    """Double a value three times."""
    condition, asked = b.subgraph()
    count, _ = asked.input("INT32", (1,)), asked.input(kind, (1,))
    limit = asked.constant("INT32", np.array([3], "<i4"))
    asked.operator("LESS", [count, limit], [asked.output("BOOL", (1,))])
    body, looped = b.subgraph()
    count, value = looped.input("INT32", (1,)), looped.input(kind, (1,))
    one = looped.constant("INT32", np.array([1], "<i4"))
    looped.operator("ADD", [count, one], [looped.output("INT32", (1,))], "AddOptions")
    looped.operator("ADD", [value, value], [looped.output(kind, (1,))], "AddOptions")
    zero = b.constant("INT32", np.array([0], "<i4"))
    b.operator(
        "WHILE",
        [zero, b.input(kind, (1,))],
        [b.output("INT32", (1,)), b.output(kind, (1,))],
        "WhileOptions",
        condSubgraphIndex=condition,
        bodySubgraphIndex=body,
    )
