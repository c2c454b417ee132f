"""Converts between Python objects and the structs of nnburst/executor.h, for executors in C.

Constants stay in place: only numbers are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nnburst._native import ffi, lib
from nnburst.executor.base import (
    Argument,
    Bytes,
    DeviceMemory,
    NativeCall,
    Outcome,
    PrepareOptions,
    memory_of,
)
from nnburst.hal.enums import FAILURES, ErrorStatus, OperandLifeTime, OperandType
from nnburst.hal.errors import GeneralFailure, error_for
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, NO_TIMING
from nnburst.hal.model import (
    ELEMENT_BYTES,
    ExtensionParams,
    Model,
    Operand,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
)
from nnburst.hal.types import OutputShape

if TYPE_CHECKING:
    from nnburst._native import (
        nnburst_executor,
        nnbx_memory,
        nnbx_model,
        nnbx_preparation,
    )

_MESSAGE_BYTES: Final = int(lib.NNBX_MESSAGE_BYTES)
_NO_DEADLINE: Final = int(lib.NNBX_NO_DEADLINE)
#: C types, looked up once, since a lookup by name takes longer than making a struct.
_RUN: Final = ffi.typeof("struct nnbx_run *")
_OUTCOME: Final = ffi.typeof("struct nnbx_outcome *")
_MESSAGE: Final = ffi.typeof("char[]")
_FUNCTION: Final = ffi.typeof("nnb_run")
_EXECUTION: Final = ffi.typeof("nnbx_execution *")
_RUN_BYTES: Final = ffi.sizeof("struct nnbx_run")
_OUTCOME_BYTES: Final = ffi.sizeof("struct nnbx_outcome")
_MEASURED: Final = int(lib.NNBX_MEASURED)


# -- answers -------------------------------------------------------------------


def not_null(pointer: Any, what: str) -> Any:  # noqa: ANN401 - a cffi pointer
    """Return the pointer that a function made; raise GeneralFailure if it is NULL in spite of success."""
    if pointer == ffi.NULL:
        raise GeneralFailure(f"{what} returned NNBX_NONE and nothing")
    return pointer


def raise_for(status: int, what: str, message: Any = None) -> None:  # noqa: ANN401 - a cffi char[]
    """Raise the exception for a status of function `what`, which reports no shapes; `message` has its reason.

    Raises:
        NnburstError: the status is not NONE.
    """
    if status == ErrorStatus.NONE:
        return
    if status not in FAILURES:
        raise GeneralFailure(f"{what}: status {status} does not exist")
    if status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        raise GeneralFailure(f"{what}: status {status} is for runs alone")
    known = ErrorStatus(status)
    why = text_of(message) if message is not None else ""
    raise error_for(known, f"{what}: {why or known.name}")


def new_message() -> Any:  # noqa: ANN401 - a cffi char[]
    """Allocate an empty message."""
    return ffi.new(_MESSAGE, _MESSAGE_BYTES)


def text_of(message: Any) -> str:  # noqa: ANN401 - a cffi char[]
    """The text of a message that a function wrote, cut at the end of its room."""
    return bytes(ffi.string(message, _MESSAGE_BYTES)).decode(errors="replace").strip()


def string_of(text: Any) -> str:  # noqa: ANN401 - a cffi char *
    """Decode a library's text, which ends with a zero byte."""
    return bytes(ffi.string(text)).decode(errors="replace")


def run_native(
    call: NativeCall,
    deadline_ns: int | None = None,
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
) -> Outcome:
    """Run a call of the burst loop from Python to its end, without Python's lock."""
    how = ffi.new(_RUN)
    how.size = _RUN_BYTES
    how.deadline_ns = _NO_DEADLINE if deadline_ns is None else deadline_ns
    how.loop_timeout_ns = loop_timeout_ns
    how.measure = 1
    message = new_message()
    outcome = ffi.new(_OUTCOME)
    outcome.size = _OUTCOME_BYTES
    outcome.device_ns, outcome.driver_ns = NO_TIMING, _MEASURED
    outcome.message = message
    function = ffi.cast(_FUNCTION, call.run)
    execution = ffi.cast(_EXECUTION, call.execution)
    status = lib.nnb_run_unlocked(function, execution, how, outcome)
    shapes = (
        tuple(
            OutputShape(tuple(shape.dimensions[0 : shape.rank]), bool(shape.is_sufficient))
            for shape in outcome.shapes[0 : outcome.shape_count]
        )
        if outcome.shape_count
        else ()
    )
    return Outcome(
        ErrorStatus(status) if status else ErrorStatus.NONE,
        shapes,
        text_of(message) if message[0] != b"\0" else "",
        outcome.device_ns,
        outcome.driver_ns,
    )


