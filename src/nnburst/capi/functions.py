"""Lists the functions of the C interface: 75 up to feature level 8, 6 of them for extensions.

A row describes a function as C declares it, the checks that the library makes of its arguments, and the
method of the framework that executes it. A function that takes more than one such call has a handler instead
(`nnburst.capi.handlers`).

NNAPI: names, order and types of arguments, and levels are those of the NDK's NeuralNetworks.h and of the
platform's NeuralNetworksExtensions.h; RT:1.1. RT:L1: a null where an object or a result pointer is required
is UNEXPECTED_NULL before all else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

PREFIX: Final = "ANeuralNetworks"


class HandleKind(IntEnum):
    """Kinds of objects that a program holds by opaque pointers; each value is four bits of a handle."""

    Device = 1
    Model = 2
    Compilation = 3
    Execution = 4
    Burst = 5
    Event = 6
    MemoryDesc = 7
    Memory = 8


class Pass(IntEnum):
    """The ways in which arguments reach the Python side."""

    VALUE = 0  # a number
    POINTER = 1  # an address whose content the Python side reads or writes
    HANDLE = 2  # the handle of an object
    HANDLES = 3  # an array of handles
    NEW_HANDLE = 4  # the address for the handle of an object that the call makes
    RESULT = 5  # the address for another result


_OPAQUE: Final = re.compile(rf"(?:const )?{PREFIX}({'|'.join(kind.name for kind in HandleKind)})")
#: `name`, `name?` (may be null), `name[count]` (may be null if the argument `count` is 0).
_NAME: Final = re.compile(r"(\w+)(\?)?(?:\[(\w+)\])?(!)?")
_RESULT: Final = re.compile(
    r"(?:bool|int|u?int\d+_t|const char\*|ANeuralNetworks(OperationType|Device\*))\*"
)


@dataclass(frozen=True)
class Argument:
    """One argument of a function of the C interface.

    Attributes:
        ctype: its type in the header.
        name: its name.
        passing: how it reaches the Python side.
        kind: the kind of the handle, if it is one.
        required: whether null is refused as UNEXPECTED_NULL.
        count: name of the argument with the array's length; null is UNEXPECTED_NULL unless the length is 0.
    """

    ctype: str
    name: str
    passing: Pass
    kind: HandleKind | None
    required: bool
    count: str | None

    @property
    def declaration(self) -> str:
        """The argument's declaration in a prototype."""
        return f"{self.ctype} {self.name}"


def parse(text: str) -> Argument:
    """Parse an argument's line in the table: `TYPE NAME`, with `?`, `[count]` and `!` behind the name.

    `!` marks an array that is required even if its length is 0.
    """
    ctype, _, rest = text.rpartition(" ")
    found = _NAME.fullmatch(rest)
    if found is None:
        raise ValueError(f"argument {text!r}: expected TYPE NAME with ?, [count] or ! behind it")
    name, optional, count, always = found.groups()
    passing, kind = _passing(ctype)
    required = "*" in ctype and not optional and (count is None or bool(always))
    return Argument(ctype, name, passing, kind, required, count)


def _passing(ctype: str) -> tuple[Pass, HandleKind | None]:
    if "*" not in ctype:
        return Pass.VALUE, None
    if _RESULT.fullmatch(ctype):  # a device, too: the list's, which no call makes
        return Pass.RESULT, None
    opaque = _OPAQUE.match(ctype)
    if opaque is None:
        return Pass.POINTER, None
    rest = ctype[opaque.end() :]
    kinds = {"*": Pass.HANDLE, "**": Pass.NEW_HANDLE, "* const*": Pass.HANDLES}
    if rest not in kinds:  # a struct whose name begins like that of an object
        return Pass.POINTER, None
    return kinds[rest], HandleKind[opaque[1]]


# -- functions -------------------------------------------------------------------------------------


#: Names of types in the table below, which leaves out the prefix ANeuralNetworks.
_TYPES: Final = re.compile(
    r"\b(Device|Model|Compilation|Execution|Burst|Event|MemoryDesc|Memory|"
    r"OperandType|OperationType|SymmPerChannelQuantParams)\b"
)


