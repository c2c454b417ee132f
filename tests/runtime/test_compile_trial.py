"""`nnburst.compile` over several engines that can run the whole model: the fastest gets it, tried once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst import ExecutionPreference
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import DeadObject, GeneralFailure, InvalidArgument
from nnburst.hal.model import Model
from nnburst.runtime import Manager
from nnburst.runtime.argument import Outcome
from nnburst.runtime.devices.engine_device import EngineDevice
from nnburst.runtime.part_timer import PartTimer
from nnburst.testing.models.tflite_builder import TfliteBuilder
from runtime.computing_device import ComputingDevice
from runtime.measuring.made_up import VirtualClock
from runtime.planning.plans import ADD, EXP, chain

X = np.array([0.5, 0.25], np.float32)
Engines = Callable[..., Manager]


class Engine(ComputingDevice):
    """Computes by the reference executor, with a given duration."""

    def __init__(
        self, name: str, clock: VirtualClock, seconds: float, reported: float = 0.5
    ) -> None:
        super().__init__(name, lambda _operation, _model: True, reported)

        def pass_time(_model: Model) -> Outcome | None:
            clock.now += seconds
            return None

        self.on_execute = pass_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> VirtualClock:
    """A clock for trials in place of this machine's; what they find is kept for this test alone."""
    made = VirtualClock()
    monkeypatch.setattr("nnburst.runtime.objects.compilation.PartTimer", partial(PartTimer, made))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return made


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    """A manager of devices that count as engines."""
    made: list[Manager] = []

    @contextmanager
    def contenders(manager: Manager) -> Iterator[list[Any]]:
        yield manager.devices[:-1]

    def manager(*devices: ComputingDevice) -> Manager:
        made.append(Manager(devices))
        return made[-1]

    monkeypatch.setattr(Manager, "_contenders", contenders)
    yield manager
    for one in made:
        one.close()


def test_the_whole_model_goes_to_the_engine_that_is_faster_for_it(
    engines: Engines, clock: VirtualClock
) -> None:
    manager = engines(Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001))
    with nnburst.compile(chain(ADD, EXP), manager=manager) as compiled:
        assert compiled.plan.devices == ("second",)
        np.testing.assert_allclose(compiled.execute([X]).outputs[0], np.exp(X + X), rtol=1e-5)
        report = compiled.placement_report
        assert report is not None
        assert report.alone == {"first": pytest.approx(0.002), "second": pytest.approx(0.001)}
        assert "second is the fastest" in str(report)


def test_an_engine_is_tried_once_on_a_machine(engines: Engines, clock: VirtualClock) -> None:
    for expected in (True, False):
        loser, winner = Engine("first", clock, 0.002), Engine("second", clock, 0.001)
        with nnburst.compile(chain(ADD, EXP), manager=engines(loser, winner)) as compiled:
            assert compiled.plan.devices == ("second",)
            assert bool(loser.executed) == bool(winner.executed) == expected


def test_an_engine_that_refuses_the_model_is_asked_once_on_a_machine(
    engines: Engines, clock: VirtualClock
) -> None:
    asked = []

    def refuse(model: Model) -> InvalidArgument:
        asked.append(model)
        return InvalidArgument("no")

    for _ in range(2):
        first, second = Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001)
        second.on_prepare = refuse
        with nnburst.compile(chain(ADD, EXP), manager=engines(first, second)) as compiled:
            assert compiled.plan.devices == ("first",)
            assert compiled.placement_report is None
    assert len(asked) == 1


@pytest.mark.parametrize(("seconds", "taken"), [(0.00101, "first"), (0.00103, "second")])
def test_the_first_engine_keeps_a_model_that_it_computes_as_fast_within_the_spread_of_a_trial(
    engines: Engines, clock: VirtualClock, seconds: float, taken: str
) -> None:
    manager = engines(Engine("first", clock, seconds), Engine("second", clock, 0.001))
    with nnburst.compile(chain(ADD), manager=manager) as compiled:
        assert compiled.plan.devices == (taken,)


def test_an_engine_that_reports_to_be_far_slower_is_not_tried(
    engines: Engines, clock: VirtualClock
) -> None:
    first, second = Engine("first", clock, 0.002, 0.3), Engine("second", clock, 0.001, 0.7)
    with nnburst.compile(chain(ADD), manager=engines(first, second)) as compiled:
        assert compiled.plan.devices == ("first",)
        assert (first.executed, second.executed) == (0, 0)


