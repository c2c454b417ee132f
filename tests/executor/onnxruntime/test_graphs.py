from __future__ import annotations

import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from importer.onnx.graphs import Array, TensorProto, model, node, normal, value
from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the executor's engine")

import nnburst
from executor.cpu_time import busy_for, cpu_ns
from executor.onnxruntime.networks import run_two_bursts_at_once
from nnburst.executor.base import Argument, Execution
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.onnxruntime.native import library
from nnburst.hal.enums import DeviceType, ErrorStatus
from nnburst.hal.types import OutputShape


def in_process(made: Any, *values: Array) -> list[Array]:
    """By onnxruntime itself, with the options that the executor gives it."""
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [info.name for info in session.get_inputs()]
    return list(session.run(None, dict(zip(names, values, strict=True))))


def small() -> Any:
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Sigmoid", "a", "b"),
        node("Mul", "a b", "y"),
    ]
    inputs, outputs = [value("x", "f4", (1, 3, 8, 8))], [value("y", "f4", (1, 4, 8, 8))]
    return model(nodes, inputs, outputs, {"w": normal(4, 3, 3, 3)})


def mixed() -> Any:
    """Open dimensions, a scalar of int64, an output whose extents depend on data."""
    return model(
        [node("Mul", "x x", "y"), node("Add", "k k", "z"), node("NonZero", "x", "n")],
        [value("x", "f4", (2, "n")), value("k", "i8", ())],
        [value("y", "f4", (2, "n")), value("z", "i8", ()), value("n", "i8", (2, "found"))],
    )


