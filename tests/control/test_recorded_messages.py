"""Messages of protocol version 2 as they were recorded: whatever a class is called, its bytes stay.

`recorded_messages.json` has one message of every kind with every field in use, by its tag. A new message
needs no record; a changed one needs a new PROTOCOL_VERSION.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from nnburst.control.messages import (
    PROTOCOL_VERSION,
    OpenAidlBurst,
    OpenBurst,
    decode_call,
    decode_reply,
    decode_upcall,
    encode,
)

RECORDED: Final = {
    tag: bytes.fromhex(body)
    for tag, body in json.loads(
        Path(__file__).with_name("recorded_messages.json").read_text(encoding="ascii")
    ).items()
}
UPCALLS: Final = {"GetMemories", "BurstClosed", "NotifyPrepared", "NotifyExecuted", "Ping"}
RESULTS: Final = {
    "Nothing",
    "Welcome",
    "DeviceCapabilities",
    "SupportedExtensions",
    "NumberOfCacheFiles",
    "SupportedOperations",
    "Allocated",
    "Opened",
    "Executed",
    "Fenced",
    "ExecutionInfo",
    "Memories",
}
CALLS: Final = {*RECORDED} - UPCALLS - RESULTS - {"Reply"} | {"Ping"}


def in_a_reply(body: bytes) -> bytes:
    """A recorded result where results travel."""
    fields = {"status": 0, "message": "", "output_shapes": []}
    return msgspec.msgpack.encode({**fields, "result": msgspec.Raw(body)})


def test_records_are_of_the_protocol_that_is_spoken() -> None:
    assert PROTOCOL_VERSION == 2
    assert len(CALLS) == 24


@pytest.mark.parametrize(
    ("tags", "decode"), [(CALLS, decode_call), (UPCALLS, decode_upcall)], ids=["calls", "upcalls"]
)
def test_recorded_message_is_encoded_to_the_same_bytes(
    tags: set[str], decode: Callable[[bytes], object]
) -> None:
    for tag in sorted(tags):
        assert encode(decode(RECORDED[tag])) == RECORDED[tag]


def test_recorded_reply_is_encoded_to_the_same_bytes() -> None:
    for body in (RECORDED["Reply"], *(in_a_reply(RECORDED[tag]) for tag in sorted(RESULTS))):
        assert encode(decode_reply(body)) == body


@pytest.mark.parametrize("tag", sorted(RECORDED.keys() - CALLS))
def test_what_is_not_a_call_is_not_taken_for_one(tag: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_call(RECORDED[tag])


@pytest.mark.parametrize("tag", sorted(RECORDED.keys() - UPCALLS))
def test_what_is_not_an_upcall_is_not_taken_for_one(tag: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_upcall(RECORDED[tag])


@pytest.mark.parametrize("tag", sorted(RECORDED.keys() - RESULTS - {"Reply"}))
def test_what_is_not_a_result_is_not_taken_for_one(tag: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_reply(in_a_reply(RECORDED[tag]))


@pytest.mark.parametrize(
    ("tag", "kind"),
    [("ConfigureExecutionBurst", OpenBurst), ("OpenBurst", OpenAidlBurst)],
)
def test_tag_names_the_message_that_it_always_named(tag: str, kind: type) -> None:
    assert type(decode_call(RECORDED[tag])) is kind
