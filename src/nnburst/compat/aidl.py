"""Declares the structs of the AIDL interface, versions 1 to 4. Capabilities and BufferRole are canonical.

Numbers are signed; −1 stands for no duration or no time. Absent extra parameters are null.

NNAPI: aidl/android/hardware/neuralnetworks/*.aidl.
"""

from __future__ import annotations

import msgspec

from nnburst.compat.layouts import Ashmem, MappableFile, PaddedLocation
from nnburst.hal.enums import ExecutionPreference, OperandLifeTime, Priority
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN
from nnburst.hal.model import BufferToken, ExtensionNameAndPrefix, ExtraParams, Operation
from nnburst.hal.types import OutputShape, TokenValuePair


class Operand(msgspec.Struct, frozen=True):
    """The canonical operand without the number of consumers; see `nnburst.hal.types`."""

    type: int
    dimensions: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: PaddedLocation = PaddedLocation()
    extra_params: ExtraParams = None


class Subgraph(msgspec.Struct, frozen=True):
    """The canonical subgraph with AIDL's operands."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


class Model(msgspec.Struct, frozen=True):
    """The canonical model with AIDL's subgraphs and memory; see there."""

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[Ashmem | MappableFile, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


class RequestArgument(msgspec.Struct, frozen=True):
    """The canonical argument, whose location may have padding."""

    has_no_value: bool = False
    location: PaddedLocation = PaddedLocation()
    dimensions: tuple[int, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """The arguments in the model's order, and their pools, which may be buffers of the driver."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[Ashmem | MappableFile | BufferToken, ...] = ()


class Timing(msgspec.Struct, frozen=True):
    """Durations in nanoseconds; −1 if not measured."""

    time_on_device_ns: int = -1
    time_in_driver_ns: int = -1


class ExecutionResult(msgspec.Struct, frozen=True):
    """The result of a synchronous execution.

    Attributes:
        output_sufficient_size: False stands for OUTPUT_INSUFFICIENT_SIZE, which is not an error here.
        output_shapes: a shape for each output, or empty.
        timing: durations, as far as measured.
    """

    output_sufficient_size: bool
    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


class NumberOfCacheFiles(msgspec.Struct, frozen=True):
    """The numbers of files in which a driver caches a model, at most 32 of a kind; not a struct in HIDL."""

    num_model_cache: int
    num_data_cache: int


class ExecutionConfig(msgspec.Struct, frozen=True):
    """The canonical configuration (version 4) with AIDL's numbers."""

    measure_timing: bool = False
    loop_timeout_duration_ns: int = -1
    execution_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


class PrepareModelConfig(msgspec.Struct, frozen=True):
    """The canonical configuration (version 4) with AIDL's numbers."""

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_ns: int = -1
    model_cache: tuple[int, ...] = ()
    data_cache: tuple[int, ...] = ()
    cache_token: bytes = bytes(BYTE_SIZE_OF_CACHE_TOKEN)
    compilation_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
