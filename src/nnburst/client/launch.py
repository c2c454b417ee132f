"""Starting a driver of one's own: nothing has a name, and it ends with its client."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

import nnburst
from nnburst.client.device import Device
from nnburst.client.memory.arguments import check_timeout
from nnburst.client.session.ending import DriverDied
from nnburst.client.session.handshake import Session
from nnburst.client.session.process import DriverProcess
from nnburst.hal.diagnostics import vlog
from nnburst.hal.environment import warn_of_unknown_names
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument
from nnburst.hal.process.interpreter import interpreter
from nnburst.tracing.recording import record_if_asked
from nnburst.tracing.slices import Layer, Phase, trace


def launch(
    executor: str = "reference",
    *,
    name: str | None = None,
    cpus: Iterable[int] | None = None,
    extensions: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> Device:
    """Start a driver process and connect to it.

    Args:
        executor: "litert", "null", "reference", a name of the entry-point group `nnburst.executors`, or
            `module:attribute`.
        name: of the device, by which a file of capabilities is looked for; the executor's unless given.
        cpus: numbers of the cores that the driver may run on; those of this process unless given.
        extensions: vendor extensions to serve beside those of entry points, each as `module:attribute`.
        env: variables to set or change in the driver's environment.
        timeout: seconds until it must have answered.

    Returns:
        The device, which the caller closes; that ends the driver.

    Raises:
        DeviceUnavailable: the driver does not start; the message has its last lines.
        InvalidArgument: `cpus` or `timeout` make no sense.
        MissedDeadline: the driver does not answer.
    """
    seconds = check_timeout(timeout)
    warn_of_unknown_names()
    record_if_asked()
    with trace(Layer.RUNTIME, Phase.INITIALIZATION, "launch"):
        device = _launch(executor, name or executor, cpus, extensions, env, seconds)
    vlog.write("manager", "launched a driver of %s: process %d", executor, device.pid)
    return device


def _launch(
    executor: str,
    name: str,
    cpus: Iterable[int] | None,
    extensions: Iterable[str],
    env: Mapping[str, str] | None,
    seconds: float,
) -> Device:
    # Python imports ten modules to find what `-m` names; the folder of a file must not be searched then (-P).
    file = Path(nnburst.__file__).with_name("driver") / "__main__.py"
    command = [interpreter(), "-P", str(file), "--executor", executor, "--name", name]
    if cpus is not None:
        command += ["--cpus", _cores(cpus)]
    for extension in extensions:
        command += ["--extension", extension]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            process = _start([*command, "--fd", str(theirs.fileno())], theirs.fileno(), env)
        except BaseException:
            ours.close()
            raise
    # Needed later, and the driver is not there yet.
    importlib.import_module("nnburst.client.burst.burst")
    try:
        session = Session(
            ours, f"driver {name}", lambda: DriverDied(process.ending), timeout=seconds
        )
    except DeadObject:
        process.close()
        raise DeviceUnavailable(f"{name}: {process.ending()}") from None
    except BaseException:
        process.close()
        raise
    return Device(session, process)


def _cores(cpus: Iterable[int]) -> str:
    wanted, allowed = sorted(set(cpus)), os.sched_getaffinity(0)
    if not wanted or not allowed.issuperset(wanted):
        raise InvalidArgument(f"cpus: {wanted}, expected some of {sorted(allowed)}")
    return ",".join(map(str, wanted))


def _start(command: list[str], fd: int, env: Mapping[str, str] | None) -> DriverProcess:
    return DriverProcess(
        subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
            command,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**driver_environment(), **(env or {})},
        )
    )


def driver_environment() -> dict[str, str]:
    """This process's environment, such that a driver finds this very package and no other."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    root = str(Path(nnburst.__file__).parent.parent)
    if root not in sysconfig.get_paths().values():
        others = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{others}" if others else root
    return environment
