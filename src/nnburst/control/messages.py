"""The messages of the control channel, grouped by their HAL interface, and their encoding.

A call is a subclass of `Call`; its answer is a `Reply` with a subclass of `Result`. Upcalls (from driver to
client) work in the same way on a second socket, as subclasses of `Upcall`. Structs of `nnburst.hal` are used
directly as fields of messages. Decoding checks types and ranges of the envelope; the driver validates models
and requests afterwards.

The function in `nnburst.driver.calls` that answers a message has the message's name, and the function in
`client/` that sends it is named with the same words. A new message need not be added to any list.

The answer to an asynchronous call (`PrepareModel`, `Execute`) reports whether it was launched; the outcome
comes as exactly one upcall that names the call's `callback`, with the same status if it was not launched.

NNAPI: the names follow IDevice, IPreparedModel, IBuffer, IExecution, IBurst and their callbacks.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec

from nnburst.control.channel import MAX_FDS
from nnburst.hal.enums import DeviceType, ErrorStatus, ExecutionPreference, Priority
from nnburst.hal.extensions import Extension, Hints
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, MAX_NUMBER_OF_CACHE_FILES, UINT64_MAX
from nnburst.hal.model import ExtensionNameAndPrefix, MemoryPool, Model, Operand
from nnburst.hal.types import (
    NO_CACHE_TOKEN,
    BufferDesc,
    BufferRole,
    Capabilities,
    OutputShape,
    Request,
    Timing,
)

# -- message ---------------------------------------------------------------------------------------


#: The title distinguishes handles from other numbers of the same range when types of messages are inspected.
Handle = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1, title="handle")]
Slot = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Callback = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Token = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
MemoryIdentifier = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
CacheFiles = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER_OF_CACHE_FILES)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """Base of all messages; the class name is the tag, unless the class states another one."""

    @property
    def fd_count(self) -> int | None:
        """The number of file descriptors of the message; None if its handler decides."""
        return 0


class Call(Message, frozen=True):
    """Base of all calls of a client to its driver."""


class Upcall(Message, frozen=True):
    """Base of all calls and notifications of a driver to its client."""


class Result(Message, frozen=True):
    """Base of all results of calls and upcalls."""


class RequestMessage(Call, frozen=True):
    """Base of calls with a request: one fd for each of its pools that is shared memory, in order.

    Attributes:
        handle: the prepared model, or another object that the call names.
        request: inputs and outputs.
        measure: whether to time the execution.
        deadline_ns: time on CLOCK_BOOTTIME after which the result is useless.
        loop_timeout_ns: limit of a WHILE.
        hints: attributes of vendor extensions, for the device; sent only if there are any.
    """

    handle: Handle
    request: Request
    measure: bool = False
    deadline_ns: Nanoseconds | None = None
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """The pools."""
        return self.request.memory_count


# -- session ---------------------------------------------------------------------------------------


class Hello(Call, frozen=True):
    """First call of a client; fd 0 is the driver's end of the upcall socket.

    The process that made that socketpair is the client: its worker ends with it.

    Attributes:
        protocol: PROTOCOL_VERSION of the client.
        feature_level: highest FeatureLevel that the client speaks.
    """

    protocol: int
    feature_level: int

    @property
    def fd_count(self) -> int:
        """The upcall socket."""
        return 1


class Ping(Call, Upcall, frozen=True):
    """Ask only for an answer."""


class Release(Call, frozen=True):
    """Drop a handle. Executions that still use the object finish first."""

    handle: Handle


class Nothing(Result, frozen=True):
    """The call succeeded and has no result."""


class Opened(Result, frozen=True):
    """An object was created: its handle, and numbers about it that the client may need."""

    handle: Handle
    fields: dict[str, int] = msgspec.field(default_factory=dict)


class Welcome(Result, frozen=True):
    """Answer to `Hello`; fd 0 is the worker's pidfd, fd 1 its death word if there is one.

    Attributes:
        protocol: PROTOCOL_VERSION of the driver.
        feature_level: highest FeatureLevel that the driver speaks.
        name: the device's name.
        version_string: opaque, never empty.
        type: kind of hardware.
        pid: the worker.
        thread_budget: threads that the driver can run at once.
        death_word: whether fd 1 is there.
    """

    protocol: int
    feature_level: int
    name: str
    version_string: str
    type: DeviceType
    pid: int
    thread_budget: Count = 1
    death_word: bool = False

    @property
    def fd_count(self) -> int:
        """Pidfd and death word."""
        return 2 if self.death_word else 1


# -- device ----------------------------------------------------------------------------------------


class GetCapabilities(Call, frozen=True):
    """IDevice::getCapabilities."""


class DeviceCapabilities(Result, frozen=True):
    """Answer to `GetCapabilities`."""

    capabilities: Capabilities


class GetSupportedExtensions(Call, frozen=True):
    """IDevice::getSupportedExtensions."""


class SupportedExtensions(Result, frozen=True):
    """Answer to `GetSupportedExtensions`."""

    extensions: tuple[Extension, ...]


class GetNumberOfCacheFilesNeeded(Call, frozen=True):
    """IDevice::getNumberOfCacheFilesNeeded."""


class NumberOfCacheFiles(Result, frozen=True):
    """Answer to `GetNumberOfCacheFilesNeeded`; both 0 if the device does not cache."""

    model_cache: CacheFiles
    data_cache: CacheFiles


class GetSupportedOperations(Call, frozen=True):
    """IDevice::getSupportedOperations; one fd for each pool of the model."""

    model: Model

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.model.pools)


class SupportedOperations(Result, frozen=True):
    """Answer to `GetSupportedOperations`: for each operation of the main subgraph, whether it can run."""

    supported: tuple[bool, ...]


class PrepareModel(Call, frozen=True):
    """Prepare a model; `NotifyPrepared` reports the outcome.

    One fd for each pool of the model, in order; then the model cache files, then the data cache files.

    Attributes:
        model: the model.
        callback: the number that `NotifyPrepared` names; 0 means no callback (device:P1).
        preference: an ExecutionPreference; a plain number here, so that S1 can report an invalid one.
        priority: a Priority; a plain number for the same reason (S2).
        deadline_ns: time on CLOCK_BOOTTIME after which the model is useless; a plain number here, for P5.
        num_threads: most threads for executions; 0 leaves it to the device.
        model_cache: number of model cache files that are sent.
        data_cache: number of data cache files that are sent.
        token: 32 bytes that name the cache entry; ignored without cache files.
        hints: attributes of vendor extensions, for the device; sent only if there are any.
    """

    model: Model
    callback: Callback
    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM
    deadline_ns: int | None = None
    num_threads: Count = 0
    model_cache: CacheFiles = 0
    data_cache: CacheFiles = 0
    token: bytes = NO_CACHE_TOKEN
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """Pools and cache files."""
        return len(self.model.pools) + self.model_cache + self.data_cache


class PrepareModelFromCache(Call, frozen=True):
    """Prepare a model from its cache files alone; attributes as in `PrepareModel`."""

    callback: Callback
    model_cache: CacheFiles
    data_cache: CacheFiles
    token: bytes
    deadline_ns: int | None = None
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """The cache files."""
        return self.model_cache + self.data_cache


class NotifyPrepared(Upcall, frozen=True):
    """IPreparedModelCallback::notify (upcall); sent exactly once for each `callback`.

    Attributes:
        callback: the callback of the call.
        status: the outcome.
        reason: readable reason of a failure.
        handle: the prepared model; None unless `status` is NONE.
        fields: numbers about the prepared model.
    """

    callback: Callback
    status: ErrorStatus
    reason: str = ""
    handle: Handle | None = None
    fields: dict[str, int] = msgspec.field(default_factory=dict)


# -- prepared model --------------------------------------------------------------------------------


class ExecuteSynchronously(RequestMessage, frozen=True):
    """Execute once and wait for it."""


class Executed(Result, frozen=True):
    """Answer to `ExecuteSynchronously`."""

    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


class Execute(RequestMessage, frozen=True, kw_only=True):
    """Start an execution; `NotifyExecuted` reports the outcome.

    Attributes:
        callback: the number that `NotifyExecuted` names; 0 means no callback (device:E1).
        deadline_ns: a plain number here, for device:E3.
        loop_timeout_ns: a plain number here, for device:E3.
    """

    callback: Callback
    deadline_ns: int | None = None
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS


class NotifyExecuted(Upcall, frozen=True):
    """IExecutionCallback::notify (upcall); sent exactly once for each `callback`.

    Attributes:
        callback: the callback of the call.
        status: the outcome.
        reason: readable reason of a failure.
        output_shapes: sent with NONE and OUTPUT_INSUFFICIENT_SIZE.
        timing: the timing, if it was measured.
    """

    callback: Callback
    status: ErrorStatus
    reason: str = ""
    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


# -- burst -----------------------------------------------------------------------------------------


class OpenBurst(Call, frozen=True, tag="ConfigureExecutionBurst"):
    """IPreparedModel::configureExecutionBurst: open a burst; the fds are those of the two descriptors.

    A third fd is the driver's end of a stream socket, to which the driver sends a byte with each result that
    the client awaits in an event loop.

    Attributes:
        handle: the prepared model.
        callback: the client's number for this burst in `GetMemories`.
        request_channel: descriptor of the client's request queue, encoded.
        result_channel: descriptor of the client's result queue, encoded.
        max_in_flight: requests that may be under way at once.
        cpus: cores that the client's thread may run on; both sides share them fairly.
        preference: decides whether the driver spins.
    """

    handle: Handle
    callback: int
    request_channel: msgspec.Raw
    result_channel: msgspec.Raw
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    cpus: tuple[int, ...] = ()
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER

    @property
    def fd_count(self) -> None:
        """Not known here: it depends on the descriptors, which the burst checks."""
        return


class FreeMemory(Call, frozen=True):
    """IBurstContext::freeMemory: forget a slot; answered after that."""

    handle: Handle
    slot: Slot


class GetMemories(Upcall, frozen=True):
    """IBurstCallback::getMemories: ask for the pools of slots of one burst (upcall)."""

    callback: int
    slots: tuple[Slot, ...]


class Memories(Result, frozen=True):
    """Answer to `GetMemories`: sizes of the pools, one fd for each, in the order of the slots."""

    sizes: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)], ...]

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.sizes)


class BurstClosed(Upcall, frozen=True):
    """The driver has ended a burst: its queues cannot be trusted, or results were not read (upcall).

    Attributes:
        callback: the client's number for the burst, as in `GetMemories`.
        reason: readable reason.
    """

    callback: int
    reason: str


# -- aidl burst ------------------------------------------------------------------------------------


class OpenAidlBurst(Call, frozen=True, tag="OpenBurst"):
    """AIDL IPreparedModel::configureExecutionBurst: open an IBurst, whose requests use this channel."""

    handle: Handle


class BurstExecute(RequestMessage, frozen=True):
    """AIDL IBurst::executeSynchronously; `handle` is the burst.

    Attributes:
        memory_identifiers: for each pool of the request, the number under which the burst keeps its mapping,
            or -1 to keep none. A pool whose number the burst has is sent without a descriptor, with
            `fd_index` -1.
    """

    memory_identifiers: tuple[MemoryIdentifier, ...] = ()

    @property
    def fd_count(self) -> int:
        """The pools that the burst does not have yet."""
        pools = (pool for pool in self.request.pools if isinstance(pool, MemoryPool))
        return sum(pool.fd_index >= 0 for pool in pools)


class ReleaseMemoryResource(Call, frozen=True):
    """AIDL IBurst::releaseMemoryResource: forget a memory identifier; an unknown one is ignored."""

    handle: Handle
    memory_identifier: MemoryIdentifier


# -- buffer ----------------------------------------------------------------------------------------


class Allocate(Call, frozen=True):
    """IDevice::allocate: allocate a buffer in the driver for arguments of prepared models.

    Attributes:
        desc: description of its content.
        prepared_models: the models that the `model_index` of a role refers to.
        input_roles: the inputs for which it will be used.
        output_roles: the outputs for which it will be used.
    """

    desc: BufferDesc
    prepared_models: tuple[Handle, ...]
    input_roles: tuple[BufferRole, ...] = ()
    output_roles: tuple[BufferRole, ...] = ()


class Allocated(Result, frozen=True):
    """Answer to `Allocate`: the buffer's handle, and the token that names it in requests."""

    handle: Handle
    token: Token


