"""Trace hooks."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nnburst.tracing.slices import Layer, Phase, set_tracer, trace


@pytest.fixture
def slices() -> Iterator[list[str]]:
    seen: list[str] = []

    @contextmanager
    def tracer(name: str) -> Iterator[None]:
        seen.append(f"begin {name}")
        yield
        seen.append(f"end {name}")

    set_tracer(tracer)
    yield seen
    set_tracer(None)


def test_a_slice_is_named_as_nnapi_names_it(slices: list[str]) -> None:
    with trace(Layer.DRIVER, Phase.EXECUTION, "miss"):
        slices.append("work")
    assert slices == ["begin [NN_LD_PE]miss", "work", "end [NN_LD_PE]miss"]


def test_nothing_is_traced_without_a_tracer() -> None:
    with trace(Layer.IPC, Phase.COMPILATION, "prepareModel") as slice_:
        assert slice_ is None
