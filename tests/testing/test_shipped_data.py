"""The kit ships packets whose bytes do not change, and vectors that the reference passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.types import OutputShape, Request, Timing
from nnburst.serialize import (
    deserialize_request,
    deserialize_result,
    serialize_request,
    serialize_result,
)
from nnburst.testing.conformance.campaign import Selection, find_files, run_file
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import SHIPPED

PACKETS: list[dict[str, Any]] = msgspec.json.decode((SHIPPED / "packets.json").read_bytes())


def meaning(packet: dict[str, Any]) -> tuple[Any, ...]:
    first, second, third = packet["meaning"]
    if packet["channel"] == "request":
        return msgspec.convert(first, Request), tuple(second), MeasureTiming(third)
    shapes = msgspec.convert(second, tuple[OutputShape, ...])
    return ErrorStatus(first), shapes, msgspec.convert(third, Timing)


def test_packets_have_the_bytes_that_are_shipped() -> None:
    for packet in PACKETS:
        make = serialize_request if packet["channel"] == "request" else serialize_result
        assert make(*meaning(packet)).tobytes().hex() == packet["hex"], packet["name"]
    counts = Counter(packet["channel"] for packet in PACKETS)
    assert counts["request"] >= 12
    assert counts["result"] >= 8 + len(ErrorStatus)


def test_packets_that_are_shipped_are_understood() -> None:
    for packet in PACKETS:
        data = bytes.fromhex(packet["hex"])
        read = deserialize_request if packet["channel"] == "request" else deserialize_result
        first, *others = meaning(packet)
        if packet["channel"] == "result" and first > ErrorStatus.INVALID_ARGUMENT:
            first = (
                ErrorStatus.GENERAL_FAILURE
            )  # as the original reads codes that 1.2 does not have
        assert read(data) == (first, *others), packet["name"]


def test_what_ships_is_small() -> None:
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000


@pytest.mark.parametrize("part", range(4))
def test_the_reference_executor_passes_the_vectors_that_are_shipped(part: int) -> None:
    files = find_files([SHIPPED / "vectors"])
    runner = LocalRunner("reference")
    results = [
        result
        for path in files[part::4]
        for result in run_file(path, Selection("reference", "local", ("run",)), runner)
    ]
    runner.close()
    assert [r.name for r in results if r.outcome != "passed"] == []
    assert len(results) > 200
    assert len(files) > 90