class CopyTo(Call, frozen=True):
    """IBuffer::copyTo: copy a buffer's content into shared memory of `size` bytes, which is the fd."""

    handle: Handle
    size: Size

    @property
    def fd_count(self) -> int:
        """The memory."""
        return 1


class CopyFrom(Call, frozen=True):
    """IBuffer::copyFrom: fill a buffer from shared memory of `size` bytes, which is the fd.

    Attributes:
        handle: the buffer.
        size: bytes of the memory.
        dimensions: dimensions of the content; empty if those of the buffer are all known.
    """

    handle: Handle
    size: Size
    dimensions: tuple[int, ...] = ()

    @property
    def fd_count(self) -> int:
        """The memory."""
        return 1


# -- fenced execution ------------------------------------------------------------------------------


class ExecuteFenced(RequestMessage, frozen=True):
    """Execute once the sync fences have signalled; after the pools, one fd for each fence.

    Attributes:
        wait_for: number of fences.
        duration_ns: longest duration after all of them have signalled.
    """

    wait_for: Count = 0
    duration_ns: Nanoseconds | None = None

    @property
    def fd_count(self) -> int:
        """Pools and fences."""
        return self.request.memory_count + self.wait_for


class Fenced(Result, frozen=True):
    """Answer to `ExecuteFenced`: the handle for its information; the fd is its fence unless it is done."""

    handle: Handle
    is_done: bool = False

    @property
    def fd_count(self) -> int:
        """The fence."""
        return 0 if self.is_done else 1


