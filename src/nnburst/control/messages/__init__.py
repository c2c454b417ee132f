"""The messages of the control channel.

A call is one struct of `Call`, its answer a `Reply` around one struct of `Result`. Upcalls (driver
to client) are the same on a second socket, with `Upcall`. The structs of `nnburst.hal` are fields
here as they are. Decoding checks types and ranges of the envelope; models and requests are
validated by the driver afterwards.

Where a call launches something (`PrepareModel`, `Execute`), its answer only says whether that was
launched; the outcome comes as exactly one upcall that names the call's `callback`, with the same
status where it was not launched.

NNAPI: the names follow IDevice, IPreparedModel, IBuffer, IExecution, IBurst and their callbacks.
"""

from __future__ import annotations

from typing import Final

import msgspec

from nnburst.control.messages.buffer import Allocate, Allocated, CopyFrom, CopyTo
from nnburst.control.messages.burst import (
    BurstClosed,
    BurstExecute,
    ConfigureExecutionBurst,
    FreeMemory,
    GetMemories,
    Memories,
    OpenBurst,
    ReleaseMemoryResource,
)
from nnburst.control.messages.device import (
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    GetSupportedExtensions,
    GetSupportedOperations,
    NotifyPrepared,
    NumberOfCacheFiles,
    PrepareModel,
    PrepareModelFromCache,
    SupportedExtensions,
    SupportedOperations,
)
from nnburst.control.messages.execution import (
    CreateReusableExecution,
    Execute,
    Executed,
    ExecuteFenced,
    ExecuteReusable,
    ExecuteReusableFenced,
    ExecuteSynchronously,
    ExecutionInfo,
    Fenced,
    GetExecutionInfo,
    NotifyExecuted,
    RequestMessage,
)
from nnburst.control.messages.message import Message
from nnburst.control.messages.session import Hello, Nothing, Opened, Ping, Release, Welcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.timing import OutputShape

__all__ = [
    "PROTOCOL_VERSION",
    "Call",
    "Upcall",
    "Result",
    "Reply",
    "encode",
    "decode_call",
    "decode_upcall",
    "decode_reply",
    "Message",
    "Hello",
    "Ping",
    "Release",
    "Nothing",
    "Opened",
    "Welcome",
    "GetCapabilities",
    "DeviceCapabilities",
    "GetSupportedExtensions",
    "SupportedExtensions",
    "GetNumberOfCacheFilesNeeded",
    "NumberOfCacheFiles",
    "GetSupportedOperations",
    "SupportedOperations",
    "PrepareModel",
    "PrepareModelFromCache",
    "NotifyPrepared",
    "Allocate",
    "Allocated",
    "CopyTo",
    "CopyFrom",
    "ExecuteSynchronously",
    "Executed",
    "Execute",
    "NotifyExecuted",
    "ExecuteFenced",
    "Fenced",
    "GetExecutionInfo",
    "ExecutionInfo",
    "CreateReusableExecution",
    "ExecuteReusable",
    "ExecuteReusableFenced",
    "ConfigureExecutionBurst",
    "FreeMemory",
    "GetMemories",
    "Memories",
    "BurstClosed",
    "OpenBurst",
    "BurstExecute",
    "ReleaseMemoryResource",
    "RequestMessage",
]

#: Raised with every incompatible change of a message.
PROTOCOL_VERSION: Final = 2

Call = (
    Hello
    | Ping
    | GetCapabilities
    | GetSupportedExtensions
    | GetNumberOfCacheFilesNeeded
    | GetSupportedOperations
    | PrepareModel
    | PrepareModelFromCache
    | Allocate
    | CopyTo
    | CopyFrom
    | Release
    | ExecuteSynchronously
    | Execute
    | ExecuteFenced
    | GetExecutionInfo
    | CreateReusableExecution
    | ExecuteReusable
    | ExecuteReusableFenced
    | ConfigureExecutionBurst
    | FreeMemory
    | OpenBurst
    | BurstExecute
    | ReleaseMemoryResource
)
Upcall = GetMemories | BurstClosed | NotifyPrepared | NotifyExecuted | Ping
Result = (
    Nothing
    | Welcome
    | DeviceCapabilities
    | SupportedExtensions
    | NumberOfCacheFiles
    | SupportedOperations
    | Allocated
    | Opened
    | Executed
    | Fenced
    | ExecutionInfo
    | Memories
)


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
