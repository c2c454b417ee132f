"""Draws .tflite networks of one operator with random types, shapes and options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from importer.tflite.running import Array, Peer
from nnburst.testing.models.tflite_builder import TfliteBuilder

_REAL, _BYTES, _WHOLE = ("FLOAT32",), ("INT8", "UINT8"), ("INT32",)
_EVERY = _REAL + _BYTES + _WHOLE
_DTYPES = {"FLOAT32": "<f4", "INT32": "<i4", "INT8": "i1", "UINT8": "u1", "BOOL": "?"}
_SCALES, _ZEROS = (0.02, 0.05, 0.1), {"INT8": (0, -128, 7), "UINT8": (0, 128, 100)}


class Drawing(TfliteBuilder):
    """Builds one network; the same seed makes the same choices."""

    def __init__(self, seed: int, shapes: Sequence[tuple[int, ...]]) -> None:
        """Begin with the shapes of the outputs; those that are missing are declared as single numbers."""
        super().__init__()
        self.random = np.random.default_rng(seed)
        self._shapes = list(shapes)

    def whole(self, low: int, high: int) -> int:
        """An integer from low to high."""
        return int(self.random.integers(low, high, endpoint=True))

    def one_of(self, choices: Sequence[Any]) -> Any:
        """One of some choices."""
        return choices[self.whole(0, len(choices) - 1)]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.random.random() < probability)

    def shape(self, low: int = 1, high: int = 4, most: int = 5) -> tuple[int, ...]:
        """Extents of a tensor whose rank is from low to high."""
        return tuple(self.whole(1, most) for _ in range(self.whole(low, high)))

    def step(self, kind: str) -> dict[str, Any]:
        """A quantisation for tensors of 8 bits."""
        if kind not in _ZEROS:
            return {}
        return {"scale": self.one_of(_SCALES), "zero_point": self.one_of(_ZEROS[kind])}

    def values(self, kind: str, shape: tuple[int, ...]) -> Array:
        """Random values."""
        if kind == "FLOAT32":
            return self.random.uniform(-2, 2, shape).astype("<f4")
        low, high = (-9, 9) if kind == "INT32" else (-127, 127) if kind == "INT8" else (0, 255)
        return self.random.integers(low, high, shape, endpoint=True).astype(_DTYPES[kind])

    def integers(self, values: Any) -> int:
        """A constant of int32."""
        return self.constant("INT32", np.array(values, "<i4"))

    def result(self, kind: str, step: dict[str, Any]) -> int:
        """The next output."""
        at = len(self.raw.outputs)
        return self.output(kind, self._shapes[at] if at < len(self._shapes) else (), **step)


Draw = Callable[[Drawing, str], None]
DRAWS: Final[dict[str, Draw]] = {}


def _draws(*operators: str) -> Callable[[Draw], Draw]:
    def register(draw: Draw) -> Draw:
        DRAWS.update(dict.fromkeys(operators, draw))
        return draw

    return register


def draw_network(operator: str, seed: int) -> bytes | None:
    """A network whose outputs have the shapes that LiteRT computes; None if LiteRT refuses it."""
    shapes: list[tuple[int, ...]] = []
    content = b""
    for _ in range(2):
        drawing = Drawing(seed, shapes)
        DRAWS[operator](drawing, operator)
        content = drawing.finish()
        try:
            shapes = Peer(content).output_shapes
        except (RuntimeError, ValueError):
            return None
    return content if all(all(shape) for shape in shapes) else None


def _camel(operator: str) -> str:
    return "".join(word.capitalize() for word in operator.split("_"))


@_draws("ADD", "SUB", "MUL", "DIV")
def _arithmetic(b: Drawing, operator: str) -> None:
    kind = b.one_of(_EVERY)
    pair, out = _pair(b, kind, b.step(kind), b.step(kind)), b.result(kind, b.step(kind))
    activation = b.one_of([0, 0, 1, 2, 3])
    b.operator(
        operator, pair, [out], f"{_camel(operator)}Options", fusedActivationFunction=activation
    )


@_draws("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
def _of_one_step(b: Drawing, operator: str) -> None:
    kind = b.one_of(_EVERY)
    step = b.step(kind)
    b.operator(operator, _pair(b, kind, step, step), [b.result(kind, step)])


@_draws("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
def _comparison(b: Drawing, operator: str) -> None:
    kind = b.one_of(_EVERY)
    step = b.step(kind)
    pair = _pair(b, kind, step, step if b.chance(0.7) else b.step(kind))
    b.operator(operator, pair, [b.result("BOOL", {})])


def _pair(b: Drawing, kind: str, first: dict[str, Any], second: dict[str, Any]) -> list[int]:
    """Two operands that broadcast; the second may be a constant."""
    whole = b.shape(0)
    part = tuple(1 if b.chance(0.3) else extent for extent in whole)[b.whole(0, len(whole)) :]
    x, y = (whole, part) if b.chance(0.5) else (part, whole)
    if b.chance(0.4):
        nonzero = b.values(kind, y)
        nonzero[nonzero == 0] = 1
        return [b.input(kind, x, **first), b.constant(kind, nonzero, **second)]
    return [b.input(kind, x, **first), b.input(kind, y, **second)]


@_draws("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
def _reduction(b: Drawing, operator: str) -> None:
    kind, shape = b.one_of(_EVERY), b.shape()
    axes = b.random.permutation(len(shape))[: b.whole(1, len(shape))] - len(shape) * b.chance(0.3)
    step = b.step(kind)
    x, out = b.input(kind, shape, **step), step if b.chance(0.5) else b.step(kind)
    out = step if operator.startswith("REDUCE") else out
    keep = b.chance(0.5)
    b.operator(
        operator, [x, b.integers(axes)], [b.result(kind, out)], "ReducerOptions", keepDims=keep
    )


@_draws("CONV_2D", "DEPTHWISE_CONV_2D")
def _convolution(b: Drawing, operator: str) -> None:
    kind, depth, count = b.one_of(_REAL + _BYTES), b.whole(1, 4), b.whole(1, 3)
    deep = operator.startswith("DEPTHWISE")
    channels = depth * count if deep else count
    window = b.whole(1, 4), b.whole(1, 4)
    shape = (1, *window, channels) if deep else (count, *window, depth)
    step = b.step(kind)
    x = b.input(kind, (b.whole(1, 2), b.whole(1, 9), b.whole(1, 9), depth), **step)
    weights, steps = _weights(b, kind, shape, channels, 3 if deep else 0)
    bias = _bias(b, kind, channels, step, steps)
    options = {
        "padding": b.whole(0, 1),
        "strideH": b.whole(1, 3),
        "strideW": b.whole(1, 3),
        "dilationHFactor": b.one_of([1, 1, 2]),
        "dilationWFactor": b.one_of([1, 1, 2]),
        "fusedActivationFunction": b.one_of([0, 0, 1, 2, 3]),
        **({"depthMultiplier": count} if deep else {}),
    }
    out = b.result(kind, b.step(kind))
    name = "DepthwiseConv2DOptions" if deep else "Conv2DOptions"
    b.operator(operator, [x, weights, bias], [out], name, **options)


def _weights(
    b: Drawing, kind: str, shape: tuple[int, ...], channels: int, axis: int
) -> tuple[int, Any]:
    """Weights and their steps: one for each channel of INT8."""
    step: dict[str, Any] = {}
    if kind == "INT8":
        step = {"scale": b.random.uniform(0.01, 0.05, channels).tolist(), "axis": axis}
    elif kind == "UINT8":
        step = {"scale": 0.02, "zero_point": b.one_of([0, 128, 77])}
    return b.constant(kind, b.values(kind, shape), **step), step.get("scale", 0.0)


def _bias(b: Drawing, kind: str, channels: int, x: dict[str, Any], steps: Any) -> int:
    """A bias with the step of the products: LiteRT reads beyond its memory without one."""
    if kind == "FLOAT32":
        return b.constant(kind, b.values(kind, (channels,)))
    products = np.float32(x["scale"]) * np.atleast_1d(np.float32(steps))
    values = b.random.integers(-500, 500, (channels,)).astype("<i4")
    return b.constant("INT32", values, scale=products.tolist())


@_draws("TRANSPOSE_CONV")
def _transposed_convolution(b: Drawing, operator: str) -> None:
    kind, extents, size = b.one_of(_REAL + _BYTES), b.shape(2, 2), (b.whole(1, 4), b.whole(1, 4))
    strides, padding, count = (b.whole(1, 4), b.whole(1, 4)), b.whole(0, 1), b.whole(1, 3)
    wide = [
        n * stride - b.whole(0, stride - 1)
        if padding == 0
        else (n - 1) * stride + k + b.whole(0, stride - 1)
        for n, stride, k in zip(extents, strides, size, strict=True)
    ]
    x = b.input(kind, (1, *extents, 2), **b.step(kind))
    weights, _ = _weights(b, kind, (count, *size, 2), count, 0)
    given = [b.integers([1, *wide, count]), weights, x]
    options = {"padding": padding, "strideH": strides[0], "strideW": strides[1]}
    b.operator(operator, given, [b.result(kind, b.step(kind))], "TransposeConvOptions", **options)


@_draws("FULLY_CONNECTED")
def _fully_connected(b: Drawing, operator: str) -> None:
    kind, shape, units = b.one_of(_REAL + _BYTES), b.shape(), b.whole(1, 5)
    keep = b.chance(0.5)
    size = shape[-1] if keep or b.chance(0.5) else math.prod(shape)
    step = b.step(kind)
    x, (weights, steps) = b.input(kind, shape, **step), _weights(b, kind, (units, size), units, 0)
    bias, out = _bias(b, kind, units, step, steps), b.result(kind, b.step(kind))
    b.operator(operator, [x, weights, bias], [out], "FullyConnectedOptions", keepNumDims=keep)


@_draws("BATCH_MATMUL")
def _batch_matmul(b: Drawing, operator: str) -> None:
    kind, batches = b.one_of(("FLOAT32", "INT8")), b.shape(0, 2, 3)
    m, k, n = b.shape(3, 3)
    turned = b.chance(0.5), b.chance(0.5)
    less = tuple(1 if b.chance(0.2) else extent for extent in batches)
    x = b.input(kind, (*batches, *((k, m) if turned[0] else (m, k))), **b.step(kind))
    y = b.input(kind, (*less, *((n, k) if turned[1] else (k, n))), **b.step(kind))
    out, options = b.result(kind, b.step(kind)), {"adjX": turned[0], "adjY": turned[1]}
    b.operator(operator, [x, y], [out], "BatchMatMulOptions", **options)


@_draws("AVERAGE_POOL_2D", "MAX_POOL_2D")
def _pool(b: Drawing, operator: str) -> None:
    kind = b.one_of(_REAL + _BYTES)
    step = b.step(kind)
    x = b.input(kind, b.shape(4, 4, 8), **step)
    names = ("strideH", "strideW", "filterHeight", "filterWidth")
    options = {name: b.whole(1, 4) for name in names} | {"padding": b.whole(0, 1)}
    b.operator(operator, [x], [b.result(kind, step)], "Pool2DOptions", **options)


@_draws("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def _resize(b: Drawing, operator: str) -> None:
    kind = b.one_of(_REAL + _BYTES)
    step = b.step(kind)
    x, size = b.input(kind, b.shape(4, 4, 9), **step), b.integers([b.whole(1, 14), b.whole(1, 14)])
    flags = b.one_of([(False, False), (True, False), (False, True)])
    options = {"alignCorners": flags[0], "halfPixelCenters": flags[1]}
    out = b.result(kind, step)
    b.operator(operator, [x, size], [out], f"{_camel(operator)}Options", **options)


@_draws("TRANSPOSE", "REVERSE_V2", "TILE", "SLICE", "PAD", "MIRROR_PAD")
def _moved(b: Drawing, operator: str) -> None:
    kind, shape = b.one_of(_REAL + _BYTES), b.shape()
    rank, step = len(shape), b.step(kind)
    begins = [b.whole(0, extent - 1) for extent in shape]
    sizes = [b.one_of([-1, e - first]) for e, first in zip(shape, begins, strict=True)]
    given: list[Any] = {
        "TRANSPOSE": [b.random.permutation(rank) - rank * b.chance(0.3)],
        "REVERSE_V2": [[b.whole(-rank, rank - 1)]],
        "TILE": [[b.whole(1, 3) for _ in shape]],
        "SLICE": [begins, sizes],
        "PAD": [[[b.whole(0, 2), b.whole(0, 2)] for _ in shape]],
        "MIRROR_PAD": [[[b.whole(0, e - 1), b.whole(0, e - 1)] for e in shape]],
    }[operator]
    x = b.input(kind, shape, **step)
    options = "MirrorPadOptions" if operator == "MIRROR_PAD" else ""
    b.operator(operator, [x, *map(b.integers, given)], [b.result(kind, step)], options)


@_draws("STRIDED_SLICE")
def _strided_slice(b: Drawing, operator: str) -> None:
    kind, shape = b.one_of(_REAL + _BYTES), b.shape()
    axes, step = b.whole(1, len(shape)), b.step(kind)
    bounds = [[b.whole(-e, e) for e in shape[:axes]] for _ in range(2)]
    strides = [b.one_of([1, 1, 2, -1]) for _ in range(axes)]
    masks = {name: b.whole(0, 2**axes - 1) for name in ("beginMask", "endMask")}
    given = [b.input(kind, shape, **step), *map(b.integers, (*bounds, strides))]
    b.operator(operator, given, [b.result(kind, step)], "StridedSliceOptions", **masks)


@_draws("GATHER", "TOPK_V2", "ARG_MAX", "ARG_MIN")
def _found(b: Drawing, operator: str) -> None:
    kind, shape = b.one_of(_EVERY), b.shape()
    axis, step = b.whole(-len(shape), len(shape) - 1), b.step(kind)
    x = b.input(kind, shape, **step)
    if operator == "GATHER":
        indexes = b.random.integers(0, shape[axis], b.shape(0, 2, 3))
        given = [x, b.integers(indexes)]
        b.operator(operator, given, [b.result(kind, step)], "GatherOptions", axis=axis)
    elif operator == "TOPK_V2":
        few = b.tensor(kind, shape, **step)  # values that are often equal
        b.operator("MINIMUM", [x, b.constant(kind, np.zeros((1,), _DTYPES[kind]), **step)], [few])
        out = [b.result(kind, step), b.result("INT32", {})]
        b.operator(operator, [few, b.integers(b.whole(1, shape[-1]))], out)
    else:
        options = f"{_camel(operator)}Options"
        out = [b.result("INT32", {})]
        b.operator(operator, [x, b.integers(axis)], out, options, outputType=2)


@_draws("PACK", "CONCATENATION")
def _joined(b: Drawing, operator: str) -> None:
    kind, count = b.one_of(_EVERY), b.whole(1, 4)
    shape, step, is_pack = b.shape(0, 3), b.step(kind), operator == "PACK"
    shape = shape if is_pack else (2, *shape)
    axis = b.whole(-len(shape) - is_pack, len(shape) - 1 + is_pack)
    given = [b.input(kind, shape, **step) for _ in range(count)]
    fields = {"valuesCount": count} if is_pack else {}
    name = "PackOptions" if is_pack else "ConcatenationOptions"
    b.operator(operator, given, [b.result(kind, step)], name, axis=axis, **fields)


@_draws("CAST")
def _cast(b: Drawing, operator: str) -> None:
    kind, out = b.one_of(["FLOAT32", "INT32", "UINT8"]), b.one_of(["FLOAT32", "INT32", "UINT8"])
    b.operator(operator, [b.input(kind, b.shape(0))], [b.result(out, {})], "CastOptions")