class GetExecutionInfo(Call, frozen=True):
    """IFencedExecutionCallback::getExecutionInfo."""

    handle: Handle


class ExecutionInfo(Result, frozen=True):
    """Answer to `GetExecutionInfo`; nanoseconds on both sides, UINT64_MAX if not measured.

    Attributes:
        status: the outcome of the execution.
        launched: device and driver time since the call.
        fenced: the same since the last fence signalled.
        reason: readable reason of a failure.
    """

    status: ErrorStatus
    launched: tuple[int, int] = (UINT64_MAX, UINT64_MAX)
    fenced: tuple[int, int] = (UINT64_MAX, UINT64_MAX)
    reason: str = ""


# -- reusable execution ----------------------------------------------------------------------------


class CreateReusableExecution(Call, frozen=True):
    """IPreparedModel::createReusableExecution; one fd for each pool of the request, in order."""

    handle: Handle
    request: Request
    measure: bool = False
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """The pools."""
        return self.request.memory_count


class ExecuteReusable(Call, frozen=True):
    """IExecution::executeSynchronously."""

    handle: Handle
    deadline_ns: Nanoseconds | None = None


class ExecuteReusableFenced(Call, frozen=True):
    """IExecution::executeFenced; one fd for each fence."""

    handle: Handle
    wait_for: Count = 0
    deadline_ns: Nanoseconds | None = None
    duration_ns: Nanoseconds | None = None

    @property
    def fd_count(self) -> int:
        """The fences."""
        return self.wait_for


