"""Plans as data: which device runs which operation in which step, and how its memory is aligned.

Plain values: they name devices by position and hold no process, memory or thread. Operations are
positions in run order (RT:M11), operands the client's numbers. A device is its position among the devices
that were planned for; the CPU counts behind the last if it was not among them. Plans also have the best
alignment and padding of memories for main inputs and outputs (RT:P19).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from nnburst.hal.enums import FeatureLevel
from nnburst.hal.model import Model
from nnburst.hal.types import Capabilities


class PartitioningMode(Enum):
    """The mode of placing (RT:P1). An explicit list of devices is always placed WITHOUT_FALLBACK."""

    NONE = 0
    WITH_FALLBACK = 1
    WITHOUT_FALLBACK = 2


class SourceOperand(NamedTuple):
    """An operand of one of the source models (RT:P12)."""

    source_model: int
    operand: int


class OperandPair(NamedTuple):
    """An operand of a step's source model, and what it is in the step model."""

    source: int
    step: int


class Direction(Enum):
    """Whether a step reads or writes."""

    INPUT = "INPUT"
    OUTPUT = "OUTPUT"


class StepRole(NamedTuple):
    """One use of a memory: input or output number `position` of step `step` (0 in a simple plan)."""

    step: int
    direction: Direction
    position: int


@dataclass(frozen=True, slots=True)
class ExecutionStep:
    """One step that a device executes (RT:P13 to P16).

    Attributes:
        index: its position in the plan.
        source_model: which source model its operations belong to.
        device: position among the planned devices.
        operations: in the order in which they were added; positions in the source model's run order.
        model: what the device prepares; its inputs are `inputs`, its outputs `outputs`.
        pools: which of the client model's pools each pool of `model` is.
        model_inputs: inputs of the source model that it reads.
        model_outputs: outputs of the source model that it writes.
        temps_in: temporaries that an earlier step wrote.
        outputs_in: outputs of the source model that an earlier step wrote.
        temps_out: temporaries that other steps or interpreted control flow read, ascending.
        downstream_outputs: positions in `outputs` of the model outputs that another step reads.
        dynamic_outputs: positions in `outputs` of temporaries of unknown size (RT:P17).
    """

    index: int
    source_model: int
    device: int
    operations: tuple[int, ...]
    model: Model
    pools: tuple[int, ...]
    model_inputs: tuple[OperandPair, ...] = ()
    model_outputs: tuple[OperandPair, ...] = ()
    temps_in: tuple[OperandPair, ...] = ()
    outputs_in: tuple[OperandPair, ...] = ()
    temps_out: tuple[OperandPair, ...] = ()
    downstream_outputs: tuple[int, ...] = ()
    dynamic_outputs: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[OperandPair, ...]:
        """In the step model's order: model inputs, temporaries, outputs of earlier steps (RT:P15)."""
        return self.model_inputs + self.temps_in + self.outputs_in

    @property
    def outputs(self) -> tuple[OperandPair, ...]:
        """In the step model's order: model outputs, temporaries (RT:P15)."""
        return self.model_outputs + self.temps_out

    @property
    def token_operations(self) -> tuple[tuple[int, int], ...]:
        """(source model, operation) of each operation, for the cache token (RT:K1)."""
        return tuple((self.source_model, operation) for operation in self.operations)


@dataclass(frozen=True, slots=True)
class IfStep:
    """An interpreted IF: its steps follow, the then-model's at `then_step`, the else-model's at `else_step`.

    Attributes:
        index: its position in the plan.
        source_model: which source model the IF belongs to.
        operation: its position in that model's run order.
        condition: operand that is read.
        then_step: where to go on if it is true.
        else_step: where to go on if it is false.
        then_model: source model of the then-branch.
        else_model: source model of the else-branch.
        outer_inputs: operands of `source_model` that the branches read.
        outer_outputs: operands of `source_model` that the branches write.
        then_inputs: operands of `then_model`, one for each outer input.
        then_outputs: operands of `then_model`, one for each outer output.
        else_inputs: as `then_inputs`.
        else_outputs: as `then_outputs`.
    """

    index: int
    source_model: int
    operation: int
    condition: int
    then_step: int
    else_step: int
    then_model: int
    else_model: int
    outer_inputs: tuple[int, ...]
    outer_outputs: tuple[int, ...]
    then_inputs: tuple[int, ...]
    then_outputs: tuple[int, ...]
    else_inputs: tuple[int, ...]
    else_outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WhileStep:
    """An interpreted WHILE: condition and body end with a GotoStep back to it.

    Attributes:
        index: its position in the plan.
        source_model: which source model the WHILE belongs to.
        operation: its position in that model's run order.
        cond_step: where the condition's steps begin.
        body_step: where the body's steps begin.
        exit_step: where to go on when the condition is false.
        cond_model: source model of the condition.
        body_model: source model of the body.
        outer_inputs: operands of `source_model` that the loop starts from.
        outer_outputs: operands of `source_model` that it ends with.
        cond_inputs: operands of `cond_model`, one for each outer input.
        cond_output: the decision, an operand of `cond_model`.
        body_inputs: operands of `body_model`, one for each outer input.
        body_outputs: operands of `body_model`; at least as many as outer outputs, at most as many as inputs.
    """

    index: int
    source_model: int
    operation: int
    cond_step: int
    body_step: int
    exit_step: int
    cond_model: int
    body_model: int
    outer_inputs: tuple[int, ...]
    outer_outputs: tuple[int, ...]
    cond_inputs: tuple[int, ...]
    cond_output: int
    body_inputs: tuple[int, ...]
    body_outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GotoStep:
    """Go on at step `target`, which may be one behind the last: the end.

    Attributes:
        index: its position in the plan.
        target: index of the next step.
    """

    index: int
    target: int


