"""What the engine has as one operator and a model in parts: the error function, HardSigmoid.

The importer of ONNX files writes them so, since NNAPI has neither. Results differ by less than what the parts
are from the function that they stand for (5e-7).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.onnxruntime.graph import OnnxGraph

#: An operator with what it reads; a number; or, as "x", the same tensor wherever it stands.
_Pattern = tuple[object, ...] | float | str
_COMMUTATIVE: Final = frozenset({"Add", "Mul", "Max", "Min"})


def _limited(x: _Pattern, low: float, high: float) -> _Pattern:
    return ("Min", ("Max", x, low), high)


def _error_function() -> _Pattern:
    """1 - (a1 t + … + a5 t^5) exp(-x²) with t = 1 / (1 + p |x|), and the sign of x."""
    t = ("Div", 1.0, ("Add", ("Mul", ("Abs", "x"), 0.3275911), 1.0))
    total: _Pattern = ("Mul", t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = ("Mul", ("Add", total, factor), t)
    decay = ("Exp", ("Neg", ("Mul", "x", "x")))
    huge = 3e38
    sign = _limited(("Mul", ("Mul", _limited("x", -1.0, 1.0), huge), huge), -1.0, 1.0)
    return ("Mul", ("Sub", 1.0, ("Mul", total, decay)), sign)


_ERF: Final = _error_function()


def error_function_of(graph: OnnxGraph, name: str) -> str | None:
    """X, if `name` is its error function by parts."""
    return _matches(graph, name, _ERF, "")


def hard_sigmoid_of(graph: OnnxGraph, name: str) -> tuple[str, float, float] | None:
    """X, alpha and beta, if `name` is alpha · x + beta between 0 and 1."""
    line = _read(graph, _read(graph, name, "Min", 1.0), "Max", 0.0)
    raised = _with_number(graph, line, "Add")
    scaled = _with_number(graph, raised[0], "Mul") if raised is not None else None
    if raised is None or scaled is None:
        return None
    return scaled[0], scaled[1], raised[1]


def _with_number(graph: OnnxGraph, name: str | None, kind: str) -> tuple[str, float] | None:
    """What an operator of this kind reads beside one number, and that number."""
    written = None if name is None else graph.producer(name)
    if written is None or written.kind != kind:
        return None
    first, second = written.inputs
    for x, y in ((first, second), (second, first)):
        number = graph.number(y)
        if number is not None:
            return x, number
    return None


def _read(graph: OnnxGraph, name: str | None, kind: str, number: float) -> str | None:
    """What an operator of this kind reads beside this number."""
    found = _with_number(graph, name, kind)
    return found[0] if found is not None and found[1] == number else None


def _matches(graph: OnnxGraph, name: str, pattern: _Pattern, x: str) -> str | None:
    """What "x" stands for, if `name` is as the pattern has it; None if not.

    Args:
        graph: that both are of.
        name: of a tensor.
        pattern: of it.
        x: what it stands for elsewhere in the pattern; "" as long as that is open.
    """
    if pattern == "x":
        return name if x in ("", name) else None
    if isinstance(pattern, float):
        number = graph.number(name)
        same = number is not None and bool(np.isclose(number, pattern, rtol=1e-6, atol=0))
        return x if same else None
    assert isinstance(pattern, tuple)
    kind, *parts = pattern
    written = graph.producer(name)
    if written is None or written.kind != kind or len(written.inputs) != len(parts):
        return None
    orders = [written.inputs]
    if kind in _COMMUTATIVE:
        orders.append(written.inputs[::-1])
    for inputs in orders:
        found: str | None = x
        for each, part in zip(inputs, parts, strict=True):
            assert isinstance(part, tuple | float | str)
            found = None if found is None else _matches(graph, each, part, found)
        if found is not None:
            return found
    return None
