"""Text that people and programs read: aligned, and plain if the output is not a terminal."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.cli import output
from nnburst.cli.output import (
    Coloured,
    add_json_option,
    microseconds,
    plain_table,
    printable,
    progress,
    table,
    text_for_people,
    write_json,
)
from nnburst.hal.errors import InvalidArgument

WORDS = st.text("abc 0123456789.", max_size=12)


def test_table_aligns_numbers_right_and_words_left() -> None:
    rows = [["a", "1.50", "x", ""], ["longer", "12", "word", "2.6×"]]
    assert plain_table("T", ["case", "µs", "text", "ratio"], rows).splitlines() == [
        "T",
        "  case      µs  text  ratio",
        "  ------  ----  ----  -----",
        "  a       1.50  x",
        "  longer    12  word   2.6×",
    ]


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=5))
def test_table_has_a_line_per_row_and_no_trailing_blanks(rows: list[tuple[str, str, str]]) -> None:
    lines = plain_table("T", ["a", "b", "c"], rows).splitlines()
    assert len(lines) == 3 + len(rows)
    assert all(line == line.rstrip() for line in lines)


def test_piped_output_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 3) as advance:
        advance(1)
        advance(2)
    table("T", ["a", "b"], [["x", 1]])
    shown = capsys.readouterr().out
    assert shown.startswith("working ...\n")
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_coloured_cells_are_their_text_unless_the_output_has_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich", reason="rich is not installed (extra 'cli')")
    rows = [[Coloured("x\x1b[0m", "#8dd3c7"), Coloured("y", ""), "[z]"]]
    table("T", ["a", "b", "c"], rows)
    assert capsys.readouterr().out.splitlines()[-2].split() == ["x\\x1b[0m", "y", "[z]"]
    monkeypatch.setattr(output, "_is_rich", lambda: True)
    for name, value in {
        "TTY_COMPATIBLE": "1",
        "FORCE_COLOR": "1",
        "COLORTERM": "truecolor",
        "TERM": "xterm",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    table("T", ["a", "b", "c"], rows)
    shown = capsys.readouterr().out
    assert shown.count("48;2;141;211;199m") == 1
    assert r"x\x1b[0m" in shown
    assert "[z]" in shown


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(0, "0.00"), (380, "0.38"), (12_340, "12.3"), (1_234_567, "1235")]
)
def test_microseconds_keep_three_digits(nanoseconds: float, text: str) -> None:
    assert microseconds(nanoseconds) == text


def parse(*words: str) -> Path | None:
    """`args.json` of a command that was given `words`."""
    parser = argparse.ArgumentParser()
    add_json_option(parser)
    path: Path | None = parser.parse_args(words).json
    return path


def test_json_goes_to_the_file(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    write_json(parse("--json", str(target)), {"cases": [1.5]})
    assert json.loads(target.read_text()) == {"cases": [1.5]}


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    figures = (np.float64("nan"), math.inf, 1.5, 2)
    write_json(target, {"cases": [{"figures": figures, "least": -math.inf}], "name": "inf"})
    found = json.loads(target.read_text())
    assert found == {"cases": [{"figures": [None, None, 1.5, 2], "least": None}], "name": "inf"}


def test_no_json_is_written_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    write_json(parse(), {"cases": []})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["absent/x.json", "."])
def test_json_file_that_cannot_be_written_is_wrong_usage(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("--json", str(tmp_path / name))
    assert ended.value.code == 2
    assert "cannot write" in capsys.readouterr().err


def test_json_on_stdout_sends_text_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    path = parse("--json", "-")
    with text_for_people(path):
        table("T", ["a"], [["x"]])
    write_json(path, [1])
    shown = capsys.readouterr()
    assert json.loads(shown.out) == [1]
    assert shown.err.startswith("T\n")


def test_json_on_a_stdout_that_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InvalidArgument, match="stdout is closed"):
        write_json(Path("-"), [1])


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_table_shows_nothing_that_steers_a_terminal(title: str, column: str, cell: str) -> None:
    with redirect_stdout(StringIO()) as shown:
        table(title, [column], [[cell]])
    assert all(line.isprintable() for line in shown.getvalue().split("\n"))


def test_what_can_be_printed_stays_as_it_is() -> None:
    assert printable("Straße µs 犬 [a] \\ ") == "Straße µs 犬 [a] \\ "
    assert printable("a\x1b[2Jb\r\n\u202e\ud800") == r"a\x1b[2Jb\r\n\u202e\ud800"
