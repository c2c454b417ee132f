"""`nnburst.compile(..., placement="measured")` over devices of this process."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst.hal.enums import OperationType, ResultCode
from nnburst.hal.errors import BadState, GeneralFailure, InvalidArgument
from nnburst.hal.model import Model
from nnburst.runtime import Compilation, Manager, Measuring
from nnburst.runtime import Model as RuntimeModel
from nnburst.runtime.argument import Outcome
from nnburst.runtime.measured_placement import MeasuredPlacement
from nnburst.runtime.part_timer import PartTimer
from nnburst.runtime.planning.plan import SimplePlan
from runtime.computing_device import ComputingDevice
from runtime.measuring.made_up import VirtualClock
from runtime.planning.plans import ADD, EXP, chain

X = np.array([0.5, 0.25], np.float32)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """A clock for measuring in place of this machine's."""
    made = VirtualClock()
    monkeypatch.setattr("nnburst.runtime.objects.compilation.PartTimer", partial(PartTimer, made))
    return made


def device(name: str) -> ComputingDevice:
    """Computes everything by the reference executor."""
    return ComputingDevice(name, lambda _operation, _model: True, 0.5)


def slow_device(name: str, clock: VirtualClock, slow: int) -> ComputingDevice:
    """Takes 1 ms for an execution, and 20 ms longer for each operation of a kind."""

    def pass_time(model: Model) -> Outcome | None:
        count = sum(operation.type == slow for operation in model.main.operations)
        clock.now += 0.001 + 0.02 * count
        return None

    made = device(name)
    made.on_execute = pass_time
    return made


@pytest.mark.parametrize(
    "option",
    [
        {"budget": "x"},
        {"budget": None},
        {"budget": True},
        {"budget": -1.0},
        {"budget": math.nan},
        {"progress": 5},
        {"directory": 5},
        {"directory": ""},
    ],
    ids=repr,
)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{next(iter(option))} is "):
        Measuring(**option)


def test_figures_are_kept_in_a_directory_that_is_given_as_a_text(tmp_path: Path) -> None:
    with Manager([device("a")]) as manager:
        measuring = Measuring(directory=str(tmp_path / "figures"))
        nnburst.compile(chain(ADD, EXP), measuring=measuring, manager=manager).close()
    assert list((tmp_path / "figures").glob("*.json"))


def measured(tmp_path: Path, manager: Manager, model: Model) -> nnburst.CompiledModel:
    measuring = Measuring(directory=tmp_path)
    return nnburst.compile(model, placement="measured", measuring=measuring, manager=manager)


def test_each_operation_goes_to_the_device_that_is_fast_at_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with Manager([slow_device("a", clock, EXP), slow_device("b", clock, ADD)]) as manager:
        manager.cpu.supported_operations = lambda *_: [False] * 3  # type: ignore[method-assign]
        with measured(tmp_path, manager, chain(ADD, EXP, EXP)) as compiled:
            assert compiled.plan.devices == ("a", "b")
            result = compiled.execute([X]).outputs[0]
            np.testing.assert_allclose(result, np.exp(np.exp(X + X)), rtol=1e-5)
            report = compiled.placement_report
            assert report is not None
            assert len(report.rounds) == 10
            assert "beats b alone: faster in" in str(report)


def test_plan_falls_back_as_any_other_does(tmp_path: Path, clock: VirtualClock) -> None:
    first, second = slow_device("a", clock, EXP), slow_device("b", clock, ADD)
    with Manager([first, second]) as manager:
        manager.cpu.supported_operations = lambda *_: [False] * 2  # type: ignore[method-assign]
        with measured(tmp_path, manager, chain(ADD, EXP)) as compiled:
            second.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED)
            result = compiled.execute([X]).outputs[0]
            np.testing.assert_allclose(result, np.exp(X + X), rtol=1e-5)


def test_device_that_is_slow_at_all_it_does_gets_nothing(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with (
        Manager([slow_device("slow", clock, ADD)]) as manager,
        measured(tmp_path, manager, chain(ADD, ADD)) as compiled,
    ):
        plan = compiled.plan._plan
        assert isinstance(plan, SimplePlan)
        assert plan.devices[plan.device] == "nnapi-reference"
        assert str(compiled.placement_report).splitlines()[-2].endswith("alone is the fastest.")


def test_plan_that_does_not_prepare_after_all_leaves_it_to_what_devices_say(tmp_path: Path) -> None:
    broken = device("broken")
    with Manager([broken]) as manager:
        prepared = []

        def prepare(model: Model) -> GeneralFailure | None:
            prepared.append(model)
            return GeneralFailure("no more") if len(prepared) > 2 else None

        broken.on_prepare = prepare
        manager.cpu.supported_operations = lambda *_: [False]  # type: ignore[method-assign]
        with measured(tmp_path, manager, chain(ADD)) as compiled:
            assert compiled.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_progress_is_reported_and_figures_are_kept(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    measuring = Measuring(progress=lambda *now: told.append(now), directory=tmp_path)
    with Manager([device("a")]) as manager:
        for _ in range(2):
            nnburst.compile(
                chain(ADD, EXP), placement="measured", measuring=measuring, manager=manager
            ).close()
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert told[0][0] == 1


def test_model_of_unknown_size_is_placed_by_what_devices_say(tmp_path: Path) -> None:
    with (
        Manager([device("a")]) as manager,
        measured(tmp_path, manager, chain(ADD, EXP, dims=(0,))) as compiled,
    ):
        assert compiled.plan.devices == ("a",)
        assert "could not be timed" in str(compiled.placement_report)


def test_placement_by_what_devices_say_has_no_report() -> None:
    with (
        Manager([device("a")]) as manager,
        nnburst.compile(chain(ADD), manager=manager) as compiled,
    ):
        assert compiled.placement_report is None


def test_placement_that_does_not_exist_is_refused() -> None:
    with Manager([]) as manager:
        with pytest.raises(InvalidArgument, match="placement: 'best', expected 'declared' or"):
            nnburst.compile(chain(ADD), placement="best", manager=manager)
        with pytest.raises(InvalidArgument, match="measuring: given, but placement is 'declared'"):
            nnburst.compile(
                chain(ADD), placement="declared", measuring=Measuring(), manager=manager
            )
        with pytest.raises(InvalidArgument, match="measuring: 3, expected a Measuring"):
            nnburst.compile(chain(ADD), measuring=3, manager=manager)  # type: ignore[arg-type]


def test_finished_compilation_cannot_be_placed_anew() -> None:
    with Manager([]) as manager:
        compilation = Compilation(RuntimeModel.of(chain(OperationType.FLOOR)), manager=manager)
        compilation.finish()
        with pytest.raises(BadState, match="place_by_measurement"):
            compilation.place_by_measurement()
        compilation.close()


def test_measuring_takes_no_more_than_half_of_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = []

    def noted(*args: Any, budget: float, **options: Any) -> MeasuredPlacement:
        budgets.append(budget)
        return MeasuredPlacement(*args, budget=budget, **options)

    monkeypatch.setattr("nnburst.runtime.objects.compilation.MeasuredPlacement", noted)
    with Manager([device("a")]) as manager:
        for seconds, timeout in ((100.0, 60.0), (7.0, 60.0)):
            nnburst.compile(
                chain(ADD, EXP),
                placement="measured",
                measuring=Measuring(budget=seconds, directory=tmp_path),
                timeout=timeout,
                manager=manager,
            ).close()
    assert 0 < budgets[0] <= 30
    assert budgets[1] == 7