@pytest.mark.parametrize(("exact", "device"), [(False, "first"), (True, "second")])
def test_a_model_whose_numbers_are_rounded_at_8_bit_weights_stays_with_the_first_engine(
    engines: Engines, clock: VirtualClock, exact: bool, device: str
) -> None:
    first, second = Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001)
    b = TfliteBuilder()
    weights = b.constant("INT8", np.ones((4, 8), "<i1"), scale=0.5)
    given, made = b.input("FLOAT32", (1, 8)), b.output("FLOAT32", (1, 4))
    b.operator("FULLY_CONNECTED", [given, weights, -1], [made], "FullyConnectedOptions")
    model = nnburst.load(b.finish(), exact=exact)
    with nnburst.compile(model, manager=engines(first, second)) as compiled:
        assert compiled.plan.devices == (device,)


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "declared"},
        {"preference": ExecutionPreference.LOW_POWER},
        {"devices": ["first", "second"]},
    ],
    ids=lambda options: str(*options),
)
def test_reports_decide_if_that_is_asked_for_or_power_counts_or_devices_are_listed(
    engines: Engines, clock: VirtualClock, options: dict[str, Any]
) -> None:
    first, second = Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001)
    manager = engines(first, second)
    with nnburst.compile(chain(ADD), manager=manager, **options) as compiled:
        assert compiled.plan.devices == ("first",)
        assert (first.executed, second.executed) == (0, 0)


def test_reports_decide_among_drivers_that_run(clock: VirtualClock) -> None:
    first, second = Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001)
    with (
        Manager([first, second]) as manager,
        nnburst.compile(chain(ADD), manager=manager) as compiled,
    ):
        assert compiled.plan.devices == ("first",)
        assert (first.executed, second.executed) == (0, 0)


def test_reports_decide_on_a_model_of_unknown_size(engines: Engines, clock: VirtualClock) -> None:
    manager = engines(Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001))
    with nnburst.compile(chain(ADD, dims=(0,)), manager=manager) as compiled:
        assert compiled.plan.devices == ("first",)


def test_reports_decide_if_the_fastest_does_not_prepare_after_all(
    engines: Engines, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Engine("first", clock, 0.002, 0.4), Engine("second", clock, 0.001)
    prepared: list[Model] = []

    def once(model: Model) -> GeneralFailure | None:
        prepared.append(model)
        return GeneralFailure("no more") if len(prepared) > 1 else None

    second.on_prepare = once
    with nnburst.compile(chain(ADD), manager=engines(first, second)) as compiled:
        assert compiled.plan.devices == ("first",)
    assert "second is the fastest and cannot prepare" in caplog.text


def test_the_cpu_stands_in_for_the_engine_that_was_chosen(
    engines: Engines, clock: VirtualClock
) -> None:
    first, second = Engine("first", clock, 0.002), Engine("second", clock, 0.001)
    with nnburst.compile(chain(ADD), manager=engines(first, second)) as compiled:
        second.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED)
        assert compiled.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_an_engine_whose_driver_dies_in_its_trial_is_named_and_tried_again_by_the_next_compile(
    engines: Engines, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Engine("first", clock, 0.002), Engine("second", clock, 0.001)
    second.on_prepare = lambda _model: DeadObject("killed by SIGKILL")
    with nnburst.compile(chain(ADD), manager=engines(first, second)) as compiled:
        assert compiled.plan.devices == ("first",)
    (record,) = [r for r in caplog.records if r.name == "nnburst.runtime"]
    assert record.getMessage() == (
        "device second is not compared for this model until it is compiled again: its driver died while it"
        " was timed: killed by SIGKILL"
    )
    second.on_prepare = lambda _model: None
    with nnburst.compile(chain(ADD), manager=engines(first, second)) as compiled:
        assert compiled.plan.devices == ("second",)


def test_a_trial_takes_no_more_than_half_of_the_timeout(
    engines: Engines, clock: VirtualClock
) -> None:
    first, second = Engine("first", clock, 3.0), Engine("second", clock, 0.001)
    with nnburst.compile(chain(ADD), manager=engines(first, second), timeout=4.0) as compiled:
        assert compiled.plan.devices == ("first",)
        assert second.executed == 0


def test_an_installed_engine_that_wins_stays_and_one_that_loses_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ai_edge_litert", "onnxruntime"):
        pytest.importorskip(name, reason="the executor's engine")
    for variable in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("NNBURST_DEVICES", "auto")
    made: list[EngineDevice] = []
    initialise = EngineDevice.__init__

    def noted(engine: EngineDevice, *arguments: Any) -> None:
        made.append(engine)
        initialise(engine, *arguments)

    monkeypatch.setattr(EngineDevice, "__init__", noted)
    for count, seconds in ((2, [0.001, 0.002]), (3, [0.002, 0.001]), (3, [])):
        # The steps that are timed differ by their length, and the figures of the last round are known.
        times = iter(seconds)
        monkeypatch.setattr(PartTimer, "seconds", lambda *_, times=times: next(times))
        with (
            Manager() as manager,
            nnburst.compile(chain(*[ADD] * count), manager=manager) as compiled,
        ):
            [chosen] = compiled.plan.devices
            assert chosen == ("litert" if count == 2 else "onnxruntime")
            assert compiled.execute([X]).outputs[0].tolist() == (X * 2**count).tolist()
            litert, other = made
            assert [device.name for device in manager.devices] == ["litert", "nnapi-reference"]
            assert other._closed is (chosen == "litert")
            assert (litert._started is None) is not seconds
        made.clear()
