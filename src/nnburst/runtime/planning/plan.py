"""Declares plans as data: the steps, the device and operations of each, and the alignment of memories.

Plans hold no process, memory or thread. Operations are positions in run order (RT:M11), operands have the
client's numbers. A device is its position among the planned devices; the CPU comes after the last if it was
not one of them. Plans also have the best alignment and padding of memories for main inputs and outputs
(RT:P19).
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
    """The mode of placement (RT:P1). With an explicit list of devices it is always WITHOUT_FALLBACK."""

    NONE = 0
    WITH_FALLBACK = 1
    WITHOUT_FALLBACK = 2


class SourceOperand(NamedTuple):
    """An operand of one of the source models (RT:P12)."""

    source_model: int
    operand: int


class OperandPair(NamedTuple):
    """An operand of a step's source model, and its number in the step model."""

    source: int
    step: int


class Direction(Enum):
    """Whether a step reads or writes."""

    INPUT = "INPUT"
    OUTPUT = "OUTPUT"


class StepRole(NamedTuple):
    """One use of a memory: as input or output number `position` of step `step` (0 in a simple plan)."""

    step: int
    direction: Direction
    position: int


@dataclass(frozen=True, slots=True)
class ExecutionStep:
    """One step that a device executes (RT:P13 to P16).

    Attributes:
        index: position of the step in the plan.
        source_model: source model that the operations belong to.
        device: position among the planned devices.
        operations: positions in the source model's run order, in the order of adding.
        model: the model that the device prepares; its inputs are `inputs`, its outputs `outputs`.
        pools: for each pool of `model`, its number among the client model's pools.
        model_inputs: inputs of the source model that the step reads.
        model_outputs: outputs of the source model that the step writes.
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
        """Inputs in the step model's order: model inputs, temporaries, outputs of earlier steps (RT:P15)."""
        return self.model_inputs + self.temps_in + self.outputs_in

    @property
    def outputs(self) -> tuple[OperandPair, ...]:
        """Outputs in the step model's order: model outputs, temporaries (RT:P15)."""
        return self.model_outputs + self.temps_out

    @property
    def token_operations(self) -> tuple[tuple[int, int], ...]:
        """The pair (source model, operation) of each operation, for the cache token (RT:K1)."""
        return tuple((self.source_model, operation) for operation in self.operations)


@dataclass(frozen=True, slots=True)
class IfStep:
    """An interpreted IF. The steps of the branches follow at `then_step` and `else_step`.

    Attributes:
        index: position of the step in the plan.
        source_model: source model that the IF belongs to.
        operation: position of the IF in that model's run order.
        condition: operand of the condition.
        then_step: next step if the condition is true.
        else_step: next step if the condition is false.
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
    """An interpreted WHILE. Condition and body end with a GotoStep back to this step.

    Attributes:
        index: position of the step in the plan.
        source_model: source model that the WHILE belongs to.
        operation: position of the WHILE in that model's run order.
        cond_step: first step of the condition.
        body_step: first step of the body.
        exit_step: next step when the condition is false.
        cond_model: source model of the condition.
        body_model: source model of the body.
        outer_inputs: operands of `source_model` with the initial values of the loop.
        outer_outputs: operands of `source_model` that get the final values.
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
    """A jump to step `target`; the end of the plan is the last index plus one.

    Attributes:
        index: position of the step in the plan.
        target: index of the next step.
    """

    index: int
    target: int


Step = ExecutionStep | IfStep | WhileStep | GotoStep


@dataclass(frozen=True, slots=True)
class SimplePlan:
    """A plan in which one device executes the client's model itself (RT:P9).

    Attributes:
        devices: names of the planned devices, then of the CPU if it was not listed.
        device: position of the device that executes.
        model: the model that it prepares: the client's in run order, without unused operands.
        pools: for each pool of `model`, its number among the client model's pools.
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
    """A plan of several steps, in an order in which they can run (RT:P10 to P20).

    Attributes:
        devices: names of the planned devices.
        steps: all steps; execution begins with step 0 and ends after the last.
        source_models: subgraph of each source model: 0 is the main one, n + 1 is `referenced[n]`.
        dynamic_temporaries: temporaries of unknown size and the step that writes each, ascending.
        boundary_constants: constants that interpreted control flow reads as a condition or an outer
            input, each once, in order of the steps (RT:P18).
        input_roles: for each main input, the step inputs that use its memory (RT:P20), sorted.
        output_roles: for each main output, the step outputs and inputs that use its memory, sorted.
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
#: A part that a device prepares: a whole model or a step's model.
Part = SimplePlan | ExecutionStep


class DeviceFacts(Protocol):
    """The facts that a device reports of itself, asked for once (RT:D2)."""

    @property
    def name(self) -> str:
        """The name, unique among the devices."""
        ...

    @property
    def version_string(self) -> str:
        """The version, an opaque text that is part of cache tokens (RT:K1)."""
        ...

    @property
    def feature_level(self) -> FeatureLevel:
        """The feature level, limited to the runtime's (RT:D6)."""
        ...

    @property
    def is_cpu(self) -> bool:
        """Whether this is the CPU device (RT:D3), which also takes the runtime's own features (RT:D5)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The speed that the device reports."""
        ...


class Candidate(DeviceFacts, Protocol):
    """A device that a plan may use."""

    def supported_operations(self, model: Model, pools: Sequence[int]) -> Sequence[bool]:
        """For each operation of the main subgraph, whether the device can run it.

        Args:
            model: the client's model, a model that it refers to, or a slice of either.
            pools: for each pool of `model`, its number among the client model's pools.

            An NnburstError, or a wrong number of answers, counts as False for all (RT:S2).
        """
        ...


class MemoryPreference(NamedTuple):
    """The alignment and padding of memories that a device prefers.

    Attributes:
        alignment: alignment of the address in bytes; a power of two.
        padding: number of bytes that the length should be a multiple of; a power of two.
    """

    alignment: int
    padding: int


_LEAST: Final = MemoryPreference(16, 1)


def of_device(device: Candidate) -> MemoryPreference:
    """The preference of a device; drivers below AIDL have no padding."""
    knows_padding = device.is_cpu or device.feature_level >= FeatureLevel.AIDL_V1
    return MemoryPreference(64, 64 if knows_padding else 1)


def of_roles(
    plan: CompoundPlan, devices: Sequence[Candidate], roles: Iterable[StepRole]
) -> MemoryPreference:
    """The least alignment and padding that suit every role."""
    used = {step.index: step.device for step in plan.execution_steps}
    found = [_LEAST, *(of_device(devices[used[role.step]]) for role in roles)]
    return MemoryPreference(max(p.alignment for p in found), max(p.padding for p in found))
