"""Placement by measurement: the plan of least latency over devices of known cost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnburst.control import address
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import GeneralFailure
from nnburst.runtime.measured_placement import MeasuredPlacement
from nnburst.runtime.part_timer import CostFile, PartTimer
from nnburst.runtime.planning.finished_model import FinishedModel, finish
from nnburst.runtime.planning.steps import Schedule
from runtime.measuring.made_up import Enumerated, KnownDevice, VirtualClock, assembled, grown
from runtime.planning.plans import ADD, EXP, chain
from waiting import wait_for


def placement(
    source: FinishedModel,
    devices: Sequence[KnownDevice],
    directory: Path | None = None,
    **options: object,
) -> MeasuredPlacement:
    given: dict[str, Any] = {
        "prepare": lambda step: devices[step.device].prepare(step),
        "assemble": lambda schedule: assembled(source, devices, schedule),
        "timer": PartTimer(devices[0].clock),
        "files": [CostFile(directory, device.name, device.version_string) for device in devices],
        "budget": 1e9,
    }
    return MeasuredPlacement(source, devices, **{**given, **options})


def drawn(seed: int, operations: int, count: int) -> tuple[FinishedModel, list[KnownDevice]]:
    rng, clock = np.random.default_rng(seed), VirtualClock()
    devices = [
        KnownDevice(
            f"device {number} of {seed}",
            step=float(rng.uniform(0.5e-6, 10e-6)),
            byte=float(rng.uniform(0, 5e-9)),
            clock=clock,
            refuses=frozenset({int(OperationType.TANH)} if number and rng.random() < 0.3 else ()),
        )
        for number in range(count)
    ]
    return finish(grown(rng, operations)), devices


def ratio(seed: int, operations: int, count: int) -> float:
    """The cost of the plan that is found, against the best of all."""
    source, devices = drawn(seed, operations, count)
    schedule = placement(source, devices).find()
    plans = Enumerated(source, devices)
    return plans.seconds(schedule) / plans.best()


@pytest.mark.parametrize(("seed", "operations", "devices"), [(1, 8, 2), (2, 10, 2), (3, 6, 3)])
def test_plan_is_as_good_as_the_best_of_all(seed: int, operations: int, devices: int) -> None:
    assert ratio(seed, operations, devices) <= 1.02


@pytest.mark.campaign
def test_twenty_plans_are_as_good_as_the_best_of_all() -> None:
    sizes = [(12, 2), (9, 3), (11, 2), (10, 3), (8, 3)]
    ratios = [ratio(seed, *sizes[seed % len(sizes)]) for seed in range(20)]
    print([f"{found:.3f}" for found in ratios])
    assert max(ratios) <= 1.02


def two_kinds(clock: VirtualClock, crossing: float) -> list[KnownDevice]:
    """The first is slow at EXP, the second refuses ADD."""
    return [
        KnownDevice("slow", crossing, 0, clock, spread=40.0),
        KnownDevice("exp", crossing, 0, clock, spread=1.0, refuses=frozenset({int(ADD)})),
    ]


def test_best_single_device_is_left_only_for_what_alternating_runs_show_to_be_faster() -> None:
    source = finish(chain(ADD, EXP, EXP, EXP, EXP, EXP, ADD))
    for crossing, devices_used in ((1e-7, [0, 1, 0]), (1e-3, [0])):
        measured = placement(source, two_kinds(VirtualClock(), crossing))
        assert [step.device for step in measured.find()] == devices_used
    cheap = placement(source, two_kinds(VirtualClock(), 1e-7))
    cheap.find()
    assert len(cheap.report.rounds) == 10
    assert "A plan of 3 steps beats slow alone: faster in 10 of 10" in cheap.report.reason
    assert "slow (1) → exp (5) → slow (1)" in str(cheap.report)


def test_plan_that_only_seems_faster_is_not_taken() -> None:
    source = finish(chain(ADD, EXP, EXP, ADD))
    devices = two_kinds(VirtualClock(), 1e-7)

    def slower(schedule: Schedule) -> object:
        part = assembled(source, devices, schedule)
        return part if len(schedule) == 1 else assembled(source, devices, schedule * 9)

    measured = placement(source, devices, assemble=slower)
    assert [step.device for step in measured.find()] == [0]
    assert "does not beat slow alone" in measured.report.reason


def test_plan_that_fails_as_a_whole_is_not_taken() -> None:
    source = finish(chain(ADD, EXP, EXP, ADD))
    devices = two_kinds(VirtualClock(), 1e-7)

    def failing(schedule: Schedule) -> object:
        part = assembled(source, devices, schedule)
        part.fails = len(schedule) > 1
        return part

    measured = placement(source, devices, assemble=failing)
    assert [step.device for step in measured.find()] == [0]
    assert "the plan of several steps failed (OP_FAILED" in measured.report.reason


def test_noise_of_measurements_does_not_leave_the_best_device_for_nothing() -> None:
    source = finish(chain(*[ADD, EXP] * 4))
    for seed in range(5):
        clock = VirtualClock()
        devices = [
            KnownDevice(name, 5e-6, 0, clock, spread=1.0, noise=np.random.default_rng(seed))
            for name in ("a", "b")
        ]
        assert len(placement(source, devices).find()) == 1


def test_what_was_measured_is_kept_by_device_and_version(tmp_path: Path) -> None:
    source, devices = drawn(5, 8, 2)
    first = placement(source, devices, tmp_path)
    schedule = first.find()
    prepared = [device.prepared for device in devices]
    assert sum(prepared) > 0
    again = placement(source, devices, tmp_path)
    assert again.find() == schedule
    assert [device.prepared for device in devices] == prepared
    assert not any(step.is_new for step in again.report.steps)
    devices[0].version_string = "2"
    placement(source, devices, tmp_path).find()
    assert devices[0].prepared > prepared[0]
    assert devices[1].prepared == prepared[1]


def test_equal_operations_are_timed_once() -> None:
    clock = VirtualClock()
    device = KnownDevice("one", 1e-6, 0, clock)
    measured = placement(finish(chain(*[EXP] * 30)), [device])
    measured.find()
    assert device.prepared == 2  # one operation, and the whole model


def test_operation_that_no_device_can_run_leaves_nothing_to_find() -> None:
    device = KnownDevice("one", 1e-6, 0, VirtualClock(), refuses=frozenset({int(EXP)}))
    measured = placement(finish(chain(ADD, EXP)), [device])
    assert measured.find() == ()
    assert "placed by the costs that devices report" in measured.report.reason


def test_model_of_unknown_size_cannot_be_timed() -> None:
    devices = two_kinds(VirtualClock(), 1e-7)
    measured = placement(finish(chain(ADD, EXP, dims=(0,))), devices)
    assert measured.find() == ()
    assert "could not be timed" in measured.report.reason


def test_budget_ends_the_measuring_and_there_is_a_plan_all_the_same() -> None:
    source, devices = drawn(6, 12, 2)
    measured = placement(source, devices, budget=1e-4)
    measured.find()
    spent = placement(source, devices)
    spent.find()
    assert len(measured.report.steps) < len(spent.report.steps)


def test_progress_goes_up_to_the_end() -> None:
    source, devices = drawn(7, 6, 2)
    seen: list[tuple[int, int]] = []
    placement(source, devices, progress=lambda done, total: seen.append((done, total))).find()
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert all(done <= total for done, total in seen)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"seconds": {"a": "b"}}',
        b'{"device": "\xff"}',
        b'{"a": ' + b"[" * 100_000,
    ],
    ids=len,
)
def test_file_that_cannot_be_read_is_measured_anew(tmp_path: Path, content: bytes) -> None:
    file = CostFile(tmp_path, "device", "1")
    file.put("a", 1.0)
    file.save()
    (path,) = tmp_path.glob("*.json")
    assert CostFile(tmp_path, "device", "1").get("a") == 1.0
    path.write_bytes(content)
    assert CostFile(tmp_path, "device", "1").get("a") is None


def test_figures_that_others_have_kept_meanwhile_stay(tmp_path: Path) -> None:
    one, other = (CostFile(tmp_path, "device", "1") for _ in range(2))
    one.put("a", 1.0)
    other.put("b", 2.0)
    one.save()
    other.save()
    one.put("c", 3.0)
    one.save()
    found = CostFile(tmp_path, "device", "1")
    assert [found.get(signature) for signature in "abc"] == [1.0, 2.0, 3.0]


def test_figures_that_two_save_at_the_same_moment_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (CostFile(tmp_path, "device", "1") for _ in range(2))
    one.put("a", 1.0)
    other.put("b", 2.0)
    saving = threading.Thread(target=other.save, daemon=True)
    waits = threading.Event()

    take_lock, replace_file = address.take_lock, address.replace_file

    def take(path: Path) -> int | None:
        lock = take_lock(path)
        if lock is None:
            waits.set()
        return lock

    def replace(path: Path, content: bytes) -> None:
        if threading.current_thread() is not saving:  # `one` has read the file: `other` saves now
            saving.start()
            wait_for(lambda: waits.is_set() or not saving.is_alive())
        replace_file(path, content)

    monkeypatch.setattr(address, "_PATIENCE", 60.0)
    monkeypatch.setattr(address, "take_lock", take)
    monkeypatch.setattr("nnburst.runtime.part_timer.replace_file", replace)
    one.save()
    saving.join(60)
    found = CostFile(tmp_path, "device", "1")
    assert [found.get(signature) for signature in "ab"] == [1.0, 2.0]


def test_figures_are_not_kept_while_another_process_does_not_let_go_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_PATIENCE", 0.0)
    one, other = (CostFile(tmp_path, "device", "1") for _ in range(2))
    one.put("a", 1.0)
    one.save()
    other.put("b", 2.0)
    (path,) = tmp_path.glob("*.json")
    with address.locked(path):
        other.save()
    assert other.get("b") == 2.0
    found = CostFile(tmp_path, "device", "1")
    assert (found.get("a"), found.get("b")) == (1.0, None)


def test_figures_count_only_for_the_cores_and_settings_that_they_were_measured_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured() -> float | None:
        return CostFile(tmp_path, "device", "1").get("a")

    cores = [0, 1, 2, 3]
    monkeypatch.setattr("nnburst.fmq.cores.performance_cores", lambda: cores)
    monkeypatch.setattr("nnburst.fmq.cores.cpu_quota", lambda: inf)
    file = CostFile(tmp_path, "device", "1")
    file.put("a", 1.0)
    file.save()
    assert measured() == 1.0
    for setting in ("LITERT_THREADS=2", "ONNXRUNTIME_THREADS=2", "OPENVINO_DEVICE=GPU"):
        name, _, value = setting.partition("=")
        with monkeypatch.context() as within:
            within.setenv(f"NNBURST_{name}", value)
            assert measured() is None
    del cores[1:]
    assert measured() is None


def test_directory_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = CostFile(tmp_path / "file" / "below", "device", "1")
    file.put("a", 1.0)
    file.save()
    assert file.get("a") == 1.0
    assert CostFile(None, "device", "1").get("a") is None


def test_step_that_fails_has_no_time() -> None:
    device = KnownDevice("one", 1e-6, 0, VirtualClock())
    part = assembled(finish(chain(EXP)), [device], ())
    part.fails = True
    with pytest.raises(GeneralFailure, match="OP_FAILED"):
        PartTimer(device.clock).seconds(finish(chain(EXP)).model, part)
