"""Stock LiteRT runs networks on a driver by the delegate, and gets what it computes by itself."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.service import Service
from faults.processes import stop
from litert_delegate.conftest import MakeInterpreter, opened, operators, results, some_inputs
from nnburst import litert
from nnburst.testing.faults import footprint
from nnburst.testing.models.tflite_builder import TfliteBuilder
from waiting import error_of

#: Far longer than a test may take.
HOUR_MS = 3_600_000

SHARED_NETWORKS = (
    "kws_float",
    "kws_int8",
    "resnet8_float",
    "resnet8_int8",
    "vww_96_int8",
    "mobilenet_v1_0.25_128_uint8",
    "mobilenet_v2_1.0_224_uint8",
)


def layers(rows: int = 1) -> bytes:
    """y = softmax(relu(x w)), of 32 numbers to 8."""
    b = TfliteBuilder()
    x = b.input("FLOAT32", (rows, 32))
    w = b.constant("FLOAT32", np.random.default_rng(1).standard_normal((8, 32), np.float32))
    h = b.tensor("FLOAT32", (rows, 8))
    b.operator(
        "FULLY_CONNECTED", [x, w, -1], [h], "FullyConnectedOptions", fusedActivationFunction=1
    )
    b.operator("SOFTMAX", [h], [b.output("FLOAT32", (rows, 8))], "SoftmaxOptions", beta=1.0)
    return b.finish()


def through_shape() -> bytes:
    """An operator that is not claimed between two that are."""
    b = TfliteBuilder()
    x = b.input("FLOAT32", (2, 3))
    h, s = b.tensor("FLOAT32", (2, 3)), b.tensor("INT32", (2,))
    b.operator("ABS", [x], [h], "AbsOptions")
    b.operator("SHAPE", [h], [s], "ShapeOptions", outType=2)
    b.operator("ADD", [s, s], [b.output("INT32", (2,))], "AddOptions")
    b.operator("NEG", [h], [b.output("FLOAT32", (2, 3))], "NegOptions")
    return b.finish()


def children() -> set[int]:
    """Processes that this one has started and not reaped."""
    return {*footprint.children(os.getpid())}


def assert_same(engine: Any, interpreter: Any, network: bytes | Path, rounds: int = 2) -> None:
    """Both compute the same bits."""
    expected = opened(engine, network)
    for each in (expected, interpreter):
        each.allocate_tensors()
    for seed in range(rounds):
        values = some_inputs(expected, seed)
        assert results(interpreter, values) == results(expected, values)


@pytest.mark.shared
@pytest.mark.parametrize("name", SHARED_NETWORKS)
def test_networks_of_people_are_claimed_whole_and_have_the_bits_of_the_engine_itself(
    engine: Any, interpreter: MakeInterpreter, shared_dir: Path, name: str
) -> None:
    network = shared_dir / "models" / f"{name}.tflite"
    made = interpreter(network, fallback=False)
    assert operators(made).count("DELEGATE") == 1
    assert_same(engine, made, network)


def test_operator_that_is_not_claimed_runs_on_the_engine_itself(
    engine: Any, interpreter: MakeInterpreter, capfd: pytest.CaptureFixture[str]
) -> None:
    made = interpreter(through_shape())
    assert (
        "nnburst: 1 nodes are left to LiteRT: node 1: operator number 77" in capfd.readouterr().err
    )
    assert_same(engine, made, through_shape())


def test_operator_that_is_not_claimed_is_an_error_without_fallback(
    interpreter: MakeInterpreter,
) -> None:
    message = "fallback is 0, and 1 nodes are not the driver's: node 1: operator number 77"
    with pytest.raises(RuntimeError, match=message):
        interpreter(through_shape(), fallback=False)


def test_nodes_that_the_driver_does_not_take_run_on_the_engine_itself(
    engine: Any, interpreter: MakeInterpreter, capfd: pytest.CaptureFixture[str]
) -> None:
    made = interpreter(layers(), executor="reference")
    assert "nnburst: 2 nodes are left to LiteRT" in capfd.readouterr().err
    assert_same(engine, made, layers())


def test_inputs_of_other_extents_have_the_network_prepared_again(
    engine: Any, interpreter: MakeInterpreter
) -> None:
    made, expected = interpreter(layers(), fallback=False), opened(engine, layers())
    for rows in (3, 1, 40):
        for each in (made, expected):
            each.resize_tensor_input(each.get_input_details()[0]["index"], [rows, 32])
            each.allocate_tensors()
        values = [np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32)]
        assert results(made, values) == results(expected, values)


def behind_a_search() -> bytes:
    """Nodes behind one that is not claimed and whose output's extents only a run finds out."""
    b = TfliteBuilder()
    open_row = {"shapeSignature": [-1, 1]}
    x, g = b.input("FLOAT32", (4,)), b.tensor("BOOL", (4,))
    zeros = b.constant("FLOAT32", np.zeros(4, np.float32))
    found, real = b.tensor("INT64", (1, 1), **open_row), b.tensor("FLOAT32", (1, 1), **open_row)
    b.operator("GREATER", [x, zeros], [g], "GreaterOptions")
    b.operator("WHERE", [g], [found], "WhereOptions")
    b.operator("CAST", [found], [real], "CastOptions", inDataType=4, outDataType=0)
    b.operator("NEG", [real], [b.output("FLOAT32", (1, 1), **open_row)], "NegOptions")
    return b.finish()


