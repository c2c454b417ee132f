"""Writes docs/c_functions.md: every function of the C interface with what it does."""

from __future__ import annotations

from itertools import groupby

from nnburst.capi.functions import FUNCTIONS, PREFIX, Function


def page() -> str:
    """The text of the page."""
    lines = [
        "# Functions of the C interface",
        "",
        "From the table in `src/nnburst/capi/functions.py`; see [c_interface.md](c_interface.md) for"
        " its use.",
        "The level is the feature level that brought the function; *ext* is for the calls of extensions.",
        "",
    ]
    for section, functions in groupby(FUNCTIONS, _section):
        lines += [f"## {section}", "", "| function | arguments | level | what it does |"]
        lines += ["|---|---|---|---|", *(_row(function) for function in functions), ""]
    return "\n".join(lines)


def _section(function: Function) -> str:
    return function.name.removeprefix(PREFIX).partition("_")[0] or "Runtime"


def _row(function: Function) -> str:
    arguments = ", ".join(f"`{argument.declaration}`" for argument in function.arguments)
    level = function.level or "ext"
    return f"| `{function.name}` | {arguments} | {level} | {function.summary} |"
