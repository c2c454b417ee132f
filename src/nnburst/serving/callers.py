"""Finds the user at the other end of a connection, as far as it can be known, and the deadline of a call."""

from __future__ import annotations

import socket
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from nnburst.hal.peer import has_rights_of_service, tcp_peer_user

if TYPE_CHECKING:
    import asyncio  # only HTTP's caller needs it, and that has imported it

#: grpcio's, which has no types.
Context = Any

#: W3C's headers by which a caller hands on its trace.
_TRACE: Final = ("traceparent", "tracestate")


class Caller(Protocol):
    """The other end of a call: its user, as far as that is known, its deadline and its trace.

    Attributes:
        protocol: "grpc" or "http".
    """

    protocol: str

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None without one."""

    def user(self) -> int | None:
        """The user whose process has called, over loopback, with nothing between; None if unknown."""

    def trace(self) -> dict[str, str]:
        """W3C's headers of the trace in which it calls, as they came."""


class GrpcCaller:
    """A call of gRPC."""

    protocol = "grpc"

    def __init__(self, context: Context, address: tuple[str, int]) -> None:
        """By `context`, served at `address`: host and port."""
        self._context, self._address = context, address

    def time_remaining(self) -> float | None:
        """See `Caller`."""
        remaining: float | None = self._context.time_remaining()
        return remaining

    def user(self) -> int | None:
        """See `Caller`."""
        user = user_of_caller(self._context.peer(), self._address)
        # A connection that has ended may have left its ports to another user's meanwhile.
        return user if self._context.is_active() else None

    def trace(self) -> dict[str, str]:
        """See `Caller`."""
        given = dict(self._context.invocation_metadata())
        return {name: str(given[name]) for name in _TRACE if name in given}


class HttpCaller:
    """A request by HTTP."""

    protocol = "http"

    def __init__(self, transport: asyncio.Transport | None, headers: Mapping[str, str]) -> None:
        """Of a request that came by `transport` with `headers`."""
        self._transport, self._headers = transport, headers

    def time_remaining(self) -> float | None:
        """A request by HTTP has no deadline but its own `timeout`."""
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
    """Whether the other end has the rights of this process's user: that user or root, over loopback."""
    try:
        ends = connected.getpeername(), connected.getsockname()
    except OSError:  # it has ended
        return False
    return has_rights_of_service(_user_between(*ends))


def _user_between(peer: Any, here: Any) -> int | None:  # noqa: ANN401 - as the address family has them
    """The user of a connection with these ends; None unless both are addresses of loopback."""
    if not (isinstance(peer, tuple) and isinstance(here, tuple)):
        return None
    return tcp_peer_user(peer[:2], here[:2])


def user_of_caller(peer: str, served_at: tuple[str, int]) -> int | None:
    """The user whose process has called, if it did so over loopback, without anything between.

    Args:
        peer: gRPC's name of the caller, as `ipv4:127.0.0.1:5` or `ipv6:[::1]:5`.
        served_at: host and port. Behind an address that stands for several the user is unknown.
    """
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    loopback = {"ipv4": "127.0.0.1", "ipv6": "::1"}.get(kind)
    if loopback is None or not port.isdecimal():
        return None
    here = loopback if served_at[0] == "localhost" else served_at[0].strip("[]")
    return tcp_peer_user((host.strip("[]"), int(port)), (here, served_at[1]))
