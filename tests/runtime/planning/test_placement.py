"""Placement by the operations that devices support and by their costs (RT:S1 to S6, P3 to P8)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nnburst.compat.layouts import OpaqueMemory
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import ExecutionPreference, FeatureLevel, OperandType, OperationType
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.model import MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Capabilities, PerformanceInfo
from nnburst.hal.validation import validate_model
from nnburst.runtime.planning.finished_model import finish
from nnburst.runtime.planning.placement import CostModel, supported_operations
from nnburst.runtime.planning.plan import PartitioningMode, SimplePlan
from nnburst.runtime.planning.slices import SliceableModel, hal_model
from nnburst.testing.conformance.vectors import build
from nnburst.testing.models.random_graphs import PRIMARY, generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from nnburst.testing.partitioning.run import CpuStandIn, uniform
from runtime.planning.plans import ADD, BOOL8, CPU, EXP, F32, MUL, branches, chain, device, made

V1_0, V1_2, V1_3, V4 = (
    FeatureLevel.V1_0,
    FeatureLevel.V1_2,
    FeatureLevel.V1_3,
    FeatureLevel.AIDL_V4,
)


class Asked:
    """A device that remembers what it was asked about."""

    name = "asked"
    version_string = "1"
    is_cpu = False
    capabilities = uniform(0.5)

    def __init__(self, level: FeatureLevel, answer: Sequence[bool] | NnburstError | None) -> None:
        self.feature_level = level
        self.answer = answer
        self.models: list[Model] = []

    def supported_operations(self, model: Model, pools: Sequence[int]) -> Sequence[bool]:
        del pools
        self.models.append(model)
        if isinstance(self.answer, NnburstError):
            raise self.answer
        return [True] * len(model.main.operations) if self.answer is None else self.answer


def sliceable(model: Model, *, strict: bool = False) -> SliceableModel:
    return SliceableModel(hal_model(finish(model))[0], strict=strict)


def test_device_of_the_models_level_is_asked_about_the_model_itself() -> None:
    model = sliceable(chain(ADD, EXP))
    for level in (V1_2, V1_3, V4):
        asked = Asked(level, None)
        assert supported_operations(asked, model, ()) == [True, True]
        assert len(asked.models[0].main.operations) == 2


def test_older_device_is_asked_about_the_operations_that_it_has() -> None:
    asked = Asked(V1_0, None)
    assert supported_operations(asked, sliceable(chain(ADD, EXP, MUL, EXP)), ()) == [
        *(True, False, True, False),
    ]
    (part,) = asked.models
    assert [operation.type for operation in part.main.operations] == [ADD, MUL]
    validate_model(part, SIGNATURES, feature_level=V1_0)


def test_inputs_of_a_slice_that_look_alike_share_one_operand() -> None:
    builder = ModelBuilder()
    x, act = builder.input(F32, (2,)), builder.scalar(0)
    a, b = builder.temporary(F32, (2,)), builder.temporary(F32, (2,))
    builder.operation(EXP, [x], [a])
    builder.operation(EXP, [x], [b])
    builder.operation(ADD, [a, b, act], [builder.output(F32, (2,))])
    asked = Asked(V1_0, None)
    supported_operations(asked, sliceable(builder.build()), ())
    main = asked.models[0].main
    assert main.operations[0].inputs[0] == main.operations[0].inputs[1]
    assert len(main.input_indexes) == 1


@pytest.mark.parametrize("answer", [[True], [True] * 3, GeneralFailure("broken")])
def test_wrong_answer_counts_as_no_support_and_is_logged(
    answer: list[bool] | NnburstError, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "nnburst.runtime"):
        found = supported_operations(Asked(V4, answer), sliceable(chain(ADD, EXP)), ())
    assert found == [False, False]
    assert "device asked gets no part of this model until it is compiled again" in caplog.text


def test_device_without_a_slice_is_not_asked() -> None:
    asked = Asked(V1_0, None)
    assert supported_operations(asked, sliceable(chain(EXP, EXP)), ()) == [False, False]
    assert asked.models == []


def test_slice_of_memory_that_the_version_lacks_is_left_out() -> None:
    model, _ = hal_model(finish(chain(ADD, EXP)))
    plain = SliceableModel(replace(model, pools=(MemoryPool(16),)))
    opaque = SliceableModel(replace(model, pools=(OpaqueMemory(16, name="hardware_buffer"),)))
    assert plain.for_device(V1_0, is_runtime=False) is not None
    assert opaque.for_device(V1_0, is_runtime=False) is None


def loop_of_unknown_size() -> Model:
    """Two WHILEs in a row; only the first has known sizes."""
    builder = ModelBuilder()
    x = builder.input(F32, (1,))
    known, unknown = builder.temporary(F32, (1,)), builder.output(F32, (0,))
    for value, result, dims in ((x, known, (1,)), (known, unknown, (0,))):
        cond, condition = builder.add_subgraph()
        c = condition.input(F32, dims)
        condition.operation(
            OperationType.LESS,
            [c, condition.constant(F32, [9.0])],
            [condition.output(BOOL8, (1,))],
        )
        body_index, body = builder.add_subgraph()
        b = body.input(F32, dims)
        body.operation(ADD, [b, b, body.scalar(0)], [body.output(F32, dims)])
        subgraphs = [builder.subgraph(cond), builder.subgraph(body_index)]
        builder.operation(OperationType.WHILE, [*subgraphs, value], [result])
    return builder.build()


def test_loop_of_unknown_size_takes_a_sound_one_from_drivers_with_it() -> None:
    model = sliceable(loop_of_unknown_size())
    assert model.for_device(V4, is_runtime=False) is None
    assert model.for_device(V1_3, is_runtime=False) is None
    assert model.for_device(V4, is_runtime=True) is not None


@given(seed=st.integers(0, 10_000), level=st.sampled_from(list(FeatureLevel)))
def test_slice_of_a_random_graph_is_valid_at_its_version(seed: int, level: FeatureLevel) -> None:
    kinds = PRIMARY["small"]
    model = build(as_vector(generate("small", kinds[seed % len(kinds)], seed))).model
    part = sliceable(model, strict=True).for_device(level, is_runtime=False)
    if part is not None:
        validate_model(part.model, SIGNATURES, feature_level=level)
        assert len(part.model.main.operations) == len(part.operations)


def figures(**by_type: float) -> Capabilities:
    """Performance figures of 1.0, except for the named types."""
    base = uniform(1.0)
    named = {OperandType[name]: value for name, value in by_type.items()}
    table = tuple(
        replace(entry, info=PerformanceInfo(2.0, named.get(OperandType(entry.type), 1.0)))
        for entry in base.operand_performance
    )
    return replace(base, operand_performance=table)


def cost(model: Model, capabilities: Capabilities, preference: int, **options: object) -> float:
    source = finish(model, **options)  # type: ignore[arg-type]
    costs = CostModel(source, capabilities, ExecutionPreference(preference))
    return costs.cost(source.model.main.operations[0], 0)


def test_cost_is_power_or_time_of_the_type_of_input_0() -> None:
    capabilities = figures(TENSOR_FLOAT32=0.25)
    assert cost(chain(ADD), capabilities, ExecutionPreference.LOW_POWER) == 0.25
    assert cost(chain(ADD), capabilities, ExecutionPreference.FAST_SINGLE_ANSWER) == 2.0
    assert cost(chain(ADD), capabilities, ExecutionPreference.SUSTAINED_SPEED) == 2.0


def test_relaxed_model_costs_the_relaxed_figure() -> None:
    capabilities = uniform(1.0, relaxed=0.5)
    assert cost(chain(ADD), capabilities, 0, relaxed=[True]) == 0.5
    assert cost(chain(ADD), capabilities, 0, relaxed=[False]) == 1.0


def test_figure_that_is_missing_is_the_largest_float() -> None:
    nothing = replace(uniform(1.0), operand_performance=())
    assert cost(chain(ADD), nothing, 0) == pytest.approx(3.4028235e38)


def test_control_flow_costs_its_own_figure_and_its_models() -> None:
    base = figures(TENSOR_FLOAT32=0.5)
    capabilities = replace(
        base, if_performance=PerformanceInfo(9, 0.25), while_performance=PerformanceInfo(9, 0.125)
    )
    assert cost(branches(), capabilities, 0) == 0.25 + 0.5 * (0.5 + 0.5)
    assert cost(loop_of_unknown_size(), capabilities, 0) == 0.125 + 0.5 + 0.5


def test_costs_are_added_in_32_bits() -> None:
    builder = ModelBuilder()
    condition, x = builder.input(BOOL8, (1,)), builder.input(F32, (1,))
    subgraphs = []
    for _ in range(2):
        number, inner = builder.add_subgraph()
        subgraphs.append(builder.subgraph(number))
        value = inner.input(F32, (1,))
        for step in range(10):
            result = (inner.output if step == 9 else inner.temporary)(F32, (1,))
            inner.operation(EXP, [value], [result])
            value = result
    builder.operation(OperationType.IF, [condition, *subgraphs, x], [builder.output(F32, (1,))])
    tenth_ten_times_in_32_bits = 1.0000001192092896
    found = cost(builder.build(), replace(uniform(0.1), if_performance=PerformanceInfo(0, 0)), 0)
    assert found == tenth_ten_times_in_32_bits


def chosen(*costs: float, cpu_first: bool = False) -> str:
    drivers = [device(f"d{n}", ADD, cost=cost) for n, cost in enumerate(costs)]
    listed = [CPU, *drivers] if cpu_first else [*drivers, CPU]
    plan = made(chain(ADD), listed).plan
    assert isinstance(plan, SimplePlan)
    return plan.devices[plan.device]


def test_ties_go_to_the_cpu_and_among_drivers_to_the_earlier() -> None:
    assert chosen(1.0) == "nnapi-reference"
    assert chosen(1.0, cpu_first=True) == "nnapi-reference"
    assert chosen(0.5, 0.5) == "d0"
    assert chosen(0.6, 0.5) == "d1"
    assert chosen(0.9, 1.1, cpu_first=True) == "d0"


def test_operation_that_nothing_can_run_is_bad_data_with_the_reason_of_each_device() -> None:
    listed = [device("adder", ADD), device("old", ADD, EXP, level=1)]
    with pytest.raises(InvalidArgument) as caught:
        made(chain(ADD, EXP), listed, PartitioningMode.WITHOUT_FALLBACK)
    assert caught.value.code.name == "BAD_DATA"
    assert str(caught.value) == (
        "model: no listed device can run operation 1 of main, EXP: adder does not report that it runs it;"
        " old is of feature level 1, it needs 3"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (GeneralFailure("does not start"), "does not start"),
        ([True] * 3, "3 answers for 2 operations"),
    ],
)
def test_device_that_cannot_be_asked_is_named_with_its_reason(
    answer: list[bool] | NnburstError, reason: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        made(chain(ADD, EXP), [Asked(V4, answer)], PartitioningMode.WITHOUT_FALLBACK)
    assert str(caught.value) == (
        "model: no listed device can run operation 0 of main, ADD: asked gives no usable answer:"
        f" {reason}"
    )


def test_control_flow_of_unknown_size_needs_the_cpu() -> None:
    model = loop_of_unknown_size()
    everything = device("all", ADD, OperationType.LESS, OperationType.WHILE, cost=0.1)
    plan = made(model, [everything, CPU]).plan
    assert not isinstance(plan, SimplePlan)  # the sound loop is interpreted, the other on the CPU
    with pytest.raises(InvalidArgument, match="operation 0 of main, WHILE: all cannot be asked"):
        made(model, [everything], PartitioningMode.WITHOUT_FALLBACK)
    with pytest.raises(InvalidArgument, match="IF: its operands have unknown sizes"):
        made(branches(dims=(0,)), [everything], PartitioningMode.WITHOUT_FALLBACK)


def test_cpu_stand_in_takes_all_but_vendors_operations() -> None:
    assert CpuStandIn().supported_operations(chain(ADD, EXP), ()) == [True, True]