@dataclass(frozen=True)
class Function:
    """One function of the C interface.

    Attributes:
        name: its name in C.
        result: the C type of its result.
        level: the feature level that introduced it; 0 for the calls of extensions.
        arguments: its arguments in order.
        summary: a description for the documentation.
        method: the call that executes it, with the names of C's arguments: `method(a, b)` or `attribute = a`
            of the first argument, the value of its `attribute`, `Class(a)`, or `Class.method(a)`. If it is
            empty, the method has the function's name in snake_case, and takes all arguments but those that
            count others.
    """

    name: str
    result: str
    level: int
    arguments: tuple[Argument, ...]
    summary: str
    method: str = ""

    @property
    def key(self) -> str:
        """The name in snake_case without the prefix: `model_add_operand`."""
        words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", self.name.removeprefix(PREFIX).lstrip("_"))
        return words.lower()

    @property
    def is_free(self) -> bool:
        """Whether it frees its one argument."""
        return self.result == "void"

    @property
    def needs_device(self) -> bool:
        """Whether the library checks and forwards the call; the other functions return a fixed answer."""
        return self.result in ("int", "void")

    @property
    def prototype(self) -> str:
        """The function's prototype in the header, without the semicolon."""
        arguments = ", ".join(argument.declaration for argument in self.arguments)
        return f"{self.result} {self.name}({arguments or 'void'})"


def _function(level: int, head: str, arguments: str, summary: str, method: str = "") -> Function:
    result, _, name = head.partition(" ")
    expanded = _TYPES.sub(rf"{PREFIX}\1", arguments)
    parsed = tuple(parse(text) for text in expanded.split(", ")) if expanded else ()
    return Function(f"{PREFIX}{name}", result, level, parsed, summary, method)


_QUERY: Final = "const Compilation* compilation, uint32_t index, uint32_t* "
_ROLE: Final = "MemoryDesc* desc, const Compilation* compilation, uint32_t index, float frequency"
_PLACE: Final = (
    "Execution* execution, int32_t index, const OperandType* type?, "
    "const Memory* memory, size_t offset, size_t length"
)
_LISTS: Final = (
    "uint32_t inputCount, const uint32_t* inputs[inputCount]!, "
    "uint32_t outputCount, const uint32_t* outputs[outputCount]!"
)
_DEVICES: Final = "const Device* const* devices[numDevices]!, uint32_t numDevices"
_ATTRIBUTE: Final = (
    "const char* extensionName, uint16_t attributeCodeWithinExtension, "
    "const void* data[length], size_t length"
)

_RUNTIME: Final = (
    _function(3, "int _getDeviceCount", "uint32_t* numDevices", "How many devices there are."),
    _function(
        3, "int _getDevice", "uint32_t devIndex, Device** device", "A device, in the list's order."
    ),
    _function(4, "uint64_t _getDefaultLoopTimeout", "", "Time of a WHILE unless set: 2 s, in ns."),
    _function(4, "uint64_t _getMaximumLoopTimeout", "", "Longest time of a WHILE: 15 s, in ns."),
    _function(5, "int64_t _getRuntimeFeatureLevel", "", "The feature level of this library."),
)

_DEVICE: Final = (
    _function(
        3,
        "int Device_getName",
        "const Device* device, const char** name",
        "Its name, valid as long as the process.",
        "name",
    ),
    _function(
        3,
        "int Device_getType",
        "const Device* device, int32_t* type",
        "A DeviceTypeCode.",
        "type",
    ),
    _function(
        3,
        "int Device_getVersion",
        "const Device* device, const char** version",
        "Its version string, valid as long as the process.",
        "version_string",
    ),
    _function(
        3,
        "int Device_getFeatureLevel",
        "const Device* device, int64_t* featureLevel",
        "A FeatureLevelCode, the runtime's at most.",
    ),
    _function(4, "int Device_wait", "const Device* device", "Waits until the device is there."),
    _function(
        0,
        "int Device_getExtensionSupport",
        "const Device* device, const char* extensionName, bool* isExtensionSupported",
        "Whether the device has the extension.",
        "supports_extension(extensionName)",
    ),
)

