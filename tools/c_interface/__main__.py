"""Writes what follows from the table: `PYTHONPATH=tools python -m c_interface`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from c_interface import header, page, stubs

ROOT: Final = Path(__file__).resolve().parents[2]


def files() -> dict[str, str]:
    """Path below the checkout to text, of each file that is written."""
    include = "src/nnburst/capi/include"
    return {
        **{f"{include}/android/{name}": text for name, text in header.headers().items()},
        **{f"{include}/{name}": text for name, text in header.forwarding_headers().items()},
        "csrc/capi/functions.h": stubs.table(),
        "csrc/capi/descriptions.c": stubs.descriptions(),
        "csrc/capi/entries.c": stubs.entries(),
        "csrc/capi/exports.map": stubs.exports(),
        "docs/c_functions.md": page.page(),
    }


if __name__ == "__main__":
    for name, text in files().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
