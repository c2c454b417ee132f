"""Connects to running drivers, lists them, and checks that they work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from nnburst.client.arguments import check_timeout, wait_left
from nnburst.client.burst.interface import Recover
from nnburst.client.device import Device, recovering_device
from nnburst.client.session.handshake import Session
from nnburst.client.session.process import DriverDied
from nnburst.control.address import (
    MAX_PATH_BYTES,
    SUFFIX,
    check_length,
    directory,
    socket_path,
)
from nnburst.control.channel import Channel
from nnburst.hal import vlog
from nnburst.hal.enums import (
    DeviceType,
    FeatureLevel,
    FusedActivationFunc,
    OperandType,
    OperationType,
)
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Capabilities, NumberOfCacheFiles
from nnburst.hal.utils import Scarce, lasting_path
from nnburst.tracing.recording import record_if_asked
from nnburst.tracing.slices import Layer, Phase, trace


class NotRunning(DeviceUnavailable):
    """No driver listens there: none was started, it has ended, or it crashed and left its socket behind."""


#: Longest timeout of a socket, in seconds.
_LONGEST: Final = 86_400.0
#: Times to connect if the driver ends before its first answer: the owner of its device may just have ended
#: (`nnburst serve --exclusive`), and a client that comes again waits for the next owner.
_TRIES: Final = 3
#: Seconds between them.
_PAUSE: Final = 0.05


@dataclass(frozen=True)
class DeviceInfo:
    """Facts about a driver that is running. Immutable.

    Attributes:
        name: the name for `connect`.
        version_string: the driver's own version, opaque.
        type: kind of hardware.
        feature_level: the feature level of its protocol.
        address: path of its socket.
        capabilities: its speed, as the driver reports it.
        cache_files: numbers of files in which a compilation is cached.
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


def connect(
    name_or_path: str | Path,
    *,
    timeout: float = 30.0,
    any_user: bool = False,
    recover: Recover = False,
) -> Device:
    """Connect to a driver that is running.

    Args:
        name_or_path: name given to `nnburst serve`, or path of its socket.
        timeout: seconds until it must have answered.
        any_user: whether to accept a driver of another user.
        recover: whether to connect again when the driver has died, and prepare its models again; see
            `launch`.

    Returns:
        The device, which the caller closes; that does not end the driver.

    Raises:
        DeviceUnavailable: no driver serves there, it has no room for another client, belongs to another user,
            or speaks another version.
        InvalidArgument: the name, the timeout or `recover` is invalid.
        MissedDeadline: the driver does not answer.
    """
    seconds = check_timeout(timeout)
    kind: type[object] = type(name_or_path)
    if not issubclass(kind, str | os.PathLike):
        raise InvalidArgument(f"name_or_path: of type {kind.__name__}, expected a name or a path")
    if recover is not False:
        again = partial(connect, _lasting(str(name_or_path)), timeout=seconds, any_user=any_user)
        return recovering_device(again, recover)
    record_if_asked()
    with trace(Layer.RUNTIME, Phase.INITIALIZATION, "connect"):
        device = _connected(str(name_or_path), seconds, any_user=any_user)
    vlog.write("manager", "connected to %s: process %d", name_or_path, device.pid)
    return device


def _lasting(text: str) -> str:
    """The name, or the path from the root on unless that is too long for a socket."""
    found = lasting_path(text) if "/" in text else text
    return found if len(os.fsencode(found)) <= MAX_PATH_BYTES else text


def _connected(text: str, seconds: float, *, any_user: bool) -> Device:
    path = check_length(Path(text)) if "/" in text else socket_path(text)
    deadline, left, tries = time.monotonic() + seconds, seconds, 1
    while True:
        try:
            return _introduced(path, text, left, any_user=any_user)
        except DeadObject as error:
            if tries == _TRIES or time.monotonic() + _PAUSE >= deadline:
                raise DeviceUnavailable(
                    f"{path}: the driver closed the connection before its first answer"
                ) from error
        time.sleep(_PAUSE)
        left, tries = wait_left(deadline), tries + 1


def _introduced(path: Path, text: str, seconds: float, *, any_user: bool) -> Device:
    connected = _connect(path, seconds)
    owner = Channel(connected).peer.uid
    if owner != os.geteuid() and not any_user:
        connected.close()
        raise DeviceUnavailable(f"address: {path} is served by user {owner}")

    session: Session | None = None

    def ending() -> str:
        how = session.ending() if session else "has closed the connection or died"
        return f"the driver at {path} {how}"

    try:
        session = Session(connected, f"driver {text}", lambda: DriverDied(ending), timeout=seconds)
        return Device(session)
    except BaseException:
        if session is not None:
            session.close()
        raise


def _connect(path: Path, timeout: float) -> socket.socket:
    with Scarce(f"address: {path} cannot be connected to"):
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
    """List the drivers of this user that run and answer, sorted by name; others are left out.

    Args:
        timeout: seconds that each driver has to answer.

    Raises:
        InvalidArgument: the timeout is invalid.
        DeviceUnavailable: users other than this one can enter the directory of the drivers.
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


class Health(NamedTuple):
    """The result of a check of a driver's health.

    Attributes:
        healthy: whether every step succeeded.
        detail: the steps that were made, or the failure.
        seconds: duration of the check.
        running: whether a driver listens at all. If it does not, its socket may be left over from a crash:
            the next driver of that name replaces it.
    """

    healthy: bool
    detail: str
    seconds: float
    running: bool = True

    @property
    def state(self) -> str:
        """The health in at most two words."""
        return "healthy" if self.healthy else "failed" if self.running else "not running"


def check_health(connect: Callable[[], Device], *, timeout: float = 5.0) -> Health:
    """Check a driver's health by using it as a client would.

    This checks the worker, not only the supervisor: a worker is forked for this client, loads the executor,
    prepares x + x and executes it by a burst. A device that does not support ADD is only asked which
    operations it supports. The result is not compared, since the null executor computes nothing.

    Args:
        connect: makes the connection, which is closed again.
        timeout: seconds for each step.
    """
    began = time.monotonic()
    try:
        with connect() as device:
            detail = _use(device, timeout)
    except NnburstError as error:
        running = not isinstance(error, NotRunning)
        detail = f"{type(error).__name__}: {error}"
        return Health(False, detail, time.monotonic() - began, running)
    return Health(True, detail, time.monotonic() - began)


def _use(device: Device, timeout: float) -> str:
    model = _model()
    if not all(device.supported_operations(model, timeout=timeout)):
        return "answers; does not support ADD, so nothing was executed"
    x = np.arange(4, dtype=np.float32)
    with device.prepare(model, timeout=timeout) as prepared, prepared.open_burst() as burst:
        burst.execute([x], timeout=timeout)
    return "prepared a model and executed it by a burst"


def _model() -> Model:
    """Build a model that computes x + x."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x, y = builder.input(kind, (4,)), builder.output(kind, (4,))
    none = builder.scalar(int(FusedActivationFunc.NONE))
    builder.operation(OperationType.ADD, [x, x, none], [y])
    return builder.build()
