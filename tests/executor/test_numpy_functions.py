"""The functions of numpy that kernels rely on are right, and their list is complete."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst.executor.reference
from nnburst.executor.reference import numpy_functions

SOURCES = sorted(Path(nnburst.executor.reference.__path__[0]).rglob("*.py"))
LISTED = numpy_functions.ANY_STRIDES | numpy_functions.NEW_RESULTS_ONLY


def nodes(kind: type[Any]) -> Iterator[tuple[Path, Any]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind):
                yield path, node


@pytest.mark.campaign
def test_this_numpy_computes_what_kernels_call() -> None:
    assert numpy_functions.wrong_functions() == []


def test_every_ufunc_that_a_kernel_names_is_listed() -> None:
    """`matmul` is none of elements; `np.matmul` of views is tried by the products themselves."""
    named = {
        node.attr
        for _, node in nodes(ast.Attribute)
        if ast.unparse(node.value) == "np" and isinstance(getattr(np, node.attr), np.ufunc)
    }
    assert named - {"matmul", "ufunc"} == LISTED


def test_no_kernel_gives_memory_to_functions_that_want_it_contiguous() -> None:
    """But NEG, which names `np.negative` alone: it computes whole operands, which are contiguous."""
    calls = [
        f"{path.name}: {ast.unparse(node)}"
        for path, node in nodes(ast.Call)
        if ast.unparse(node.func).removeprefix("np.") in numpy_functions.NEW_RESULTS_ONLY
        and any(word.arg == "out" for word in node.keywords)
    ]
    assert calls == []


@pytest.mark.parametrize("in_place", [False, True])
def test_a_function_that_is_wrong_for_one_stride_is_found(
    in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = np.tanh

    class Wrong:
        nin = 1

        def __call__(self, x: Any, out: Any = None) -> Any:
            if out is None:
                return right(x)
            columns = x.strides == (16,) and x.dtype == np.float32 and (out[0] is x) == in_place
            right(x, out=out)
            if columns:
                out[0][1] = 0.5
            return out

    monkeypatch.setattr(np, "tanh", Wrong())
    monkeypatch.setattr(numpy_functions, "ANY_STRIDES", {"tanh"})  # the others take seconds
    assert numpy_functions.wrong_functions() == ["tanh of float32, every 4 elements"]
