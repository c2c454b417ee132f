"""Every bad argument is a typed error that names it, raised before anything is sent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst import (
    Closed,
    Device,
    InvalidArgument,
    Memory,
    Model,
    OperandType,
    OperationType,
    PreparedModel,
)
from nnburst.client.compilation_cache import CacheFiles

A = np.zeros((2, 3), np.float32)


@pytest.fixture
def silent(prepared: PreparedModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[PreparedModel]:
    """A model whose connection must not be used; afterwards it must still work."""
    connection = prepared._prepared.session.connection
    with monkeypatch.context() as patch:
        patch.setattr(connection, "call", lambda *_a, **_k: pytest.fail("something was sent"))
        yield prepared
    np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], A)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (A.astype(np.float64), "has dtype float64, expected float32"),
        (A.astype(">f4"), "has dtype >f4, expected float32"),
        (A.astype(np.int32), "has dtype int32, expected float32"),
        (A.astype(object), "has dtype object, expected float32"),
        (np.zeros((3, 2), np.float32), r"has shape \(3, 2\), expected .*\(2, 3\)"),
        (np.zeros((0, 3), np.float32), r"has shape \(0, 3\)"),
        (np.zeros(6, np.float32), "has rank 1"),
        (np.zeros((1, 2, 3), np.float32), "has rank 3"),
        (np.float32(1), "has rank 0"),
        (np.zeros((3, 2), np.float32).T, "is not contiguous"),
        (np.zeros((2, 6), np.float32)[:, ::2], "is not contiguous"),
        ([[0.0] * 3] * 2, "is of type list, expected a numpy array of float32"),
        ("text", "is of type str"),
    ],
)
@pytest.mark.parametrize("position", [0, 1])
def test_array_that_does_not_fit_is_refused(
    silent: PreparedModel, bad: Any, message: str, position: int
) -> None:
    inputs = [A, A]
    inputs[position] = bad
    with pytest.raises(InvalidArgument, match=rf"inputs\[{position}\] {message}"):
        silent.execute(inputs)
    if np.ndim(bad):
        with pytest.raises(InvalidArgument, match=rf"outputs\[0\] {message}"):
            silent.execute([A, A], [bad])


def test_read_only_output_is_refused(silent: PreparedModel) -> None:
    output = A.copy()
    output.flags.writeable = False
    with pytest.raises(InvalidArgument, match=r"outputs\[0\] is read-only"):
        silent.execute([A, A], [output])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_inputs_is_refused(silent: PreparedModel, count: int) -> None:
    with pytest.raises(InvalidArgument, match=f"inputs: {count} arrays given, expected 2"):
        silent.execute([A] * count)


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_number_of_outputs_is_refused(silent: PreparedModel, count: int) -> None:
    with pytest.raises(InvalidArgument, match=f"outputs: {count} arrays given, expected 1"):
        silent.execute([A, A], [A] * count)


@pytest.mark.parametrize("timeout", [0, -1, 0.0, -0.5, math.inf, math.nan, None, "1", True])
def test_timeout_that_makes_no_sense_is_refused(silent: PreparedModel, timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout: "):
        silent.execute([A, A], timeout=timeout)


def test_closed_device_refuses_calls(make_model: Callable[..., Model]) -> None:
    device = nnburst.launch("null")
    prepared = device.prepare(make_model())
    device.close()
    device.close()
    for use in (
        lambda: prepared.execute([A, A]),
        lambda: device.prepare(make_model()),
        lambda: device.allocate(1),
        lambda: device.supported_operations(make_model()),
    ):
        with pytest.raises(Closed, match="device null is closed"):
            use()
    prepared.close()
    assert not device.is_alive


@pytest.mark.parametrize("size", [0, -1, 1.0, "4", None])
def test_pool_without_bytes_is_refused(device: Device, size: Any) -> None:
    with pytest.raises(InvalidArgument, match="size: "):
        device.allocate(size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("f4", (17,)), "68 bytes from 0 do not fit a pool of 64"),
        (("f4", (1,), 61), "4 bytes from 61"),
        (("f4", (1,), -4), "must not be negative"),
        (("f4", (-1,)), "must not be negative"),
        (("f4", (2**62, 2**62)), "do not fit"),
    ],
)
def test_view_outside_of_the_pool_is_refused(
    device: Device, arguments: tuple[Any, ...], message: str
) -> None:
    with device.allocate(64) as memory, pytest.raises(InvalidArgument, match=message):
        memory.array(*arguments)


def test_closed_pool_makes_no_views(device: Device) -> None:
    memory: Memory = device.allocate(64)
    memory.close()
    for use in (lambda: memory.array("u1", (1,)), memory.view, memory.duplicate):
        with pytest.raises(Closed, match="pool is closed"):
            use()


@pytest.mark.parametrize("given", [None, 5])
def test_what_is_not_a_sequence_of_arrays_is_refused(silent: PreparedModel, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"inputs: of type .*, expected a sequence of 2"):
        silent.execute(given)


@pytest.mark.parametrize("model", ["text", None])
def test_what_is_not_a_model_is_refused(device: Device, model: Any) -> None:
    for use in (device.prepare, device.supported_operations):
        with pytest.raises(InvalidArgument, match=r"model: of type .*, expected a Model"):
            use(model)


@pytest.mark.parametrize("address", [3, None, b"cam"])
def test_address_that_is_not_text_is_refused(address: Any) -> None:
    with pytest.raises(InvalidArgument, match="name_or_path: of type "):
        nnburst.connect(address)


@pytest.mark.parametrize("preference", [3, -1])
def test_unknown_preference_is_refused(
    device: Device, make_model: Callable[..., Model], preference: int
) -> None:
    with pytest.raises(InvalidArgument, match="preference"):
        device.prepare(make_model(), preference=preference)  # type: ignore[arg-type]


def test_unknown_executor_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        nnburst.DeviceUnavailable, match=r"'nonesuch' is not known.*null.*reference"
    ):
        nnburst.launch("nonesuch")


@pytest.mark.parametrize("cpus", [[], [100_000], [-1]])
def test_cores_that_are_not_there_are_refused(cpus: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="cpus: "):
        nnburst.launch("null", cpus=cpus)


def test_cache_file_that_is_not_open_is_refused_and_kills_no_device(
    device: Device, prepared: PreparedModel, make_model: Callable[..., Model]
) -> None:
    files = CacheFiles([1_000_000], [], bytes(32))
    with pytest.raises(InvalidArgument, match="file descriptor"):
        device.prepare_async(make_model(), cache=files)
    np.testing.assert_array_equal(prepared.execute([A, A]).outputs[0], A)


def test_integers_of_numpy_are_integers(device: Device, prepared: PreparedModel) -> None:
    two, three = np.int64(2), np.uint8(3)
    with prepared.open_burst(max_in_flight=two, channel_length=np.int64(64)) as burst:
        assert (burst.max_in_flight, type(burst.max_in_flight)) == (2, int)
    with prepared.open_burst(spin_window=np.float32(0.001)) as burst:
        burst.execute([A, A])
    builder = nnburst.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (0, three))
    y = builder.output(OperandType.TENSOR_FLOAT32, (0, three))
    builder.operation(np.int32(OperationType.RELU), [np.int64(x)], [np.int64(y)])
    builder.identify([np.int64(x)], [np.int64(y)])
    soon = np.int64(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 60 * 10**9)
    with device.prepare(builder.build(), num_threads=np.int64(1)) as model:
        buffer = device.allocate_buffer([(model, np.int64(0))], dimensions=[two, three])
        assert tuple(buffer.dimensions) == (2, 3)
    device.prepare_async(builder.build(), deadline_ns=soon).result().close()


@pytest.mark.parametrize("bad", [True, 2.0, "2", None, [2]], ids=repr)
def test_what_is_no_integer_is_refused_by_the_name_of_the_argument(
    device: Device, prepared: PreparedModel, bad: Any
) -> None:
    model, builder = prepared.model, nnburst.ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    for name, use in {
        "max_in_flight": lambda: prepared.open_burst(max_in_flight=bad),
        "channel_length": lambda: prepared.open_burst(channel_length=bad),
        "num_threads": lambda: device.prepare(model, num_threads=bad),
        r"dimensions\[0\]": lambda: device.allocate_buffer([(prepared, 0)], dimensions=[bad, 3]),
        r"inputs\[0\]\[1\]": lambda: device.allocate_buffer([(prepared, bad)]),
        "version": lambda: device.model("name", bad),
        r"dimensions\[1\] ": lambda: builder.input(kind, (2, bad)),
        "zero_point": lambda: builder.temporary(kind, (2,), 0.5, bad),
        "kind": lambda: builder.output(bad, (2,)),
        "kind ": lambda: builder.operation(bad, [0], [1]),
        r"inputs\[0\] ": lambda: builder.operation(OperationType.RELU, [bad], [1]),
        r"outputs\[0\] ": lambda: builder.operation(OperationType.RELU, [0], [bad]),
    }.items():
        with pytest.raises(InvalidArgument, match=rf"^{name.strip()} is "):
            use()
    if bad is not None:
        with pytest.raises(InvalidArgument, match=r"^deadline_ns is "):
            device.prepare_async(model, deadline_ns=bad)
        if not isinstance(bad, float):
            with pytest.raises(InvalidArgument, match=r"^spin_window is "):
                prepared.open_burst(spin_window=bad)