def behind_a_count() -> bytes:
    """A sum of a row that is as long as the sum of what a search finds."""
    b = TfliteBuilder()
    x, g = b.input("FLOAT32", (4,)), b.tensor("BOOL", (4,))
    zeros = b.constant("FLOAT32", np.zeros(4, np.float32))
    found = b.tensor("INT64", (1, 1), shapeSignature=[-1, 1])
    b.operator("GREATER", [x, zeros], [g], "GreaterOptions")
    b.operator("WHERE", [g], [found], "WhereOptions")
    total, count = b.tensor("INT64", ()), b.tensor("INT32", ())
    b.operator(
        "SUM", [found, b.constant("INT32", np.int32([0, 1]))], [total], "ReducerOptions", keepDims=0
    )
    b.operator("CAST", [total], [count], "CastOptions", inDataType=4, outDataType=2)
    row = b.tensor("INT32", (1,), shapeSignature=[-1])
    ends = [b.constant("INT32", np.int32(each)) for each in (0, 1)]
    b.operator("RANGE", [ends[0], count, ends[1]], [row], "RangeOptions")
    b.operator("ADD", [row, row], [b.output("INT32", (1,), shapeSignature=[-1])], "AddOptions")
    return b.finish()


def cut() -> bytes:
    """A cut whose beginning and length are inputs, before another node."""
    b = TfliteBuilder()
    x, begin, length = b.input("FLOAT32", (8,)), b.input("INT32", (1,)), b.input("INT32", (1,))
    h = b.tensor("FLOAT32", (1,), shapeSignature=[-1])
    b.operator("SLICE", [x, begin, length], [h], "SliceOptions")
    b.operator("NEG", [h], [b.output("FLOAT32", (1,), shapeSignature=[-1])], "NegOptions")
    return b.finish()


def tiled() -> bytes:
    """An output whose extents are an input."""
    b = TfliteBuilder()
    x, counts = b.input("FLOAT32", (2, 3)), b.input("INT32", (2,))
    h = b.tensor("FLOAT32", (2, 3), shapeSignature=[-1, -1])
    b.operator("TILE", [x, counts], [h], "TileOptions")
    b.operator("NEG", [h], [b.output("FLOAT32", (2, 3), shapeSignature=[-1, -1])], "NegOptions")
    return b.finish()


def summed(with_another: bool) -> bytes:
    """A sum along axes that are an input: the file has no extents for it, nor for what comes behind."""
    b = TfliteBuilder()
    x, axes = b.input("FLOAT32", (2, 3)), b.input("INT32", (1,))
    h = b.tensor("FLOAT32", ()) if with_another else b.output("FLOAT32", ())
    b.operator("SUM", [x, axes], [h], "ReducerOptions", keepDims=0)
    if with_another:
        b.operator("NEG", [h], [b.output("FLOAT32", ())], "NegOptions")
    return b.finish()


@pytest.mark.parametrize(
    ("network", "feeds"),
    [
        (behind_a_search(), [[np.float32([0, n > 1, n > 0, 1])] for n in range(3)]),
        (
            behind_a_count(),
            [[np.float32(x)] for x in ((0, 0, 0, 1), (0, 1, 1, 1), (0, 1, 0, 0), (1, 0, 1, 0))],
        ),
        (
            tiled(),
            [
                [np.ones((2, 3), np.float32), np.int32(counts)]
                for counts in ((1, 2), (3, 1), (50, 60), (1, 1))
            ],
        ),
        (
            cut(),
            [
                [np.arange(8, dtype=np.float32), np.int32([begin]), np.int32([length])]
                for begin, length in ((2, 3), (0, 8), (7, 1))
            ],
        ),
    ],
    ids=["behind_a_search", "behind_a_count", "tiled", "cut"],
)
def test_extents_that_a_run_finds_out_are_those_of_the_engine_itself(
    engine: Any, interpreter: MakeInterpreter, network: bytes, feeds: list[Any]
) -> None:
    made, expected = interpreter(network), opened(engine, network)
    for each in (made, expected):
        each.allocate_tensors()
    assert "DELEGATE" in operators(made)
    for values in feeds:
        assert results(made, values) == results(expected, values)


@pytest.mark.parametrize("with_another", [False, True])
def test_rank_that_a_run_finds_out_is_that_of_the_engine_itself(
    engine: Any, interpreter: MakeInterpreter, with_another: bool
) -> None:
    network = summed(with_another)
    made, expected = interpreter(network, fallback=False), opened(engine, network)
    for shape, axes in (
        ((2, 3), [0]),
        ((2, 3), [1]),
        ((2, 3), [0, 1]),
        ((1, 3), [1]),  # one element along one axis, where the run before found a scalar
        ((1, 3), [1, 0]),
        ((2, 3, 2), [1]),
        ((100, 40), [0]),
        ((40, 100, 50), [0]),  # more than fits into the room that is tried first
    ):
        for each in (made, expected):
            x, steering = (details["index"] for details in each.get_input_details())
            each.resize_tensor_input(x, shape)
            each.resize_tensor_input(steering, [len(axes)])
            each.allocate_tensors()
        values = [np.random.default_rng(1).standard_normal(shape, np.float32), np.int32(axes)]
        assert results(made, values) == results(expected, values)


