"""Whole .tflite graphs whose files declare no extents for their outputs, or wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.importer.load import load_graph
from nnburst.testing.models.tflite_builder import TfliteBuilder

Array = np.ndarray[Any, Any]
Extents = tuple[int, ...]
Execute = Callable[[list[Array]], Array]


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("litert") as found:
        yield found


def negated(declared: Extents) -> bytes:
    """The engine finds the extents, (2, 3), as soon as it has the file."""
    b = TfliteBuilder()
    b.operator("NEG", [b.input("FLOAT32", (2, 3))], [b.output("FLOAT32", declared)])
    return b.finish()


def places(declared: Extents) -> bytes:
    """Where elements are true: a run finds the extents."""
    b = TfliteBuilder()
    b.operator("WHERE", [b.input("BOOL", (6,))], [b.output("INT64", declared)], "WhereOptions")
    return b.finish()


def by_socket(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    model = nnburst.load(content, as_graph=True)
    prepared = stack.enter_context(device.prepare(model, bursts=False))
    return lambda given: prepared.execute(given).outputs[0]


def by_burst(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    prepared = stack.enter_context(device.prepare(nnburst.load(content, as_graph=True)))
    burst = stack.enter_context(prepared.open_burst())
    return lambda given: burst.execute(given).outputs[0]


def by_plan(_: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    compiled = stack.enter_context(nnburst.compile(nnburst.load(content, as_graph=True)))
    return lambda given: compiled.execute(given).outputs[0]


ways = pytest.mark.parametrize("way", [by_socket, by_burst, by_plan], ids=lambda way: way.__name__)


@ways
@pytest.mark.parametrize("declared", [(), (2,), (1, 3), (7, 3), (6,)], ids=str)
def test_results_have_the_shape_that_the_engine_finds(
    device: nnburst.Device, way: Callable[..., Execute], declared: Extents
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with ExitStack() as stack:
        execute = way(device, negated(declared), stack)
        for _ in range(4):
            np.testing.assert_array_equal(execute([x]), -x, strict=True)


@ways
@pytest.mark.parametrize("declared", [(), (2, 1), (9, 1)], ids=str)
def test_results_have_the_shape_that_each_run_finds(
    device: nnburst.Device, way: Callable[..., Execute], declared: Extents
) -> None:
    with ExitStack() as stack:
        execute = way(device, places(declared), stack)
        for given in (
            [1, 0, 1, 0, 0, 0],
            [0, 1, 1, 1, 1, 1],
            [0, 1, 0, 0, 0, 0],
            [1, 0, 1, 0, 0, 0],
        ):
            x = np.array(given, bool)
            np.testing.assert_array_equal(execute([x]), np.argwhere(x), strict=True)


def test_file_of_a_client_in_c_must_declare_what_the_engine_finds(device: nnburst.Device) -> None:
    with pytest.raises(InvalidArgument, match=r"is \[2, 3\], the model declares \[7, 3\]"):
        device.prepare(load_graph(negated((7, 3)), {}))
    with (
        device.prepare(load_graph(places((9, 1)), {})) as prepared,
        pytest.raises(GeneralFailure, match=r"an output is \(6, 1\), not \(9, 1\)"),
    ):
        prepared.execute([np.ones(6, bool)])
