"""Prints the results of commands: tables and progress for people, JSON for machines.

On a terminal `rich` draws them, if it is installed; a pipe, a file or a plain installation gets
plain text without control characters.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from nnburst.hal.errors import InvalidArgument

Cells = Sequence[object]

#: Suffixes of pictures.
_PICTURES: Final = (".svg", ".png", ".pdf")
#: Width that tables keep to if the output is not a terminal.
_COLUMNS: Final = 80
#: Least width to which a column of words is narrowed.
_NARROWEST: Final = 8
#: Seconds between two lines of progress.
_EVERY: Final = 10.0
#: A cell that belongs to a column of numbers: 12, 0.38, -1e3, 99.3%, 2.6×, or nothing.
_NUMBER: Final = re.compile(r"([-+]?\d[\d.,]*(e[-+]?\d+)?\s?[%×]?)?")


def add_json_option(
    parser: argparse.ArgumentParser, what: str = "also write the figures as JSON"
) -> None:
    """Add the option `--json FILE` to a command (`args.json`: a Path or None; "-" is stdout).

    A file that cannot be written is refused when the arguments are parsed, before any work is done.

    Args:
        parser: the command's parser.
        what: what the option does, for the help.
    """
    parser.add_argument("--json", type=_json_file, metavar="FILE", help=f"{what} (-: stdout)")


def _json_file(text: str) -> Path:
    return Path(text) if text == "-" else writable_file(text)


def writable_file(text: str) -> Path:
    """Parse the path of a file (type of an option); a path that cannot be written is wrong usage."""
    path = Path(text)
    target = path if path.exists() else path.parent
    if path.is_dir() or not os.access(target, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text}")
    return path


def writable_folder(text: str) -> Path:
    """Parse the path of a folder for files (type of an option), which is made later if it does not exist.

    A path at which no folder can be made is wrong usage.
    """
    path = Path(text)
    nearest = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text}")
    return path


def picture_file(text: str) -> Path:
    """Parse the path of a picture that matplotlib draws (type of an option), as `writable_file` does."""
    path = writable_file(text)
    if path.suffix not in _PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a name in {', '.join(_PICTURES)}")
    return path


@contextmanager
def text_for_people(json_path: Path | None) -> Iterator[None]:
    """Redirect printed text to stderr if the JSON goes to stdout."""
    if str(json_path) == "-":
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield


#: Returns further fields of a benchmark's JSON; called when the JSON is written.
_more: ContextVar[Callable[[], dict[str, object]] | None] = ContextVar("more", default=None)


def conditions() -> dict[str, object]:
    """The conditions that `also_in_json` would add now: how quiet the machine has been."""
    more = _more.get()
    found = more() if more is not None else {}
    within = found.get("conditions", {})
    return within if isinstance(within, dict) else {}


@contextmanager
def also_in_json(more: Callable[[], dict[str, object]]) -> Iterator[None]:
    """Within this context, add the fields that `more` returns to each object that is written as JSON."""
    token = _more.set(more)
    try:
        yield
    finally:
        _more.reset(token)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within this context, errors of the file system name `path`: a failed write does not name its file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_json(path: Path | None, value: object) -> None:
    """Write `value` as JSON to `path`, with the fields of `also_in_json`; do nothing if `path` is None.

    Floats that JSON lacks, NaN and infinities, become null.

    Raises:
        InvalidArgument: the path is "-" and stdout is closed.
        OSError: the file cannot be written.
    """
    if path is None:
        return
    more = _more.get()
    if more is not None and isinstance(value, dict):
        value = {**value, **more()}
    text = json.dumps(_expressible(value), indent=2, allow_nan=False) + "\n"
    if str(path) == "-":
        if sys.stdout is None:
            raise InvalidArgument("--json -: stdout is closed")
        sys.stdout.write(text)
    else:
        with writing(path):
            path.write_text(text, encoding="utf-8")


def _expressible(value: object) -> object:
    """`value` with None for each float that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _expressible(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_expressible(each) for each in value]
    return value


