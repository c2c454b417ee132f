"""Computes a node during translation if all its inputs are known, as for shapes, indices and weights.

Exporters compute shapes by nodes, whose results are constants if dimensions are known. Only operators on
shapes and small tables are here, and those that make weights; memory is charged before it is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nnburst.formats.onnx_model import SparseTensor
from nnburst.formats.onnx_tensor import DTYPES, element_name
from nnburst.formats.protobuf import Malformed
from nnburst.hal.errors import NnburstError
from nnburst.importer.onnx.node import Node
from nnburst.importer.onnx.tensor import Array
from nnburst.importer.tensors import Refused

Fold = Callable[[Node, list[Array]], Any]
FOLDS: Final[dict[str, Fold]] = {}


def fold(*kinds: str) -> Callable[[Fold], Fold]:
    """Register the decorated function for these operators."""

    def register(function: Fold) -> Fold:
        FOLDS.update(dict.fromkeys(kinds, function))
        return function

    return register


def folded(node: Node) -> list[Array] | None:
    """The outputs of a node whose inputs are all known; None if it has to be computed later.

    Raises:
        InvalidArgument: the inputs do not fit the operator, or the result is too large.
    """
    function = FOLDS.get(node.kind)
    if function is None or node.count > _MOST_INPUTS:
        return None
    arrays = [tensor.array() for tensor in node.inputs()]
    try:
        with np.errstate(all="ignore"):
            found = function(node, arrays)
    except NnburstError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise Malformed(f"its inputs do not fit each other: {error}") from error
    if found is None:
        return None
    results = found if isinstance(found, list) else [found]
    return [np.asarray(result) for result in results]


_MOST_INPUTS: Final = 4096


def charge(node: Node, shape: Sequence[int], itemsize: int) -> None:
    """Charge the memory of a result of this shape."""
    node.graph.budget.spend(max(math.prod(int(extent) for extent in shape), 1) * itemsize + 256)


def _charge_like(node: Node, arrays: Sequence[Array]) -> None:
    charge(node, np.broadcast_shapes(*(a.shape for a in arrays)), max(a.itemsize for a in arrays))


_UNARY: Final[dict[str, Callable[[Array], Any]]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    # One number after the other: an array of Python's numbers would take thirty times the memory.
    "Erf": lambda x: np.fromiter(map(math.erf, x.flat), x.dtype, x.size).reshape(x.shape),
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": lambda x: (1 / x).astype(x.dtype),
    "Relu": lambda x: np.maximum(x, 0).astype(x.dtype),
    "Round": np.round,
    "Sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "Sign": np.sign,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}


def _divided(x: Array, y: Array) -> Array:
    """Divide; integers are cut towards 0."""
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    if not np.all(y):
        raise Malformed("an integer is divided by 0")
    quotient, rest = np.divmod(x, y)
    return np.where((rest != 0) & ((x < 0) != (y < 0)), quotient + 1, quotient).astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    """Raise to a power; an integer to a power below 0 is cut towards 0."""
    if x.dtype.kind not in "iu" or y.dtype.kind not in "iu":
        return np.asarray(np.power(x, y)).astype(x.dtype)
    if np.any((x == 0) & (y < 0)):
        raise Refused("0 is raised to a power below 0")
    return np.where((y < 0) & (np.abs(x) != 1), 0, np.power(x, np.abs(y))).astype(x.dtype)


_BINARY: Final[dict[str, Callable[[Array, Array], Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divided,
    "Pow": _power,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}
#: Work charged for one number of an Erf, which numpy does not have.
_ERF_COST: Final = 64
_REDUCE: Final[dict[str, Callable[..., Any]]] = {
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
}
_MANY: Final[dict[str, Callable[[Array, Array], Any]]] = {
    "Max": np.maximum,
    "Min": np.minimum,
    "Sum": np.add,
}


@fold(*_UNARY)
def _unary(node: Node, arrays: list[Array]) -> Array:
    if node.kind == "Erf":
        charge(node, arrays[0].shape, _ERF_COST)
    else:
        _charge_like(node, arrays)
    return np.asarray(_UNARY[node.kind](arrays[0]), None)


@fold(*_BINARY)
def _binary(node: Node, arrays: list[Array]) -> Array:
    x, y = arrays
    _charge_like(node, arrays)
    if x.dtype != y.dtype and node.kind != "Pow":
        raise Malformed(f"inputs are {x.dtype} and {y.dtype}, expected one type")
    return np.asarray(_BINARY[node.kind](x, y))


@fold(*_MANY)
def _many(node: Node, arrays: list[Array]) -> Array:
    _charge_like(node, arrays)
    result = arrays[0]
    for other in arrays[1:]:
        result = _MANY[node.kind](result, other)
    return result


@fold(*_REDUCE)
def _reduce(node: Node, arrays: list[Array]) -> Array:
    x = arrays[0]
    axes = node.steering("axes", 1, 13 if node.kind == "ReduceSum" else 18)
    if not axes:
        if node.integer("noop_with_empty_axes"):
            return x
        axes = list(range(x.ndim))
    chosen = tuple(node.axes(axes, x.ndim))
    left = [extent for axis, extent in enumerate(x.shape) if axis not in chosen]
    charge(node, left, max(x.itemsize, 8))  # numpy sums in 64 bits
    keep = bool(node.integer("keepdims", 1))
    return np.asarray(_REDUCE[node.kind](x, axis=chosen, keepdims=keep)).astype(x.dtype)


@fold("Identity", "Dropout")
def _identity(node: Node, arrays: list[Array]) -> Array | None:
    return None if node.kind == "Dropout" and len(node.outputs) > 1 else arrays[0]


@fold("Constant")
def _constant(node: Node, arrays: list[Array]) -> Array:  # noqa: ARG001
    value = node.attribute("value")
    if isinstance(value, np.ndarray):
        return value
    if isinstance(node.attribute("sparse_value"), SparseTensor):
        raise Refused("a sparse constant is not supported")
    for name, dtype in _CONSTANTS.items():
        found = node.attribute(name)
        if found is not None:
            return np.array(found, dtype)
    raise Refused("a constant must be a tensor of numbers")


_CONSTANTS: Final = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@fold("ConstantOfShape")
def _constant_of_shape(node: Node, arrays: list[Array]) -> Array:
    value = node.attribute("value", np.zeros(1, np.float32))
    shape = [int(extent) for extent in arrays[0].reshape(-1)]
    if any(extent < 0 for extent in shape):
        raise Malformed(f"a constant of shape {shape}, expected no extent below 0")
    charge(node, shape, value.itemsize)
    return np.full(shape, value.reshape(-1)[0], value.dtype)


@fold("Range")
def _range(node: Node, arrays: list[Array]) -> Array:
    start, limit, delta = (array.reshape(-1)[0] for array in arrays)
    if not delta:
        raise Malformed("a range in steps of 0 never ends")
    count = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    charge(node, (count,), 8)
    found: Array = (start + np.arange(count) * delta).astype(arrays[0].dtype)
    return found


@fold("Reshape")
def _reshape(node: Node, arrays: list[Array]) -> Array:
    return _in_shape(node, arrays[0], target_shape(node, arrays[0].shape, arrays[1]))


def _in_shape(node: Node, x: Array, shape: Sequence[int]) -> Array:
    """An array in another shape: a view, or a copy if its elements do not lie in a row."""
    if not x.flags.c_contiguous:
        charge(node, x.shape, x.itemsize)
    return x.reshape(shape)


def target_shape(node: Node, shape: Sequence[int], wanted: Array) -> tuple[int, ...]:
    """The shape after a Reshape: 0 keeps an extent, -1 takes the remaining elements."""
    target = [int(extent) for extent in wanted.reshape(-1)]
    if not node.integer("allowzero"):
        for axis, extent in enumerate(target):
            if extent == 0:
                if axis >= len(shape):
                    raise Malformed(
                        f"extent {axis} is to be kept, the input has only {list(shape)}"
                    )
                target[axis] = shape[axis]
    elements, known = math.prod(shape), math.prod(extent for extent in target if extent != -1)
    if target.count(-1) == 1 and known and elements % known == 0:
        target[target.index(-1)] = elements // known
    if any(extent < 0 for extent in target) or math.prod(target) != elements:
        raise Malformed(f"shape {list(shape)} cannot become {target}")
    return tuple(target)


@fold("Transpose")
def _transpose(node: Node, arrays: list[Array]) -> Array:
    perm = node.integer_list("perm")
    return arrays[0].transpose(perm)


@fold("Squeeze")
def _squeeze(node: Node, arrays: list[Array]) -> Array:
    axes = node.steering("axes", 1, 13)
    x = arrays[0]
    return np.squeeze(x, tuple(node.axes(axes, x.ndim)) if axes else None)


@fold("Unsqueeze")
def _unsqueeze(node: Node, arrays: list[Array]) -> Array:
    axes = node.steering("axes", 1, 13) or []
    return np.expand_dims(arrays[0], tuple(axes))


@fold("Flatten")
def _flatten(node: Node, arrays: list[Array]) -> Array:
    x = arrays[0]
    axis = node.integer("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return _in_shape(node, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@fold("Concat")
def _concat(node: Node, arrays: list[Array]) -> Array:
    charge(node, (sum(array.size for array in arrays),), arrays[0].itemsize)
    return np.concatenate(arrays, node.integer("axis"))


@fold("Gather")
def _gather(node: Node, arrays: list[Array]) -> Array:
    x, index = arrays
    axis = node.axis(node.integer("axis"), x.ndim)
    charge(node, (index.size * x.size // max(x.shape[axis], 1),), x.itemsize)
    return np.take(x, index.astype(np.int64), axis)


@fold("GatherND")
def _gather_nd(node: Node, arrays: list[Array]) -> Array | None:
    x, index = arrays
    if node.integer("batch_dims"):
        return None
    charge(node, (index.size * x.size,), x.itemsize)
    return np.asarray(x[tuple(np.moveaxis(index, -1, 0))])


@fold("Slice")
def _slice(node: Node, arrays: list[Array]) -> Array:
    return arrays[0][tuple(slices(node, arrays[0].shape))]


def slices(node: Node, shape: Sequence[int]) -> list[slice]:
    """The slice of each axis that a Slice takes."""
    starts = node.steering("starts", 1, 10) or []
    ends = node.steering("ends", 2, 10) or []
    axes = node.steering("axes", 3, 10)
    steps = node.integers(4, "steps") if node.optional(4) is not None else [1] * len(starts)
    axes = list(range(len(starts))) if axes is None else axes
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Malformed("starts, ends, axes and steps are not equally many")
    found = [slice(0, extent, 1) for extent in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise Malformed("a slice in steps of 0 never ends")
        at = node.axis(axis, len(shape))
        # Like numpy's slices, except that an end before the first element is a number, not None.
        low, high, by = slice(start, end, step).indices(shape[at])
        if start >= -shape[at] or step > 0:
            found[at] = slice(low, None if high < 0 else high, by)
        else:
            found[at] = slice(0, 0, 1)
    return found


@fold("Split")
def _split(node: Node, arrays: list[Array]) -> list[Array]:
    x = arrays[0]
    axis = node.axis(node.integer("axis"), x.ndim)
    ends = np.cumsum(split_sizes(node, x.shape[axis]))[:-1]
    return np.split(x, [int(end) for end in ends], axis)


def split_sizes(node: Node, extent: int) -> list[int]:
    """The extents of the parts of a Split."""
    sizes = node.steering("split", 1, 13)
    if sizes is None:
        parts = node.integer("num_outputs", len(node.outputs))
        if not 0 < parts <= max(extent, 1) or parts != len(node.outputs):
            raise Malformed(f"{extent} in {parts} parts, {len(node.outputs)} outputs")
        chunk = -(-extent // parts)
        sizes = [min(chunk, extent - at * chunk) for at in range(parts)]
    if sum(sizes) != extent or any(size < 0 for size in sizes) or len(sizes) < len(node.outputs):
        raise Malformed(f"{extent} in parts of {sizes}")
    return sizes


@fold("Expand")
def _expand(node: Node, arrays: list[Array]) -> Array:
    shape = [int(extent) for extent in arrays[1].reshape(-1)]
    if any(extent < 0 for extent in shape):
        raise Malformed(f"expanded to {shape}")
    full = np.broadcast_shapes(arrays[0].shape, tuple(shape))
    charge(node, full, arrays[0].itemsize)
    return np.broadcast_to(arrays[0], full).copy()


@fold("Tile")
def _tile(node: Node, arrays: list[Array]) -> Array:
    x, repeats = arrays
    counts = [int(count) for count in repeats.reshape(-1)]
    if len(counts) != x.ndim or any(count < 0 for count in counts):
        raise Malformed(f"repeated {counts} times")
    shape = [extent * count for extent, count in zip(x.shape, counts, strict=True)]
    charge(node, shape, x.itemsize)
    # numpy repeats one axis after the other, so it would make what a last count of 0 takes away.
    return np.tile(x, counts) if math.prod(shape) else np.zeros(shape, x.dtype)


@fold("Where")
def _where(node: Node, arrays: list[Array]) -> Array:
    _charge_like(node, arrays)
    return np.where(*arrays)


@fold("Cast")
def _cast(node: Node, arrays: list[Array]) -> Array:
    target = target_type(node)
    charge(node, arrays[0].shape, target.itemsize)
    return arrays[0].astype(target)


def target_type(node: Node) -> np.dtype[Any]:
    """The type that a Cast gives.

    Raises:
        Refused: NNAPI and numpy have no such type.
    """
    name = element_name(node.integer("to"))
    if name not in DTYPES:
        raise Refused(f"a cast to {name} is not supported")
    return DTYPES[name]


@fold("CastLike")
def _cast_like(node: Node, arrays: list[Array]) -> Array:
    charge(node, arrays[0].shape, arrays[1].itemsize)
    return arrays[0].astype(arrays[1].dtype)


@fold("NonZero")
def _non_zero(node: Node, arrays: list[Array]) -> Array:
    charge(node, (arrays[0].size, max(arrays[0].ndim, 1)), 16)
    return np.array(np.nonzero(np.atleast_1d(arrays[0])), np.int64)


@fold("ScatterND")
def _scatter_nd(node: Node, arrays: list[Array]) -> Array | None:
    x, index, updates = arrays
    if node.string("reduction", "none") != "none":
        return None
    charge(node, (x.size + index.size,), 8)
    result = x.copy()
    result[tuple(np.moveaxis(index, -1, 0))] = updates
    return result


@fold("Trilu")
def _trilu(node: Node, arrays: list[Array]) -> Array:
    offset = int(arrays[1].reshape(-1)[0]) if len(arrays) > 1 else 0
    if arrays[0].ndim < 2:  # of a vector numpy makes a matrix
        raise Malformed(f"a triangle of shape {list(arrays[0].shape)}, expected a matrix")
    _charge_like(node, arrays[:1])
    return (np.triu if node.integer("upper", 1) else np.tril)(arrays[0], offset)
