"""The messages of the control channel.

A call is one struct of `Call`, its answer a `Reply` around one struct of `Result`. Upcalls (driver
to client) are the same on a second socket, with `Upcall`. The structs of `nnburst.hal` are fields
here as they are. Decoding checks types and ranges of the envelope; models and requests are
validated by the driver afterwards.

NNAPI: the names follow IDevice, IPreparedModel, IBurstContext and IBurstCallback.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from nnburst.hal.enums import DeviceType, ErrorStatus, ExecutionPreference, Priority
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.request import Request
from nnburst.hal.timing import OutputShape, Timing

#: Raised with every incompatible change of a message.
PROTOCOL_VERSION: Final = 1

Handle = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Slot = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """Root of all messages; the class name is the tag."""

    @property
    def fd_count(self) -> int | None:
        """How many file descriptors belong to the message; None where its handler decides."""
        return 0


class Hello(Message, frozen=True):
    """First call of a client; fd 0 is the driver's end of the upcall socket.

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


class Ping(Message, frozen=True):
    """Asks for nothing but an answer."""


class GetSupportedOperations(Message, frozen=True):
    """Which operations of the main subgraph the device can run; one fd for each pool of the model."""

    model: Model

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.model.pools)


class PrepareModel(Message, frozen=True):
    """Prepare a model; one fd for each of its pools, in order.

    Attributes:
        model: the model.
        preference: an ExecutionPreference; a plain number here, so that S1 says what is wrong with it.
        priority: a Priority; likewise with S2.
    """

    model: Model
    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.model.pools)


class Release(Message, frozen=True):
    """Drop a handle. What still uses the object finishes first."""

    handle: Handle


class ExecuteSynchronously(Message, frozen=True):
    """Execute once; one fd for each pool of the request, in order.

    Attributes:
        handle: the prepared model.
        request: inputs and outputs.
        measure: whether to time it.
        deadline_ns: CLOCK_BOOTTIME at which the result is useless.
        loop_timeout_ns: limit of a WHILE.
    """

    handle: Handle
    request: Request
    measure: bool = False
    deadline_ns: Nanoseconds | None = None
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.request.pools)


class ConfigureExecutionBurst(Message, frozen=True):
    """Open a burst on a prepared model; the fds are those of the two descriptors.

    Attributes:
        handle: the prepared model.
        callback: what the client calls this burst in `GetMemories`.
        request_channel: descriptor of the client's request queue, encoded.
        result_channel: descriptor of the client's result queue, encoded.
        max_in_flight: requests that may be under way at once.
        cpus: cores that the client's thread may run on; both sides share them fairly.
        preference: decides about spinning.
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
        """The descriptors say; the burst checks."""
        return


class FreeMemory(Message, frozen=True):
    """IBurstContext::freeMemory: forget a slot; answered when it is forgotten."""

    handle: Handle
    slot: Slot


class GetMemories(Message, frozen=True):
    """IBurstCallback::getMemories: the pools behind these slots of one burst (upcall)."""

    callback: int
    slots: tuple[Slot, ...]


class BurstClosed(Message, frozen=True):
    """A burst has ended by itself: its queues cannot be trusted, or nobody read results (upcall).

    Attributes:
        callback: which burst, as in `GetMemories`.
        reason: for people.
    """

    callback: int
    reason: str


class Nothing(Message, frozen=True):
    """The call succeeded and has nothing to say."""


class Welcome(Message, frozen=True):
    """Answer to `Hello`; fd 0 is the worker's pidfd, fd 1 its death word where there is one.

    Attributes:
        protocol: PROTOCOL_VERSION of the driver.
        feature_level: highest FeatureLevel that the driver speaks.
        name: the device's name.
        version_string: opaque, never empty.
        type: kind of hardware.
        pid: the worker.
        death_word: whether fd 1 is there.
    """

    protocol: int
    feature_level: int
    name: str
    version_string: str
    type: DeviceType
    pid: int
    death_word: bool = False

    @property
    def fd_count(self) -> int:
        """Pidfd and death word."""
        return 2 if self.death_word else 1


class SupportedOperations(Message, frozen=True):
    """Answer to `GetSupportedOperations`, one for each operation of the main subgraph."""

    supported: tuple[bool, ...]


class Opened(Message, frozen=True):
    """An object was created: its handle, and numbers that its opener may need."""

    handle: Handle
    fields: dict[str, int] = {}


class Executed(Message, frozen=True):
    """Answer to `ExecuteSynchronously`."""

    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


class Memories(Message, frozen=True):
    """Answer to `GetMemories`: sizes of the pools, one fd for each, in the order of the slots."""

    sizes: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)], ...]

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.sizes)


Call = (
    Hello
    | Ping
    | GetSupportedOperations
    | PrepareModel
    | Release
    | ExecuteSynchronously
    | ConfigureExecutionBurst
    | FreeMemory
)
Upcall = GetMemories | BurstClosed | Ping
Result = Nothing | Welcome | SupportedOperations | Opened | Executed | Memories


class Reply(msgspec.Struct, frozen=True):
    """Answer to a call: a result with NONE; otherwise why not, and shapes with OUTPUT_INSUFFICIENT_SIZE."""

    status: ErrorStatus = ErrorStatus.NONE
    message: str = ""
    output_shapes: tuple[OutputShape, ...] = ()
    result: Result | None = None


encode: Final = msgspec.msgpack.Encoder().encode
decode_call: Final = msgspec.msgpack.Decoder(Call).decode
decode_upcall: Final = msgspec.msgpack.Decoder(Upcall).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
