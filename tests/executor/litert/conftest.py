"""Both routes to the engine, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nnburst.executor.litert import native


@pytest.fixture(params=["library", "interpreter"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The route that executors of this test take."""
    monkeypatch.setenv("NNBURST_LITERT_ROUTE", request.param)
    native.available.cache_clear()
    yield request.param
    native.available.cache_clear()