_MODEL: Final = (
    _function(
        1,
        "int Model_create",
        "Model** model",
        "An empty model.",
        "Model()",
    ),
    _function(1, "void Model_free", "Model* model", "Frees a model; null is nothing."),
    _function(1, "int Model_finish", "Model* model", "Ends building: the model is valid or not."),
    _function(
        1, "int Model_addOperand", "Model* model, const OperandType* type", "Adds an operand."
    ),
    _function(
        1,
        "int Model_setOperandValue",
        "Model* model, int32_t index, const void* buffer[length], size_t length",
        "A constant. Up to 128 bytes are copied at once, more at `finish`; null and 0: no value.",
    ),
    _function(
        3,
        "int Model_setOperandSymmPerChannelQuantParams",
        "Model* model, int32_t index, const SymmPerChannelQuantParams* channelQuant",
        "Scales of a per-channel tensor.",
        "set_operand_per_channel(index, *channelQuant)",
    ),
    _function(
        1,
        "int Model_setOperandValueFromMemory",
        "Model* model, int32_t index, const Memory* memory, size_t offset, size_t length",
        "A constant that lies in a memory.",
    ),
    _function(
        4,
        "int Model_setOperandValueFromModel",
        "Model* model, int32_t index, const Model* value",
        "A branch, condition or body.",
    ),
    _function(
        1,
        "int Model_addOperation",
        f"Model* model, OperationType type, {_LISTS}",
        "Adds an operation, in any order.",
    ),
    _function(
        1,
        "int Model_identifyInputsAndOutputs",
        f"Model* model, {_LISTS}",
        "Which operands are the model's inputs and outputs.",
    ),
    _function(
        2,
        "int Model_relaxComputationFloat32toFloat16",
        "Model* model, bool allow",
        "Whether float32 may be computed with the range and precision of float16.",
        "relax(allow)",
    ),
    _function(
        3,
        "int Model_getSupportedOperationsForDevices",
        f"const Model* model, {_DEVICES}, bool* supportedOps",
        "For each operation, whether one of the devices supports it.",
        "supported_operations(devices)",
    ),
    _function(
        0,
        "int Model_getExtensionOperandType",
        "Model* model, const char* extensionName, uint16_t operandCodeWithinExtension, int32_t* type",
        "The code of an extension's operand type in this process.",
        "extension_operand_type(extensionName, operandCodeWithinExtension)",
    ),
    _function(
        0,
        "int Model_getExtensionOperationType",
        "Model* model, const char* extensionName, uint16_t operationCodeWithinExtension, "
        "OperationType* type",
        "The code of an extension's operation in this process.",
        "extension_operation_type(extensionName, operationCodeWithinExtension)",
    ),
    _function(
        0,
        "int Model_setOperandExtensionData",
        "Model* model, int32_t index, const void* data[length], size_t length",
        "What only the extension understands of an operand.",
    ),
)