def printable(text: str) -> str:
    """`text` with control characters as escapes: names in files are not trusted."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text
    )


class Coloured(NamedTuple):
    """A cell of a table with a colour behind it, if the output has colours.

    Attributes:
        text: the cell's text.
        colour: a light colour as "#rrggbb"; "" for none.
    """

    text: str
    colour: str

    def __str__(self) -> str:
        """The text alone."""
        return self.text


def table(title: str, columns: Sequence[str], rows: Sequence[Cells]) -> None:
    """Print a table: columns of numbers right-aligned, columns of words left-aligned; see `printable`."""
    title, columns = printable(title), [printable(column) for column in columns]
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    if _is_rich():
        colours = [
            [cell.colour if isinstance(cell, Coloured) else "" for cell in row] for row in rows
        ]
        _rich_table(title, columns, texts, colours)
    else:
        print(plain_table(title, columns, texts))


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table as text in 80 columns, every line without trailing blanks.

    Words that do not fit go on in the lines below. If the numbers alone need more, each row becomes a list.
    """
    numeric = _numeric(columns, rows)
    widths = _fitting(columns, rows, numeric)
    if widths is None:
        return "\n".join([*textwrap.wrap(title, _COLUMNS), *_as_lists(columns, rows), ""])
    sides = [">" if number else "<" for number in numeric]
    lines = [columns, ["-" * width for width in widths], *rows]
    texts = [_line(part, widths, sides) for cells in lines for part in _wrapped(cells, widths)]
    return "\n".join([*textwrap.wrap(title, _COLUMNS), *texts, ""])


def _fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[int] | None:
    """Widths of the columns with which a row fits into 80 characters; None if it cannot.

    Lines break between words if that is enough, else within words; within those of the first column, which
    are names, only if that is not enough, and within short words of the head only as a last resort. Numbers
    stay whole.
    """
    natural = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    numbers = [max((len(row[at]) for row in rows), default=1) for at in range(len(columns))]
    words = [
        max((len(word) for cell in column for word in cell.split()), default=1)
        for column in zip(columns, *rows, strict=True)
    ]
    cut = [most if number else _NARROWEST for most, number in zip(numbers, numeric, strict=True)]
    heads = [
        max([least, *(min(len(word), _NARROWEST) for word in column.split())])
        for least, column in zip(cut, columns, strict=True)
    ]
    for least in (words, [words[0], *heads[1:]], heads, [words[0], *cut[1:]], cut):
        widths, room = natural.copy(), _COLUMNS - 2 * len(natural)
        while sum(widths) > room:
            able = [at for at, width in enumerate(widths) if width > max(least[at], 1)]
            if not able:
                break
            widths[max(able, key=lambda at: widths[at])] -= 1
        else:
            return widths
    return None


def _wrapped(cells: Sequence[str], widths: Sequence[int]) -> Iterator[list[str]]:
    """A row as the lines that it takes."""
    parts = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(cells, widths, strict=True)
    ]
    for line in itertools.zip_longest(*parts, fillvalue=""):
        yield list(line)


def _as_lists(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as a list of its cells, named by their columns."""
    for row in rows:
        for first, (column, cell) in enumerate(zip(columns, row, strict=True)):
            if cell:
                yield from textwrap.wrap(
                    f"{column}: {cell}",
                    _COLUMNS,
                    initial_indent="    " if first else "  ",
                    subsequent_indent="      ",
                )


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[str]) -> str:
    placed = zip(cells, sides, widths, strict=True)
    return "  ".join(["", *(f"{cell:{side}{width}}" for cell, side, width in placed)]).rstrip()


def _numeric(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Whether each column holds numbers (or nothing) only."""
    return [
        any(row[index] for row in rows) and all(_NUMBER.fullmatch(row[index]) for row in rows)
        for index in range(len(columns))
    ]


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a long step; call the context's value with the number of units just done.

    A pipe gets a line when the step begins, and another one every 10 s.
    """
    if not _is_rich():
        print(f"{description} ...", flush=True)
        yield _Lines(description, total).advance
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)


class _Lines:
    """Shows progress as lines, for an output that is not a terminal."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total = description, total
        self._done, self._printed = 0, time.monotonic()

    def advance(self, units: int) -> None:
        """Count units as done; print a line if the last one is 10 s old."""
        self._done += units
        now = time.monotonic()
        if now - self._printed >= _EVERY:
            self._printed = now
            print(f"{self._description} ... {self._done} of {self._total}", flush=True)


def microseconds(nanoseconds: float) -> str:
    """A duration for a table cell: microseconds with three significant digits or more."""
    value = nanoseconds / 1000
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _is_rich() -> bool:
    # `sys.stdout` is None in a process that is started without one; print() does nothing then.
    return sys.stdout is not None and sys.stdout.isatty() and find_spec("rich") is not None


def _rich_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    colours: Sequence[Sequence[str]],
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table()
    for column, numeric in zip(columns, _numeric(columns, rows), strict=True):
        drawn.add_column(column, justify="right" if numeric else "left")
    for row, behind in zip(rows, colours, strict=True):
        looks = [f"black on {colour}" if colour else "" for colour in behind]
        drawn.add_row(*map(Text, row, looks))
    console = Console(markup=False, highlight=False)  # rich would read text in brackets as markup
    console.print(title, drawn, sep="\n")
