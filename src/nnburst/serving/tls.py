"""Certificates of a front, which are read again when their files change."""

from __future__ import annotations

import logging
import ssl
from typing import Any

from nnburst.hal.errors import InvalidArgument
from nnburst.serving.options import Tls
from nnburst.serving.stamps import Stamp, stamp

logger = logging.getLogger(__name__)


class _Files:
    """Whether files have changed since they were looked at."""

    def __init__(self, tls: Tls) -> None:
        self._files = [file for file in (tls.certificate, tls.key, tls.client_ca) if file]
        self._seen = self._look()

    def have_changed(self) -> bool:
        """Whether they have, since the last time that this was asked."""
        try:
            now = self._look()
        except OSError:  # one is being replaced
            return False
        before, self._seen = self._seen, now
        return before != now

    def _look(self) -> list[Stamp]:
        return [stamp(file) for file in self._files]


def server_credentials(tls: Tls) -> Any:  # noqa: ANN401 - grpcio's
    """Credentials of a gRPC server: each connection that begins has the certificate as it is then.

    Raises:
        InvalidArgument: a file cannot be read.
    """
    import grpc  # HTTP and metrics do without it

    files = _files(tls)

    def configuration() -> Any:  # noqa: ANN401
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        root = tls.client_ca.read_bytes() if tls.client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([pair], root)

    def newer() -> Any:  # noqa: ANN401
        if not files.have_changed():
            return None
        try:
            return configuration()
        except OSError as error:
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
    """A context for HTTP: each connection that begins has the certificate as it is then.

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


def _files(tls: Tls) -> _Files:
    try:
        return _Files(tls)
    except OSError as error:
        raise InvalidArgument(f"TLS: {error}") from None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"TLS: {error}") from None
    return context
