"""Converts models and requests between HAL versions, with their operands, arguments and extensions' numbers.

The pools of a request are memory; from 1.3 on they may also be buffers of the driver.

NNAPI: Conversions.cpp convert(Request), convert(RequestArgument) of every version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import asdict, replace

from nnburst.compat import aidl, enums, layouts, timing, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.enums import check_aidl_type
from nnburst.compat.layouts import (
    HalStruct,
    check_numbers,
    check_range,
    check_type,
    is_aidl,
    latest,
    pick,
)
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandLifeTime
from nnburst.hal.errors import GeneralFailure, InvalidArgument, error_for
from nnburst.hal.extensions import LOW_BITS_TYPE, extension_code, number_of, prefix_of
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import (
    ExtensionNameAndPrefix,
    Model,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
)
from nnburst.hal.types import ExecutionTiming, OutputShape, Request, RequestArgument

# -- Operands: without extra parameters before 1.2, without the number of consumers in AIDL --------
# NNAPI: Conversions.cpp convert(Operand) of every version.

HalOperand = v1_0.Operand | Operand | aidl.Operand

OPERANDS: Final[dict[FeatureLevel, type[HalOperand]]] = {
    FeatureLevel.V1_0: v1_0.Operand,
    FeatureLevel.V1_2: Operand,
    FeatureLevel.AIDL_V1: aidl.Operand,
}


def operand_to_canonical(operand: HalOperand, level: FeatureLevel) -> Operand:
    """Convert from a version's operand; AIDL has no number of consumers, so it becomes 0.

    Raises:
        InvalidArgument: the struct is of another version, or has a number or lifetime that the version lacks.
    """
    check_type(operand, latest(OPERANDS, level), level)
    _check_operand(operand, level)
    own = {
        "lifetime": enums.to_canonical(OperandLifeTime, operand.lifetime, level),
        "location": layouts.location_to_canonical(operand.location, level),
    }
    return Operand(**{**asdict(operand), **own})


def operand_to_hal(operand: Operand, level: FeatureLevel) -> HalStruct:
    """Convert to a version's operand; before 1.2 without extra parameters.

    Raises:
        InvalidArgument: the lifetime is POINTER, or a number does not fit the version's field.
    """
    _check_operand(operand, level)
    lifetime = OperandLifeTime(operand.lifetime)
    if lifetime == OperandLifeTime.POINTER:
        raise InvalidArgument("validation:O21: a POINTER cannot be sent; put the value into a pool")
    own = {"lifetime": lifetime, "location": layouts.location_to_hal(operand.location, level)}
    return pick(latest(OPERANDS, level), {**asdict(operand), **own})


def _check_operand(operand: HalOperand, level: FeatureLevel) -> None:
    """Check that numbers fit the version's fields."""
    enums.check_aidl_type("operand type", operand.type, level)
    check_numbers("operand dimensions", operand.dimensions, level)
    params = None if isinstance(operand, v1_0.Operand) else operand.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        check_numbers("channel_dim", (params.channel_dim,), level)


# -- Subgraphs: operands, operations, inputs and outputs, and how often each operand is read -------
# NNAPI: CommonUtils.h countNumberOfConsumers; Conversions.cpp convert(Subgraph).


def subgraph_to_canonical(
    graph: Subgraph | aidl.Subgraph | v1_0.Model, level: FeatureLevel
) -> Subgraph:
    """Convert from a version's subgraph, or from a whole model, which is a graph in 1.0 to 1.2.

    Raises:
        GeneralFailure: the number of consumers of a HIDL operand is wrong (O23).
        InvalidArgument: a part is not of the version.
    """
    _check_subgraph(graph, level)
    operands = tuple(operand_to_canonical(o, level) for o in graph.operands)
    made = Subgraph(operands, graph.operations, graph.input_indexes, graph.output_indexes)
    counted = recounted_subgraph(made)
    if not is_aidl(level):
        for index, (said, found) in enumerate(zip(operands, counted.operands, strict=True)):
            if said.number_of_consumers != found.number_of_consumers:
                raise GeneralFailure(
                    f"validation:O23: operand {index}: number_of_consumers is {said.number_of_consumers},"
                    f" {found.number_of_consumers} inputs read it"
                )
    return counted


def subgraph_to_hal(graph: Subgraph, level: FeatureLevel) -> HalStruct:
    """Convert to a version's subgraph; before 1.3 with the version's operands, as a part of its model.

    Raises:
        InvalidArgument: the version cannot express a part.
    """
    _check_subgraph(graph, level)
    operands = tuple(operand_to_hal(o, level) for o in graph.operands)
    return pick(
        aidl.Subgraph if is_aidl(level) else Subgraph, {**asdict(graph), "operands": operands}
    )


def recounted_subgraph(graph: Subgraph) -> Subgraph:
    """The subgraph with consumers counted anew; indexes without an operand (P2) are ignored."""
    uses = [0] * len(graph.operands)
    for operation in graph.operations:
        for index in operation.inputs:
            if 0 <= index < len(uses):
                uses[index] += 1
    operands = tuple(_with_consumers(*pair) for pair in zip(graph.operands, uses, strict=True))
    return replace(graph, operands=operands)