# -- memory --------------------------------------------------------------------


class CMemory(DeviceMemory):
    """Memory of a device whose executor is in C. Thread-safe if its executor is.

    Attributes:
        memory: the struct nnbx_memory, destroyed when this object and all that is bound to it are dropped.
        nbytes: allocated number of bytes.
    """

    def __init__(
        self, functions: nnburst_executor, memory: nnbx_memory, size: int, kept: object
    ) -> None:
        """Own `memory`.

        Args:
            functions: functions of the executor.
            memory: the memory, destroyed when this object is dropped.
            size: allocated number of bytes.
            kept: an object that must outlive the memory.
        """
        self._functions = functions
        self._kept = kept
        self.memory = memory
        self.nbytes = size

    def copy_in(self, source: memoryview) -> None:
        """Fill the first bytes; see `nnburst.executor.base.DeviceMemory`."""
        status = self._functions.copy_in(self.memory, ffi.from_buffer(source), source.nbytes)
        raise_for(status, "copy_in")

    def copy_out(self, target: memoryview) -> None:
        """Copy the first bytes out; see `nnburst.executor.base.DeviceMemory`."""
        room = ffi.from_buffer(target, require_writable=True)
        raise_for(self._functions.copy_out(self.memory, room, target.nbytes), "copy_out")


# -- models and arguments ------------------------------------------------------


class HandedModel:
    """A model as a struct nnbx_model, whose constants stay in place. Kept during a call.

    Attributes:
        model: the struct.
    """

    def __init__(self, model: Model, pools: Sequence[Bytes]) -> None:
        self._kept: list[object] = []
        self._values = ffi.from_buffer("uint8_t[]", model.operand_values)
        self._pools = [self._pool(memory_of(pools, at)) for at in range(len(pools))]
        made = ffi.new("struct nnbx_model *")
        made.size = ffi.sizeof("struct nnbx_model")
        self._fill(made.main, model.main)
        referenced = ffi.new("struct nnbx_subgraph[]", max(len(model.referenced), 1))
        for struct, subgraph in zip(referenced, model.referenced, strict=False):
            self._fill(struct, subgraph)
        made.referenced, made.referenced_count = referenced, len(model.referenced)
        made.relaxed = model.relax_computation_float32_to_float16
        names = model.extension_name_to_prefix
        prefixes = ffi.new("struct nnbx_extension_prefix[]", max(len(names), 1))
        for struct, entry in zip(prefixes, names, strict=False):
            name = ffi.new("char[]", entry.name.encode())
            struct.name, struct.prefix = name, entry.prefix
            self._kept.append(name)
        made.prefixes, made.prefix_count = prefixes, len(names)
        self._kept += [referenced, prefixes]
        self.model: nnbx_model = made

    def _pool(self, memory: memoryview) -> Any:  # noqa: ANN401 - a cffi uint8_t[]
        return ffi.from_buffer("uint8_t[]", memory)

    def _fill(self, made: Any, subgraph: Subgraph) -> None:  # noqa: ANN401 - a cffi struct
        operands = ffi.new("struct nnbx_operand[]", max(len(subgraph.operands), 1))
        extents = self._numbers([d for operand in subgraph.operands for d in operand.dimensions])
        at = 0
        for struct, operand in zip(operands, subgraph.operands, strict=False):
            struct.size = ffi.sizeof("struct nnbx_operand")
            struct.type, struct.lifetime = operand.type, operand.lifetime
            struct.dimensions, struct.rank = extents + at, len(operand.dimensions)
            struct.scale, struct.zero_point = operand.scale, operand.zero_point
            at += len(operand.dimensions)
            self._fill_value(struct, operand)
            if operand.extra_params is not None:
                self._fill_extra(struct, operand.extra_params)
        numbers = self._numbers([n for o in subgraph.operations for n in (*o.inputs, *o.outputs)])
        operations = ffi.new("struct nnbx_operation[]", max(len(subgraph.operations), 1))
        at = 0
        for struct, operation in zip(operations, subgraph.operations, strict=False):
            inputs, outputs = len(operation.inputs), len(operation.outputs)
            struct.type = operation.type
            struct.inputs, struct.input_count = numbers + at, inputs
            struct.outputs, struct.output_count = numbers + at + inputs, outputs
            at += inputs + outputs
        made.operand_size = ffi.sizeof("struct nnbx_operand")
        made.operands, made.operand_count = operands, len(subgraph.operands)
        made.operations, made.operation_count = operations, len(subgraph.operations)
        made.inputs = self._numbers(subgraph.input_indexes)
        made.input_count = len(subgraph.input_indexes)
        made.outputs = self._numbers(subgraph.output_indexes)
        made.output_count = len(subgraph.output_indexes)
        self._kept += [operands, operations]

    def _fill_value(self, struct: Any, operand: Operand) -> None:  # noqa: ANN401
        at = operand.location
        if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
            struct.value, struct.value_bytes = self._values + at.offset, at.length
        elif operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE and self._pools:
            # TRUST: the client may change it at any time, which is a rule of the header for all that read it
            struct.value, struct.value_bytes = self._pools[at.pool_index] + at.offset, at.length
        elif operand.lifetime == OperandLifeTime.SUBGRAPH:
            struct.subgraph = at.offset

    def _fill_extra(
        self,
        struct: Any,  # noqa: ANN401
        params: SymmPerChannelQuantParams | ExtensionParams,
    ) -> None:
        if isinstance(params, SymmPerChannelQuantParams):
            scales = ffi.new("float[]", list(params.scales))
            struct.channel_scales, struct.channel_count = scales, len(params.scales)
            struct.channel_dim = params.channel_dim
            self._kept.append(scales)
        else:
            data = ffi.from_buffer(params.data)
            struct.extension_data, struct.extension_data_bytes = data, len(params.data)
            self._kept.append(data)

    def _numbers(self, values: Sequence[int]) -> Any:  # noqa: ANN401 - a cffi uint32_t[]
        made = ffi.new("uint32_t[]", list(values) or [0])
        self._kept.append(made)
        return made


