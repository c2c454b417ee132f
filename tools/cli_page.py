"""Prints every command and its options: what docs/commands.md has when the documentation is built."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from nnburst.cli import parser as parser_of_all

_HEAD: Final = """\
# Commands

`nnburst COMMAND --help` prints the same. A command exits with 0 if it succeeds, with 1 and one line on
stderr if it fails, and with 2 for a wrong option. `-v` before the command logs more, `-vv` all;
`--version` prints the version. `tools/cli_page.py` makes this page from the commands' parsers when the
documentation is built.
"""

#: Commands by their first word, grouped by the purpose that people have.
_GROUPS: Final = {
    "Run": ("demo", "run", "serve", "trace", "capi", "ep", "delegate", "executor", "new-executor"),
    "Look": ("devices", "env", "fmq", "inspect", "top"),
    "Measure": ("bench",),
    "Test": ("selftest", "conformance", "fuzz", "stress"),
}


def page() -> str:
    """The page's text: a table of each group, then each command with its options."""
    commands = list(_commands(parser_of_all()))
    tables = [line for title, words in _GROUPS.items() for line in _table(title, words, commands)]
    return "".join([_HEAD, *tables, *(line for parser in commands for line in _of(parser))])


def _table(
    title: str, words: Sequence[str], commands: Sequence[argparse.ArgumentParser]
) -> Iterator[str]:
    """The commands of a group, each with the first sentence of its description."""
    yield f"\n## {title}\n\n| command | |\n|---|---|\n"
    for parser in commands:
        first = parser.prog.split()[1]
        if not any(first in group for group in _GROUPS.values()):
            raise ValueError(f"{parser.prog} is in no group of tools/cli_page.py")
        if first in words:
            text = _sentence(" ".join((parser.description or "").split()), parser.prog)
            yield f"| [`{parser.prog}`](#{parser.prog.replace(' ', '-')}) | {_first(text)} |\n"


def _first(text: str) -> str:
    """The first sentence of a text, as a cell of a table."""
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0].replace("|", "\\|")


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands below a parser, those of groups in their place."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in sorted(action.choices):
                below = list(_commands(action.choices[name]))
                yield from below or [action.choices[name]]


def _of(parser: argparse.ArgumentParser) -> Iterator[str]:
    arguments = [action for action in parser._actions if action.dest != "help"]
    shown = [action for action in arguments if action.help != argparse.SUPPRESS]
    words = [_synopsis(action) for action in shown]
    yield f"\n## {parser.prog}\n\n"
    if parser.description:
        yield f"{_sentence(' '.join(parser.description.split()), parser.prog)}\n\n"
    yield f"```sh\n{_folded(parser.prog, words)}\n```\n"
    if shown:
        yield "\n| argument | |\n|---|---|\n"
    for action in shown:
        yield f"| `{_spelt(action)}` | {_help(parser, action)} |\n"


def _folded(prog: str, words: Sequence[str]) -> str:
    """A command line in lines of 80 columns, as a shell takes it; a word is never cut."""
    lines = [prog]
    for word in words:
        if len(lines[-1]) + len(word) > 76:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _sentence(text: str, prog: str) -> str:
    """A description without the command's own name before it, as a sentence."""
    text = text.removeprefix(f"`{prog}`: ")
    return text[:1].upper() + text[1:]


def _synopsis(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return value
    word = f"{action.option_strings[-1]} {value}".rstrip()
    return word if action.required else f"[{word}]"


def _value(action: argparse.Action) -> str:
    """The value of an argument as a synopsis has it; empty for a flag."""
    if action.nargs == 0:
        return ""
    name = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if isinstance(name, tuple):
        return " ".join(name)
    repeated: dict[object, str] = {
        "*": f"[{name} ...]",
        "+": f"{name} [{name} ...]",
        "?": f"[{name}]",
        "...": f"{name} ...",
    }
    if isinstance(action.nargs, int):
        return " ".join([name] * action.nargs)
    return repeated.get(action.nargs, name)


def _spelt(action: argparse.Action) -> str:
    words = [f"{option} {_value(action)}".rstrip() for option in action.option_strings]
    return ", ".join(words) or _value(action)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    facts = {**vars(action), "prog": parser.prog}
    return " ".join(((action.help or "") % facts).split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
