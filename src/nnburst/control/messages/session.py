"""The connection itself: greeting, looking whether the peer answers, releasing what is held."""

from __future__ import annotations

import msgspec

from nnburst.control.messages.message import Call, Count, Handle, Result, Upcall
from nnburst.hal.enums import DeviceType


class Hello(Call, frozen=True):
    """First call of a client; fd 0 is the driver's end of the upcall socket.

    The process that made that socketpair is the client: its worker ends when it does.

    Attributes:
        protocol: PROTOCOL_VERSION of the client.
        feature_level: highest FeatureLevel that the client speaks.
    """

    protocol: int
    feature_level: int

    @property
    def fd_count(self) -> int:
        """The upcall socket."""
        return 1


class Ping(Call, Upcall, frozen=True):
    """Asks for nothing but an answer."""


class Release(Call, frozen=True):
    """Drop a handle. What still uses the object finishes first."""

    handle: Handle


class Nothing(Result, frozen=True):
    """The call succeeded and has no result."""


class Opened(Result, frozen=True):
    """An object was created: its handle, and numbers that its opener may need."""

    handle: Handle
    fields: dict[str, int] = msgspec.field(default_factory=dict)


class Welcome(Result, frozen=True):
    """Answer to `Hello`; fd 0 is the worker's pidfd, fd 1 its death word if there is one.

    Attributes:
        protocol: PROTOCOL_VERSION of the driver.
        feature_level: highest FeatureLevel that the driver speaks.
        name: the device's name.
        version_string: opaque, never empty.
        type: kind of hardware.
        pid: the worker.
        thread_budget: threads that the driver can run at once.
        death_word: whether fd 1 is there.
    """

    protocol: int
    feature_level: int
    name: str
    version_string: str
    type: DeviceType
    pid: int
    thread_budget: Count = 1
    death_word: bool = False

    @property
    def fd_count(self) -> int:
        """Pidfd and death word."""
        return 2 if self.death_word else 1