# -- served models ---------------------------------------------------------------------------------
# Networks that a service serves by name: clients open them and send no model. docs/wire_format.md describes
# these messages byte by byte, with the others that a client in C needs.


Version = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class ServedName(msgspec.Struct, frozen=True):
    """The name and version of a served network."""

    name: str
    version: Version


class ServedArgument(msgspec.Struct, frozen=True):
    """An input or output of a served network.

    Attributes:
        name: its name in the network's file; empty if it has none.
        operand: type, dimensions and quantisation.
        data_type: type of its elements in numpy's notation ("<f4").
        is_scalar: whether it is a scalar, which has no dimensions.
    """

    name: str
    operand: Operand
    data_type: str
    is_scalar: bool = False


class ServedState(msgspec.Struct, frozen=True):
    """A variable: an output whose value is an input of the next execution."""

    name: str
    input_index: int
    output_index: int


class GetServedModels(Call, frozen=True):
    """Ask for the networks that are served."""


class ServedModels(Result, frozen=True):
    """Answer to `GetServedModels`, by name and version."""

    models: tuple[ServedName, ...]


class OpenServedModel(Call, frozen=True):
    """Open a network for executions; version 0 is the newest."""

    name: str
    version: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0


class OpenedServedModel(Result, frozen=True):
    """Answer to `OpenServedModel`; with states, fd 0 has their initial values, one after the other.

    Attributes:
        handle: handle of a prepared model, released like any other.
        name: the name in the call.
        version: the version that was opened.
        inputs: the network's inputs, then one for each state.
        outputs: the network's outputs, then one for each state.
        states: variables, in the order of their values.
        extension_name_to_prefix: as in the network's model.
        fields: numbers about the prepared model, as in `NotifyPrepared`.
    """

    handle: Handle
    name: str
    version: Version
    inputs: tuple[ServedArgument, ...]
    outputs: tuple[ServedArgument, ...]
    states: tuple[ServedState, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
    fields: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def fd_count(self) -> int:
        """The states' values."""
        return 1 if self.states else 0


class PrepareGraph(Call, frozen=True):
    """Prepare an .onnx or .tflite file as one operation; the answer is an `OpenedServedModel` without a name.

    The first fd is sealed memory with the file; one more for each of `files`.

    Attributes:
        files: names by which an .onnx file refers to other files.
        num_threads: most threads for executions; 0 leaves it to the device.
    """

    files: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_FDS - 2)] = ()
    num_threads: Count = 0

    @property
    def fd_count(self) -> int:
        """The file, and the files that it refers to."""
        return 1 + len(self.files)


