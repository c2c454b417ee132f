"""Every bad argument is a typed error that names it, raised before anything is sent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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


@pytest.mark.parametrize("given", [np.stack([A, A]), {"x": A, "y": A}])
def test_one_array_or_a_dict_in_place_of_a_list_is_refused(
    silent: PreparedModel, given: Any
) -> None:
    with pytest.raises(InvalidArgument, match=r"inputs: of type .*, expected a sequence of 2"):
        silent.execute(given)


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


@pytest.mark.parametrize("given", [None, 5, np.stack([A, A]), {"x": A, "y": A}])
def test_what_is_not_a_sequence_of_arrays_is_refused(silent: PreparedModel, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"inputs: of type .*, expected a sequence of 2"):
        silent.execute(given)


@pytest.mark.parametrize("model", ["text", None, nnburst.ModelBuilder()])
def test_what_is_not_a_model_is_refused(device: Device, model: Any) -> None:
    for use in (device.prepare, device.supported_operations):
        with pytest.raises(
            InvalidArgument,
            match=r"model: of type .*, expected a Model, as ModelBuilder\.build returns",
        ):
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
        device.prepare(make_model(), preference=preference)


def test_unknown_executor_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        nnburst.DeviceUnavailable, match=r"'nonesuch' is not known.*null.*reference"
    ):
        nnburst.launch("nonesuch")


@pytest.mark.parametrize("cpus", [[0.0], [True], ["0"], [None]])
def test_cores_that_are_no_integers_are_refused(cpus: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"cpus\[0\] is .*, expected an integer"):
        nnburst.launch("null", cpus=cpus)


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


def _pool() -> Memory:
    return Memory(4096)


def _network() -> nnburst.ModelBuilder:
    return nnburst.ModelBuilder()


F32, U8 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM

#: A call with an argument of the wrong kind, and the beginning of the message.
MISUSES: dict[str, tuple[Callable[[], object], str]] = {
    "offset 1.0": (lambda: _pool().array("u1", (10,), 1.0), "offset is 1.0"),
    "offset text": (lambda: _pool().array("u1", (10,), "1"), "offset is '1'"),
    "shape 10": (lambda: _pool().array("u1", 10), "shape: 10"),
    "shape text": (lambda: _pool().array("u1", "12"), "shape: '12'"),
    "shape 2.7": (lambda: _pool().array("u1", (2.7,)), r"shape\[0\] is 2.7"),
    "rank 80": (lambda: _pool().array("u1", (1,) * 80), r"shape is \(1, .*"),
    "extent 2**70": (lambda: _pool().array("u1", (0, 2**70)), r"shape is \(0, "),
    "dtype": (lambda: _pool().array("nope", (1,)), "dtype is 'nope'"),
    "dtype of arrays": (lambda: _pool().array(("f4", (2,)), (3,)), "dtype is "),
    **{
        f"{name} {path!r}": (lambda use=use, path=path: use(path), f"{name} is ")
        for name, use in (
            ("path", Memory.from_file),
            ("source", nnburst.load),
        )
        for path in (None, 5, "", "a\0b", "\ud800")
    },
    "model NUL": (lambda: nnburst.compile("a\0b"), "model is "),
    "model surrogate": (lambda: nnburst.compile("\ud800"), "model is "),
    "executor surrogate": (lambda: nnburst.launch("\ud800"), "executor: "),
    "executor NUL": (lambda: nnburst.launch("null\0x"), "executor: "),
    "name 5": (lambda: nnburst.launch("null", name=5), "name is 5"),
    "env surrogate": (lambda: nnburst.launch("null", env={"A": "\ud800"}), "env: "),
    "extensions[0]": (lambda: nnburst.launch("null", extensions=["a\0b"]), r"extensions\[0\] is "),
    "shapes 5": (lambda: nnburst.load(b"", shapes=5), "shapes: 5"),
    "shapes of 5": (lambda: nnburst.load(b"", shapes={"x": 5}), r"shapes\['x'\]: 5"),
    "states": (lambda: nnburst.load(b"", states=["nope"]), "states: "),
    "constants": (lambda: nnburst.load(b"", constants=5), "constants: 5"),
    "extensions": (lambda: nnburst.load(b"", extensions=5), "extensions: 5"),
    "fence text": (lambda: nnburst.hal.SyncFence("x"), "fd is 'x'"),
    "fence 2**70": (lambda: nnburst.hal.SyncFence(2**70), "fd is "),
    "dimensions 5": (lambda: _network().input(F32, 5), "dimensions: 5"),
    "kind x": (lambda: _network().input("x", (2,)), "kind is 'x'"),
    "scale": (lambda: _network().input(U8, (2,), "a", 0), "scale is 'a'"),
    "constant 300": (lambda: _network().constant(U8, 300, 1.0), "values is 300: .*uint8"),
    **{
        f"constant array {number}": (
            lambda number=number: _network().constant(U8, np.array([0, number]), 1.0),
            "values is array.*: numbers from .* do not fit uint8",
        )
        for number in (300, 2**40, -1, 256.0, math.inf, math.nan)
    },
    "ragged": (lambda: _network().constant(F32, [[1], [2, 3]]), "values is .*inhomogeneous"),
    "text": (lambda: _network().constant(F32, ["1"]), "values is .*expected real numbers"),
    "complex": (lambda: _network().constant(F32, [1j]), "values is .*expected real numbers"),
    "None": (lambda: _network().constant(F32, None), "values is None: .*real numbers"),
    "[None]": (lambda: _network().constant(F32, [1.0, None]), "values is "),
    "no kind": (lambda: _network().constant(999, [1.0]), "kind is 999"),
    "scalar text": (lambda: _network().scalar("x"), "value is 'x'"),
    "scalar None": (lambda: _network().scalar(None), "value is None"),
    "scalar 2**40": (lambda: _network().scalar(2**40), "value is 1099511627776: .*int32"),
    "two scalars": (lambda: _network().scalar([1, 2]), "value has 2 elements"),
    "operation": (lambda: _network().operation("x", [0], [1]), "kind is 'x'"),
    **{
        f"{kind} {number!r}": (
            lambda kind=kind, number=number: getattr(_network().extension("a.b"), kind)(number),
            "number is ",
        )
        for kind in ("operand_type", "operation_type")
        for number in (0x20001, 0x10000, -1, "a", 1.0, None)
    },
    **{
        f"extension {name!r}": (lambda name=name: _network().extension(name), "name is ")
        for name in (None, 5, ["a.b"], "nodot", "com.Example.x")
    },
    "objects": (
        lambda: _network().extension_constant(1 << 16, [object(), None]),
        r"values is \[<object .*fixed size",
    ),
    "ragged extension": (
        lambda: _network().extension_constant(1 << 16, [[1], [2, 3]]),
        "values is .*inhomogeneous",
    ),
    "operands": (lambda: _network().operation(OperationType.RELU, 5, [1]), "inputs: 5"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_argument_of_the_wrong_kind_is_refused_by_its_name(misuse: str) -> None:
    use, message = MISUSES[misuse]
    with pytest.raises(InvalidArgument, match=rf"^{message}"):
        use()


def test_constant_of_whole_numbers_has_its_numbers_without_what_is_behind_their_points() -> None:
    builder = _network()
    builder.constant(U8, np.array([255.9, -0.9, 1.5]), 1.0)
    assert builder.build().operand_values.endswith(bytes([255, 0, 1]))


def test_offset_of_numpy_does_not_wrap_around() -> None:
    with Memory(4096) as pool:
        assert pool.array("u1", (100,), np.uint8(200)).shape == (100,)
        pool.view()[250] = 7
        assert pool.array("u1", (100,), np.uint8(200))[50] == 7


@pytest.mark.parametrize("value", [np.int64(3), 3])
def test_scalar_of_numpy_has_the_type_of_the_number(value: int) -> None:
    builder = nnburst.ModelBuilder()
    builder.scalar(value)
    builder.scalar(np.bool_(True))
    builder.scalar(np.float32(1))
    kinds = [operand.type for operand in builder.finish().operands]
    assert kinds == [OperandType.INT32, OperandType.BOOL, OperandType.FLOAT32]


@pytest.mark.parametrize("bad", [5, None, "x", [5]], ids=repr)
def test_argument_of_a_device_of_the_wrong_kind_is_refused_by_its_name(
    device: Device, prepared: PreparedModel, bad: Any, tmp_path: Path
) -> None:
    model = prepared.model
    uses: dict[str, Callable[[], object]] = {
        "pools": lambda: device.prepare(model, pools=bad),
        "pools ": lambda: device.prepare(model, pools=bad, cache_dir=tmp_path),
        "pools  ": lambda: nnburst.compile(model, pools=bad, placement="declared"),
        "attributes": lambda: device.prepare(model, attributes=bad),
        "inputs": lambda: device.allocate_buffer(bad),
        "callback": lambda: device.on_death(bad),
        "wait_for": lambda: nnburst.hal.execute_fenced(prepared, [A, A], wait_for=bad),
    }
    if bad is not None:
        uses |= {
            "callback ": lambda: device.prepare_async(model, callback=bad),
            "cache": lambda: device.prepare_async(model, cache=bad),
            "validation:S11: cache token": lambda: device.prepare(
                model, cache_dir=tmp_path, token=bad
            ),
            "manager": lambda: nnburst.compile(model, manager=bad),
        }
    if bad not in ("x", None):
        uses["cache_dir"] = lambda: device.prepare(model, cache_dir=bad)
        uses["cache_dir "] = lambda: nnburst.compile(model, cache_dir=bad)
    for name, use in uses.items():
        with pytest.raises(InvalidArgument, match=rf"^{name.strip()}[ \[:]"):
            use()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_output_that_is_a_matrix_holds_an_output_of_an_open_shape(device: Device) -> None:
    builder = nnburst.ModelBuilder()
    x, y = builder.input(F32, (0, 4)), builder.output(F32, (0, 4))
    builder.operation(OperationType.RELU, [x], [y])
    rows, room = np.ones((2, 4), np.float32), np.asmatrix(np.zeros((3, 4), np.float32))
    with device.prepare(builder.build()) as model, model.open_burst() as burst:
        for execute in (model.execute, burst.execute):
            np.testing.assert_array_equal(execute([rows], [room]).outputs[0], rows)
