"""Makes plans for tests from a model and simulated devices."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.hal.enums import ExecutionPreference, OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder, SubgraphBuilder
from nnburst.runtime.planning.finished_model import FinishedModel, finish
from nnburst.runtime.planning.plan import Candidate, Part, PartitioningMode
from nnburst.runtime.planning.planner import Planner, PreparedPlan
from nnburst.testing.partitioning.run import CaseDevice, CpuStandIn, MadeUpDevice

F32 = OperandType.TENSOR_FLOAT32
BOOL8 = OperandType.TENSOR_BOOL8
ADD, MUL, EXP, LESS = (
    OperationType.ADD,
    OperationType.MUL,
    OperationType.EXP,
    OperationType.LESS,
)
CPU = CpuStandIn()


def device(name: str, *operations: int, level: int = 8, cost: float = 0.5) -> MadeUpDevice:
    """A device that supports these operations, whatever their activation."""
    return MadeUpDevice(CaseDevice(name, level, cost, tuple((code, None) for code in operations)))


def made(
    source: FinishedModel | Model,
    devices: Sequence[Candidate],
    mode: PartitioningMode = PartitioningMode.WITH_FALLBACK,
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
) -> PreparedPlan[Part]:
    """Make the plan; each part counts as its own prepared model."""
    finished = finish(source) if isinstance(source, Model) else source
    planner: Planner[Part] = Planner(
        finished,
        devices,
        prepare=lambda part: part,
        release=lambda _: None,
        preference=preference,
    )
    return planner.plan(mode)


def chain(*operations: int, dims: Sequence[int] = (2,)) -> Model:
    """A chain of unary operations; ADD and MUL read one value twice."""
    builder = ModelBuilder()
    value = builder.input(F32, dims)
    for number, kind in enumerate(operations):
        last = number == len(operations) - 1
        result = (builder.output if last else builder.temporary)(F32, dims)
        add(builder, kind, value, result)
        value = result
    return builder.build()


def add(builder: SubgraphBuilder, kind: int, value: int, result: int) -> None:
    """One operation over `value`."""
    binary = kind in (ADD, MUL)
    inputs = [value, value, builder.scalar(0)] if binary else [value]
    builder.operation(kind, inputs, [result])


def branches(dims: Sequence[int] = (2,)) -> Model:
    """IF input 0 holds, EXP of input 1, else ADD of input 1 to itself; then MUL."""
    builder = ModelBuilder()
    condition, value = builder.input(BOOL8, (1,)), builder.input(F32, dims)
    then, then_builder = builder.add_subgraph()
    other, other_builder = builder.add_subgraph()
    for inner, kind in ((then_builder, EXP), (other_builder, ADD)):
        add(inner, kind, inner.input(F32, dims), inner.output(F32, dims))
    between, result = builder.temporary(F32, dims), builder.output(F32, dims)
    subgraphs = [builder.subgraph(then), builder.subgraph(other)]
    builder.operation(OperationType.IF, [condition, *subgraphs, value], [between])
    add(builder, MUL, between, result)
    return builder.build()
