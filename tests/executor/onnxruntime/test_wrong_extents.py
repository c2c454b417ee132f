"""Whole graphs whose files declare wrong extents of outputs, which onnxruntime in process only warns of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the engine")

import nnburst
from nnburst.client import arguments
from nnburst.formats import onnx_writer
from nnburst.hal.errors import GeneralFailure, InvalidArgument, OutputInsufficientSize
from nnburst.hal.whole_graph import BY_NAME
from nnburst.importer.load import load_graph

Array = np.ndarray[Any, Any]
Extents = tuple[int, ...]
FLOAT, INT, LONG = (BY_NAME[name].number for name in ("float", "int32", "int64"))


def expand(declared: Sequence[int | str], rank: int = 2, element: int = FLOAT) -> bytes:
    """Repeats x to the extents that its second input has, but declares others."""
    return onnx_writer.model(
        [onnx_writer.node("Expand", ["x", "extents"], ["y"], {})],
        [],
        [
            onnx_writer.described("x", element, (1,)),
            onnx_writer.described("extents", LONG, (rank,)),
        ],
        [onnx_writer.described("y", element, tuple(declared))],
        opset=17,
        version=9,
    )


def add(given: Extents, declared: Extents) -> bytes:
    """Doubles x; the engine finds at once that the output's extents are those of x."""
    return onnx_writer.model(
        [onnx_writer.node("Add", ["x", "x"], ["y"], {})],
        [],
        [onnx_writer.described("x", FLOAT, given)],
        [onnx_writer.described("y", FLOAT, declared)],
        opset=17,
        version=9,
    )


def cut(declared: Extents) -> bytes:
    """The last three of four columns; the engine finds the extents when it has folded the constants."""
    numbers = {"starts": 1, "ends": 2**31 - 1, "axes": 1}
    return onnx_writer.model(
        [onnx_writer.node("Slice", ["x", *numbers], ["y"], {})],
        [
            onnx_writer.tensor(name, INT, (1,), np.array([number], np.int32).tobytes())
            for name, number in numbers.items()
        ],
        [onnx_writer.described("x", FLOAT, (5, 4))],
        [onnx_writer.described("y", FLOAT, declared)],
        opset=17,
        version=9,
    )


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("onnxruntime") as found:
        yield found


Execute = Callable[[list[Array]], Array]


