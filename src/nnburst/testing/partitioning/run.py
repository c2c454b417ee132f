"""Reads the file of expected plans, makes the plan of each case again and compares both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from
from typing import Any, Final

import msgspec
import numpy as np

from nnburst.hal.enums import (
    ErrorStatus,
    ExecutionPreference,
    FeatureLevel,
    OperandLifeTime,
    OperandType,
    OperationType,
    ResultCode,
    operation_name,
)
from nnburst.hal.errors import InvalidArgument, NnburstError, error_for, error_for_code
from nnburst.hal.model import (
    DTYPES,
    QUANTIZED_RANGES,
    DataLocation,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
)
from nnburst.hal.types import (
    Capabilities,
    OperandPerformance,
    PerformanceInfo,
    non_extension_operand_performance,
)
from nnburst.runtime.planning.finished_model import FinishedModel, finish
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    OperandPair,
    Part,
    PartitioningMode,
    Plan,
    SimplePlan,
    Step,
    StepRole,
    WhileStep,
)
from nnburst.runtime.planning.planner import Planner
from nnburst.testing.conformance.campaign import CaseResult

# -- the file of cases -----------------------------------------------------------------------------
_T = OperandType
_L = OperandLifeTime
#: Bytes of the largest constant that is not in a pool (RT:M4).
_COPIED_AT_MOST: Final = 128
_ALIGNMENT: Final = 16


class CaseOperand(msgspec.Struct, frozen=True):
    """An operand: constant if it has a value, a subgraph if it names a model."""

    type: int
    dims: tuple[int, ...] = ()
    value: Any = None
    model: int | None = None


class CaseModel(msgspec.Struct, frozen=True):
    """A model; operations are [code, inputs, outputs]."""

    operands: tuple[CaseOperand, ...]
    operations: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    relaxed: bool = False


class CaseDevice(msgspec.Struct, frozen=True):
    """A driver: its cost, and what it supports as pairs [operation, activation or None]."""

    name: str
    feature_level: int
    perf: float
    supports: tuple[tuple[int, int | None], ...]
    relaxed_perf: float | None = None
    perf_by_type: dict[str, float] = {}
    oem: str = ""


class PartitioningCase(msgspec.Struct, frozen=True):
    """One case; `simulate_failure` is the code with which planning fails after preparation."""

    name: str
    partitioning: int
    models: tuple[CaseModel, ...]
    devices: tuple[CaseDevice | str, ...]
    expected: dict[str, Any]
    source: str = ""
    simulate_failure: str = ""


class _File(msgspec.Struct):
    cases: tuple[PartitioningCase, ...]


_decode: Final = msgspec.json.Decoder(_File).decode


def read_cases(path: Path) -> tuple[PartitioningCase, ...]:
    """The cases of a file.

    Raises:
        InvalidArgument: the file cannot be read, or does not have this form.
    """
    try:
        return _decode(path.read_bytes()).cases
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: not a file of expected plans: {error}") from error


def case_model(models: Sequence[CaseModel]) -> Model:
    """Make a HAL model, with the first model as main subgraph and the others as referenced ones."""
    values, pool = bytearray(), bytearray()
    graphs = [_subgraph(model, values, pool) for model in models]
    return Model(
        graphs[0],
        tuple(graphs[1:]),
        bytes(values),
        (MemoryPool(len(pool)),) if pool else (),
        models[0].relaxed,
    )


def _subgraph(model: CaseModel, values: bytearray, pool: bytearray) -> Subgraph:
    uses = [0] * len(model.operands)
    for _, inputs, _ in model.operations:
        for index in inputs:
            uses[index] += 1
    lifetimes = dict.fromkeys(model.inputs, _L.SUBGRAPH_INPUT)
    lifetimes |= dict.fromkeys(model.outputs, _L.SUBGRAPH_OUTPUT)
    return Subgraph(
        tuple(
            _operand(operand, uses[n], lifetimes.get(n, _L.TEMPORARY_VARIABLE), values, pool)
            for n, operand in enumerate(model.operands)
        ),
        tuple(Operation(code, ins, outs) for code, ins, outs in model.operations),
        model.inputs,
        model.outputs,
    )


def _operand(
    operand: CaseOperand,
    uses: int,
    lifetime: OperandLifeTime,
    values: bytearray,
    pool: bytearray,
) -> Operand:
    kind = OperandType(operand.type)
    at = DataLocation()
    if operand.model is not None:
        lifetime, at = _L.SUBGRAPH, DataLocation(offset=operand.model - 1)
    elif operand.value is not None:
        data = np.asarray(operand.value, DTYPES[kind]).tobytes()
        copied = len(data) <= _COPIED_AT_MOST
        lifetime = _L.CONSTANT_COPY if copied else _L.CONSTANT_REFERENCE
        room = values if copied else pool
        room.extend(bytes(-len(room) % _ALIGNMENT))
        at = DataLocation(0, len(room), len(data))
        room.extend(data)
    per_channel = kind is _T.TENSOR_QUANT8_SYMM_PER_CHANNEL
    return Operand(
        kind,
        operand.dims,
        uses,
        1.0 if kind in QUANTIZED_RANGES and not per_channel else 0.0,
        0,
        lifetime,
        at,
        SymmPerChannelQuantParams((1.0,), 0) if per_channel else None,
    )


# -- running cases ---------------------------------------------------------------------------------


def described(plan: Plan, source: FinishedModel) -> dict[str, Any]:
    """Describe every field of a plan."""
    if isinstance(plan, SimplePlan):
        return {"kind": "SIMPLE", "device": plan.devices[plan.device]}
    return {
        "kind": "COMPOUND",
        "steps": [_step(step, plan, source) for step in plan.steps],
        "source_models": list(plan.source_models),
        "dynamic_temporaries": [list(operand) for operand, _ in plan.dynamic_temporaries],
        "roles": {"inputs": _roles(plan.input_roles), "outputs": _roles(plan.output_roles)},
    }


def _step(step: Step, plan: CompoundPlan, source: FinishedModel) -> dict[str, Any]:
    if isinstance(step, GotoStep):
        return {"kind": "GOTO", "to": step.target}
    order = source.run_orders[plan.source_models[step.source_model]]
    if isinstance(step, ExecutionStep):
        return {
            "kind": "EXECUTION",
            "model": step.source_model,
            "device": plan.devices[step.device],
            "operations": [order[n] for n in step.operations],
            "model_inputs": _sources(step.model_inputs),
            "model_outputs": _sources(step.model_outputs),
            "temps_in": _sources(step.temps_in),
            "temps_out": _sources(step.temps_out),
            "outputs_in": _sources(step.outputs_in),
            "downstream_outputs": list(step.downstream_outputs),
        }
    common = {
        "model": step.source_model,
        "operation": order[step.operation],
        "outer_inputs": list(step.outer_inputs),
        "outer_outputs": list(step.outer_outputs),
    }
    if isinstance(step, IfStep):
        return {
            "kind": "IF",
            **common,
            "condition": [step.source_model, step.condition],
            "then": step.then_step,
            "else": step.else_step,
            "models": [step.then_model, step.else_model],
        }
    return {"kind": "WHILE", **common, **_while(step)}


def _while(step: WhileStep) -> dict[str, Any]:
    return {
        "cond": step.cond_step,
        "body": step.body_step,
        "exit": step.exit_step,
        "models": [step.cond_model, step.body_model],
    }


def _sources(pairs: Sequence[OperandPair]) -> list[int]:
    return [pair.source for pair in pairs]


def _roles(roles: Sequence[Sequence[StepRole]]) -> list[list[list[object]]]:
    return [sorted([role.step, role.direction.value] for role in found) for found in roles]


_O = OperationType
#: Operations whose support may depend on their fused activation, the third input.
_WITH_ACTIVATION: Final = frozenset({_O.ADD, _O.MUL, _O.SUB, _O.DIV})
CPU_NAME: Final = "nnapi-reference"


def uniform(figure: float, relaxed: float | None = None) -> Capabilities:
    """Capabilities with one figure for everything, and another for relaxed float32."""
    info = PerformanceInfo(figure, figure)
    relaxed_info = info if relaxed is None else PerformanceInfo(relaxed, relaxed)
    return Capabilities(
        relaxed_info, relaxed_info, non_extension_operand_performance(info), info, info
    )


_AS_THE_CPU: Final = uniform(1.0)


@dataclass(frozen=True, slots=True)
class CpuStandIn:
    """Stands in for the CPU device in planning (RT:D3)."""

    name: str = CPU_NAME
    version_string: str = "UNKNOWN"
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4
    is_cpu: bool = True
    capabilities: Capabilities = _AS_THE_CPU

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        """All but OEM and extension operations."""
        del pools
        return [
            operation.type != _O.OEM_OPERATION and not is_extension(operation.type)
            for operation in model.main.operations
        ]

    def refusal(self, model: Model) -> NnburstError | None:
        """None: it prepares every model."""
        del model
        return None

    def failure(self, model: Model) -> NnburstError | None:
        """None: it executes every model."""
        del model
        return None


class MadeUpDevice:
    """A simulated driver of a case."""

    is_cpu = False
    version_string = "1"

    def __init__(self, described: CaseDevice) -> None:
        """Begin with the description in the case."""
        self.name = described.name
        self.feature_level = FeatureLevel(described.feature_level)
        self._supports = frozenset(described.supports)
        self._oem = described.oem
        found = uniform(described.perf, described.relaxed_perf)
        other = {int(code): figure for code, figure in described.perf_by_type.items()}
        table = tuple(
            OperandPerformance(e.type, PerformanceInfo(other[e.type], other[e.type]))
            if e.type in other
            else e
            for e in found.operand_performance
        )
        self.capabilities = Capabilities(
            found.relaxed_float32_to_float16_performance_scalar,
            found.relaxed_float32_to_float16_performance_tensor,
            table,
            found.if_performance,
            found.while_performance,
        )

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        """Support by code and activation; IF and WHILE only if all their operations are supported."""
        del pools
        return [self._takes(operation, model.main, model) for operation in model.main.operations]

    def refusal(self, model: Model) -> NnburstError | None:
        """The reason why it does not prepare a model that it supports; None if it does."""
        kinds = {operation.type for operation in model.main.operations}
        if self._oem == "indecisive" and _O.OEM_OPERATION in kinds:
            message = f"{self.name}: cannot prepare its OEM operation"
            return error_for(ErrorStatus.INVALID_ARGUMENT, message)
        return None

    def _takes(self, operation: Operation, graph: Subgraph, model: Model) -> bool:
        kind = operation.type
        if kind == _O.OEM_OPERATION:
            return bool(self._oem)
        wanted: set[tuple[int, int | None]] = {(kind, None)}
        if kind in _WITH_ACTIVATION:
            wanted.add((kind, _activation(operation, graph, model)))
        if not wanted & self._supports:
            return False
        inner = [
            model.referenced[graph.operands[index].location.offset]
            for index in operation.inputs
            if graph.operands[index].lifetime == OperandLifeTime.SUBGRAPH
        ]
        return all(self._takes(o, g, model) for g in inner for o in g.operations)


def _activation(operation: Operation, graph: Subgraph, model: Model) -> int | None:
    operand = graph.operands[operation.inputs[2]]
    if operand.lifetime != OperandLifeTime.CONSTANT_COPY:
        return None
    value: int = unpack_from("<i", model.operand_values, operand.location.offset)[0]
    return value


#: Name of the suite.
SUITE: Final = "partitioning"


def run_partitioning(path: Path, pattern: str = "", operation: str = "") -> list[CaseResult]:
    """Run the cases of a file.

    Args:
        path: the file.
        pattern: regular expression searched in the names; empty for all.
        operation: operation that a case must have; empty for all.

    Raises:
        InvalidArgument: the file does not hold expected plans.
    """
    results = []
    for case in read_cases(path):
        kinds = tuple(sorted({operation_name(o[0]) for m in case.models for o in m.operations}))
        if re.search(pattern, case.name) and (not operation or operation in kinds):
            reason = difference(case)
            main = case.models[0]
            first_output = OperandType(main.operands[main.outputs[0]].type).name
            outcome = "failed" if reason else "passed"
            results.append(CaseResult(case.name, SUITE, outcome, reason, kinds, first_output))
    return results


def difference(case: PartitioningCase) -> str:
    """The first field of a case's plan that differs from the expected one; empty if none differs."""
    try:
        found = plan_of(case)
    except Exception as error:
        return f"crashed with {type(error).__name__}: {error}"
    for field, value in {"fell_back": False, **case.expected}.items():
        if found.get(field) != value:
            why = found.get("message", "no error")
            return f"{field} is {found.get(field, 'missing')}, expected {value} ({why})"
    return ""