def new_arguments(arguments: Sequence[Argument], kept: list[object]) -> Any:  # noqa: ANN401
    """Make a struct nnbx_argument[]; the memory that it points to is added to `kept`."""
    made = ffi.new("struct nnbx_argument[]", max(len(arguments), 1))
    kept.append(made)
    for struct, argument in zip(made, arguments, strict=False):
        extents = ffi.new("uint32_t[]", [*argument.dimensions, 0])
        struct.size = ffi.sizeof("struct nnbx_argument")
        struct.dimensions, struct.rank = extents, len(argument.dimensions)
        kept.append(extents)
        if argument.device_memory is not None:
            assert isinstance(argument.device_memory, CMemory)
            struct.memory = argument.device_memory.memory
            struct.bytes = argument.device_memory.nbytes
            kept.append(argument.device_memory)
        elif argument.memory is not None:
            data = ffi.from_buffer("uint8_t[]", argument.memory)
            struct.data, struct.bytes = data, len(data)
            kept.append(data)
    return made


def bytes_behind(argument: Argument) -> int:
    """The number of bytes behind an argument that may be read, since they are of the same memory."""
    if argument.memory is None:
        return 0
    with memoryview(argument.memory.obj) as whole:
        if not whole.contiguous:
            return 0
        first = int(ffi.cast("uintptr_t", ffi.from_buffer(whole)))
        at = int(ffi.cast("uintptr_t", ffi.from_buffer(argument.memory)))
        return first + whole.nbytes - at - argument.memory.nbytes


def new_preparation(options: PrepareOptions) -> tuple[nnbx_preparation, list[object]]:
    """Make a struct nnbx_preparation, with the memory that it points to."""
    kept: list[object] = []
    how = ffi.new("struct nnbx_preparation *")
    how.size = ffi.sizeof("struct nnbx_preparation")
    how.preference, how.priority = options.preference, options.priority
    how.deadline_ns = _NO_DEADLINE if options.deadline_ns is None else options.deadline_ns
    how.threads = options.num_threads
    how.hints, how.hint_count = new_hints(options.attributes, kept), len(options.attributes)
    return how, kept


def new_hints(attributes: Sequence[ExtensionAttribute], kept: list[object]) -> Any:  # noqa: ANN401
    """Make a struct nnbx_hint[]; the memory that it points to is added to `kept`."""
    made = ffi.new("struct nnbx_hint[]", max(len(attributes), 1))
    kept.append(made)
    for struct, attribute in zip(made, attributes, strict=False):
        name = ffi.new("char[]", attribute.extension.encode())
        value = ffi.from_buffer(attribute.value)
        struct.extension, struct.code = name, attribute.code
        struct.value, struct.value_bytes = value, len(attribute.value)
        kept += [name, value]
    return made


def element_bytes(kind: int) -> int:
    """Bytes of an element; 0 if only an extension defines them."""
    return 0 if is_extension(kind) else ELEMENT_BYTES.get(OperandType(kind), 0)
