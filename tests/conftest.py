"""What every test may use: the reference data beside the repository, where there is any.

Tests that read it are marked `shared` and skip without it; everything else runs from a clone alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("NNBURST_SHARED", ROOT / "../shared")).resolve()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `shared` where the reference data is absent."""
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason=f"no reference data at {SHARED} (set NNBURST_SHARED)")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of the reference data (`spec/`, `vectors/`, `golden/`, `models/`)."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data at {SHARED} (set NNBURST_SHARED)")
    return SHARED
