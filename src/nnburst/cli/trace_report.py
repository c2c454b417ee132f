"""`nnburst trace report`: where the time went, by layer and phase."""

from __future__ import annotations

from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    """Print the report."""
    del words
    return 1
