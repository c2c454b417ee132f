"""Prints every message of src: `python tools/messages_page.py` writes docs/messages.md's text to stdout.

A message is the first argument of an error that the source makes, the text of a line of the log, or what is
given as `message` to a function of ours. What is only known at run time stands in braces, as in the source.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from source_trees import SOURCE, nodes
from source_trees import trees as trees_of

LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")
LOGGERS: Final = {"log", "logger", "_log", "_logger"}
#: Builtin errors that the source raises with a message of its own.
BUILTIN: Final = {
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
#: Where a line of the log takes an argument.
_PLACE: Final = re.compile(r"%[.\d]*[sdrfg]")

_HEAD: Final = """\
# Messages

Every message that an error of each class carries, and every line of the log, as they stand in the source:
what stands in braces is known at run time. A message names the argument, its value and the rule; a line
of the log, what failed and what happens next. `tools/messages_page.py` makes this page when the
documentation is built.
"""


@dataclass(frozen=True, order=True)
class Message:
    """One message: what carries it (an error's class, or a level of the log), its text and its place."""

    carrier: str
    text: str
    module: str
    line: int

    @property
    def logged(self) -> bool:
        """Whether it is a line of the log."""
        return self.carrier.startswith("log.")


@cache
def messages(source: Path = SOURCE) -> tuple[Message, ...]:
    """Every message of the modules under `source`, sorted by what carries it and by module."""
    trees = {str(path.relative_to(source)): tree for path, tree in trees_of(source).items()}
    carriers = _error_classes(trees.values()) | BUILTIN
    takers = _takers(trees.values())
    found = [
        message
        for module, tree in trees.items()
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        for message in _of_call(node, module, carriers, takers)
    ]
    found.sort(key=lambda one: (one.logged, one.carrier, one.module, one.line))
    return tuple(found)


def _error_classes(trees: Iterable[ast.Module]) -> set[str]:
    """Names of the classes of `trees` that derive from an exception, however indirectly."""
    bases = {
        node.name: {_last_name(base) for base in node.bases}
        for tree in trees
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef)
    }
    errors: set[str] = set()
    while more := {
        name for name, of in bases.items() if of & (errors | BUILTIN) and name not in errors
    }:
        errors |= more
    return errors


def _takers(trees: Iterable[ast.Module]) -> dict[str, int]:
    """Functions and classes with a parameter named `message`, and its place among the arguments of a call."""
    takers = {}
    for tree in trees:
        made_by = {
            id(function): node.name
            for node in nodes(tree)
            if isinstance(node, ast.ClassDef)
            for function in node.body
            if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        }
        for node in nodes(tree):
            if isinstance(node, ast.FunctionDef):
                names = [argument.arg for argument in node.args.args]
                if "message" in names:
                    name = made_by.get(id(node), node.name)
                    takers[name] = names.index("message") - (names[0] in ("self", "cls"))
    return takers


def _of_call(
    node: ast.Call, module: str, carriers: set[str], takers: dict[str, int]
) -> Iterator[Message]:
    name = _last_name(node.func)
    if isinstance(node.func, ast.Attribute) and _last_name(node.func.value) in LOGGERS:
        if name in LEVELS and node.args:
            yield Message(f"log.{name}", _logged(node.args), module, node.lineno)
    elif name in carriers or name in takers:
        place = takers.get(name, 0)
        if name not in takers and len(node.args) > 1 and not _is_text(node.args[0]):
            place = 1  # OSError's number comes first
        if len(node.args) > place and _is_text(node.args[place]):
            yield Message(name, _text(node.args[place]), module, node.lineno)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_text(node: ast.expr) -> bool:
    """Whether a text is written here, at least in part."""
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node)
    )


def _text(node: ast.expr) -> str:
    """The text as it is written; what is computed stands in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{_text(body)} | {_text(other)}"
        case _:
            return "{" + ast.unparse(node) + "}"


def _logged(arguments: list[ast.expr]) -> str:
    """A line of the log, with its arguments in their places."""
    text = _text(arguments[0])
    for argument in arguments[1:]:
        shown = "{" + ast.unparse(argument) + "}"
        text = _PLACE.sub(lambda _, shown=shown: shown, text, count=1)  # type: ignore[misc]
    return text


def page() -> str:
    """The page's text."""
    by_carrier: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for message in messages():
        by_carrier[message.carrier][message.text].append(message.module)
    lines = [_HEAD]
    for carrier, texts in by_carrier.items():
        lines += [f"\n## {carrier}\n", "| message | module |", "|---|---|"]
        for text, modules in texts.items():
            where = "<br>".join(f"`{module}`" for module in dict.fromkeys(modules))
            lines.append(f"| {_cell(text)} | {where} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    shown = text.strip().replace("\n", " ⏎ ").replace("|", "\\|").replace("`", "'")
    return f"`{shown}`"


if __name__ == "__main__":
    sys.stdout.write(page())
