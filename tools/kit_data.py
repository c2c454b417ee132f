"""Writes what ships with the kit for drivers: `python tools/kit_data.py src/nnburst/testing/data`.

Vectors are small cases of each operation and type with results of the naive evaluator, one file for each
operation. Packets are fixed bytes of the wire format with their meaning. Both are written anew only if a
format changes or operations are added: tests compare today's code with what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.limits import UINT32_MAX, UINT64_MAX
from nnburst.hal.model import DataLocation
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.serialize import serialize_request, serialize_result
from nnburst.testing.conformance.vectors import Vector, write
from nnburst.testing.models.random_graphs.graphs import as_vector, tolerance_for
from nnburst.testing.pack.cases import can_be_drawn, cases, conceivable

#: Cases of each operation and type, of the lowest rank that it has.
_CASES: Final = 3
#: Bytes of the arrays of a case; larger ones are left out.
_LARGEST: Final = 16384


def main(folder: Path) -> None:
    """Write both."""
    packets = [*_requests(), *_results()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "packets.json").write_bytes(msgspec.json.format(msgspec.json.encode(packets)) + b"\n")
    found: dict[str, list[Vector]] = {}
    seen: set[tuple[str, str]] = set()
    for triple in conceivable():
        key = triple.operation.name, triple.kind.name
        if key in seen or not can_be_drawn(triple):
            continue
        seen.add(key)
        for case in islice(cases(triple), _CASES):
            vector = as_vector(case.graph, tolerance=tolerance_for(case.graph, [0]))
            if sum(map(len, vector.buffers)) <= _LARGEST:
                found.setdefault(triple.operation.name, []).append(vector)
    for name, vectors in found.items():
        write(folder / "vectors" / f"{name.lower()}.json.gz", *vectors)
    count = sum(map(len, found.values()))
    print(f"{len(packets)} packets, {count} vectors of {len(found)} operations")


def _location(
    pool: int, offset: int, length: int, dimensions: tuple[int, ...] = ()
) -> RequestArgument:
    return RequestArgument(False, DataLocation(pool, offset, length), dimensions)


def _requests() -> Iterator[dict[str, object]]:
    """Requests of every form that the format has."""
    nothing = RequestArgument(True, DataLocation(), ())
    image, scores = (1, 224, 224, 3), (1, 1001)
    given: dict[str, tuple[Request, tuple[int, ...]]] = {
        "one input and one output": (
            Request((_location(0, 0, 16, (4,)),), (_location(1, 0, 16, (4,)),)),
            (7, 9),
        ),
        "an omitted input": (
            Request((_location(0, 64, 4, (1,)), nothing), (_location(0, 0, 4, (1,)),)),
            (1,),
        ),
        "an omitted output": (Request((_location(0, 0, 4, (1,)),), (nothing,)), (1,)),
        "extents of rank 0, and as many as 8": (
            Request((_location(0, 0, 40320, tuple(range(1, 9))),), (_location(1, 0, 4096),)),
            (0, 1),
        ),
        "the largest numbers": (
            Request(
                (_location(2, UINT32_MAX, UINT32_MAX, (UINT32_MAX, 0)),),
                (_location(1, UINT32_MAX - 1, 1, (0, 0, 0, 0)),),
            ),
            (0, -1, 2**31 - 1),
        ),
        "eight inputs and four outputs": (
            Request(
                tuple(_location(0, n * 150528, 150528, image) for n in range(8)),
                tuple(_location(1, n * 4096, 4004, scores) for n in range(4)),
            ),
            (3, 4),
        ),
    }
    for name, (request, slots) in given.items():
        for measure in MeasureTiming:
            made = serialize_request(request, slots, measure)
            yield {
                "channel": "request",
                "name": f"{name}, measure {measure.name}",
                "meaning": [request, slots, int(measure)],
                "hex": made.tobytes().hex(),
            }


def _results() -> Iterator[dict[str, object]]:
    """Results of every status; only successes have times, and failures have neither shapes nor times."""
    none = Timing(UINT64_MAX, UINT64_MAX)
    enough = (OutputShape((1, 224, 224, 3), True), OutputShape((), True))
    scarce = (OutputShape((2, 0, UINT32_MAX), False), OutputShape((1,), True))
    given: list[tuple[ErrorStatus, tuple[OutputShape, ...], Timing]] = []
    for timing in (none, Timing(1, 2), Timing(0, 2**63)):
        given += [(ErrorStatus.NONE, enough[:count], timing) for count in range(3)]
    for status in set(ErrorStatus) - {ErrorStatus.NONE}:
        has_shapes = status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        given.append((status, scarce if has_shapes else (), none))
    for status, outputs, timing in sorted(given, key=lambda each: each[0]):
        yield {
            "channel": "result",
            "name": f"{status.name}, {len(outputs)} outputs, {timing.time_on_device} ns on the device",
            "meaning": [int(status), outputs, timing],
            "hex": serialize_result(status, outputs, timing).tobytes().hex(),
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
