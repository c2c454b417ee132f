"""Decodes compressed bodies of HTTP requests in pieces, so that no more is decoded than is read.

aiohttp would decode the rest of a body that was refused, too: 4 MB that unpack to gigabytes kept its thread
from all other callers for seconds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

from nnburst.hal.errors import InvalidArgument

#: Encodings of a body that are decoded.
ENCODINGS: Final = ("gzip", "deflate")
#: Greatest size of a piece, in bytes.
_PIECE: Final = 256 * 1024
#: Added to the window's size for the header of gzip.
_GZIP: Final = 16
#: Method of compression in the first byte of zlib's header.
_DEFLATED: Final = 8


class BodyDecoder:
    """Decodes one body. Not thread-safe."""

    def __init__(self, encoding: str) -> None:
        """Begin a body whose encoding is one of `ENCODINGS`."""
        self._is_gzip: Final = encoding == "gzip"
        self._inflate: Any = None

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Decode bytes of the body, piece by piece.

        Raises:
            InvalidArgument: the bytes are not what the encoding has.
        """
        if not chunk:
            return
        while True:
            if self._inflate is None or (self._inflate.eof and self._is_gzip):
                self._inflate = self._new(chunk)
            try:
                piece = self._inflate.decompress(chunk, _PIECE)
            except zlib.error as error:
                raise InvalidArgument(str(error)) from None
            chunk = self._inflate.unconsumed_tail
            if piece:
                yield piece
            if self._inflate.eof:
                chunk = self._inflate.unused_data  # another part of gzip
                if not chunk:
                    return
                if not self._is_gzip:
                    raise InvalidArgument("it goes on behind its end")
            elif not piece:
                return

    def finish(self) -> None:
        """Check that the body has come to its end.

        Raises:
            InvalidArgument: a part of it is missing.
        """
        if self._inflate is not None and not self._inflate.eof:
            raise InvalidArgument("it ends before its compression does")

    def _new(self, chunk: bytes) -> Any:  # noqa: ANN401 - zlib's type has no name
        if self._is_gzip:
            return zlib.decompressobj(zlib.MAX_WBITS + _GZIP)
        # Some clients send deflate without the header that the protocol asks for.
        has_header = chunk[0] & 0xF == _DEFLATED
        return zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
