"""Message, handler and client method have one name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import nnburst.client
from nnburst.control.messages import (
    CALLS,
    RESULTS,
    UPCALLS,
    Allocate,
    Call,
    Hello,
    Ping,
    PrepareGraph,
    Release,
)
from nnburst.driver.calls import HANDLERS

CLIENT: Final = Path(nnburst.client.__file__).parent
#: Answered by the worker itself: before there is a session, and without a thread.
BY_THE_WORKER: Final = {Hello, Ping}
#: Every object of a client's releases its own handle, and only a fuzzer pings.
BY_EVERY_OBJECT: Final = {Release, Ping}
#: Python's client makes a model of a file itself; the one in C cannot.
BY_THE_CLIENT_IN_C: Final = {PrepareGraph}
#: Words of the interface that a call makes an object of, where the client's function says it.
MADE: Final[dict[type[Call], set[str]]] = {Allocate: {"buffer"}}


def words(name: str) -> set[str]:
    """The words of a name in either style."""
    return {*re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")} - {""}


def test_every_call_has_a_handler_of_its_name() -> None:
    assert HANDLERS.keys() == CALLS - BY_THE_WORKER
    for kind, handler in HANDLERS.items():
        assert words(handler.__name__) == words(kind.__name__)


@cache
def makers() -> list[tuple[str, set[str]]]:
    """Names that functions of the client call, and the words of each function or its class."""
    found = []
    for path in CLIENT.rglob("*.py"):
        todo: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text(encoding="utf-8")), "")]
        while todo:
            node, name = todo.pop()
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name != "__init__":
                name = node.name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.append((node.func.id, words(name) - {"async"}))
            todo += [(child, name) for child in ast.iter_child_nodes(node)]
    return found


@pytest.mark.parametrize(
    "kind",
    sorted(CALLS - BY_EVERY_OBJECT - BY_THE_CLIENT_IN_C, key=lambda kind: kind.__name__),
    ids=lambda kind: kind.__name__,
)
def test_every_call_is_made_by_a_function_named_with_its_words(kind: type[Call]) -> None:
    known = words(kind.__name__) | MADE.get(kind, set())
    used = [name for called, name in makers() if called == kind.__name__]
    assert used
    assert any(name and name <= known for name in used), used


def test_no_message_is_of_two_kinds_but_ping() -> None:
    assert {Ping} == CALLS & UPCALLS
    assert not RESULTS & (CALLS | UPCALLS)
