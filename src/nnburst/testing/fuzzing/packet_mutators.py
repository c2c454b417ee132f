"""Mutates burst packets: the suite's own mutations (validation:VB1 to VB6) and random ones.

Every generator takes one valid packet, an array of REQUEST_DATUM or RESULT_DATUM, and yields
changed copies; the packet itself is left alone. The same arguments give the same mutations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.serialize.wire import DATUM_BYTES, REQUEST, REQUEST_DATUM, RESULT, DatumUnion, Variant

Packet = npt.NDArray[Any]


class Mutation(NamedTuple):
    """A mutated packet and, for reports, a description of the change."""

    description: str
    packet: Packet


def _bad_entries() -> tuple[tuple[str, bytes], ...]:
    """The seven entries that the suite inserts: one valid-looking datum of each variant."""
    values = {
        "packet_information": (10, 10, 10, 10),
        "input_operand_information": (0, 0, 0, 0, 10),
        "output_operand_information": (0, 0, 0, 0, 10),
        "pool_identifier": (INT32_MAX,),
        "measure_timing": (1,),
    }
    return tuple(
        (v.name, v.layout().pack(v.discriminator, *values.get(v.name, (0,))))
        for v in REQUEST.variants
    )


#: NNAPI: ValidateBurst.cpp; (variant name, 24 bytes) in the order of the discriminators.
BAD_ENTRIES: Final = _bad_entries()

#: Variants whose replacement by one of the same kind leaves a valid packet.
_DIMENSIONS: Final = frozenset(
    v.discriminator for v in REQUEST.variants if v.name.endswith("dimension_value")
)

#: Values that replace a field at random, beside its neighbours and random ones.
_EDGES: Final = (0, 1, 2, 7, 255, 256, INT32_MAX, INT32_MAX + 1, UINT32_MAX - 1, UINT32_MAX)


def removals(packet: Packet) -> Iterator[Mutation]:
    """VB1: the packet without element k, for every k."""
    data = packet.tobytes()
    for k in range(len(packet)):
        changed = data[: k * DATUM_BYTES] + data[(k + 1) * DATUM_BYTES :]
        yield Mutation(f"remove element {k}", _packet(changed, packet))


def insertions(packet: Packet) -> Iterator[Mutation]:
    """VB2: each of the seven bad entries inserted before every element and at the end."""
    data = packet.tobytes()
    for k in range(len(packet) + 1):
        for name, entry in BAD_ENTRIES:
            changed = data[: k * DATUM_BYTES] + entry + data[k * DATUM_BYTES :]
            yield Mutation(f"insert {name} at {k}", _packet(changed, packet))


def replacements(packet: Packet) -> Iterator[Mutation]:
    """VB3 and VB4: every element replaced by each bad entry that differs from it.

    A dimension value is not replaced by one of its own kind: the packet would stay well-formed.
    VB4 is the replacement of a pool identifier by INT32_MAX, which only slot resolution refuses.
    """
    data = packet.tobytes()
    for k in range(len(packet)):
        start, end = k * DATUM_BYTES, (k + 1) * DATUM_BYTES
        for name, entry in BAD_ENTRIES:
            same_kind = data[start] == entry[0]
            if data[start:end] == entry or (same_kind and entry[0] in _DIMENSIONS):
                continue
            changed = data[:start] + entry + data[end:]
            yield Mutation(f"replace element {k} by {name}", _packet(changed, packet))


def suite_mutations(packet: Packet) -> Iterator[Mutation]:
    """VB1 to VB4 on a request packet, exhaustively."""
    yield from removals(packet)
    yield from insertions(packet)
    yield from replacements(packet)


def count_mutations(packet: Packet) -> Iterator[Mutation]:
    """Every count n in the packet set to each of 0, 1, n-1, n+1, 2**31-1 and 2**32-1."""
    for k, variant in _elements(packet):
        for field in variant.fields:
            if field.name != "packet_size" and not field.name.startswith("number_of_"):
                continue
            n = int(variant.view(packet)[field.name][k])
            for value in sorted({0, 1, n - 1, n + 1, INT32_MAX, UINT32_MAX} - {n, -1, 2**32}):
                changed = packet.copy()
                variant.view(changed)[field.name][k] = value
                yield Mutation(f"element {k}: {field.name} {n} -> {value}", changed)


def random_bytes(packet: Packet, seed: int, count: int) -> Iterator[Mutation]:
    """`count` packets with one to four bytes set to random values."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(packet.tobytes())
        places = rng.integers(len(data), size=rng.integers(1, 5)).tolist()
        for at, value in zip(places, rng.bytes(len(places)), strict=True):
            data[at] = value
        yield Mutation(f"random bytes at {sorted(places)}", _packet(data, packet))