_COMPILATION: Final = (
    _function(
        1,
        "int Compilation_create",
        "Model* model, Compilation** compilation",
        "A compilation for all devices, with the CPU behind them.",
        "Compilation(model)",
    ),
    _function(
        3,
        "int Compilation_createForDevices",
        f"Model* model, {_DEVICES}, Compilation** compilation",
        "A compilation for these devices alone, without fallback.",
        "Compilation(model, devices)",
    ),
    _function(1, "void Compilation_free", "Compilation* compilation", "Frees a compilation."),
    _function(
        3,
        "int Compilation_setCaching",
        "Compilation* compilation, const char* cacheDir, const uint8_t* token",
        "Where compiled models are kept, under a token of 32 bytes.",
    ),
    _function(
        1,
        "int Compilation_setPreference",
        "Compilation* compilation, int32_t preference",
        "A PreferenceCode.",
        "preference = preference",
    ),
    _function(
        4,
        "int Compilation_setPriority",
        "Compilation* compilation, int priority",
        "A PriorityCode.",
        "priority = priority",
    ),
    _function(
        4,
        "int Compilation_setTimeout",
        "Compilation* compilation, uint64_t duration",
        "Nanoseconds that `finish` may take, with one explicit device.",
        "timeout = duration",
    ),
    _function(1, "int Compilation_finish", "Compilation* compilation", "Plans and prepares."),
    _function(
        5,
        "int Compilation_getPreferredMemoryAlignmentForInput",
        f"{_QUERY}alignment",
        "Bytes that an input in a memory is best aligned to.",
    ),
    _function(
        5,
        "int Compilation_getPreferredMemoryPaddingForInput",
        f"{_QUERY}padding",
        "Bytes that the length of an input is best a multiple of.",
    ),
    _function(
        5,
        "int Compilation_getPreferredMemoryAlignmentForOutput",
        f"{_QUERY}alignment",
        "Bytes that an output in a memory is best aligned to.",
    ),
    _function(
        5,
        "int Compilation_getPreferredMemoryPaddingForOutput",
        f"{_QUERY}padding",
        "Bytes that the length of an output is best a multiple of.",
    ),
    _function(
        0,
        "int Compilation_addExtensionAttribute",
        f"Compilation* compilation, {_ATTRIBUTE}",
        "A vendor's hint for one explicit device of level 8.",
    ),
)

_EXECUTION: Final = (
    _function(
        1,
        "int Execution_create",
        "Compilation* compilation, Execution** execution",
        "An execution of a finished compilation.",
    ),
    _function(1, "void Execution_free", "Execution* execution", "Frees it, unless it computes."),
    _function(
        1,
        "int Execution_setInput",
        "Execution* execution, int32_t index, const OperandType* type?, "
        "const void* buffer[length], size_t length",
        "An input that lies at an address until the computation has ended; null and 0: omitted.",
        "set_input(index, buffer, type)",
    ),
    _function(
        1,
        "int Execution_setInputFromMemory",
        _PLACE,
        "An input that lies in a memory.",
        "set_input_from_memory(index, memory, offset, length, type)",
    ),
    _function(
        1,
        "int Execution_setOutput",
        "Execution* execution, int32_t index, const OperandType* type?, "
        "void* buffer[length], size_t length",
        "The room for an output; null and 0: omitted.",
        "set_output(index, buffer, type)",
    ),
    _function(
        1,
        "int Execution_setOutputFromMemory",
        _PLACE,
        "The room for an output in a memory.",
        "set_output_from_memory(index, memory, offset, length, type)",
    ),
    _function(
        1,
        "int Execution_startCompute",
        "Execution* execution, Event** event",
        "Computes on another thread; the event has the outcome.",
    ),
    _function(3, "int Execution_compute", "Execution* execution", "Computes and waits."),
    _function(
        3,
        "int Execution_burstCompute",
        "Execution* execution, Burst* burst",
        "Computes over a burst and waits.",
    ),
    _function(
        4,
        "int Execution_startComputeWithDependencies",
        "Execution* execution, const Event* const* dependencies[num_dependencies], "
        "uint32_t num_dependencies, uint64_t duration, Event** event",
        "Computes when the events have signalled, within a duration in ns from then (0: any).",
    ),
    _function(
        3,
        "int Execution_getOutputOperandRank",
        "Execution* execution, int32_t index, uint32_t* rank",
        "The rank of an output after the computation.",
    ),
    _function(
        3,
        "int Execution_getOutputOperandDimensions",
        "Execution* execution, int32_t index, uint32_t* dimensions",
        "The dimensions of an output after the computation: as many as its rank.",
    ),
    _function(
        3,
        "int Execution_setMeasureTiming",
        "Execution* execution, bool measure",
        "Whether durations are measured, with one explicit device.",
        "measure_timing = measure",
    ),
    _function(
        3,
        "int Execution_getDuration",
        "const Execution* execution, int32_t durationCode, uint64_t* duration",
        "A measured DurationCode in ns; all ones if it is unknown.",
    ),
    _function(
        4,
        "int Execution_setTimeout",
        "Execution* execution, uint64_t duration",
        "Nanoseconds that the computation may take, with one explicit device.",
        "timeout = duration",
    ),
    _function(
        4,
        "int Execution_setLoopTimeout",
        "Execution* execution, uint64_t duration",
        "Nanoseconds that each WHILE may take.",
        "loop_timeout = duration",
    ),
    _function(
        5,
        "int Execution_enableInputAndOutputPadding",
        "Execution* execution, bool enable",
        "Whether arguments may be longer than their types need.",
        "padding = enable",
    ),
    _function(
        5,
        "int Execution_setReusable",
        "Execution* execution, bool reusable",
        "Whether it may compute more than once.",
        "reusable = reusable",
    ),
    _function(
        0,
        "int Execution_addExtensionAttribute",
        f"Execution* execution, {_ATTRIBUTE}",
        "A vendor's hint for one explicit device of level 8.",
    ),
)

