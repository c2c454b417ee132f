"""The version that a model needs: a feature level, and whether only the framework can run it (RT:D5)."""

from __future__ import annotations

from typing import NamedTuple

from nnburst.hal.enums import FeatureLevel


class ModelVersion(NamedTuple):
    """What a model or a part of it needs.

    Attributes:
        level: lowest feature level that can say it.
        runtime_only: it has control flow with unknown sizes, which no driver takes.
    """

    level: FeatureLevel
    runtime_only: bool = False

    def fits(self, level: FeatureLevel, *, is_runtime: bool) -> bool:
        """Whether a driver of `level` (or the framework itself) takes it."""
        return self.level <= level and (is_runtime or not self.runtime_only)
