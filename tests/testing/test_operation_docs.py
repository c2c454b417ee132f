"""The generated page of operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from operation_docs import deviations, main, page


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def section(text: str, name: str) -> str:
    return text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def test_a_section_lists_operands_with_names_types_and_remarks(text: str) -> None:
    found = section(text, "RESIZE_BILINEAR")
    assert "Code 23, since 1.0." in found
    assert "| 0 | `input` | T | data | rank 4 |" in found
    assert "| 1 | `width` | S | control |  |" in found
    assert "| 5 | `half_pixel_centers` | BOOL | control | default False, since 1.3 |" in found
    assert "| 1.2 | INT32 | TENSOR_QUANT8_ASYMM |" in found


def test_types_of_one_variable_share_a_line_per_version(text: str) -> None:
    assert "| 1.0 | TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM |" in section(text, "CONCATENATION")


def test_operands_behind_repeated_ones_are_counted_from_them(text: str) -> None:
    found = section(text, "CONCATENATION")
    assert "| 0… | `input` | T | data | 1 or more, rank 1 to 4 |" in found
    assert "| last | `axis` | INT32 | control |  |" in found


def test_omitted_operands_and_forms_are_named(text: str) -> None:
    assert "may be omitted" in section(text, "SVDF")
    assert "Form *implicit padding*" in section(text, "CONV_2D")


def test_no_type_is_older_than_its_operation(text: str) -> None:
    assert "| 1.0 |" not in section(text, "UNIDIRECTIONAL_SEQUENCE_LSTM")


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('"""Docs. DEVIATES: one line."""\ncode', ["one line."]),
        ('"""DEVIATES: two\n    lines.\n    """\ncode', ["two lines."]),
        ('"""DEVIATES: a paragraph.\n\nAnother one.\n"""', ["a paragraph."]),
        ("# DEVIATES: in a\n    # comment.\n    code", ["in a comment."]),
        ("#: DEVIATES: of a\n#: constant.\nx = 1", ["of a constant."]),
        ("# DEVIATES: one\n\n# DEVIATES: two", ["one", "two"]),
        ("nothing", []),
    ],
)
def test_deviations_end_with_their_paragraph(source: str, wanted: list[str]) -> None:
    assert list(deviations(source)) == wanted


def test_the_command_writes_the_page(tmp_path: Path, text: str) -> None:
    main([str(tmp_path / "operations.md")])
    assert (tmp_path / "operations.md").read_text("utf-8") == text