Step = ExecutionStep | IfStep | WhileStep | GotoStep


@dataclass(frozen=True, slots=True)
class SimplePlan:
    """One device executes the client's model itself (RT:P9).

    Attributes:
        devices: names of the planned devices, and of the CPU behind them if it was not listed.
        device: position of the one that executes.
        model: what it prepares: the client's, in run order, without operands that nothing uses.
        pools: which of the client model's pools each pool of `model` is.
        operations: the main model's operations, 0 to n - 1 in run order.
    """

    devices: tuple[str, ...]
    device: int
    model: Model
    pools: tuple[int, ...]
    operations: tuple[int, ...]

    @property
    def token_operations(self) -> tuple[tuple[int, int], ...]:
        """Empty: the token of a whole model names no operations (RT:K1)."""
        return ()


@dataclass(frozen=True, slots=True)
class CompoundPlan:
    """Several steps, in an order in which they can run (RT:P10 to P20).

    Attributes:
        devices: names of the planned devices.
        steps: all steps; execution begins with step 0 and ends behind the last.
        source_models: of each source model, which subgraph it is: 0 the main one, n + 1 `referenced[n]`.
        dynamic_temporaries: temporaries of unknown size and the step that writes each, ascending.
        boundary_constants: constants that interpreted control flow reads as a condition or an outer
            input, each once, in order of the steps (RT:P18).
        input_roles: of each main input, the step inputs that its memory becomes (RT:P20), sorted.
        output_roles: of each main output, the step outputs and inputs that its memory becomes, sorted.
    """

    devices: tuple[str, ...]
    steps: tuple[Step, ...]
    source_models: tuple[int, ...]
    dynamic_temporaries: tuple[tuple[SourceOperand, int], ...]
    boundary_constants: tuple[SourceOperand, ...]
    input_roles: tuple[tuple[StepRole, ...], ...]
    output_roles: tuple[tuple[StepRole, ...], ...]

    @property
    def execution_steps(self) -> tuple[ExecutionStep, ...]:
        """The steps that devices execute."""
        return tuple(step for step in self.steps if isinstance(step, ExecutionStep))


Plan = SimplePlan | CompoundPlan
#: What a device is asked to prepare: a whole model or a step's.
Part = SimplePlan | ExecutionStep


class DeviceFacts(Protocol):
    """The facts that a device reports of itself, asked for once (RT:D2)."""

    @property
    def name(self) -> str:
        """Unique among the devices."""
        ...

    @property
    def version_string(self) -> str:
        """Opaque; part of cache tokens (RT:K1)."""
        ...

    @property
    def feature_level(self) -> FeatureLevel:
        """Not above the runtime's (RT:D6)."""
        ...

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU device (RT:D3), which also takes the runtime's own features (RT:D5)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Its speed, as it reports it."""
        ...


class Candidate(DeviceFacts, Protocol):
    """A device that a plan may use."""

    def supported_operations(self, model: Model, pools: Sequence[int]) -> Sequence[bool]:
        """Which operations of the main subgraph it can run.

        Args:
            model: the client's model, a model that it refers to, or a slice of either.
            pools: which of the client model's pools each pool of `model` is.

        Any NnburstError, or another number of answers, counts as all False (RT:S2).
        """
        ...


class MemoryPreference(NamedTuple):
    """The alignment and padding of memories that a device prefers.

    Attributes:
        alignment: of the address, in bytes; a power of two.
        padding: bytes that the length should be a multiple of; a power of two.
    """

    alignment: int
    padding: int


_LEAST: Final = MemoryPreference(16, 1)


def of_device(device: Candidate) -> MemoryPreference:
    """A device's preference; drivers below AIDL have no padding."""
    knows_padding = device.is_cpu or device.feature_level >= FeatureLevel.AIDL_V1
    return MemoryPreference(64, 64 if knows_padding else 1)


def of_roles(
    plan: CompoundPlan, devices: Sequence[Candidate], roles: Iterable[StepRole]
) -> MemoryPreference:
    """The least that suits every role."""
    used = {step.index: step.device for step in plan.execution_steps}
    found = [_LEAST, *(of_device(devices[used[role.step]]) for role in roles)]
    return MemoryPreference(max(p.alignment for p in found), max(p.padding for p in found))