def test_output_that_becomes_a_scalar_and_a_row_again_has_the_rank_of_the_engine_itself(
    engine: Any, interpreter: MakeInterpreter
) -> None:
    for first in ((), (1,), (3,)):
        b = TfliteBuilder()
        x, y = b.input("FLOAT32", first), b.output("FLOAT32", first)
        b.operator("NEG", [x], [y], "NegOptions")
        network = b.finish()
        made, expected = interpreter(network, fallback=False), opened(engine, network)
        for shape in ((), (1,), (2, 3), (1,), ()):
            for each in (made, expected):
                each.resize_tensor_input(each.get_input_details()[0]["index"], shape)
                each.allocate_tensors()
            assert results(made, [np.ones(shape, np.float32)]) == results(
                expected, [np.ones(shape, np.float32)]
            )


def test_run_after_one_that_found_no_elements_is_right(
    engine: Any, interpreter: MakeInterpreter
) -> None:
    made, expected = interpreter(behind_a_search()), opened(engine, behind_a_search())
    for each in (made, expected):
        each.allocate_tensors()
    for row in ((0, 0, 1, 1), (0, 1, 1, 1)):
        assert results(made, [np.float32(row)]) == results(expected, [np.float32(row)])
        with pytest.raises(RuntimeError, match="has extent 0 along dimension 0"):
            results(made, [np.zeros(4, np.float32)])
        assert results(made, [np.float32(row)]) == results(expected, [np.float32(row)])


def test_interpreters_on_several_threads_share_a_delegate(engine: Any, service: Any) -> None:
    delegate = litert.load_delegate(device=service.address)
    failed = []

    def run(rows: int) -> None:
        try:
            made = opened(engine, layers(rows), experimental_delegates=[delegate])
            assert_same(engine, made, layers(rows), rounds=20)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_killed_driver_is_an_error_and_the_next_run_is_right(
    engine: Any, interpreter: MakeInterpreter
) -> None:
    before = children()
    made = interpreter(layers(), executor="litert", fallback=False)
    (driver,) = children() - before
    assert_same(engine, made, layers())
    stop(driver)
    # Late enough that the run waits by then: one that begins after the death is as before it.
    killer = threading.Timer(1.0, os.kill, (driver, signal.SIGKILL))
    killer.start()
    with pytest.raises(RuntimeError, match="DEAD_OBJECT"):
        made.invoke()
    killer.join()
    assert_same(engine, made, layers())
    del made
    assert children() == before


def test_run_after_the_end_of_its_service_is_an_error_that_waits_for_none(
    engine: Any, interpreter: MakeInterpreter
) -> None:
    with Service(executor="litert") as service:
        made = interpreter(layers(), device=service.address, timeout_ms=HOUR_MS, fallback=False)
        assert_same(engine, made, layers())
        service.kill()
        assert re.search("DEAD_OBJECT|no driver serves", error_of(made.invoke))
        assert "no driver serves" in error_of(made.invoke)
        service.start()
        assert_same(engine, made, layers())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_threads": 2000}, "num_threads: '2000', expected a number from 0 to 1024"),
        ({"timeout_ms": 0}, "timeout_ms: '0', expected a number from 1"),
        ({"device": "a", "executor": "b"}, "expected one of both"),
        ({"device": "nothing-of-that-name"}, "no driver serves"),
        ({"executor": "nothing-of-that-name"}, "'nothing-of-that-name' is not known"),
    ],
)
def test_option_that_makes_no_sense_is_refused_by_its_name(
    engine: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        litert.load_delegate(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"devise": "x"},
            "option 'devise', expected fallback, device, executor, timeout_ms or num",
        ),
        ({"fallback": "yes"}, "fallback: 'yes', expected a number from 0 to 1"),
    ],
)
def test_option_of_the_library_itself_is_refused_by_its_name(
    engine: Any, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        engine.load_delegate(litert.get_library_path(), options)


@pytest.mark.parametrize("option", ["device", "executor"])
def test_ten_cycles_leave_no_thread_descriptor_or_process(
    engine: Any, interpreter: MakeInterpreter, service: Any, option: str
) -> None:
    given = {option: service.address if option == "device" else "litert"}

    def left_over() -> tuple[int, int, set[int]]:
        folders = [list(Path(f"/proc/self/{each}").iterdir()) for each in ("task", "fd")]
        return len(folders[0]), len(folders[1]), children()

    def cycle() -> None:
        assert_same(engine, interpreter(layers(), **given), layers(), rounds=1)

    cycle()
    before = left_over()
    for _ in range(10 if option == "device" else 2):
        cycle()
    assert left_over() == before