def test_a_graph_through_a_driver_is_bit_equal_to_the_engine_in_process() -> None:
    made = small()
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    with (
        connect_to("onnxruntime") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        for seed in range(20):
            x = normal(1, 3, 8, 8, seed=seed)
            bound.inputs[0][...] = x
            bound.run(timeout=10)
            assert bound.outputs[0].tobytes() == in_process(made, x)[0].tobytes()


def test_open_dimensions_come_with_each_request_and_outputs_say_theirs() -> None:
    made = mixed()
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    with (
        connect_to("onnxruntime") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        for width in (3, 7):
            x = np.maximum(normal(2, width, seed=width), 0)
            result = burst.execute([x, np.array([2**40], np.int64)])
            expected = in_process(made, x, np.array(2**40))
            for found, wanted in zip(result.outputs, expected, strict=True):
                assert found.dtype == wanted.dtype
                np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def argument(array: Array) -> Argument:
    return Argument(array.reshape(-1).view(np.uint8), array.shape)


def by_every_way(made: Any, *requests: list[Array]) -> None:
    """Compares the socket, a thread's own burst and a burst with the engine in process."""
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    with (
        connect_to("onnxruntime") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        for run in (prepared.execute, prepared.execute, burst.execute):
            for values in requests:
                found = run(values, timeout=10).outputs
                for array, expected in zip(found, in_process(made, *values), strict=True):
                    assert array.dtype == expected.dtype
                    np.testing.assert_array_equal(array, expected, strict=True)


@pytest.mark.parametrize("extent", [3, "n"])
def test_an_output_that_is_an_input_has_its_elements(extent: int | str) -> None:
    shared = [value("i", "i8", (extent,)), value("b", "?", (extent,))]
    made = model([node("Relu", "x", "y")], [value("x", "f4", (3,)), *shared], [*shared])
    made.graph.output.insert(1, value("y", "f4", (3,)))
    by_every_way(made, [normal(3), np.array([1, 2, 2**40]), np.array([True, False, True])])


@pytest.mark.parametrize("extent", [2, "n"])
@pytest.mark.parametrize("inner", ["f4", "i8"])
def test_an_output_that_a_file_lists_several_times_is_the_same_each_time(
    extent: int | str, inner: str
) -> None:
    """The engine writes one of them; with an extent that only a run finds it runs without bound memory."""
    shape = (extent, 3)
    made = model(
        [node("Einsum", "x", "y", equation="ij->ji"), node("NonZero", "x", "n")],
        [value("x", inner, shape)],
        [value(name, inner, shape if name == "x" else shape[::-1]) for name in "yxyyxxx"],
    )
    x = np.arange(6).reshape(2, 3).astype("<" + inner)
    by_every_way(made, [x], [x + 1])
    made.graph.output.extend(value("n", "i8", (2, "found")) for _ in range(2))
    by_every_way(made, [x], [x + 1])


def test_ranks_that_a_file_leaves_open_come_with_each_request() -> None:
    made = model(
        [node("Reshape", "x extents", "y"), node("Relu", "x", "z")],
        [value("x", "f4", None), value("extents", "i8", ("rank",))],
        [value("y", "f4", None), value("z", "f4", None)],
    )
    requests = [(6, (2, 3)), ((2, 4), (8,)), ((2, 2, 2), (1, 2, 4)), (1, (1, 1))]
    by_every_way(made, *([normal(*np.atleast_1d(of)), np.array(to)] for of, to in requests))


@pytest.mark.parametrize(
    "name", ["n" * 255, "n" * 256, "ü" * 200, "n" * 5000, " a ", "a\n"], ids=len
)
def test_names_are_of_any_length_and_keep_the_space_around_them(name: str) -> None:
    made = model([node("Relu", "x", "y")], [value("x", "f4", (3,))], [value("y", "f4", (3,))])
    made.graph.input[0].name = made.graph.node[0].input[0] = name
    made.graph.output[0].name = made.graph.node[0].output[0] = f"{name}of y"
    by_every_way(made, [normal(3)])


def test_an_output_without_elements_is_an_empty_array() -> None:
    made = model(
        [node("NonZero", "x", "n"), node("Compress", "x c", "y", axis=1)],
        [value("x", "f4", (2, "n")), value("c", "?", ("n",))],
        [value("n", "i8", (2, "found")), value("y", "f4", (2, "kept"))],
    )
    some, none = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    all_of, no_one = np.ones(4, np.bool_), np.zeros(4, np.bool_)
    by_every_way(made, [none, no_one], [some, all_of], [none, all_of], [some, no_one])


def test_an_output_that_a_file_declares_without_elements_may_have_some() -> None:
    """Exporters trace a detector with a picture of nothing."""
    nodes = [node("NonZero", "x", "n"), node("Relu", "x", "y")]
    outputs = [value("n", "i8", (2, 0)), value("y", "f4", (2, 4))]
    made = model(nodes, [value("x", "f4", (2, 4))], outputs)
    by_every_way(
        made, [np.zeros((2, 4), np.float32)], [normal(2, 4)], [np.ones((2, 4), np.float32)]
    )


def test_too_little_room_is_an_error_with_what_is_needed() -> None:
    imported = nnburst.load(small().SerializeToString(), as_graph=True)
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    bound = prepared.bind([argument(normal(1, 3, 8, 8))], [argument(np.zeros(8, np.float32))])
    assert bound.native is None
    outcome = bound.run()
    assert outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [(s.dimensions, s.is_sufficient) for s in outcome.output_shapes] == [
        ((1, 4, 8, 8), False)
    ]


def test_a_graph_whose_inputs_are_fixed_runs_without_python_though_its_outputs_are_open() -> None:
    made = model([node("Relu", "x", "y")], [value("x", "f4", ("n",))], [value("y", "f4", ("n",))])
    imported = nnburst.load(made.SerializeToString(), as_graph=True, shapes={"x": (4,)})
    main = imported.model.main
    assert main.operands[main.output_indexes[0]].dimensions == ()
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    bound = prepared.bind([argument(normal(4))], [argument(np.zeros(4, np.float32))])
    assert bound.native is not None
    assert bound.native.output_shapes == (OutputShape((4,), is_sufficient=True),)


def test_a_run_ends_at_its_deadline_and_the_next_one_is_whole() -> None:
    nodes = [
        node("MatMul", "x w", "a0"),
        *(node("MatMul", f"a{n} w", f"a{n + 1}") for n in range(400)),
    ]
    made = model(
        nodes, [value("x", "f4", (256, 256))], [value("a400", "f4", (256, 256))],
        {"w": np.eye(256, dtype=np.float32)},
    )  # fmt: skip
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    x, y = normal(256, 256), np.zeros((256, 256), np.float32)
    bound = prepared.bind([argument(x)], [argument(y)])
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert bound.run(now + 5_000_000).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert bound.run(now + 600 * 10**9).status == ErrorStatus.NONE
    np.testing.assert_allclose(y, x, rtol=1e-5)


def test_integers_of_a_request_are_copied_and_real_numbers_used_where_they_lie() -> None:
    made = model(
        [node("Gather", "x i", "y")],
        [value("x", "f4", (32, 4)), value("i", "i8", (2,))],
        [value("y", "f4", (2, 4))],
    )
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    memory = np.zeros(4096, np.uint8)
    start = -memory.ctypes.data % 64
    place = memory[start:]
    x, i, y = place[:512], place[512:528], place[576:608]
    bound = prepared.bind([Argument(x, (32, 4)), Argument(i, (2,))], [Argument(y, (2, 4))])
    assert bound._binding.copied_bytes == 16  # type: ignore[attr-defined]


def test_truth_values_of_other_bytes_are_true() -> None:
    made = model(
        [node("Cast", "x", "y", to=TensorProto.INT32)],
        [value("x", "?", (4,))],
        [value("y", "i4", (4,))],
    )
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    y = np.zeros(4, np.int32)
    bound = prepared.bind([argument(np.uint8([0, 1, 2, 255]))], [argument(y)])
    assert bound.run().status == ErrorStatus.NONE
    assert y.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("rounds", [200, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_two_bursts_at_once_on_one_model_give_what_one_gives(rounds: int) -> None:
    made = small()
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    given = [normal(1, 3, 8, 8, seed=seed) for seed in (1, 2)]
    expected = [in_process(made, x)[0].tobytes() for x in given]
    with connect_to("onnxruntime") as device, device.prepare(imported) as prepared:
        wrong, whole = run_two_bursts_at_once(prepared, given, expected, rounds)
    assert wrong == []
    assert whole == [0, 1]


def test_type_and_speed_of_a_device_are_its_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert onnxruntime().device_type is DeviceType.CPU
    assert onnxruntime().capabilities_file is not None
    if "Azure" not in library().providers:
        pytest.skip("this wheel has the CPU's provider only")
    assert onnxruntime({"provider": "Azure"}).device_type is DeviceType.OTHER
    monkeypatch.setenv("NNBURST_ONNXRUNTIME_PROVIDER", "Azure")
    assert onnxruntime().device_type is DeviceType.OTHER
    assert onnxruntime().capabilities_file is None


def test_another_provider_is_had_by_the_name_that_it_is_listed_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Azure's, which the wheel has beside the CPU's, computes nothing itself; requests take turns on it."""
    if "Azure" not in library().providers:
        pytest.skip("this wheel has the CPU's provider only")
    monkeypatch.setenv("NNBURST_ONNXRUNTIME_PROVIDER", "Azure")
    made, executor = small(), onnxruntime()
    assert executor.engine_version.endswith("Azure")
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    prepared = executor.prepare(imported.model, list(imported.pools))
    given = [normal(1, 3, 8, 8, seed=seed) for seed in (1, 2)]
    results = [np.zeros((1, 4, 8, 8), np.float32) for _ in given]
    requests = [
        prepared.bind([argument(x)], [argument(y)]) for x, y in zip(given, results, strict=True)
    ]
    assert [request.native for request in requests] == [None, None]
    outcomes: list[ErrorStatus] = []

    def work(request: Execution) -> None:
        outcomes.extend(request.run().status for _ in range(50))

    threads = [threading.Thread(target=work, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert outcomes == [ErrorStatus.NONE] * 100
    for x, y in zip(given, results, strict=True):
        assert y.tobytes() == in_process(made, x)[0].tobytes()


def computed_of_file(path: Path, x: Array) -> Array:
    """The output of a file's network as a whole graph, by a burst."""
    with (
        connect_to("onnxruntime") as device,
        device.prepare(nnburst.load(path, as_graph=True)) as prepared,
        prepared.open_burst() as burst,
    ):
        (y,) = burst.execute([x]).outputs
    assert y is not None
    return y


def test_weights_beside_the_file_go_along(tmp_path: Path) -> None:
    made, x = small(), normal(1, 3, 8, 8)
    (expected,) = in_process(made, x)
    weights = made.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(weights.raw_data)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights.bin")
    path = tmp_path / "small.onnx"
    path.write_bytes(made.SerializeToString())
    assert computed_of_file(path, x).tobytes() == expected.tobytes()


def test_weights_of_one_file_have_it_by_two_spellings_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    made = model(
        [node("Add", "x a", "t"), node("Mul", "t b", "y")],
        [value("x", "f4", (4,))],
        [value("y", "f4", (4,))],
        {"a": np.zeros(4, np.float32), "b": np.zeros(4, np.float32)},
    )
    spellings = ("w.bin", "./w.bin")
    for at, (weights, name) in enumerate(zip(made.graph.initializer, spellings, strict=True)):
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=name)
        weights.external_data.add(key="offset", value=str(16 * at))
        weights.external_data.add(key="length", value="16")
    path = tmp_path / "two.onnx"
    path.write_bytes(made.SerializeToString())
    assert computed_of_file(path, np.ones(4, np.float32)).tolist() == [4, 10, 18, 28]


@pytest.mark.every_day("2")
@pytest.mark.parametrize("count", [1, 2])
def test_no_thread_of_an_idle_graph_spins(count: int) -> None:
    imported = nnburst.load(small().SerializeToString(), as_graph=True)
    with (
        connect_to("onnxruntime") as device,
        device.prepare(imported, num_threads=count) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        for _ in range(100):
            bound.run()
        busy_for(0.05)  # a thread that looks for more work right after a run found none
        before = sum(cpu_ns(device.pid).values())
        busy_for(0.4)
        used = sum(cpu_ns(device.pid).values()) - before
    assert used * 1e-9 < 0.4 / 20


def test_a_model_of_core_operations_runs_beside_graphs() -> None:
    made = model([node("Relu", "x", "y")], [value("x", "f4", (3,))], [value("y", "f4", (3,))])
    imported = nnburst.load(made.SerializeToString())
    with connect_to("onnxruntime") as device, device.prepare(imported) as prepared:
        assert prepared.execute([np.array([-1, 0, 2], np.float32)]).outputs[0].tolist() == [0, 0, 2]


def test_a_prepared_graph_comes_from_the_cache(tmp_path: Path) -> None:
    made = small()
    imported = nnburst.load(made.SerializeToString(), as_graph=True)
    x = normal(1, 3, 8, 8)
    for _ in range(2):
        with (
            connect_to("onnxruntime") as device,
            device.prepare(imported, cache_dir=tmp_path) as prepared,
        ):
            found = prepared.execute([x]).outputs[0]
            assert found.tobytes() == in_process(made, x)[0].tobytes()
    assert list(tmp_path.iterdir())
