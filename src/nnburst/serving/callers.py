"""Who calls: the user at the other end of a connection, as far as it is known, and the deadline of a call."""

from __future__ import annotations

import socket
import urllib.parse
from typing import TYPE_CHECKING, Any, Protocol

from nnburst.hal.peer import has_rights_of_service, tcp_peer_user

if TYPE_CHECKING:
    import asyncio  # only HTTP's caller needs it, and that has imported it

#: grpcio's, which has no types.
Context = Any


class Caller(Protocol):
    """Who makes a call, as far as it is known."""

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None without one."""

    def user(self) -> int | None:
        """The user whose process has called, over loopback, with nothing between; None if unknown."""


class GrpcCaller:
    """A call of gRPC."""

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


class HttpCaller:
    """The other end of a connection of an event loop."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        """Of a request that came by `transport`."""
        self._transport = transport

    def time_remaining(self) -> float | None:
        """A request by HTTP has no deadline but its own `timeout`."""
        return None

    def user(self) -> int | None:
        """See `Caller`."""
        if self._transport is None or self._transport.is_closing():
            return None
        return _user_between(*map(self._transport.get_extra_info, ("peername", "sockname")))


class SocketCaller:
    """The other end of a connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        """Of a request that came by `connected`."""
        self._socket = connected

    def time_remaining(self) -> float | None:
        """A request by HTTP has no deadline of its own."""
        return None

    def user(self) -> int | None:
        """See `Caller`."""
        try:
            return _user_between(self._socket.getpeername(), self._socket.getsockname())
        except OSError:  # it has ended
            return None


def is_of_service(caller: Caller) -> bool:
    """Whether a caller has the rights of this process's user: it is that user, or root, over loopback."""
    return has_rights_of_service(caller.user())


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
