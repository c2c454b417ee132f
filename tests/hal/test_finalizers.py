"""Objects whose constructor was interrupted are finalised without a message."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import nnburst

PACKAGE = Path(nnburst.__file__).parent


def classes_with_finalizers() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        kind = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("class "):
                kind = line.removeprefix("class ").partition(":")[0].partition("(")[0]
            elif line.startswith("    def __del__("):
                module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
                found.append(f"{module}:{kind}")
    return found


@pytest.mark.parametrize("name", classes_with_finalizers())
def test_object_that_was_never_constructed_is_finalised_silently(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    module, _, kind = name.partition(":")
    found = getattr(importlib.import_module(module), kind)
    found.__new__(found)
    assert failed == []