def _with_consumers(described: Operand, count: int) -> Operand:
    if described.number_of_consumers == count:
        return described
    return replace(described, number_of_consumers=count)


def _check_subgraph(graph: Subgraph | aidl.Subgraph | v1_0.Model, level: FeatureLevel) -> None:
    for operation in graph.operations:
        check_operation(operation, level)
    check_numbers("indexes", (*graph.input_indexes, *graph.output_indexes), level)


def check_operation(operation: Operation, level: FeatureLevel) -> Operation:
    """Check an operation, which is the same struct in all versions, and return it.

    Raises:
        InvalidArgument: a number does not fit the version's field, or the type is OEM in AIDL.
    """
    check_aidl_type("operation type", operation.type, level)
    check_numbers("operation", (*operation.inputs, *operation.outputs), level)
    return operation


# -- Numbers of extensions' types: a model's prefix above the extension's own 16 bits --------------
# In HIDL and canonical form a prefix has 16 bits, in AIDL 15 (types are positive int32). Prefix 0 stands for
# # NNAPI's own types.
#
# NNAPI: ExtensionTypeEncoding, OperandTypeRange, OperationTypeRange.

PREFIX_BITS: Final = 16
AIDL_PREFIX_BITS: Final = 15

_TYPE_MAX: Final = 2**LOW_BITS_TYPE - 1


class ExtensionType(NamedTuple):
    """The two halves of the code of an extension's operand or operation type."""

    prefix: int
    type: int


def prefix_bits(level: FeatureLevel) -> int:
    """The number of bits of a prefix in a version."""
    return AIDL_PREFIX_BITS if is_aidl(level) else PREFIX_BITS


def encode(prefix: int, type_within: int, level: FeatureLevel = FeatureLevel.V1_3) -> int:
    """The code (uint32) of an extension's type.

    Raises:
        InvalidArgument: the prefix is 0, or the prefix or the type has too many bits.
    """
    highest = 2 ** prefix_bits(level) - 1
    if not 0 < prefix <= highest:
        raise InvalidArgument(f"prefix: {prefix}, expected 1 to {highest} in {level.name}")
    if not 0 <= type_within <= _TYPE_MAX:
        raise InvalidArgument(f"type_within: {type_within}, expected 0 to {_TYPE_MAX}")
    return extension_code(prefix, type_within)


def decode(code: int) -> ExtensionType:
    """Split an extension's code as a uint32: 0xAAAABBBB is prefix 0xAAAA, type 0xBBBB.

    Raises:
        InvalidArgument: the code is a core type's, or has more than 32 bits.
    """
    if not is_extension(code) or not -(2**31) <= code <= UINT32_MAX:
        raise InvalidArgument(f"code: {code:#x} belongs to no extension")
    return ExtensionType(prefix_of(code), number_of(code))


# -- Models: one graph in 1.0 to 1.2, subgraphs from 1.3 on -----------------------------------------
# NNAPI: Conversions.cpp convert(Model) of every version.

HalModel = v1_0.Model | v1_1.Model | v1_2.Model | v1_3.Model | aidl.Model

MODELS: Final[dict[FeatureLevel, type[HalModel]]] = {
    FeatureLevel.V1_0: v1_0.Model,
    FeatureLevel.V1_1: v1_1.Model,
    FeatureLevel.V1_2: v1_2.Model,
    FeatureLevel.V1_3: v1_3.Model,
    FeatureLevel.AIDL_V1: aidl.Model,
}


def model_to_canonical(model: HalModel, level: FeatureLevel) -> Model:
    """Convert from a version's model.

    Raises:
        GeneralFailure: numbers of consumers are wrong (O23).
        InvalidArgument: the struct is of another version, or a part is not of the version.
    """
    check_type(model, latest(MODELS, level), level)
    check_prefixes(getattr(model, "extension_name_to_prefix", ()), level)
    if isinstance(model, v1_3.Model | aidl.Model):
        main = subgraph_to_canonical(model.main, level)
        referenced = tuple(subgraph_to_canonical(graph, level) for graph in model.referenced)
    else:
        main, referenced = subgraph_to_canonical(model, level), ()
    return Model(
        main,
        referenced,
        model.operand_values,
        tuple(layouts.memory_to_canonical(pool, level) for pool in model.pools),
        getattr(model, "relax_computation_float32_to_float16", False),
        getattr(model, "extension_name_to_prefix", ()),
    )


