"""Finding drivers that are running."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.client.device import Device
from nnburst.client.memory.arguments import check_timeout
from nnburst.client.session.ending import DriverDied
from nnburst.client.session.handshake import Session
from nnburst.control.address import SUFFIX, check_length, directory, socket_path
from nnburst.control.channel import Channel
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.diagnostics import vlog
from nnburst.hal.enums import DeviceType, FeatureLevel
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.tracing.recording import record_if_asked
from nnburst.tracing.slices import Layer, Phase, trace


class NotRunning(DeviceUnavailable):
    """No driver listens there: none was started, it has ended, or it crashed and left its socket behind."""


#: Seconds; a socket's timeout has an end.
_LONGEST: Final = 86_400.0


@dataclass(frozen=True)
class DeviceInfo:
    """What is known about a driver that is running. Immutable.

    Attributes:
        name: for `connect`.
        version_string: the driver's own, opaque.
        type: kind of hardware.
        feature_level: version that it speaks.
        address: path of its socket.
        capabilities: its speed, as it reports it.
        cache_files: how many files a compilation is cached in.
        thread_budget: threads that it can run at once.
    """

    name: str
    version_string: str
    type: DeviceType
    feature_level: FeatureLevel
    address: Path
    capabilities: Capabilities
    cache_files: NumberOfCacheFiles
    thread_budget: int = 1


def connect(name_or_path: str | Path, *, timeout: float = 30.0, any_user: bool = False) -> Device:
    """Connect to a driver that is running.

    Args:
        name_or_path: name given to `nnburst serve`, or path of its socket.
        timeout: seconds until it must have answered.
        any_user: whether a driver of another user will do, too.

    Returns:
        The device, which the caller closes; the driver goes on.

    Raises:
        DeviceUnavailable: no driver serves there, it is full, of another user, or speaks another version.
        InvalidArgument: the name or the timeout makes no sense.
        MissedDeadline: the driver does not answer.
    """
    seconds = check_timeout(timeout)
    kind: type[object] = type(name_or_path)
    if not issubclass(kind, str | os.PathLike):
        raise InvalidArgument(f"name_or_path: of type {kind.__name__}, expected a name or a path")
    record_if_asked()
    with trace(Layer.RUNTIME, Phase.INITIALIZATION, "connect"):
        device = _connected(str(name_or_path), seconds, any_user=any_user)
    vlog.write("manager", "connected to %s: process %d", name_or_path, device.pid)
    return device


def _connected(text: str, seconds: float, *, any_user: bool) -> Device:
    path = check_length(Path(text)) if "/" in text else socket_path(text)
    connected = _connect(path, seconds)
    owner = Channel(connected).peer.uid
    if owner != os.getuid() and not any_user:
        connected.close()
        raise DeviceUnavailable(f"address: {path} is served by user {owner}")

    session: Session | None = None

    def ending() -> str:
        how = session.ending() if session else "has closed the connection or died"
        return f"the driver at {path} {how}"

    try:
        session = Session(connected, f"driver {text}", lambda: DriverDied(ending), timeout=seconds)
        return Device(session)
    except DeadObject as error:
        raise DeviceUnavailable(
            f"{path}: the driver closed the connection before its first answer"
        ) from error


def _connect(path: Path, timeout: float) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connected.settimeout(min(timeout, _LONGEST))  # a full backlog blocks
        connected.connect(str(path))
        connected.settimeout(None)
    except OSError as error:
        connected.close()
        gone = isinstance(error, ConnectionRefusedError | FileNotFoundError)
        kind = NotRunning if gone else DeviceUnavailable
        raise kind(f"address: no driver serves {path}: {error.strerror or error}") from None
    return connected


def devices(*, timeout: float = 5.0) -> list[DeviceInfo]:
    """The drivers of this user that run and answer, sorted by name; others are left out.

    Args:
        timeout: seconds that each of them has to answer.

    Raises:
        InvalidArgument: the timeout makes no sense.
        DeviceUnavailable: the directory of the drivers is not one that only this user can enter.
    """
    seconds = check_timeout(timeout)
    found = []
    for path in sorted(directory().glob(f"*{SUFFIX}")):
        try:
            with connect(path, timeout=seconds) as device:
                found.append(
                    DeviceInfo(
                        path.name.removesuffix(SUFFIX),
                        device.version_string,
                        device.type,
                        device.feature_level,
                        path,
                        device.capabilities,
                        device.number_of_cache_files_needed,
                        device.thread_budget,
                    )
                )
        except NnburstError:
            continue  # left behind by a driver that crashed; the next one of that name replaces it
    return found
