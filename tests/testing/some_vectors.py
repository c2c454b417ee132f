"""The vectors that the everyday tests run; `make campaign` runs all."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nnburst.testing.conformance.campaign import find_files

#: One file of so many: a prime, so that the operations, of which each has a few files, take turns.
_ONE_OF: Final = 23


def some_files(shared_dir: Path) -> list[Path]:
    """Files from all folders of the vectors."""
    return find_files([shared_dir / "vectors"])[::_ONE_OF]