def random_fields(packet: Packet, seed: int, count: int) -> Iterator[Mutation]:
    """`count` packets with one field set to an edge, a neighbour of its value, or at random."""
    rng = np.random.default_rng(seed)
    elements = list(_elements(packet))
    for _ in range(count):
        k, variant = elements[rng.integers(len(elements))]
        field = variant.fields[rng.integers(len(variant.fields))]
        changed = packet.copy()
        column = variant.view(changed)[field.name]
        old = int(column[k])
        choices = (*_EDGES, old - 1, old + 1, int(rng.integers(2**32)))
        value = choices[rng.integers(len(choices))]
        column.view(f"<u{field.width}")[k] = value % (1 << (8 * field.width))
        yield Mutation(f"element {k}: {field.name} {old} -> {int(column[k])}", changed)


def random_structure(packet: Packet, seed: int, count: int) -> Iterator[Mutation]:
    """`count` packets with elements swapped, repeated, dropped or cut off at random."""
    rng = np.random.default_rng(seed)
    n = len(packet)
    for _ in range(count):
        order = list(range(n))
        for _ in range(rng.integers(1, 4)):
            at, other = rng.integers(n, size=2).tolist()
            match int(rng.integers(4)):
                case 0:
                    order[at % len(order)], order[other % len(order)] = at, other
                case 1:
                    order.insert(at % len(order), other)
                case 2 if len(order) > 1:
                    del order[at % len(order)]
                case _:
                    order = order[: max(1, at)]
        yield Mutation(f"elements {order}", packet[order])


def nonzero_padding(packet: Packet) -> list[tuple[int, int]]:
    """VB6: (element, byte offset) of every byte outside the element's fields that is not 0.

    The original's test looks at three bytes of each operandInformation of a result; here every
    byte that no field covers counts, in packets of either kind. Unknown variants have no fields.
    """
    masks = _UNCOVERED[packet.dtype == REQUEST_DATUM]
    data = np.frombuffer(packet.tobytes(), np.uint8).reshape(-1, DATUM_BYTES)
    wrong = (data != 0) & masks[data[:, 0]]
    return [(int(k), int(at)) for k, at in np.argwhere(wrong)] if wrong.any() else []


def _uncovered(union: DatumUnion) -> npt.NDArray[np.bool_]:
    """For each discriminator, which bytes of an element no field covers; that of the tag counts as one."""
    masks = np.ones((256, DATUM_BYTES), bool)
    masks[:, 0] = False
    for variant in union.variants:
        for field in variant.fields:
            masks[variant.discriminator, field.offset : field.offset + field.width] = False
    return masks


_UNCOVERED: Final = {True: _uncovered(REQUEST), False: _uncovered(RESULT)}


def _union(packet: Packet) -> DatumUnion:
    return REQUEST if packet.dtype == REQUEST_DATUM else RESULT


def _elements(packet: Packet) -> Iterator[tuple[int, Variant]]:
    """Every element with its variant; elements of unknown variants are left out."""
    variants = _union(packet).variants
    for k, tag in enumerate(packet["discriminator"].tolist()):
        if tag < len(variants):
            yield k, variants[tag]


def _packet(data: bytes | bytearray, like: Packet) -> Packet:
    return np.frombuffer(bytearray(data), like.dtype)
