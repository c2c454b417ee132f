"""Walks one packet and enforces burst:D1 to D8; no count is trusted before it is borne out."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from nnburst.hal.errors import MalformedPacket
from nnburst.serialize.wire import DATUM_BYTES, DatumUnion, Variant

if TYPE_CHECKING:
    import numpy.typing as npt

Datums: TypeAlias = "npt.NDArray[Any] | bytes | bytearray | memoryview"

_WORDS = DATUM_BYTES // 4


class PacketReader:
    """One packet, copied once when it is opened: nothing that its sender changes later is seen.

    Elements are taken in order; every method raises MalformedPacket naming element and rule.
    """

    __slots__ = ("_at", "_count", "_data", "_tags", "_union", "_words")

    def __init__(self, union: DatumUnion, datums: Datums) -> None:
        """Copy `datums`: an array, or any buffer, of whole 24-byte elements.

        Raises:
            MalformedPacket: burst:D2, the last element is cut off.
        """
        given: Any = datums  # an array or not: to ask for its class would import numpy
        data: bytes = (given if hasattr(given, "tobytes") else memoryview(given)).tobytes()
        self._union, self._data, self._at = union, data, 0
        self._count, cut_off = divmod(len(data), DATUM_BYTES)
        if cut_off:
            self._at = self._count
            self.refuse("D2", f"it has {cut_off} of {DATUM_BYTES} bytes")
        self._tags = data[::DATUM_BYTES]
        self._words = memoryview(data).cast("I")

    def refuse(self, rule: str, message: str, *, back: int = 0) -> NoReturn:
        """Raise MalformedPacket at the current element, or `back` elements before it."""
        raise MalformedPacket(message, index=self._at - back, rule=rule)

    def information(self, variant: Variant, layout: Struct) -> tuple[int, ...]:
        """Fields after packetSize of the packetInformation that a packet begins with (D1, D2)."""
        packet_size, *fields = self.take(variant, layout, "D1")
        if packet_size != self._count:
            self.refuse("D2", f"packetSize is {packet_size}, {self._count} elements came", back=1)
        return tuple(fields)

    def take(self, variant: Variant, layout: Struct, rule: str) -> tuple[int, ...]:
        """Fields of the next element, which must be a `variant`."""
        at = self._at
        if at >= self._count or self._tags[at] != variant.discriminator:
            self._refuse_kind(variant, rule)
        self._at = at + 1
        return layout.unpack_from(self._data, at * DATUM_BYTES)[1:]

    def dimensions(self, variant: Variant, rank: int, rule: str) -> tuple[int, ...]:
        """Values of the next `rank` elements, which must all be dimension values."""
        if not rank:
            return ()
        start, end = self._at, self._at + rank
        if self._tags.count(variant.discriminator, start, end) != rank:
            while self._at < self._count and self._tags[self._at] == variant.discriminator:
                self._at += 1
            self._refuse_kind(variant, rule)
        self._at = end
        first = start * _WORDS + variant.fields[0].offset // 4
        return tuple(self._words[first : end * _WORDS : _WORDS].tolist())

    def finish(self) -> None:
        """Refuse elements that are left over (D8)."""
        if self._at != self._count:
            self.refuse("D8", f"{self._count - self._at} elements too many")

    def _refuse_kind(self, wanted: Variant, rule: str) -> NoReturn:
        if self._at >= self._count:
            self.refuse(rule, f"{wanted.name} is missing")
        tag, variants = self._tags[self._at], self._union.variants
        found = variants[tag].name if tag < len(variants) else f"unknown discriminator {tag}"
        self.refuse(rule, f"expected {wanted.name}, found {found}")