def plan_of(case: PartitioningCase) -> dict[str, Any]:
    """Make the plan of a case, described by field as in the file."""
    source = finish(case_model(case.models), relaxed=[model.relaxed for model in case.models])
    orders = [list(order) for order in source.run_orders]
    try:
        fields = _planned(case, source)
    except NnburstError as error:
        fields = {"result": error.code.name, "kind": "ERROR", "message": str(error)}
    return {"fell_back": False, "run_order": orders, **fields}


def _planned(case: PartitioningCase, source: FinishedModel) -> dict[str, Any]:
    devices = [
        MadeUpDevice(device) if isinstance(device, CaseDevice) else CpuStandIn()
        for device in case.devices
    ]

    def prepare(part: Part) -> None:
        refusal = devices[part.device].refusal(part.model)
        if refusal is not None:
            raise refusal

    def review(plan: Plan) -> None:
        del plan
        if case.simulate_failure:
            raise error_for_code(
                ResultCode[case.simulate_failure], "a failure that the case asks for"
            )

    planner = Planner(
        source,
        devices,
        prepare=prepare,
        release=lambda _: None,
        preference=ExecutionPreference.LOW_POWER,
        review=review,
    )
    planned = planner.plan(PartitioningMode(case.partitioning))
    return {
        "result": ResultCode.NO_ERROR.name,
        "fell_back": planned.fell_back,
        **described(planned.plan, source),
    }
