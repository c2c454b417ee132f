"""Packets of the original's code: ours have the same bytes, and theirs are understood."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import MalformedPacket
from nnburst.hal.model import DataLocation
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.serialize import (
    deserialize_request,
    deserialize_result,
    serialize_request,
    serialize_result,
)
from nnburst.serialize.wire import REQUEST, REQUEST_DATUM, RESULT, RESULT_DATUM

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def golden(shared_dir: Path) -> dict[str, Any]:
    return json.loads((shared_dir / "golden/golden_packets.json").read_text())


def arguments(entries: list[dict[str, Any]]) -> tuple[RequestArgument, ...]:
    return tuple(
        RequestArgument(
            e["hasNoValue"],
            DataLocation(*(e["location"][k] for k in ("poolIndex", "offset", "length"))),
            tuple(e["dimensions"]),
        )
        for e in entries
    )


def meaning(packet: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments that the original was given, as our functions take them."""
    given = packet["input"]
    if packet["channel"] == "request":
        request = Request(arguments(given["inputs"]), arguments(given["outputs"]))
        return request, tuple(given["slots"]), MeasureTiming(given["measure"])
    shapes = [OutputShape(tuple(s["dimensions"]), s["isSufficient"]) for s in given["outputShapes"]]
    timing = given["timing"]
    return (
        ErrorStatus(given["errorStatus"]),
        tuple(shapes),
        Timing(timing["timeOnDevice"], timing["timeInDriver"]),
    )


def test_our_packets_equal_the_originals_on_every_defined_byte(golden: dict[str, Any]) -> None:
    compared = 0
    for packet in golden["packets"]:
        if not packet["input"]:
            continue
        make = serialize_request if packet["channel"] == "request" else serialize_result
        ours = np.frombuffer(make(*meaning(packet)).tobytes(), "u1")
        theirs = np.frombuffer(bytes.fromhex(packet["hex"]), "u1")
        mask = np.frombuffer(packet["mask"].encode(), "S1")
        assert ours.shape == theirs.shape, packet["name"]
        defined = mask != b"P"
        assert np.array_equal(ours[defined], theirs[defined]), packet["name"]
        assert not ours[~defined].any(), packet["name"]
        compared += 1
    assert compared >= 9


def test_the_originals_packets_are_understood(golden: dict[str, Any]) -> None:
    for packet in golden["packets"]:
        data = bytes.fromhex(packet["hex"])
        read = deserialize_request if packet["channel"] == "request" else deserialize_result
        if packet["input"]:
            assert read(data) == meaning(packet), packet["name"]


def test_the_originals_wake_up_packet_is_malformed(golden: dict[str, Any]) -> None:
    (wake,) = (p for p in golden["packets"] if not p["input"])
    with pytest.raises(MalformedPacket) as caught:
        deserialize_result(bytes.fromhex(wake["hex"]))
    assert caught.value.rule == "D2"


def test_table_has_the_originals_offsets_types_and_masks(golden: dict[str, Any]) -> None:
    for union, dtype in ((REQUEST, REQUEST_DATUM), (RESULT, RESULT_DATUM)):
        facts = golden["abi"][union.name]
        assert facts["size"] == dtype.itemsize
        assert facts["union_offset"] == dtype.fields["body"][1]
        theirs = golden["variants"][union.name].values()
        for variant, fact in zip(union.variants, theirs, strict=True):
            assert variant.discriminator == fact["discriminator"]
            wanted = [(f["offset"], f["type"]) for f in fact["fields"]]
            assert [(f.offset, f.type) for f in variant.fields] == wanted
            covered = {at for f in variant.fields for at in range(f.offset, f.offset + f.width)}
            assert {at for at, m in enumerate(fact["mask"]) if m == "F"} == covered | {0}


#: Rule and element of every malformed packet; None if it is read (docs/wire_format.md).
EXPECTED: dict[tuple[str, str], tuple[str, int] | None] = {
    ("request", "good_reference"): None,
    ("request", "packetSize_zero"): ("D2", 0),
    ("request", "truncated_last_element_dropped"): ("D2", 0),
    ("request", "truncated_and_packetSize_adjusted"): ("D7", 8),
    ("request", "only_packet_information"): ("D7", 1),
    ("request", "first_element_not_packetInformation"): ("D1", 0),
    ("request", "numberOfDimensions_plus_one"): ("D4", 4),
    ("request", "numberOfInputOperands_plus_one"): ("D3", 4),
    ("request", "numberOfInputOperands_0xffffffff"): ("D3", 4),
    ("request", "numberOfDimensions_0xffffffff"): ("D4", 4),
    ("request", "numberOfPools_0xffffffff"): ("D6", 8),
    ("request", "unknown_discriminator_7_in_middle"): ("D4", 2),
    ("request", "unknown_discriminator_255_first"): ("D1", 0),
    ("request", "measureTiming_value_2"): ("D7", 8),
    ("request", "poolIndex_out_of_range"): None,
    ("result", "good_reference"): None,
    ("result", "trailing_extra_timing"): ("D8", 5),
    ("result", "numberOfOperands_0_shapes_left_over"): ("D7", 1),
    ("result", "numberOfOperands_0xffffffff"): ("D3", 4),
    ("result", "numberOfDimensions_0xffffffff"): ("D4", 4),
    ("result", "unknown_discriminator_4"): ("D7", 4),
}


def test_every_malformed_packet_is_handled_as_documented(golden: dict[str, Any]) -> None:
    outcomes: dict[tuple[str, str], tuple[str, int] | None] = {}
    for packet in golden["malformed"]:
        read = deserialize_request if packet["channel"] == "request" else deserialize_result
        key = packet["channel"], packet["name"]
        try:
            read(bytes.fromhex(packet["hex"]))
            outcomes[key] = None
        except MalformedPacket as error:
            outcomes[key] = error.rule, error.index
    assert outcomes == EXPECTED


def test_only_measure_timing_is_read_more_strictly_than_by_the_original(
    golden: dict[str, Any],
) -> None:
    for packet in golden["malformed"]:
        accepted = packet["outcome_polling"] == "accepted"
        ours = EXPECTED[packet["channel"], packet["name"]] is None
        assert accepted == ours or packet["name"] == "measureTiming_value_2"


def test_two_packets_at_once_are_malformed(golden: dict[str, Any]) -> None:
    data = bytes.fromhex(golden["packets"][0]["hex"])
    with pytest.raises(MalformedPacket, match="D2"):
        deserialize_request(data + data)
    assert golden["two_packets_pending_one_receive"]["polling"].startswith("rejected")
