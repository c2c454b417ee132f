"""Makes self-contained HTML pages: documents, paragraphs, lists, and tables of words and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 72em; padding: 0 1em;
  color: #1b1b1b; background: #fff; }
h1, li, td.words { overflow-wrap: anywhere; }
h1 { font-size: 1.5em; }
h2 { font-size: 1.15em; margin-top: 2em; border-top: 2px solid #999; padding-top: .6em; }
p.verdict { font-size: 1.1em; padding: .6em .8em; border-left: .4em solid; background: #f4f4f4; }
p.good { border-color: #1a7f37; } p.bad { border-color: #c0201c; }
p.note { color: #555; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0; }
caption { text-align: left; font-weight: 600; padding: .3em 0; }
th, td { border-bottom: 1px solid #ccc; padding: .2em .6em; text-align: right; vertical-align: top; }
th:first-child, td:first-child, th.words, td.words { text-align: left; }
thead th { position: sticky; top: 0; background: #fff; font-size: .85em; }
td.passed { background: #d9f2df; } td.failed { background: #f9c9c7; font-weight: 600; }
td.skipped, td.none { color: #666; } td.word { white-space: nowrap; }
.worse { color: #a40000; } .better { color: #006b2d; }
ul { padding-left: 1.2em; } li { margin: .25em 0; }
code { font-size: .92em; }
svg { max-width: 100%; height: auto; }
"""


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: text of the cell.
        look: its CSS classes: "words" for text on the left, "passed", "worse" …; or empty.
    """

    text: str
    look: str = ""


def document(title: str, parts: Iterable[str]) -> str:
    """Make a page: its title as a heading, and then all parts that are not empty."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def paragraph(text: str, look: str = "") -> str:
    """Make a paragraph with the CSS classes `look`."""
    return f"<p{_classes(look)}>{escape(text)}</p>"


def listed(lines: Iterable[str], tag: str = "") -> str:
    """Make a list of lines, each within the element `tag` if that is given."""
    before, after = (f"<{tag}>", f"</{tag}>") if tag else ("", "")
    return f"<ul>{''.join(f'<li>{before}{escape(line)}{after}</li>' for line in lines)}</ul>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Cell]], caption: str = "") -> str:
    """Make a table that scrolls horizontally if it is too wide.

    Args:
        columns: headings of the columns; no or only empty ones make a table without headings.
        rows: rows of cells; plain text is aligned right if it is a number, else left.
        caption: caption of the table.
    """
    cells = [[cell if isinstance(cell, Cell) else _cell(cell) for cell in row] for row in rows]
    looks = ["words" if "words" in cell.look else "" for cell in cells[0]] if cells else []
    looks += [""] * (len(columns) - len(looks))
    pairs = zip(columns, looks, strict=False)
    head = "".join(f"<th{_classes(look)}>{escape(column)}</th>" for column, look in pairs)
    top = f"<thead><tr>{head}</tr></thead>" if any(columns) else ""
    body = "".join(
        f"<tr>{''.join(f'<td{_classes(look)}>{escape(text)}</td>' for text, look in row)}</tr>\n"
        for row in cells
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}{top}<tbody>\n{body}</tbody></table></div>'


def _cell(text: str) -> Cell:
    try:
        float(text.removesuffix("%") or "0")
    except ValueError:
        return Cell(text, "words")
    return Cell(text)


def _classes(look: str) -> str:
    return f' class="{look}"' if look else ""