def model_to_hal(model: Model, level: FeatureLevel) -> HalStruct:
    """Convert to a version's model, with consumers counted anew, without parts that it cannot express.

    Raises:
        InvalidArgument: a lifetime is POINTER, or the version lacks the memory or a number.
    """
    model = recounted_model(model)
    struct = latest(MODELS, level)
    if "extension_name_to_prefix" in struct.__struct_fields__:
        check_prefixes(model.extension_name_to_prefix, level)
    main = subgraph_to_hal(model.main, level)
    referenced = tuple(subgraph_to_hal(graph, level) for graph in model.referenced)
    pools = tuple(layouts.memory_to_hal(pool, level) for pool in model.pools)
    own = {"main": main, "referenced": referenced, "pools": pools}
    return pick(struct, {**asdict(main), **asdict(model), **own})


def recounted_model(model: Model) -> Model:
    """The model with the consumers of all operands counted anew."""
    return replace(
        model,
        main=recounted_subgraph(model.main),
        referenced=tuple(recounted_subgraph(graph) for graph in model.referenced),
    )


def check_prefixes(entries: tuple[ExtensionNameAndPrefix, ...], level: FeatureLevel) -> None:
    """Refuse prefixes with too many bits for the version.

    Raises:
        InvalidArgument: a prefix does not fit.
    """
    highest = 2 ** prefix_bits(level) - 1
    check_range("extension_name_to_prefix", tuple(e.prefix for e in entries), 0, highest)


HalRequest = v1_0.Request | v1_3.Request | aidl.Request
HalArgument = RequestArgument | aidl.RequestArgument

STRUCTS: Final[dict[FeatureLevel, type[HalRequest]]] = {
    FeatureLevel.V1_0: v1_0.Request,
    FeatureLevel.V1_3: v1_3.Request,
    FeatureLevel.AIDL_V1: aidl.Request,
}


def request_to_canonical(request: HalRequest, level: FeatureLevel) -> Request:
    """Convert from a version's request.

    Raises:
        InvalidArgument: the struct is of another version, or a part is not of the version.
    """
    check_type(request, latest(STRUCTS, level), level)
    return Request(
        tuple(argument_to_canonical(argument, level) for argument in request.inputs),
        tuple(argument_to_canonical(argument, level) for argument in request.outputs),
        tuple(layouts.memory_to_canonical(pool, level) for pool in request.pools),
    )


def request_to_hal(request: Request, level: FeatureLevel) -> HalStruct:
    """Convert to a version's request.

    Raises:
        InvalidArgument: the version lacks the memory or a number.
    """
    return latest(STRUCTS, level)(
        tuple(argument_to_hal(argument, level) for argument in request.inputs),
        tuple(argument_to_hal(argument, level) for argument in request.outputs),
        tuple(layouts.memory_to_hal(pool, level) for pool in request.pools),
    )


def argument_to_canonical(argument: HalArgument, level: FeatureLevel) -> RequestArgument:
    """Convert from a version's argument.

    Raises:
        InvalidArgument: the struct is of another version, or a number does not fit a field.
    """
    check_type(argument, aidl.RequestArgument if is_aidl(level) else RequestArgument, level)
    _check(argument, level)
    at = layouts.location_to_canonical(argument.location, level)
    return RequestArgument(argument.has_no_value, at, argument.dimensions)


def argument_to_hal(argument: RequestArgument, level: FeatureLevel) -> HalStruct:
    """Convert to a version's argument.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    _check(argument, level)
    struct = aidl.RequestArgument if is_aidl(level) else RequestArgument
    at = layouts.location_to_hal(argument.location, level)
    return struct(argument.has_no_value, at, argument.dimensions)


def _check(argument: HalArgument, level: FeatureLevel) -> None:
    check_numbers("argument dimensions", argument.dimensions, level)


# -- Results of synchronous executions: a status in HIDL, a result or an exception in AIDL ---------
# An output buffer that is too small gives an error status in HIDL, and an ordinary result in AIDL.
#
# NNAPI: aidl/utils PreparedModel.cpp convertExecutionResults, aidl adapter PreparedModel.cpp.


class ExecutionOutcome(NamedTuple):
    """The canonical result of an execution: status, shapes of the outputs, and durations."""

    status: ErrorStatus
    output_shapes: tuple[OutputShape, ...] = ()
    timing: ExecutionTiming = ExecutionTiming()


def result_to_canonical(result: aidl.ExecutionResult, level: FeatureLevel) -> ExecutionOutcome:
    """Convert from AIDL's result.

    Raises:
        InvalidArgument: the timing is not of version `level`.
    """
    status = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    if result.output_sufficient_size:
        status = ErrorStatus.NONE
    took = timing.to_canonical(result.timing, level)
    return ExecutionOutcome(status, result.output_shapes, took)


def result_to_aidl(outcome: ExecutionOutcome) -> aidl.ExecutionResult:
    """Convert to AIDL's result.

    Raises:
        NnburstError: the status is neither NONE nor OUTPUT_INSUFFICIENT_SIZE; the error is that of the
            status.
    """
    if outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
        raise error_for(outcome.status, f"execution: {outcome.status.name}", outcome.output_shapes)
    return aidl.ExecutionResult(
        outcome.status == ErrorStatus.NONE,
        outcome.output_shapes,
        timing.to_hal(outcome.timing, FeatureLevel.AIDL_V1),
    )