# -- all messages, and their bytes -----------------------------------------------------------------


M = TypeVar("M", bound=Message)

#: Raised with every incompatible change of a message.
PROTOCOL_VERSION: Final = 2


def _kinds(root: type[M]) -> Iterator[type[M]]:
    """The messages derived from `root`: classes without subclasses."""
    for kind in root.__subclasses__():
        if kind.__subclasses__():
            yield from _kinds(kind)
        else:
            yield kind


#: Every call, every upcall and every result that is defined above.
CALLS: Final = frozenset(_kinds(Call))
UPCALLS: Final = frozenset(_kinds(Upcall))
RESULTS: Final = frozenset(_kinds(Result))


def _one_of(kinds: frozenset[type[M]]) -> Any:  # noqa: ANN401 - a union, to be decoded by its tags
    return functools.reduce(operator.or_, kinds)


if TYPE_CHECKING:
    _AnyResult = Result
else:
    _AnyResult = _one_of(RESULTS)


class Reply(msgspec.Struct, frozen=True):
    """Answer to a call: a result with NONE; otherwise a reason, and shapes with OUTPUT_INSUFFICIENT_SIZE."""

    status: ErrorStatus = ErrorStatus.NONE
    message: str = ""
    output_shapes: tuple[OutputShape, ...] = ()
    result: _AnyResult | None = None


encode: Final = msgspec.msgpack.Encoder().encode
decode_call: Final[Callable[[bytes], Call]] = msgspec.msgpack.Decoder(_one_of(CALLS)).decode
decode_upcall: Final[Callable[[bytes], Upcall]] = msgspec.msgpack.Decoder(_one_of(UPCALLS)).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
