"""Text that people and programs read: aligned, and plain where nobody looks at a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.cli.output import microseconds, plain_table, progress, table

WORDS = st.text("abc 0123456789.", max_size=12)


def test_table_aligns_first_column_left_and_numbers_right() -> None:
    assert plain_table("T", ["case", "µs"], [["a", "1.50"], ["longer", "12"]]).splitlines() == [
        "T",
        "  case      µs",
        "  ------  ----",
        "  a       1.50",
        "  longer    12",
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


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(0, "0.00"), (380, "0.38"), (12_340, "12.3"), (1_234_567, "1235")]
)
def test_microseconds_keep_three_digits(nanoseconds: float, text: str) -> None:
    assert microseconds(nanoseconds) == text
