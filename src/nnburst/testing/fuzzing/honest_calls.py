"""One call of every kind of the protocol, as an honest client might make it, from the fields' types alone.

A new message is made here without being named: a field that no word below is about gets the smallest value
that its type allows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Final, get_type_hints

import msgspec
from msgspec import inspect

from nnburst.control.messages.message import Call, Handle
from nnburst.control.protocol import CALLS, PROTOCOL_VERSION
from nnburst.fmq.descriptor import layout
from nnburst.hal.buffers import BufferRole
from nnburst.hal.configs import NO_CACHE_TOKEN
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.request import Request, RequestArgument
from nnburst.serialize import DATUM_BYTES
from nnburst.testing.fuzzing.packet_fuzzer import small_model

#: Bytes of the memory that honest calls name; more of it is there.
POOL_BYTES: Final = 4096

_QUEUE: Final = msgspec.Raw(msgspec.msgpack.encode(layout(DATUM_BYTES, 64)))
_AT: Final = tuple(RequestArgument(location=DataLocation(0, n * 64, 16)) for n in (0, 1))
#: What a field of this name holds.
_WORDS: Final[Mapping[str, object]] = {
    "protocol": PROTOCOL_VERSION,
    "feature_level": int(FeatureLevel.AIDL_V4),
    "model": small_model(),
    "request": Request((_AT[0],), (_AT[1],), (MemoryPool(POOL_BYTES),)),
    "size": POOL_BYTES,
    "callback": 1,
    "request_channel": _QUEUE,
    "result_channel": _QUEUE,
    "token": NO_CACHE_TOKEN,
    "input_roles": (BufferRole(0, 0),),
    "memory_identifiers": (-1,),
    "model_cache": 1,
    "data_cache": 1,
    "wait_for": 1,
}


@functools.lru_cache(maxsize=8)
def honest_calls(handle: int) -> tuple[Call, ...]:
    """One of each kind, and a second one if a kind has optional fields that there are words for.

    Args:
        handle: what each of them is about.
    """
    return tuple(
        call
        for kind in sorted(CALLS, key=lambda kind: kind.__name__)
        for call in _variants(kind, handle)
    )


def takes_a_handle(kind: type[Call]) -> bool:
    """Whether calls of this kind name an object of the driver's."""
    types = get_type_hints(kind, include_extras=True).values()
    return any(wanted in types for wanted in (Handle, tuple[Handle, ...]))


def _variants(kind: type[Call], handle: int) -> Iterator[Call]:
    words = {**_WORDS, "handle": handle, "prepared_models": (handle,)}
    fields = msgspec.structs.fields(kind)
    required = {
        field.name: words.get(field.name, _smallest(inspect.type_info(field.type)))
        for field in fields
        if field.required
    }
    yield kind(**required)
    optional = {f.name: words[f.name] for f in fields if not f.required and f.name in words}
    if optional:
        yield kind(**required, **optional)


def _smallest(kind: inspect.Type) -> object:
    """The smallest value of a type that messages have."""
    match kind:
        case inspect.Metadata():
            return _smallest(kind.type)
        case inspect.IntType():
            return max(kind.ge or 0, 0)
        case inspect.RawType():
            return msgspec.Raw(msgspec.msgpack.encode(None))
        case inspect.EnumType():
            return next(iter(kind.cls))
        case inspect.StructType():
            required = (field for field in kind.fields if field.required)
            return kind.cls(**{field.name: _smallest(field.type) for field in required})
        case inspect.VarTupleType():
            return ()
        case inspect.UnionType():
            return _smallest(kind.types[0])
        case inspect.BoolType() | inspect.StrType() | inspect.BytesType() | inspect.FloatType():
            return _PLAIN[type(kind)]
    raise TypeError(f"messages have no fields of type {kind}")


_PLAIN: Final[Mapping[type, object]] = {
    inspect.BoolType: False,
    inspect.StrType: "",
    inspect.BytesType: b"",
    inspect.FloatType: 0.0,
}
