"""What the engine computes in one step of what a model has in several: normalisation, hard swish.

All of it changes the order in which float32 is rounded, nothing else.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.tensor import Array
from nnburst.executor.litert.graph import GraphWriter, Value, Written
from nnburst.hal.enums import FusedActivationFunc, OperandType
from nnburst.hal.imports import late_numpy as np

#: Dimension of the filter that an operator's output channels come from.
_CHANNELS: Final = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
_NONE: Final = int(FusedActivationFunc.NONE)
_RELU6: Final = int(FusedActivationFunc.RELU6)


def scaled(graph: GraphWriter, value: Value, factor: Array) -> bool:
    """Multiply a convolution's filter and bias by a factor for each channel, if `value` is one's result.

    Nothing else may read `value`, now or later.
    """
    found = _with_weights(graph, value, factor)
    if found is None:
        return False
    written, kernel, bias, each = found
    axis = _CHANNELS[written.name]
    shape = [1] * kernel.ndim
    shape[axis] = kernel.shape[axis]
    with np.errstate(over="ignore", invalid="ignore"):
        return _exchanged(graph, value, kernel * each.reshape(shape), bias * each)


def moved(graph: GraphWriter, value: Value, summand: Array) -> bool:
    """Add to a convolution's bias, if `value` is one's result; see `scaled`."""
    found = _with_weights(graph, value, summand)
    if found is None:
        return False
    _, _, bias, each = found
    with np.errstate(over="ignore", invalid="ignore"):
        return _exchanged(graph, value, None, bias + each)


def _with_weights(
    graph: GraphWriter, value: Value, each: Array
) -> tuple[Written, Array, Array, Array] | None:
    """The convolution that writes `value`, its filter and bias, and a number for each channel."""
    written = graph.producer(value)
    if written is None or written.name not in _CHANNELS or written.activation != _NONE:
        return None
    if graph.is_read(value) or len(written.inputs) != 3:
        return None
    if any(x.meta.type is not OperandType.TENSOR_FLOAT32 for x in written.inputs):
        return None
    kernel, bias = graph.array(written.inputs[1]), graph.array(written.inputs[2])
    count = value.shape[-1]
    if kernel is None or bias is None or each.size not in (1, count):
        return None
    if each.size == count and each.shape[-1:] != (count,):
        return None
    return written, kernel, bias, np.broadcast_to(each.reshape(-1), (count,))


def _exchanged(graph: GraphWriter, value: Value, kernel: Array | None, bias: Array) -> bool:
    """Let the convolution have these weights, unless they are beyond what float32 holds."""
    written = graph.producer(value)
    assert written is not None
    if not np.isfinite(bias).all() or (kernel is not None and not np.isfinite(kernel).all()):
        return False
    image, old, offsets = written.inputs
    new = old if kernel is None else graph.constant(kernel, old.meta)
    graph.exchange(value, [image, new, graph.constant(bias, offsets.meta)])
    return True


def hard_swish_of(graph: GraphWriter, x: Value, y: Value) -> Value | None:
    """X, if y is its hard sigmoid: min(max(x + 3, 0), 6) / 6, or x / 6 + 1 / 2 between 0 and 1."""
    sixth = _times(graph, y, 1 / 6)
    if sixth is not None and _is_raised(graph, sixth, x):
        return x
    return x if _is_limited(graph, y, x) else None


def divided_hard_swish(graph: GraphWriter, value: Value, factor: float) -> Value | None:
    """X, if `value` · `factor` is x · min(max(x + 3, 0), 6) / 6."""
    written = graph.producer(value)
    if not _is(factor, 1 / 6) or written is None or written.name != "MUL":
        return None
    if written.activation != _NONE:
        return None
    first, second = written.inputs
    for x, y in ((first, second), (second, first)):
        if _is_raised(graph, y, x):
            return x
    return None


def _is(number: float, wanted: float) -> bool:
    return bool(np.isclose(number, wanted, rtol=1e-6, atol=0))


def _number(graph: GraphWriter, value: Value) -> float | None:
    """The only element of a constant."""
    array = graph.array(value)
    is_real = value.meta.type is OperandType.TENSOR_FLOAT32
    return (
        float(array.reshape(-1)[0]) if array is not None and array.size == 1 and is_real else None
    )


def _with_number(
    graph: GraphWriter, value: Value, names: tuple[str, ...]
) -> tuple[Written, Value, float] | None:
    """The operator that writes `value` from a computed operand and one number."""
    written = graph.producer(value)
    if written is None or written.name not in names or len(written.inputs) != 2:
        return None
    first, second = written.inputs
    for x, y in ((first, second), (second, first)):
        number = _number(graph, y)
        if number is not None and x.shape == value.shape:
            return None if written.name == "DIV" and y is first else (written, x, number)
    return None


def _times(graph: GraphWriter, value: Value, factor: float) -> Value | None:
    """What `value` is a multiple of, by MUL or DIV without an activation."""
    found = _with_number(graph, value, ("MUL", "DIV"))
    if found is None or found[0].activation != _NONE or not found[2]:
        return None
    written, x, number = found
    return x if _is(1 / number if written.name == "DIV" else number, factor) else None


def _is_raised(graph: GraphWriter, value: Value, x: Value) -> bool:
    """Whether `value` is min(max(x + 3, 0), 6)."""
    found = _with_number(graph, value, ("ADD",))
    return found is not None and found[0].activation == _RELU6 and found[1] == x and found[2] == 3


def _is_limited(graph: GraphWriter, value: Value, x: Value) -> bool:
    """Whether `value` is x / 6 + 1 / 2 between 0 and 1."""
    least = _with_number(graph, value, ("MINIMUM",))
    most = None if least is None or least[2] != 1 else _with_number(graph, least[1], ("MAXIMUM",))
    line = None if most is None or most[2] != 0 else _with_number(graph, most[1], ("ADD",))
    if line is None or line[0].activation != _NONE or not _is(line[2], 0.5):
        return False
    return _times(graph, line[1], 1 / 6) == x
