"""Makes random ONNX files of several operators, each of which reads the result of the one before."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from importer.onnx.graphs import Array, model, node, value

Shape = tuple[int, ...]


class File(NamedTuple):
    """A file, and what it computes a result from.

    Attributes:
        name: names of its operators.
        model: the file.
        shaken: the file with each element of each operator's result multiplied by nearly 1, as other rounding
            might do. If it computes something else, results of `model` depend on how an engine rounds.
        x: value of the input.
    """

    name: str
    model: Any
    shaken: Any
    x: Array


class Unfit(Exception):
    """The operator does not accept this shape."""


class Growing:
    """A file under construction, to which operators are added."""

    def __init__(self, random: np.random.Generator, shape: Shape) -> None:
        self.random = random
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.last, self.shape = "x", shape
        self.operators: list[str] = []
        self.results: dict[str, Shape] = {}

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def real(self, *shape: int, low: float = -2, high: float = 2) -> str:
        return self.constant(self.random.uniform(low, high, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def between(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def axis(self) -> int:
        if not self.shape:
            raise Unfit
        return self.between(-len(self.shape), len(self.shape) - 1)

    def image(self) -> Shape:
        if len(self.shape) != 4:
            raise Unfit
        return self.shape

    def put(self, operator: str, *others: str, first: bool = True, **attributes: Any) -> None:
        """Add an operator that reads the last result, before or behind other inputs."""
        names = [self.last, *others] if first else [*others, self.last]
        made = f"t{len(self.nodes)}"
        self.nodes.append(node(operator, " ".join(names), made, **attributes))
        self.last = made

    def finish(self, shape: Shape) -> File:
        x = self.random.uniform(-3, 3, shape).astype(np.float32)
        return File(" ".join(self.operators), self.model(shape), self._shaken(shape), x)

    def model(self, shape: Shape) -> Any:
        return self._model_of(self.nodes, self.last, shape)

    def _model_of(self, nodes: list[Any], last: str, shape: Shape) -> Any:
        inputs, outputs = [value("x", "f4", shape)], [value(last, "f4", None)]
        return model(nodes, inputs, outputs, self.constants)

    def _shaken(self, shape: Shape) -> Any:
        nodes: list[Any] = []
        renamed: dict[str, str] = {}
        for made in self.nodes:
            nodes.append(copy.deepcopy(made))
            nodes[-1].input[:] = [renamed.get(name, name) for name in made.input]
            (result,) = made.output
            if result in self.results:
                nearly = 1 + 2e-6 * self.random.uniform(-1, 1, self.results[result])
                by = self.constant(nearly.astype(np.float32))
                renamed[result] = f"{result}_shaken"
                nodes.append(node("Mul", f"{result} {by}", renamed[result]))
        return self._model_of(nodes, renamed[self.last], shape)


Make = Callable[[Growing], None]
_PLAIN = (
    *("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Sin", "Identity", "Elu", "LeakyRelu", "HardSwish"),
    *("HardSigmoid", "Softplus", "Softsign", "Erf", "Selu"),
)
OPERATORS: dict[str, Make] = {
    **{
        name: lambda g, name=name: g.put(name)  # type: ignore[misc]
        for name in _PLAIN
    },
    "Relu6": lambda g: g.put("Clip", g.real(low=0, high=0), g.constant(np.array(6, np.float32))),
    "Relu1": lambda g: g.put(
        "Clip", g.constant(np.array(-1, np.float32)), g.constant(np.array(1, np.float32))
    ),
    "Clip": lambda g: g.put("Clip", g.real(low=-2, high=0), g.real(low=0.5, high=2)),
}


def operator(make: Make) -> Make:
    OPERATORS[make.__name__.strip("_")] = make
    return make


def _partner(g: Growing, low: float, high: float) -> str:
    shape = tuple(1 if g.random.random() < 0.3 else n for n in g.shape)
    return g.real(*shape[g.between(0, len(shape)) :], low=low, high=high)


for _name, _low, _high in (
    ("Add", -3, 3),
    ("Sub", -3, 3),
    ("Mul", -2, 2),
    ("Max", -2, 2),
    ("Min", -2, 2),
):
    OPERATORS[_name] = lambda g, n=_name, a=_low, b=_high: g.put(  # type: ignore[misc]
        n, _partner(g, a, b), first=bool(g.random.random() < 0.6)
    )
OPERATORS["Div"] = lambda g: g.put("Div", _partner(g, 1, 3))
OPERATORS["AddItself"] = lambda g: g.put("Add", g.last)


@operator
def _Concat(g: Growing) -> None:  # noqa: N802 - the operator's name
    axis, others = g.axis(), []
    for _ in range(g.between(0, 5)):
        shape = list(g.shape)
        shape[axis] = g.between(1, 2)
        others.append(g.real(*shape) if g.random.random() < 0.6 or others else g.last)
    g.put("Concat", *others, first=bool(g.random.random() < 0.6), axis=axis)


@operator
def _Transpose(g: Growing) -> None:  # noqa: N802
    if not g.shape:
        raise Unfit
    g.put("Transpose", perm=[int(i) for i in g.random.permutation(len(g.shape))])


@operator
def _Reshape(g: Growing) -> None:  # noqa: N802
    total = int(np.prod(g.shape))
    last = [n for n in range(1, 9) if total % n == 0][-1]
    g.put("Reshape", g.ints(*((-1, last) if g.random.random() < 0.5 else (1, total // last, last))))


@operator
def _Flatten(g: Growing) -> None:  # noqa: N802
    if not g.shape:
        raise Unfit
    g.put("Flatten", axis=g.between(0, len(g.shape)))


@operator
def _Unsqueeze(g: Growing) -> None:  # noqa: N802
    if len(g.shape) > 3:
        raise Unfit
    g.put("Unsqueeze", g.ints(g.between(0, len(g.shape))))


@operator
def _Squeeze(g: Growing) -> None:  # noqa: N802
    ones = [i for i, n in enumerate(g.shape) if n == 1]
    if not ones:
        raise Unfit
    g.put("Squeeze", g.ints(*ones[: g.between(1, len(ones))]))


@operator
def _Softmax(g: Growing) -> None:  # noqa: N802
    g.put("Softmax", axis=g.axis())


@operator
def _LogSoftmax(g: Growing) -> None:  # noqa: N802
    g.put("LogSoftmax", axis=g.axis())


def _reduction(g: Growing, name: str) -> None:
    if not g.shape:
        raise Unfit
    axes = g.random.permutation(len(g.shape))[: g.between(1, len(g.shape))]
    g.put(name, g.ints(*map(int, sorted(axes))), keepdims=g.between(0, 1))


for _name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"):
    OPERATORS[_name] = lambda g, n=_name: _reduction(g, n)  # type: ignore[misc]


@operator
def _LpNormalization(g: Growing) -> None:  # noqa: N802
    g.put("LpNormalization", axis=g.axis(), p=2)


@operator
def _Slice(g: Growing) -> None:  # noqa: N802
    axis = g.axis()
    n = g.shape[axis]
    start = g.between(0, n - 1)
    g.put("Slice", g.ints(start), g.ints(g.between(start + 1, n)), g.ints(axis))


@operator
def _Pad(g: Growing) -> None:  # noqa: N802
    if not g.shape:
        raise Unfit
    g.put(
        "Pad", g.ints(*(g.between(0, 1) for _ in range(2 * len(g.shape)))), g.real(low=-1, high=1)
    )


@operator
def _Tile(g: Growing) -> None:  # noqa: N802
    g.axis()
    g.put("Tile", g.ints(*(g.between(1, 2) for _ in g.shape)))


@operator
def _Gather(g: Growing) -> None:  # noqa: N802
    axis = g.axis()
    places = [g.between(0, g.shape[axis] - 1) for _ in range(g.between(1, 3))]
    scalar = g.random.random() < 0.3
    index = g.constant(np.array(places[0], np.int64)) if scalar else g.ints(*places)
    g.put("Gather", index, axis=axis)


@operator
def _Expand(g: Growing) -> None:  # noqa: N802
    g.put("Expand", g.ints(*(g.between(2, 3) if n == 1 else n for n in g.shape or (1,))))


@operator
def _Gemm(g: Growing) -> None:  # noqa: N802
    if len(g.shape) != 2:
        raise Unfit
    rows, depth = g.shape
    units, turned = g.between(1, 4), g.between(0, 1)
    weights = g.real(*((units, depth) if turned else (depth, units)), low=-1, high=1)
    bias = [(), (units,), (rows, 1), (1, units), (rows, units)][g.between(0, 4)]
    g.put("Gemm", weights, g.real(*bias), transB=turned)


@operator
def _MatMul(g: Growing) -> None:  # noqa: N802
    if len(g.shape) < 2:
        raise Unfit
    g.put("MatMul", g.real(g.shape[-1], g.between(1, 4), low=-1, high=1))


@operator
def _Conv(g: Growing) -> None:  # noqa: N802
    _, c, h, w = g.image()
    group = c if g.random.random() < 0.3 else 1
    units = c if group > 1 else g.between(1, 4)
    size = (g.between(1, min(3, h)), g.between(1, min(3, w)))
    weights = g.real(units, c // group, *size, low=-0.7, high=0.7)
    pads = [g.between(0, n - 1) for n in (*size, *size)]
    g.put("Conv", weights, g.real(units), pads=pads, group=group, strides=[g.between(1, 2), 1])


@operator
def _ConvTranspose(g: Growing) -> None:  # noqa: N802
    _, c, _, _ = g.image()
    weights = g.real(c, g.between(1, 3), 2, 3, low=-0.7, high=0.7)
    g.put("ConvTranspose", weights, strides=[g.between(1, 2), 2])


@operator
def _BatchNormalization(g: Growing) -> None:  # noqa: N802
    c = g.image()[1]
    g.put(
        "BatchNormalization",
        *(g.real(c, low=a, high=b) for a, b in ((-1, 1), (-1, 1), (-1, 1), (0.5, 2))),
    )


@operator
def _InstanceNormalization(g: Growing) -> None:  # noqa: N802
    c = g.image()[1]
    g.put("InstanceNormalization", g.real(c), g.real(c), epsilon=0.5)


def _pool(g: Growing, name: str, **more: Any) -> None:
    _, _, h, w = g.image()
    size = [g.between(1, min(3, h)), g.between(1, min(3, w))]
    pads = [g.between(0, n // 2) for n in (*size, *size)]
    g.put(name, kernel_shape=size, pads=pads, strides=[1, g.between(1, 2)], **more)


OPERATORS["MaxPool"] = lambda g: _pool(g, "MaxPool")
OPERATORS["AveragePool"] = lambda g: _pool(g, "AveragePool", count_include_pad=0)
OPERATORS["GlobalAveragePool"] = lambda g: (g.image(), g.put("GlobalAveragePool"))[1]
OPERATORS["GlobalMaxPool"] = lambda g: (g.image(), g.put("GlobalMaxPool"))[1]


@operator
def _LRN(g: Growing) -> None:  # noqa: N802
    g.image()
    g.put("LRN", size=3, alpha=0.3, beta=0.7, bias=1.5)


@operator
def _DepthToSpace(g: Growing) -> None:  # noqa: N802
    if g.image()[1] % 4:
        raise Unfit
    g.put("DepthToSpace", blocksize=2, mode="DCR")


@operator
def _Resize(g: Growing) -> None:  # noqa: N802
    g.image()
    how = [("nearest", "asymmetric"), ("linear", "half_pixel")][g.between(0, 1)]
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    more = {"nearest_mode": "floor"} if how[0] == "nearest" else {}
    empty = g.constant(np.zeros(0, np.float32))
    g.put("Resize", empty, scales, mode=how[0], coordinate_transformation_mode=how[1], **more)


@operator
def _PRelu(g: Growing) -> None:  # noqa: N802
    g.put("PRelu", g.real(*(1 for _ in g.shape), low=-1, high=1))


_SHAPES: tuple[Shape, ...] = (
    (1, 4, 5, 6),
    (2, 3, 4, 4),
    (3, 5),
    (4, 4),
    (2, 3, 4),
    (5,),
    (1, 1, 3, 2),
)


def _shape_of(g: Growing, shape: Shape) -> Shape:
    from onnx import shape_inference

    made = g.model(shape)
    found = shape_inference.infer_shapes(made, data_prop=True, strict_mode=True).graph.output[0]
    return tuple(d.dim_value for d in found.type.tensor_type.shape.dim)


def _add(g: Growing, name: str, shape: Shape) -> None:
    OPERATORS[name](g)
    g.operators.append(name)
    g.shape = g.results[g.last] = _shape_of(g, shape)
    if len(g.shape) > 4 or np.prod(g.shape) > 600 or 0 in g.shape:
        raise Unfit


def grow(names: list[str], seed: int) -> File | None:
    """A file of these operators; None if no shape was found that all of them accept."""
    for attempt in range(12):
        random = np.random.default_rng([seed, attempt])
        shape = _SHAPES[(seed + attempt) % len(_SHAPES)]
        g = Growing(random, shape)
        try:
            for name in names:
                _add(g, name, shape)
        except Unfit:
            continue
        return g.finish(shape)
    return None


def chain(length: int, seed: int) -> File | None:
    """A file of random operators."""
    random = np.random.default_rng([length, seed])
    for attempt in range(5):
        found = grow([str(n) for n in random.choice(sorted(OPERATORS), length)], 5 * seed + attempt)
        if found is not None:
            return found
    return None
