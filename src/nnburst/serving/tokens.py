"""Words that callers must have: bearer tokens in a file, read again when it changes."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from nnburst.hal.errors import InvalidArgument
from nnburst.serving.stamps import Stamp, stamp

#: Bytes of the file at most.
_MOST: Final = 1 << 16
_SCHEME: Final = "bearer "
#: Characters of a token at least: shorter ones are guessed.
_SHORTEST: Final = 16


class NotAuthenticated(InvalidArgument):
    """The caller has no token that is good."""


class Tokens:
    """The lines of a file. Thread-safe."""

    def __init__(self, file: Path) -> None:
        """Read it.

        Raises:
            InvalidArgument: it cannot be read, or has no token.
        """
        self._file = file
        self._stamp: Stamp | None = None
        self._tokens: list[bytes] = []
        try:
            self._read()
        except OSError as error:
            raise InvalidArgument(f"--token-file: {error}") from None
        if not self._tokens:
            raise InvalidArgument(
                f"--token-file: {file} has no line of {_SHORTEST} characters or more"
            )

    def check(self, authorization: str) -> None:
        """Refuse a caller by what its header `authorization` has.

        Raises:
            NotAuthenticated: it is not `Bearer TOKEN` with a token of the file.
        """
        try:
            self._read()
        except OSError:
            self._tokens, self._stamp = [], None  # a file that was taken away lets no caller in
        given = authorization.encode(errors="replace")
        scheme, token = given[: len(_SCHEME)], given[len(_SCHEME) :].strip()
        good = [hmac.compare_digest(token, each) for each in self._tokens]
        if scheme.lower() != _SCHEME.encode() or not any(good):
            raise NotAuthenticated("authorization: expected Bearer and a token of this server")

    def _read(self) -> None:
        now = stamp(self._file)
        if now == self._stamp:
            return
        with self._file.open("rb") as file:
            lines = [line.strip() for line in file.read(_MOST).splitlines()]
        self._tokens = [line for line in lines if len(line) >= _SHORTEST]
        self._stamp = now
