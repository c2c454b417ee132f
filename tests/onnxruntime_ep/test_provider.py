"""Stock onnxruntime runs networks on a driver by the plugin, and gets what it computes by itself."""

from __future__ import annotations

import inspect
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from client.service import Service
from faults.processes import stop
from forked_child import true_in_child
from nnburst import onnxruntime as provider
from nnburst.testing.faults import footprint
from waiting import error_of

networks = pytest.importorskip("onnxruntime_ep.networks", reason="needs onnx")

#: Far longer than a test may take.
HOUR_MS = 3_600_000


def by_cpu(engine: Any, network: bytes | str) -> Any:
    options = engine.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return engine.InferenceSession(network, options, providers=["CPUExecutionProvider"])


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(map(np.asarray, found), map(np.asarray, expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.tobytes() == other.tobytes()


def children() -> set[int]:
    """Processes that this one has started and not reaped."""
    return {*footprint.children(os.getpid())}


def skip_before_1_24(engine: Any, why: str) -> None:
    if [int(part) for part in engine.__version__.split(".")[:2]] < [1, 24]:
        pytest.skip(f"onnxruntime {engine.__version__} {why}")


def test_provider_has_one_device_on_the_processor(engine: Any, devices: list[Any]) -> None:
    (device,) = devices
    assert (device.ep_name, device.ep_vendor) == (provider.get_ep_name(), "nnburst")
    assert device.device.type == engine.OrtHardwareDeviceType.CPU


@pytest.mark.usefixtures("devices")
def test_sessions_get_the_provider_by_one_call_each(engine: Any, service: Service) -> None:
    network, feeds = networks.layers()
    for _ in range(2):
        options = engine.SessionOptions()
        provider.add_provider(options, device=service.address, num_threads=1)
        made = engine.InferenceSession(network, options)
        assert made.get_providers()[0] == provider.get_ep_name()
        assert_same(made.run(None, feeds), by_cpu(engine, network).run(None, feeds))


@pytest.mark.usefixtures("devices")
def test_a_forked_child_gets_the_provider_though_a_thread_was_registering_it(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = engine.SessionOptions()
    registering, may_end, listed = threading.Event(), threading.Event(), provider._devices

    def slowly(engine: Any) -> list[Any]:
        registering.set()
        assert may_end.wait(60)
        return listed(engine)

    monkeypatch.setattr(provider, "_devices", slowly)
    thread = threading.Thread(target=provider.add_provider, args=(engine.SessionOptions(),))
    thread.start()
    assert registering.wait(60)

    def adds_it() -> bool:
        signal.alarm(20)  # in place of waiting for ever
        monkeypatch.setattr(provider, "_devices", listed)
        provider.add_provider(options)
        return True

    try:
        assert true_in_child(adds_it)
    finally:
        may_end.set()
        thread.join(60)
    assert not thread.is_alive()


def test_engine_without_plugins_is_refused_by_its_version(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(engine, "register_execution_provider_library")
    with pytest.raises(nnburst.DeviceUnavailable, match="no plugin execution providers"):
        provider.add_provider(engine.SessionOptions())


@pytest.mark.parametrize("make", networks.ALL, ids=lambda make: make.__name__)
def test_results_have_the_bits_of_the_engine_itself(
    engine: Any, session: Callable[..., Any], make: Callable[[], tuple[bytes, Any]]
) -> None:
    network, feeds = make()
    expected, made = by_cpu(engine, network), session(network)
    assert made.get_providers()[0] == provider.get_ep_name()
    for _ in range(2):
        assert_same(made.run(None, feeds), expected.run(None, feeds))
        feeds = {name: array[::-1].copy() if array.ndim else array for name, array in feeds.items()}


def test_extents_that_a_network_leaves_open_change_from_run_to_run(
    engine: Any, session: Callable[..., Any]
) -> None:
    network, _ = networks.layers("n")
    expected, made = by_cpu(engine, network), session(network)
    for rows in (1, 5, 2, 5, 400, *range(3, 15)):  # more shapes than stay bound
        feeds = {"x": networks.reals(rows, 32)}
        assert_same(made.run(None, feeds), expected.run(None, feeds))


@pytest.mark.parametrize(
    ("network", "feeds"),
    [
        (
            networks.squeezed(),
            [
                {"x": networks.reals(*shape), "a": np.array(axes)}
                for shape, axes in (
                    ((1, 1), [0, 1]),
                    ((1, 1), [0]),
                    ((1, 5), [0]),
                    ((40, 1), [1]),
                    ((1, 5000), [0]),  # more than fits into the room that is tried first
                )
            ],
        ),
        (
            networks.either_rank(),
            [{"c": np.array(yes), "x": networks.reals(3)} for yes in (True, False, True)],
        ),
    ],
    ids=["squeezed", "either_rank"],
)
def test_rank_that_a_run_finds_out_is_that_of_the_engine_itself(
    engine: Any, session: Callable[..., Any], network: bytes, feeds: list[Any]
) -> None:
    expected, made = by_cpu(engine, network), session(network)
    assert made.get_providers()[0] == provider.get_ep_name()
    for given in feeds:
        assert_same(made.run(None, given), expected.run(None, given))


def test_both_branches_and_other_rounds_run(engine: Any, session: Callable[..., Any]) -> None:
    network, feeds = networks.branches()
    expected, made = by_cpu(engine, network), session(network)
    for condition in (True, False):
        given = feeds | {"c": np.array(condition)}
        assert_same(made.run(None, given), expected.run(None, given))
    network, feeds = networks.loop()
    expected, made = by_cpu(engine, network), session(network)
    for rounds in (1, 300):
        given = feeds | {"n": np.array(rounds)}
        assert_same(made.run(None, given), expected.run(None, given))


def test_whole_network_is_one_node_and_one_with_strings_two(
    engine: Any, devices: list[Any], service: Service
) -> None:
    if not hasattr(engine.InferenceSession, "get_provider_graph_assignment_info"):
        pytest.skip(f"onnxruntime {engine.__version__} does not report its assignments")
    for make, count in (
        (networks.layers, 1),
        (networks.branches, 1),
        (networks.through_strings, 2),
    ):
        options = engine.SessionOptions()
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.add_provider_for_devices(devices, {"device": service.address})
        made = engine.InferenceSession(make()[0], options)
        parts = made.get_provider_graph_assignment_info()
        assert sum(part.ep_name == provider.get_ep_name() for part in parts) == count


def test_input_that_lies_in_memory_of_the_provider_is_used_in_place(
    engine: Any, devices: list[Any]
) -> None:
    kinds = getattr(engine, "OrtDeviceMemoryType", None)
    make = engine.OrtValue.ortvalue_from_shape_and_type
    if kinds is None or "memory_info" not in inspect.signature(make).parameters:
        pytest.skip(f"onnxruntime {engine.__version__} has no such memory in Python")
    size = 12289 * 4096  # of no other memory
    node = networks.helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    shape = [size // 4]
    network = networks.network([node], [networks.value("x", shape)], [networks.value("y", [])])
    options = engine.SessionOptions()
    options.add_provider_for_devices(devices, {"executor": "onnxruntime"})
    before = children()
    made = engine.InferenceSession(network, options)
    (driver,) = children() - before
    info = devices[0].memory_info(kinds.HOST_ACCESSIBLE)
    given = make(shape, np.float32, memory_info=info)
    array = given.numpy()
    for number in (1, 2):
        array[:] = number
        assert made.run_with_ort_values(None, {"x": given})[0].numpy() == number * shape[0]
    mapped = re.findall(
        r"^(\w+)-(\w+) .*memfd:pool", Path(f"/proc/{driver}/maps").read_text(), re.MULTILINE
    )
    assert size in {int(end, 16) - int(begin, 16) for begin, end in mapped}, "no copy was made"


def test_threads_run_one_session_at_once(engine: Any, session: Callable[..., Any]) -> None:
    network, _ = networks.layers("n")
    expected, made = by_cpu(engine, network), session(network)
    failed = []

    def run(rows: int) -> None:
        try:
            for _ in range(20):
                feeds = {"x": np.full((rows, 32), rows, np.float32)}
                assert_same(made.run(None, feeds), expected.run(None, feeds))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_forked_child_is_refused_by_the_fork_and_the_parent_goes_on(
    engine: Any, session: Callable[..., Any]
) -> None:
    network, feeds = networks.layers()
    made = session(network)
    expected = made.run(None, feeds)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            made.run(None, feeds)
        except Exception as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    assert "the driver cannot be used: BAD_STATE: it was opened by the process that forked" in text
    assert_same(made.run(None, feeds), expected)


def test_killed_driver_is_an_error_and_the_next_run_is_right(
    engine: Any, session: Callable[..., Any]
) -> None:
    network, feeds = networks.layers()
    expected = by_cpu(engine, network).run(None, feeds)
    before = children()
    made = session(network, executor="onnxruntime")
    (driver,) = children() - before
    assert_same(made.run(None, feeds), expected)
    stop(driver)
    # Late enough that the run waits by then: one that begins after the death is as before it.
    killer = threading.Timer(1.0, os.kill, (driver, signal.SIGKILL))
    killer.start()
    began = time.monotonic()
    with pytest.raises(Exception, match="DEAD_OBJECT"):
        made.run(None, feeds)
    print(f"an error {time.monotonic() - began - 1.0:.4f} s after the kill")
    killer.join()
    assert_same(made.run(None, feeds), expected)
    assert_same(made.run(None, feeds), expected)
    del made
    assert children() == before


def test_run_after_the_end_of_its_service_is_an_error_that_waits_for_none(
    engine: Any, session: Callable[..., Any]
) -> None:
    network, feeds = networks.layers()
    expected = by_cpu(engine, network).run(None, feeds)
    with Service(executor="onnxruntime") as service:
        made = session(network, device=service.address, timeout_ms=str(HOUR_MS))
        assert_same(made.run(None, feeds), expected)
        service.kill()
        assert re.search("DEAD_OBJECT|no driver serves", error_of(lambda: made.run(None, feeds)))
        assert "no driver serves" in error_of(lambda: made.run(None, feeds))
        service.start()
        assert_same(made.run(None, feeds), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devise": "x"}, "option 'devise', expected device, executor, timeout_ms or num_threads"),
        ({"num_threads": "many"}, "num_threads: 'many', expected a number from 0 to 1024"),
        ({"timeout_ms": "0"}, "timeout_ms: '0', expected a number from 1"),
        ({"device": "a", "executor": "b"}, "expected one of both"),
        ({"device": "nothing-of-that-name"}, "no driver serves"),
        ({"executor": "nothing-of-that-name"}, "'nothing-of-that-name' is not known"),
    ],
)
def test_option_that_makes_no_sense_ends_the_session_with_the_reason(
    session: Callable[..., Any], options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        session(networks.mean()[0], **options)


def test_nodes_that_the_driver_does_not_take_run_on_the_engine_itself(
    engine: Any, session: Callable[..., Any]
) -> None:
    network, feeds = networks.layers()
    made = session(network, executor="reference")
    assert_same(made.run(None, feeds), by_cpu(engine, network).run(None, feeds))


def test_long_names_of_an_input_and_an_output_leave_no_node_to_the_engine_itself(
    engine: Any, devices: list[Any], service: Service
) -> None:
    options = engine.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(devices, {"device": service.address})
    made = engine.InferenceSession(networks.long_names(), options, enable_fallback=0)
    (y,) = made.run(None, {"x" * 5000: np.ones(3, np.float32)})
    assert y.tolist() == [2, 2, 2]


def test_input_without_elements_is_refused_by_its_name(session: Callable[..., Any]) -> None:
    made = session(networks.layers("n")[0])
    with pytest.raises(Exception, match="input x has no elements"):
        made.run(None, {"x": np.zeros((0, 32), np.float32)})


def test_input_of_any_rank_takes_all_but_scalars_which_are_refused_by_its_name(
    engine: Any, session: Callable[..., Any]
) -> None:
    skip_before_1_24(engine, "describes inputs of any rank as scalars")
    network = networks.ranks_of_any()
    expected, made = by_cpu(engine, network), session(network)
    for shape, other in (((1,), (1,)), ((3,), (2, 1)), ((1, 1, 1), (1,))):
        feeds = {"x": networks.reals(*shape), "z": networks.reals(*other)}
        assert_same(made.run(None, feeds), expected.run(None, feeds))
    with pytest.raises(Exception, match="input z is a scalar"):
        made.run(None, {"x": networks.reals(3), "z": np.array(1, np.float32)})


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([3], "input number has extent 3 along axis 0, expected 2 by the network"),
        ([1, 2], "input number has rank 2, expected 1 by the network"),
    ],
)
def test_input_of_another_shape_than_the_file_states_is_refused_by_its_name(
    engine: Any, session: Callable[..., Any], shape: list[int], message: str
) -> None:
    skip_before_1_24(engine, "leaves these shapes open")
    expected, made = by_cpu(engine, networks.misstated()), session(networks.misstated())
    feeds = {"x": np.ones(2, np.float32), "shape": np.array([2])}
    for _ in range(2):
        assert_same(made.run(None, feeds), expected.run(None, feeds))
        with pytest.raises(Exception, match=message):
            made.run(None, {"x": np.ones(np.prod(shape), np.float32), "shape": np.array(shape)})


def test_networks_of_people_have_the_bits_of_the_engine_itself(
    engine: Any, session: Callable[..., Any]
) -> None:
    package = pytest.importorskip("importlib.util").find_spec("silero_vad")
    if package is None:
        pytest.skip("no silero_vad")
    folder = Path(package.submodule_search_locations[0], "data")
    for path in sorted(folder.glob("*.onnx")):
        expected, made = by_cpu(engine, str(path)), session(path.read_bytes())
        samples = expected.get_inputs()[0].shape[1]
        given: dict[str, Any] = {"sr": np.array(16000), "state": networks.reals(2, 1, 128)}
        for argument in expected.get_inputs():
            shape = [n if isinstance(n, int) else 1 for n in argument.shape]
            if argument.name not in given:
                given[argument.name] = networks.reals(
                    1, samples if isinstance(samples, int) else 512
                )
                if len(shape) == 3:
                    given[argument.name] = networks.reals(*shape)
        feeds = {argument.name: given[argument.name] for argument in expected.get_inputs()}
        assert_same(made.run(None, feeds), expected.run(None, feeds))