def by_socket(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    model = nnburst.load(content, as_graph=True)
    prepared = stack.enter_context(device.prepare(model, bursts=False))
    return lambda given: prepared.execute(given).outputs[0]


def by_own_burst(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    prepared = stack.enter_context(device.prepare(nnburst.load(content, as_graph=True)))
    return lambda given: prepared.execute(given).outputs[0]


def asynchronously(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    prepared = stack.enter_context(device.prepare(nnburst.load(content, as_graph=True)))
    return lambda given: prepared.execute_async(given).result(30.0).outputs[0]


def by_burst(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    prepared = stack.enter_context(device.prepare(nnburst.load(content, as_graph=True)))
    burst = stack.enter_context(prepared.open_burst())
    return lambda given: burst.execute(given).outputs[0]


def into_given_room(device: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    prepared = stack.enter_context(device.prepare(nnburst.load(content, as_graph=True)))
    burst = stack.enter_context(prepared.open_burst())
    room = np.zeros((200, 200), np.float32)
    return lambda given: burst.execute(given, [room]).outputs[0]


def by_plan(_: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    model = nnburst.load(content, as_graph=True)
    compiled = stack.enter_context(nnburst.compile(model))
    return lambda given: compiled.execute(given).outputs[0]


def by_burst_of_plan(_: nnburst.Device, content: bytes, stack: ExitStack) -> Execute:
    model = nnburst.load(content, as_graph=True)
    compiled = stack.enter_context(nnburst.compile(model))
    burst = stack.enter_context(compiled.open_burst())
    return lambda given: burst.execute(given).outputs[0]


WAYS = [
    by_socket,
    by_own_burst,
    asynchronously,
    by_burst,
    into_given_room,
    by_plan,
    by_burst_of_plan,
]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@pytest.mark.parametrize("way", [by_socket, by_burst, by_plan], ids=lambda way: way.__name__)
@pytest.mark.parametrize("given", [(3,), (2, 2), (1, 7)], ids=str)
@pytest.mark.parametrize("declared", [(2,), (7,), (4, 1)], ids=str)
def test_results_have_the_shape_that_the_engine_finds_when_it_loads_the_file(
    device: nnburst.Device, way: Callable[..., Execute], given: Extents, declared: Extents
) -> None:
    x = np.arange(np.prod(given), dtype=np.float32).reshape(given)
    with ExitStack() as stack:
        execute = way(device, add(given, declared), stack)
        for _ in range(4):
            np.testing.assert_array_equal(execute([x]), x + x, strict=True)


@ways
@pytest.mark.parametrize("declared", [(5, 2), (5, 4), (15,)], ids=str)
def test_results_have_the_shape_that_the_engine_finds_by_folding_constants(
    device: nnburst.Device, way: Callable[..., Execute], declared: Extents
) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    with ExitStack() as stack:
        execute = way(device, cut(declared), stack)
        for _ in range(4):
            np.testing.assert_array_equal(execute([x]), x[:, 1:], strict=True)


#: As declared so often that it goes without Python, then less, more, and as declared again.
SHAPES = [(2, 2)] * 4 + [(1, 2), (2, 2), (1, 4), (5, 7), (2, 2), (150, 150), (0, 3), (1, 1)]


@ways
@pytest.mark.parametrize("declared", [(2, 2), ("n", 2)], ids=str)
def test_results_have_the_shape_that_each_run_computes(
    device: nnburst.Device, way: Callable[..., Execute], declared: tuple[int | str, ...]
) -> None:
    with ExitStack() as stack:
        execute = way(device, expand(declared), stack)
        for at, shape in enumerate(SHAPES):
            found = execute([np.array([at], np.float32), np.array(shape)])
            np.testing.assert_array_equal(found, np.full(shape, at, np.float32), strict=True)


@ways
def test_rank_may_be_wrong_too(device: nnburst.Device, way: Callable[..., Execute]) -> None:
    with ExitStack() as stack:
        execute = way(device, expand((4,)), stack)
        for shape in [(2, 2), (2, 2), (2, 3), (1, 1)]:
            found = execute([np.array([3], np.float32), np.array(shape)])
            np.testing.assert_array_equal(found, np.full(shape, 3, np.float32), strict=True)


def test_the_log_has_one_line(
    device: nnburst.Device, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "_told", set())
    with caplog.at_level(logging.WARNING, "nnburst.client"), ExitStack() as stack:
        execute = by_burst(device, expand((2, 2)), stack)
        for shape in [(2, 2), (1, 4), (3, 3), (1, 4)]:
            execute([np.array([1], np.float32), np.array(shape)])
    (line,) = [record.getMessage() for record in caplog.records]
    assert "outputs[0]: the file declares [2, 2], the engine computes [1, 4]" in line


def test_bound_request_gives_what_fits_and_reports_what_does_not(device: nnburst.Device) -> None:
    model = nnburst.load(expand((2, 2)), as_graph=True)
    with device.prepare(model) as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        for shape in [(2, 2), (2, 2), (1, 3), (4, 1), (2, 2)]:
            bound.inputs[1][...] = shape
            np.testing.assert_array_equal(
                bound.run().outputs[0], np.ones(shape, np.float32), strict=True
            )
        bound.inputs[1][...] = (3, 3)
        with pytest.raises(OutputInsufficientSize) as refused:
            bound.run()
        assert refused.value.output_shapes[0].dimensions == (3, 3)


def test_failing_run_leaves_a_request_as_it_is(device: nnburst.Device) -> None:
    model = nnburst.load(expand((2, 2)), as_graph=True)
    with device.prepare(model) as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        for shape in [(2, 2), (2, -2), (2, 2), (1, 4), (2, -2), (2, 2)]:
            bound.inputs[1][...] = shape
            if min(shape) < 0:
                with pytest.raises(GeneralFailure):
                    bound.run()
            else:
                found = bound.run().outputs[0]
                np.testing.assert_array_equal(found, np.ones(shape, np.float32), strict=True)


def test_array_that_is_smaller_than_declared_is_refused(device: nnburst.Device) -> None:
    model = nnburst.load(expand((2, 2)), as_graph=True)
    with device.prepare(model) as prepared, pytest.raises(InvalidArgument, match="expected"):
        prepared.execute([np.ones(1, np.float32), np.array([1, 1])], [np.empty((1, 1), np.float32)])


def test_file_of_a_client_in_c_must_declare_what_the_engine_computes(
    device: nnburst.Device,
) -> None:
    with pytest.raises(InvalidArgument, match=r"is \[5, 3\], the model declares \[5, 2\]"):
        device.prepare(load_graph(cut((5, 2)), {}))
    with device.prepare(load_graph(expand((2, 2)), {})) as prepared:
        given = [np.ones(1, np.float32), np.array([2, 2])]
        assert prepared.execute(given).outputs[0].tolist() == [[1, 1], [1, 1]]
        given[1][...] = (1, 4)
        with pytest.raises(GeneralFailure):
            prepared.execute(given)
