"""Every bad argument to a burst is a typed error that names it; nothing is sent and the burst works on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from descriptors import descriptors
from nnburst import Closed, Device, InvalidArgument, Model, PreparedModel
from nnburst.client.burst.interface import Burst
from shared_drivers import connect_to

A = np.zeros((2, 3), np.float32)


@pytest.fixture
def silent(prepared: PreparedModel) -> Iterator[Burst]:
    """A burst through which nothing must go; afterwards it must still work."""
    with prepared.open_burst() as burst:
        yield burst
        assert burst.statistics()["executions"] == burst._core.client.in_flight == 0, (
            "something was sent"
        )
        np.testing.assert_array_equal(burst.execute([A, A]).outputs[0], A)


def pooled(device: Device, dtype: Any = np.float32, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    return device.allocate(256).array(dtype, shape)


BAD: list[tuple[Callable[[Device], Any], str]] = [
    (lambda d: pooled(d, np.float64), "has dtype float64, expected float32"),
    (lambda d: pooled(d, ">f4"), "has dtype >f4, expected float32"),
    (lambda d: pooled(d, np.int32), "has dtype int32, expected float32"),
    (lambda d: pooled(d, shape=(3, 2)), r"has shape \(3, 2\), expected"),
    (lambda d: pooled(d, shape=(0, 3)), r"has shape \(0, 3\)"),
    (lambda d: pooled(d, shape=(6,)), "has rank 1"),
    (lambda d: pooled(d, shape=(1, 2, 3)), "has rank 3"),
    (lambda d: pooled(d, shape=(3, 2)).T, "is not contiguous"),
    (lambda d: pooled(d, shape=(2, 6))[:, ::2], "is not contiguous"),
    (lambda _: [[0.0] * 3] * 2, "is of type list, expected a numpy array"),
    (lambda _: "text", "is of type str"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
@pytest.mark.parametrize("position", [0, 1])
def test_input_that_does_not_fit_is_refused(
    silent: Burst, make: Callable[[Device], Any], message: str, position: int
) -> None:
    bad = make(silent._core.prepared.session)
    for call in (silent.execute, silent.bind):
        inputs: list[Any] = [
            pooled(silent._core.prepared.session),
            pooled(silent._core.prepared.session),
        ]
        inputs[position] = bad
        with pytest.raises(InvalidArgument, match=rf"inputs\[{position}\] {message}"):
            call(inputs)


@pytest.mark.parametrize(("make", "message"), BAD)
def test_output_that_does_not_fit_is_refused(
    silent: Burst, make: Callable[[Device], Any], message: str
) -> None:
    inputs = [pooled(silent._core.prepared.session), pooled(silent._core.prepared.session)]
    for call in (silent.execute, silent.bind):
        with pytest.raises(InvalidArgument, match=rf"outputs\[0\] {message}"):
            call(inputs, [make(silent._core.prepared.session)])


def test_array_outside_of_every_pool_cannot_be_bound(silent: Burst) -> None:
    message = (
        r"inputs\[1\] does not lie in an open pool, expected an array of Device.allocate\(...\) or"
        r" nnburst.Memory\(...\)"
    )
    with pytest.raises(InvalidArgument, match=message):
        silent.bind([pooled(silent._core.prepared.session), A])
    with pytest.raises(InvalidArgument, match=r"outputs\[0\] does not lie in an open pool"):
        silent.bind([pooled(silent._core.prepared.session)] * 2, [A.copy()])


def test_array_in_a_closed_pool_cannot_be_bound(silent: Burst) -> None:
    memory = silent._core.prepared.session.allocate(64)
    array = memory.array("f4", (2, 3))
    memory.close()
    with pytest.raises(InvalidArgument, match=r"inputs\[0\] does not lie in an open pool"):
        silent.bind([array, array])


def test_read_only_output_is_refused(silent: Burst) -> None:
    output = pooled(silent._core.prepared.session)
    output.flags.writeable = False
    for call in (silent.execute, silent.bind):
        with pytest.raises(InvalidArgument, match=r"outputs\[0\] is read-only"):
            call([pooled(silent._core.prepared.session)] * 2, [output])


def test_output_that_became_read_only_is_refused(prepared: PreparedModel) -> None:
    with prepared.open_burst() as burst:
        output = A.copy()
        burst.execute([A, A], [output])
        output.flags.writeable = False
        with pytest.raises(InvalidArgument, match=r"outputs\[0\] is read-only"):
            burst.execute([A, A], [output])


def test_array_that_changed_since_it_was_remembered_is_refused(prepared: PreparedModel) -> None:
    with prepared.open_burst() as burst:
        burst.execute([A, A])
        for changed in (A.astype(np.int32), A.reshape(3, 2), A.astype(np.float64)):
            with pytest.raises(InvalidArgument, match=r"inputs\[0\] has"):
                burst.execute([changed, A])
        assert burst.execute([A, A])


@pytest.mark.parametrize("given", [5, True, np.stack([A, A]), {"x": A, "y": A}])
@pytest.mark.parametrize("argument", ["inputs", "outputs", "output_bytes"])
def test_what_is_not_a_sequence_is_refused(silent: Burst, argument: str, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{argument}: of type .*, expected a sequence"):
        silent.bind(**{argument: given})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_inputs_is_refused(silent: Burst, count: int) -> None:
    for call in (silent.execute, silent.bind):
        with pytest.raises(InvalidArgument, match=f"inputs: {count} arrays given, expected 2"):
            call([A] * count)


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_number_of_outputs_is_refused(silent: Burst, count: int) -> None:
    for call in (silent.execute, silent.bind):
        with pytest.raises(InvalidArgument, match=f"outputs: {count} arrays given, expected 1"):
            call([pooled(silent._core.prepared.session)] * 2, [A] * count)
    with pytest.raises(InvalidArgument, match=f"output_bytes: {count} arrays given"):
        silent.bind(output_bytes=[64] * count)


@pytest.mark.parametrize("room", [0, -1, 1.5, "64", 2**40])
def test_room_that_makes_no_sense_is_refused(silent: Burst, room: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"output_bytes\[0\] is"):
        silent.bind(output_bytes=[room])


@pytest.mark.parametrize("timeout", [0, -1, 0.0, -0.5, math.inf, math.nan, "1", True])
def test_timeout_that_makes_no_sense_is_refused(silent: Burst, timeout: Any) -> None:
    bound = silent.bind()
    for call in (bound.run, lambda timeout: silent.execute([A, A], timeout=timeout)):
        with pytest.raises(InvalidArgument, match="timeout: "):
            call(timeout=timeout)


def test_pending_result_needs_a_sensible_timeout(prepared: PreparedModel) -> None:
    with prepared.open_burst() as burst:
        pending = burst.bind().submit()
        for timeout in (0, -1, math.nan):
            with pytest.raises(InvalidArgument, match="timeout: "):
                pending.result(timeout=timeout)
        assert pending.result()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"max_in_flight": 1025}, "max_in_flight is 1025"),
        ({"max_in_flight": 1.5}, "max_in_flight is 1.5"),
        ({"max_in_flight": "2"}, "max_in_flight is '2'"),
        ({"channel_length": 1}, "channel_length is 1"),
        ({"channel_length": 2**40}, "channel_length is"),
        ({"channel_length": None}, "channel_length is None"),
        ({"result_channel_length": 0}, "result_channel_length is 0"),
        ({"result_channel_length": -5}, "result_channel_length is -5"),
        ({"spin_window": -1e-9}, "spin_window is"),
        ({"spin_window": math.nan}, "spin_window is nan"),
        ({"spin_window": math.inf}, "spin_window is inf"),
        ({"spin_window": "0"}, "spin_window is '0'"),
        ({"spin_window": 60}, "spin_window is 60, expected 0 to less than 60 seconds"),
    ],
)
def test_option_out_of_range_is_refused_by_name(
    prepared: PreparedModel, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        prepared.open_burst(**options)


def test_closed_burst_refuses_calls(prepared: PreparedModel) -> None:
    burst = prepared.open_burst()
    bound = burst.bind()
    burst.close()
    burst.close()
    uses: list[Callable[[], object]] = [
        bound.run,
        bound.submit,
        burst.bind,
        lambda: burst.execute([A, A]),
    ]
    for use in uses:
        with pytest.raises(Closed, match=r"burst (is|was) closed"):
            use()
    assert "closed" in repr(burst)


def test_burst_of_a_closed_device_refuses_calls(make_model: Callable[..., Model]) -> None:
    device = connect_to("null")
    burst = device.prepare(make_model()).open_burst()
    bound = burst.bind()
    device.close()
    for use in (bound.run, bound.submit, burst.bind):
        with pytest.raises((Closed, nnburst.DeadObject)):
            use()
    burst.close()


def test_open_shape_without_room_is_refused(
    device: Device, make_model: Callable[..., Model]
) -> None:
    model = make_model((1, 0))
    with device.prepare(model) as prepared, prepared.open_burst() as burst:
        with pytest.raises(InvalidArgument, match=r"inputs\[0\] has no fixed shape"):
            burst.bind()
        row = pooled(device, shape=(1, 4))
        with pytest.raises(InvalidArgument, match=r"outputs\[0\] has no fixed shape.*output_bytes"):
            burst.bind([row, row])
        with pytest.raises(InvalidArgument, match=r"outputs\[0\] is empty"):
            burst.bind([row, row], output_bytes=[3])
        assert burst.execute([row, row])


def test_a_burst_that_a_closed_device_refuses_leaves_no_descriptor(
    make_model: Callable[..., Model],
) -> None:
    device = connect_to("null")
    prepared = device.prepare(make_model())
    device.close()
    before = descriptors()
    with pytest.raises(Closed):
        prepared.open_burst()
    assert descriptors() <= before