_BURST_AND_EVENT: Final = (
    _function(
        3,
        "int Burst_create",
        "Compilation* compilation, Burst** burst",
        "A burst: a fast way for repeated computations, one at a time.",
        "burst()",
    ),
    _function(3, "void Burst_free", "Burst* burst", "Frees a burst."),
    _function(1, "int Event_wait", "Event* event", "Waits; the code of the computation."),
    _function(1, "void Event_free", "Event* event", "Waits, then frees the event."),
    _function(
        4,
        "int Event_createFromSyncFenceFd",
        "int sync_fence_fd, Event** event",
        "An event from a sync fence's descriptor, which is duplicated.",
        "Event.from_sync_fence(sync_fence_fd)",
    ),
    _function(
        4,
        "int Event_getSyncFenceFd",
        "const Event* event, int* sync_fence_fd",
        "A duplicate of the event's sync fence, which the caller closes.",
        "sync_fence()",
    ),
)

_MEMORY: Final = (
    _function(
        4,
        "int MemoryDesc_create",
        "MemoryDesc** desc",
        "An empty description.",
        "MemoryDesc()",
    ),
    _function(4, "void MemoryDesc_free", "MemoryDesc* desc", "Frees a description."),
    _function(4, "int MemoryDesc_addInputRole", _ROLE, "The memory will be this input."),
    _function(4, "int MemoryDesc_addOutputRole", _ROLE, "The memory will be this output."),
    _function(
        4,
        "int MemoryDesc_setDimensions",
        "MemoryDesc* desc, uint32_t rank, const uint32_t* dimensions[rank]",
        "Dimensions that the roles leave open.",
    ),
    _function(4, "int MemoryDesc_finish", "MemoryDesc* desc", "Ends describing."),
    _function(
        4,
        "int Memory_createFromDesc",
        "const MemoryDesc* desc, Memory** memory",
        "A memory that the device allocates.",
        "create_memory()",
    ),
    _function(
        1,
        "int Memory_createFromFd",
        "size_t size, int protect, int fd, size_t offset, Memory** memory",
        "A memory behind a descriptor, which is duplicated.",
        "Memory.from_fd(size, fd, prot=protect, offset=offset)",
    ),
    _function(
        3,
        "int Memory_createFromAHardwareBuffer",
        "const AHardwareBuffer* ahwb, Memory** memory",
        "There are no hardware buffers on Linux: BAD_DATA.",
    ),
    _function(
        4,
        "int Memory_copy",
        "const Memory* src, const Memory* dst",
        "Copies between memories.",
        "Memory.copy(src, dst)",
    ),
    _function(1, "void Memory_free", "Memory* memory", "Frees a memory."),
)

FUNCTIONS: Final = (
    *_RUNTIME,
    *_DEVICE,
    *_MODEL,
    *_COMPILATION,
    *_EXECUTION,
    *_BURST_AND_EVENT,
    *_MEMORY,
)
