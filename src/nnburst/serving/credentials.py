"""Reads the certificates and tokens of a front from files, and again when the files change."""

from __future__ import annotations

import errno
import hmac
import logging
import ssl
from pathlib import Path
from typing import Any, Final, TypeAlias

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.regular_file import read_regular_file
from nnburst.serving.options import Options, Tls

logger = logging.getLogger(__name__)

#: Greatest size of a file of tokens, in bytes.
_MOST_BYTES: Final = 1 << 16
_BEARER: Final = "bearer "
#: Least number of characters of a token; shorter ones can be guessed.
_SHORTEST: Final = 16

#: Inode, size in bytes, and time of change in nanoseconds.
Stamp: TypeAlias = tuple[int, int, int]


def stamp(file: Path) -> Stamp:
    """The stamp of a file or of a link's target; it changes when the file is replaced or written.

    Raises:
        OSError: the file does not exist, or its status cannot be read.
    """
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class NotAuthenticated(InvalidArgument):
    """The caller has no valid token."""


class Tokens:
    """The tokens of a front, one of which a caller must have: the lines of a file. Thread-safe."""

    def __init__(self, file: Path) -> None:
        """Read the file.

        Raises:
            InvalidArgument: the file cannot be read, or has no token.
        """
        self._file = file
        self._stamp: Stamp | None = None
        self._tokens: list[bytes] = []
        try:
            self._read()
        except (InvalidArgument, OSError) as error:
            raise InvalidArgument(f"--token-file: {error}") from None
        if not self._tokens:
            raise InvalidArgument(
                f"--token-file: {file} has no line of {_SHORTEST} characters or more"
            )

    def check(self, authorization: str) -> None:
        """Refuse a caller whose header `authorization` has no valid token.

        Raises:
            NotAuthenticated: the header is not `Bearer TOKEN` with a token of the file.
        """
        try:
            self._read()
        except (InvalidArgument, OSError):
            # if the file was removed, is too long or is no regular file any more, every caller is refused
            self._tokens, self._stamp = [], None
        given = authorization.encode(errors="replace")
        scheme, token = given[: len(_BEARER)], given[len(_BEARER) :].strip()
        good = [hmac.compare_digest(token, each) for each in self._tokens]
        if scheme.lower() != _BEARER.encode() or not any(good):
            raise NotAuthenticated("authorization: expected Bearer and a token of this server")

    def _read(self) -> None:
        now = stamp(self._file)
        if now == self._stamp:
            return
        data = read_regular_file(self._file, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:  # a part of it could end within a token
            raise OSError(errno.EFBIG, f"more than {_MOST_BYTES} bytes", str(self._file))
        lines = [line.strip() for line in data.splitlines()]
        self._tokens = [line for line in lines if len(line) >= _SHORTEST]
        self._stamp = now


class _CertificateFiles:
    """Watches files of certificates and keys for changes."""

    def __init__(self, tls: Tls) -> None:
        self._files = [file for file in (tls.certificate, tls.key, tls.client_ca) if file]
        self._seen = self._look()

    def have_changed(self) -> bool:
        """Whether a file has changed since the last call."""
        try:
            now = self._look()
        except OSError:  # a file is being replaced
            return False
        before, self._seen = self._seen, now
        return before != now

    def _look(self) -> list[Stamp]:
        return [stamp(file) for file in self._files]


def server_credentials(tls: Tls) -> Any:  # noqa: ANN401 - grpcio's
    """Make credentials of a gRPC server; each new connection uses the present certificate.

    Raises:
        InvalidArgument: a file cannot be read or used.
    """
    import grpc  # HTTP and metrics do not need it

    files = _files(tls)

    def configuration() -> Any:  # noqa: ANN401
        _context(tls)  # of a bad file, grpcio would say that it cannot bind the address
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        root = tls.client_ca.read_bytes() if tls.client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([pair], root)

    def newer() -> Any:  # noqa: ANN401
        if not files.have_changed():
            return None
        try:
            return configuration()
        except (InvalidArgument, OSError) as error:
            logger.warning("the certificate before stays: %s", error)
            return None

    try:
        first = configuration()
    except OSError as error:
        raise InvalidArgument(f"TLS: {error}") from None
    return grpc.dynamic_ssl_server_credentials(
        first, newer, require_client_authentication=tls.client_ca is not None
    )


def server_context(tls: Tls) -> ssl.SSLContext:
    """Make a TLS context for HTTP; each new connection uses the present certificate.

    Raises:
        InvalidArgument: a file cannot be read or used.
    """
    files = _files(tls)
    context = _context(tls)

    def refresh(connection: ssl.SSLObject, _name: str | None, _before: ssl.SSLContext) -> None:
        nonlocal context
        if files.have_changed():
            try:
                context = _context(tls)
            except InvalidArgument as error:
                logger.warning("the certificate before stays: %s", error)
        connection.context = context

    outer = context
    outer.sni_callback = refresh
    return outer


def check_credentials(options: Options) -> None:
    """Refuse files of tokens and of TLS with which no front could start.

    Raises:
        InvalidArgument: one cannot be read or used.
    """
    if options.token_file is not None:
        Tokens(options.token_file)
    if options.tls is not None:
        _context(options.tls)


def _files(tls: Tls) -> _CertificateFiles:
    try:
        return _CertificateFiles(tls)
    except OSError as error:
        raise InvalidArgument(f"TLS: {error}") from None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password OpenSSL would wait at the terminal, or at standard input, for a key's passphrase.
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"--tls-cert {tls.certificate} and --tls-key {tls.key}: {error},"
            " expected a certificate in PEM and its key without a passphrase"
        ) from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise InvalidArgument(
                f"--client-ca {tls.client_ca}: {error}, expected certificates in PEM"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context
