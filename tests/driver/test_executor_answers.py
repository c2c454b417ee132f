"""Odd answers of executors in Python are read where their meaning is clear, else refused by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from driver.burst_harness import Harness, ScriptedExecutor, relu_model, shapes
from driver.cached_models import Files, scaling
from driver.test_prepared_model import Spy, prepare, relu, request
from driver.weights.packers import Packer
from nnburst.client.launch import launch
from nnburst.control.service import failure
from nnburst.driver.model.device import Device
from nnburst.driver.model.pools import Pool
from nnburst.executor.base import DEFAULT_OPTIONS, Outcome
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import DeadObject, GeneralFailure, NnburstError
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import OutputShape

NONE: Any = ErrorStatus.NONE


class Mute(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ODD_OUTCOMES: dict[str, tuple[Any, str]] = {
    "none": (None, "None: expected an Outcome"),
    "int": (0, "0: expected an Outcome"),
    "status_99": (Outcome(99), "status=99, .* expected a status"),  # type: ignore[arg-type]
    "status_none": (Outcome(None), "status=None, .* expected a status"),  # type: ignore[arg-type]
    "dead_object": (Outcome(ErrorStatus.DEAD_OBJECT), "DEAD_OBJECT.* expected a status"),
    "negative": (Outcome(device_ns=-5), "device_ns is -5, expected 0 to"),
    "float": (Outcome(driver_ns=2.5), r"driver_ns is 2\.5, expected 0 to"),  # type: ignore[arg-type]
    "no_shape": (Outcome(NONE, ((2, 3),)), r"output_shapes\[0\]: expected an OutputShape"),  # type: ignore[arg-type]
    "extent": (Outcome(NONE, shapes((-2,))), r"output_shapes\[0\]\.dimensions\[0\] is -2"),
    "huge": (
        Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes((2**40,))),
        rf"dimensions\[0\] is {2**40}, expected 0 to",
    ),
}


@pytest.fixture
def pool() -> Pool:
    return Pool(SharedMemory.create(256))


@pytest.mark.parametrize(("outcome", "text"), ODD_OUTCOMES.values(), ids=ODD_OUTCOMES)
def test_outcome_that_cannot_be_meant_is_a_failure_that_names_run_and_is_logged(
    pool: Pool, caplog: pytest.LogCaptureFixture, outcome: Any, text: str
) -> None:
    spy = Spy()
    spy.outcome = outcome
    with pytest.raises(GeneralFailure, match=rf"^Spy\.run returned .*{text}"):
        prepare(spy, relu()).execute_synchronously(request(), [pool], measure=True)
    assert "answered with GENERAL_FAILURE: Spy.run returned" in caplog.text


@pytest.mark.parametrize("outcome", [odd for odd, _ in ODD_OUTCOMES.values()], ids=ODD_OUTCOMES)
def test_burst_goes_on_after_an_outcome_that_cannot_be_meant(
    caplog: pytest.LogCaptureFixture, outcome: Any
) -> None:
    outcomes = [outcome, Outcome(NONE, shapes((2,)))]
    executor = ScriptedExecutor(lambda _: outcomes.pop(0))
    with Harness(executor, model=relu_model((0,))) as burst:
        assert burst.exchange(burst.packet(0))[0] == ErrorStatus.GENERAL_FAILURE
        assert burst.exchange(burst.packet(0), count=4)[0] == ErrorStatus.NONE
    assert not burst.ended
    assert "ScriptedExecution.run returned" in caplog.text


def test_integers_and_bools_of_numpy_are_read(pool: Pool) -> None:
    spy = Spy()
    shape = OutputShape((np.int64(4),), np.True_)  # type: ignore[arg-type]
    spy.outcome = Outcome(np.int32(0), [shape], "", np.int64(0), np.int64(9_000_000))  # type: ignore[arg-type]
    done = prepare(spy, relu()).execute_synchronously(request(), [pool], measure=True)
    assert types_of(done.output_shapes[0].dimensions) == [int]
    assert type(done.output_shapes[0].is_sufficient) is bool
    assert (type(done.timing.time_on_device), done.timing.time_on_device) == (int, 0)


def types_of(values: Any) -> list[type]:
    return [type(value) for value in values]


def test_integers_of_numpy_are_read_on_a_burst_of_varying_shapes() -> None:
    shape = OutputShape((np.int64(2),), np.True_)  # type: ignore[arg-type]
    executor = ScriptedExecutor(lambda _: Outcome(NONE, (shape,)))
    with Harness(executor, model=relu_model((0,))) as burst:
        assert burst.exchange(burst.packet(0), count=4)[:2] == (NONE, shapes((2,)))


@pytest.mark.parametrize("error", [DeadObject("gone"), Mute()], ids=["dead object", "mute"])
def test_what_run_raises_is_named_and_is_no_death(
    pool: Pool, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(Spy):
        def run(self, *_: object) -> Outcome:
            raise error

    kind = type(error).__name__
    with pytest.raises(
        GeneralFailure, match=rf"^Raising\.run raised {kind}: (gone|it has no text)"
    ):
        prepare(Raising(), relu()).execute_synchronously(request(), [pool])
    assert "an execution raised" in caplog.text


@pytest.mark.parametrize("status", [ErrorStatus.DEAD_OBJECT, ErrorStatus.NONE, 99])
def test_error_whose_status_no_answer_may_have_is_answered_with_general_failure(
    status: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reply = failure(NnburstError("odd", status=status))
    assert (reply.status, reply.message) == (ErrorStatus.GENERAL_FAILURE, "NnburstError: odd")
    assert "a handler raised" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        lambda: np.array([True, False]),
        lambda: (1, 0),
        lambda: [np.int64(1), np.False_],
        lambda: (index == 0 for index in range(2)),
    ],
)
def test_truth_values_of_any_type_say_what_is_supported(answer: Callable[[], Any]) -> None:
    spy = Spy()
    spy.supported = lambda _model: answer()  # type: ignore[method-assign]
    found = Device("spy", spy).supported_operations(two_operations(), [])
    assert found == [True, False]
    assert types_of(found) == [bool, bool]


@pytest.mark.parametrize(
    "answer", [None, 1, "xy", [True], [True] * 3, [True, 2], [True, None], np.ones((2, 2), bool)]
)
def test_what_is_no_truth_value_for_each_operation_is_refused_and_logged(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spy = Spy()
    spy.supported = lambda _model: answer  # type: ignore[method-assign]
    device = Device("spy", spy)
    expected = r"(?s)^Spy\.supported returned .*: expected a bool for each of 2 operations"
    with pytest.raises(GeneralFailure, match=expected):
        device.supported_operations(two_operations(), [])
    with pytest.raises(GeneralFailure, match=expected):
        device.check_supported(two_operations(), [])
    assert "Spy.supported returned" in caplog.text


def two_operations() -> Any:
    builder = ModelBuilder()
    source = builder.input(OperandType.TENSOR_FLOAT32, (4,))
    between = builder.temporary(OperandType.TENSOR_FLOAT32, (4,))
    builder.operation(OperationType.RELU, [source], [between])
    target = builder.output(OperandType.TENSOR_FLOAT32, (4,))
    builder.operation(OperationType.RELU, [between], [target])
    return builder.build()


def test_prepare_or_bind_that_returns_nothing_is_named(pool: Pool) -> None:
    spy = Spy()
    spy.bind = lambda *_: None  # type: ignore[method-assign, assignment]
    prepared = prepare(spy, relu())
    with pytest.raises(GeneralFailure, match=r"^Spy\.bind returned None: expected an Execution"):
        prepared.execute_synchronously(request(), [pool])
    spy.prepare = lambda *_: None  # type: ignore[method-assign, assignment]
    with pytest.raises(GeneralFailure, match=r"^Spy\.prepare returned None: expected a Prepared"):
        prepare(spy, relu())


@pytest.mark.parametrize("answer", [None, 3])
def test_prepare_from_cache_that_returns_something_else_is_named(
    tmp_path: Path, answer: Any
) -> None:
    executor: Any = ReferenceExecutor()
    device = Device("reference", executor)
    files = Files(tmp_path, device)
    assert files.save(device, device.prepare(scaling(), [], DEFAULT_OPTIONS))
    executor.prepare_from_cache = lambda *_: answer
    expected = rf"\.prepare_from_cache returned {answer}: expected a Prepared$"
    with pytest.raises(GeneralFailure, match=expected):
        files.load(device)


@pytest.mark.parametrize("answer", [None, 3])
def test_prepare_packed_that_returns_something_else_is_named(answer: Any) -> None:
    packer = Packer()
    packer.prepare_packed = lambda *_: answer  # type: ignore[method-assign]
    weights: Any = SimpleNamespace(packed=lambda *_: nullcontext([0]))
    expected = rf"^Packer\.prepare_packed returned {answer}: expected a Prepared$"
    with pytest.raises(GeneralFailure, match=expected):
        Device("packer", packer, weights).prepare_checked(relu(), [], DEFAULT_OPTIONS)


ODD_EXECUTOR = """
from nnburst.executor.base import Execution, Outcome, Prepared
from nnburst.executor.null import NullExecutor
from nnburst.hal.enums import ErrorStatus

class Odd(NullExecutor):
    name = "odd"

    def prepare(self, model, pools, options):
        return OddPrepared()

class OddPrepared(Prepared):
    def bind(self, inputs, outputs):
        return OddExecution()

class OddExecution(Execution):
    def run(self, deadline_ns=None, loop_timeout_ns=0):
        return Outcome(ErrorStatus.DEAD_OBJECT)
"""


def test_client_gets_the_name_of_the_method_in_every_way_to_execute(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD_EXECUTOR)
    array = np.zeros(4, np.float32)
    with launch("odd:Odd", env={"PYTHONPATH": str(tmp_path)}) as device:
        prepared = device.prepare(relu())
        with pytest.raises(GeneralFailure, match=r"OddExecution\.run returned .*DEAD_OBJECT"):
            prepared.execute([array])
        with pytest.raises(GeneralFailure, match=r"OddExecution\.run returned .*DEAD_OBJECT"):
            prepared.execute_async([array]).result(30)
        with prepared.open_burst() as burst:
            for _ in range(2):
                with pytest.raises(GeneralFailure, match=r"GENERAL_FAILURE; .* bursts=False"):
                    burst.execute([array])
