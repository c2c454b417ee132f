"""Finds the user, the deadline and the trace of a call."""

from __future__ import annotations

import socket
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from nnburst.hal.peer import has_rights_of_service, tcp_peer_user

if TYPE_CHECKING:
    import asyncio  # only callers by HTTP need it, and they have imported it

#: A class of grpcio, which has no types.
Context = Any

#: The W3C headers with the caller's trace.
_TRACE: Final = ("traceparent", "tracestate")


class Caller(Protocol):
    """The caller of a call: its user if known, its deadline and its trace.

    Attributes:
        protocol: "grpc" or "http".
    """

    protocol: str

    def time_remaining(self) -> float | None:
        """Seconds until the call's deadline; None without a deadline."""

    def user(self) -> int | None:
        """The user of the calling process, if it is connected directly over loopback; None if unknown."""

    def trace(self) -> dict[str, str]:
        """The W3C headers of the caller's trace, as received."""


class GrpcCaller:
    """The caller of a gRPC call."""

    protocol = "grpc"

    def __init__(self, context: Context, address: tuple[str, int]) -> None:
        """Take the call's `context` and the server's `address` (host and port)."""
        self._context, self._address = context, address

    def time_remaining(self) -> float | None:
        """See `Caller`."""
        remaining: float | None = self._context.time_remaining()
        return remaining

    def user(self) -> int | None:
        """See `Caller`."""
        user = user_of_caller(self._context.peer(), self._address)
        # If the connection has ended, its ports may belong to another user by now.
        return user if self._context.is_active() else None

    def trace(self) -> dict[str, str]:
        """See `Caller`."""
        given = dict(self._context.invocation_metadata())
        return {name: str(given[name]) for name in _TRACE if name in given}


class HttpCaller:
    """The caller of an HTTP request."""

    protocol = "http"

    def __init__(self, transport: asyncio.Transport | None, headers: Mapping[str, str]) -> None:
        """Take the transport and the headers of the request."""
        self._transport, self._headers = transport, headers

    def time_remaining(self) -> float | None:
        """None: HTTP has no deadline but the request's `timeout`."""
        return None

    def user(self) -> int | None:
        """See `Caller`."""
        if self._transport is None or self._transport.is_closing():
            return None
        return _user_between(*map(self._transport.get_extra_info, ("peername", "sockname")))

    def trace(self) -> dict[str, str]:
        """See `Caller`."""
        return {name: self._headers[name] for name in _TRACE if name in self._headers}


def is_of_service(connected: socket.socket) -> bool:
    """Whether the caller is this process's user or root, over loopback."""
    try:
        ends = connected.getpeername(), connected.getsockname()
    except OSError:  # the connection has ended
        return False
    return has_rights_of_service(_user_between(*ends))


def _user_between(peer: Any, here: Any) -> int | None:  # noqa: ANN401 - as the address family has them
    """The user of a connection with these ends; None unless both are loopback addresses."""
    if not (isinstance(peer, tuple) and isinstance(here, tuple)):
        return None
    return tcp_peer_user(peer[:2], here[:2])


def user_of_caller(peer: str, served_at: tuple[str, int]) -> int | None:
    """The user of a calling process that is connected directly over loopback; None for others.

    Args:
        peer: gRPC's name of the caller, such as `ipv4:127.0.0.1:5` or `ipv6:[::1]:5`.
        served_at: host and port of the server. For a wildcard address the user is unknown.
    """
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    loopback = {"ipv4": "127.0.0.1", "ipv6": "::1"}.get(kind)
    if loopback is None or not port.isdecimal():
        return None
    here = loopback if served_at[0] == "localhost" else served_at[0].strip("[]")
    return tcp_peer_user((host.strip("[]"), int(port)), (here, served_at[1]))
