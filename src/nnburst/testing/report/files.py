"""A report as files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nnburst.testing.report.page import page
from nnburst.testing.report.results import Report


def write(report: Report, folder: Path) -> None:
    """Write a report as report.json and report.html.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (folder / "report.html").write_text(page(report), encoding="utf-8")
