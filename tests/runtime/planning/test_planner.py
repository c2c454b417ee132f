"""Modes, fallback, preparing in order, and what plans keep whatever they are made for."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnburst.hal.enums import ErrorStatus, OperationType, ResultCode
from nnburst.hal.errors import InvalidArgument, NnburstError, error_for
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.runtime.planning import plan as memory_preference
from nnburst.runtime.planning import steps
from nnburst.runtime.planning.finished_model import finish
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    Direction,
    MemoryPreference,
    Part,
    PartitioningMode,
    Plan,
    SimplePlan,
    StepRole,
)
from nnburst.runtime.planning.planner import Planner
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.partitioning.plan_runner import PlanRunner, broken_rules, draw_devices
from nnburst.testing.partitioning.run import CaseDevice, MadeUpDevice
from runtime.planning.grown_model import grow_model
from runtime.planning.plans import ADD, CPU, EXP, F32, MUL, branches, chain, device, made

WITH, WITHOUT, NONE = (
    PartitioningMode.WITH_FALLBACK,
    PartitioningMode.WITHOUT_FALLBACK,
    PartitioningMode.NONE,
)


class Workshop:
    """Prepares parts by number, fails at one of them, and records the parts that were released."""

    def __init__(self, status: ErrorStatus = ErrorStatus.GENERAL_FAILURE, at: int = -1) -> None:
        self.status = status
        self.at = at
        self.prepared: list[Part] = []
        self.discarded: list[int] = []

    def prepare(self, part: Part) -> int:
        self.prepared.append(part)
        if len(self.prepared) - 1 == self.at:
            raise error_for(self.status, "not this one")
        return len(self.prepared) - 1

    def planner(self, model: Model, *devices: MadeUpDevice, cpu: bool = True) -> Planner[int]:
        return Planner(
            finish(model),
            [*devices, CPU] if cpu else devices,
            prepare=self.prepare,
            release=self.discarded.append,
        )


def two_steps() -> tuple[Model, MadeUpDevice, MadeUpDevice]:
    return chain(ADD, MUL), device("adder", ADD), device("multiplier", MUL)


def test_mode_0_gives_the_cpu_the_whole_model_and_asks_no_driver() -> None:
    shop = Workshop()
    planned = shop.planner(*two_steps()).plan(NONE)
    assert isinstance(planned.plan, SimplePlan)
    assert planned.plan.devices[planned.plan.device] == CPU.name
    assert (planned.prepared, planned.fell_back, len(shop.prepared)) == ((0,), False, 1)


def test_steps_are_prepared_in_order_as_soon_as_they_are_made() -> None:
    shop = Workshop()
    planned = shop.planner(*two_steps()).plan(WITH)
    assert isinstance(planned.plan, CompoundPlan)
    assert planned.prepared == (0, 1)
    assert tuple(shop.prepared) == planned.plan.steps
    assert shop.discarded == []


@pytest.mark.parametrize("at", [0, 1])
def test_first_failure_ends_the_plan_and_the_cpu_takes_the_whole_model(
    at: int, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Workshop(at=at)
    with caplog.at_level(logging.WARNING, "nnburst.runtime"):
        planned = shop.planner(*two_steps()).plan(WITH)
    assert planned.fell_back
    assert planned.plan.devices[planned.plan.device] == CPU.name  # type: ignore[union-attr]
    assert shop.discarded == list(range(at))
    assert "the whole model goes to the CPU device: not this one" in caplog.text


@pytest.mark.parametrize(
    "status", [s for s in ErrorStatus if s not in (ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT)]
)
def test_without_fallback_the_code_of_the_failure_is_returned(status: ErrorStatus) -> None:
    shop = Workshop(status, at=1)
    with pytest.raises(NnburstError, match="not this one") as caught:
        shop.planner(*two_steps()).plan(WITHOUT)
    assert caught.value.status is status
    assert shop.discarded == [0]


def test_bad_data_of_a_device_is_not_a_reason_to_fall_back() -> None:
    shop = Workshop(ErrorStatus.INVALID_ARGUMENT, at=1)
    with pytest.raises(InvalidArgument):
        shop.planner(*two_steps()).plan(WITH)
    assert (len(shop.prepared), shop.discarded) == (2, [0])


def test_failure_of_the_cpu_ends_the_fallback() -> None:
    class Broken(Workshop):
        def prepare(self, part: Part) -> int:
            super().prepare(part)
            raise error_for(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, str(len(self.prepared)))

    with pytest.raises(NnburstError) as caught:
        Broken().planner(*two_steps()).plan(WITH)
    assert (caught.value.code, str(caught.value)) == (
        ResultCode.RESOURCE_EXHAUSTED_TRANSIENT,
        "2",
    )


def test_model_with_a_vendors_operation_never_falls_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    builder = ModelBuilder()
    x, y, z = builder.input(F32, (2,)), builder.temporary(F32, (2,)), builder.output(F32, (2,))
    builder.operation(OperationType.OEM_OPERATION, [x], [y])
    builder.operation(ADD, [y, y, builder.scalar(0)], [z])
    vendor = MadeUpDevice(CaseDevice("vendor", 4, 2.0, (), oem="yes"))
    with caplog.at_level(logging.ERROR, "nnburst.runtime"), pytest.raises(NnburstError):
        Workshop(at=1).planner(builder.build(), vendor).plan(WITH)
    assert "no fallback" in caplog.text


def test_cpu_that_is_not_listed_counts_behind_the_last_device() -> None:
    model, adder, multiplier = two_steps()
    shop = Workshop(at=0)
    planner = shop.planner(model, adder, multiplier, cpu=False)
    planned = planner.plan(WITH, cpu=CPU)
    assert isinstance(planned.plan, SimplePlan)
    assert (planned.plan.device, planned.plan.devices[2]) == (2, CPU.name)
    with pytest.raises(InvalidArgument, match="cpu: not given"):
        shop.planner(model, adder, cpu=False).plan(NONE)


def test_review_comes_after_all_parts_and_its_error_counts() -> None:
    model, *devices = two_steps()
    shop = Workshop()

    def review(plan: Plan) -> None:
        assert len(shop.prepared) == 2
        raise error_for(ErrorStatus.GENERAL_FAILURE, f"{type(plan).__name__} refused")

    planner: Planner[int] = Planner(
        finish(model), devices, prepare=shop.prepare, release=shop.discarded.append, review=review
    )
    with pytest.raises(NnburstError, match="CompoundPlan refused"):
        planner.plan(WITHOUT)
    assert shop.discarded == [0, 1]


def test_step_without_inputs_gives_the_cpu_the_whole_model() -> None:
    builder = ModelBuilder()
    x, one, none = builder.input(F32, (1,)), builder.constant(F32, [1.0]), builder.scalar(0)
    two = builder.temporary(F32, (1,))
    builder.operation(MUL, [one, one, none], [two])
    builder.operation(ADD, [x, two, none], [builder.output(F32, (1,))])
    model, devices = builder.build(), (device("adder", ADD), device("multiplier", MUL))
    assert Workshop().planner(model, *devices).plan(WITH).fell_back
    with pytest.raises(
        NnburstError, match="step 0 on multiplier: the step has no inputs"
    ) as caught:
        Workshop().planner(model, *devices).plan(WITHOUT)
    assert caught.value.code is ResultCode.OP_FAILED


def test_device_below_level_3_cannot_write_a_temporary_of_unknown_size() -> None:
    model = chain(ADD, MUL, dims=(0,))
    devices = [device("adder", ADD, level=2), device("multiplier", MUL)]
    with pytest.raises(NnburstError, match="has an unknown size"):
        made(model, devices, WITHOUT)
    newer = made(model, [device("adder", ADD, level=3), devices[1]], WITHOUT).plan
    assert isinstance(newer, CompoundPlan)
    assert [(operand.operand, step) for operand, step in newer.dynamic_temporaries] == [(1, 0)]
    assert newer.execution_steps[0].dynamic_outputs == (0,)


def test_step_model_is_relaxed_as_the_main_model_is() -> None:
    source = finish(chain(ADD, MUL), relaxed=[True])
    plan = made(source, [device("adder", ADD), CPU]).plan
    assert isinstance(plan, CompoundPlan)
    assert [s.model.relax_computation_float32_to_float16 for s in plan.execution_steps] == [
        True
    ] * 2


def test_condition_that_is_constant_is_a_boundary_constant() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (1,))
    yes = builder.constant(9, [1])
    subgraphs = []
    for kind in (EXP, ADD):
        number, inner = builder.add_subgraph()
        subgraphs.append(builder.subgraph(number))
        value, result = inner.input(F32, (1,)), inner.output(F32, (1,))
        extra = [value, inner.scalar(0)] if kind == ADD else []
        inner.operation(kind, [value, *extra], [result])
    builder.operation(OperationType.IF, [yes, *subgraphs, x], [builder.output(F32, (1,))])
    plan = made(builder.build(), [CPU]).plan
    assert isinstance(plan, CompoundPlan)
    assert plan.boundary_constants == ((0, yes),)


def test_memory_preference_is_the_most_that_any_step_wants() -> None:
    devices = [device("adder", ADD, level=4), device("multiplier", MUL, level=5)]
    preference = memory_preference.of_roles
    plan = made(chain(ADD, MUL), devices, WITHOUT).plan
    assert isinstance(plan, CompoundPlan)
    assert preference(plan, devices, plan.input_roles[0]) == MemoryPreference(64, 1)
    assert preference(plan, devices, plan.output_roles[0]) == MemoryPreference(64, 64)
    assert preference(plan, devices, ()) == MemoryPreference(16, 1)
    assert memory_preference.of_device(devices[0]) == MemoryPreference(64, 1)
    assert memory_preference.of_device(CPU) == MemoryPreference(64, 64)


def test_roles_of_a_branch_are_those_of_both_its_models() -> None:
    plan = made(branches(), [device("adder", ADD), CPU]).plan
    assert isinstance(plan, CompoundPlan)
    read = Direction.INPUT
    assert plan.input_roles == ((), (StepRole(1, read, 0), StepRole(3, read, 0)))


def nested(depth: int) -> Model:
    """IFs within IFs, both branches of each the same model."""
    builder = ModelBuilder()
    builders = [builder, *(builder.add_subgraph()[1] for _ in range(depth))]
    for number, inner in enumerate(builders):
        condition, x = inner.input(9, (1,)), inner.input(F32, (1,))
        result = inner.output(F32, (1,))
        if number == depth:
            inner.operation(OperationType.SELECT, [condition, x, x], [result])
        else:
            branch = [inner.subgraph(number), inner.subgraph(number)]
            inner.operation(OperationType.IF, [condition, *branch, condition, x], [result])
    return builder.build()


def test_model_that_would_have_countless_steps_goes_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "MAX_STEPS", 100)
    assert isinstance(made(nested(3), [CPU]).plan, CompoundPlan)
    planned = made(nested(20), [CPU])
    assert planned.fell_back
    with pytest.raises(NnburstError, match="more than 100 steps"):
        made(nested(20), [CPU], WITHOUT)


@settings(max_examples=60)
@example(seed=436816)  # a loop at the end of a branch: both end before the same step
@given(seed=st.integers(0, 2**32 - 1))
def test_plan_of_any_model_over_any_devices_keeps_the_rules_of_plans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = finish(grow_model(rng))
    devices = [*draw_devices(rng, faults=False), CPU]
    planned = made(source, devices)
    assert broken_rules(planned.plan, source, devices) == []
    assert len(planned.prepared) == (
        len(planned.plan.execution_steps) if isinstance(planned.plan, CompoundPlan) else 1
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_plan_with_control_flow_computes_what_the_whole_model_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = grow_model(rng)
    runner = PlanRunner(draw_devices(rng, faults=True))
    inputs = [rng.uniform(-2, 2, 2).astype(np.float32) for _ in model.main.input_indexes]
    sizes = [8] * len(model.main.output_indexes)
    found = runner.prepare(model, []).run(inputs, sizes)
    expected = LocalRunner("reference").prepare(model, []).run(inputs, sizes)
    assert (found.status, found.outputs) == (expected.status, expected.outputs)


def test_check_of_plans_finds_what_is_wrong_with_one() -> None:
    source = finish(chain(ADD, MUL, EXP))
    devices = [device("adder", ADD), device("multiplier", MUL), CPU]
    plan = made(source, devices).plan
    assert isinstance(plan, CompoundPlan)
    first, second, third = plan.execution_steps
    for wrong, message in (
        ((second, first, third), "which nothing has written"),
        ((first, second), "source model 0 runs operations"),
        ((first, first, second, third), "is written twice"),
        ((first, replace(second, downstream_outputs=(0,)), third), "downstream outputs"),
        ((first, replace(second, operations=(0,)), third), "other operations than the source's"),
    ):
        found = broken_rules(replace(plan, steps=wrong), source, devices)
        assert any(message in sentence for sentence in found), found
    renamed = replace(first, device=2)
    assert broken_rules(replace(plan, steps=(renamed, second, third)), source, devices) == []
    newer = [device("adder", ADD), device("multiplier", MUL), device("old", EXP, level=1)]
    assert "EXP needs V1_2" in broken_rules(plan, source, newer)[0]
