"""Writes csrc/wire.h from the table of datums: `python tools/wire_header.py csrc/wire.h`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.limits import BURST_CHANNEL_LENGTH, NO_TIMING
from nnburst.serialize.wire import DATUM_BYTES, REQUEST, RESULT, DatumUnion

#: NNAPI: libfmq's bits of the event-flag word.
EVENT_FLAG_BITS = {"NOT_FULL": 1, "NOT_EMPTY": 2}


def header() -> str:
    """The text of csrc/wire.h."""
    lines = [
        "/* Generated from src/nnburst/serialize/wire.py (tools/wire_header.py). */",
        "#ifndef NNB_WIRE_H",
        "#define NNB_WIRE_H",
        "",
        f"#define NNB_DATUM_BYTES {DATUM_BYTES}",
        f"#define NNB_BURST_CHANNEL_LENGTH {BURST_CHANNEL_LENGTH}",
        f"#define NNB_NO_TIMING {NO_TIMING:#x}ULL",
        *_union(REQUEST),
        *_union(RESULT),
        "",
        "/* MeasureTiming */",
        *(f"#define NNB_MEASURE_{m.name} {m.value}" for m in MeasureTiming),
        "",
        "/* ErrorStatus; only 0 to 4 travel in result packets */",
        *(f"#define NNB_STATUS_{s.name} {s.value}" for s in ErrorStatus),
        "",
        "/* Bits of the event-flag word */",
        *(f"#define NNB_FMQ_{name} {bit}" for name, bit in EVENT_FLAG_BITS.items()),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _union(union: DatumUnion) -> Iterator[str]:
    """Discriminators, then offsets; a field name has one offset throughout its union."""
    yield ""
    yield f"/* {union.name}: discriminator byte at 0, then byte offsets of the fields */"
    offsets: dict[str, int] = {}
    for variant in union.variants:
        yield f"#define {union.prefix}_{variant.name.upper()} {variant.discriminator}"
        for field in variant.fields:
            if offsets.setdefault(field.name, field.offset) != field.offset:
                raise ValueError(f"{union.name}: field {field.name} has two offsets")
    for name, offset in offsets.items():
        yield f"#define {union.prefix}_{name.upper()}_OFFSET {offset}"


def main(path: str) -> None:
    """Write the header to `path`."""
    Path(path).write_text(header(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
