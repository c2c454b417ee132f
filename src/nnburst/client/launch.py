"""Starts a driver for one client; the driver has no public name and ends with its client."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import nnburst
from nnburst.client.arguments import check_timeout
from nnburst.client.burst.interface import Recover
from nnburst.client.device import Device, recovering_device
from nnburst.client.session.handshake import Session
from nnburst.client.session.process import Child, DriverDied, DriverProcess, Pipe
from nnburst.hal import vlog
from nnburst.hal.environment import warn_of_unknown_names
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument, MissedDeadline
from nnburst.hal.utils import (
    AUTO,
    Scarce,
    check_integers,
    check_path,
    chosen_executor,
    device_name,
    driver_environment,
    executor_library,
    is_text,
    listed,
    python_command,
)
from nnburst.tracing.recording import record_if_asked
from nnburst.tracing.slices import Layer, Phase, trace

#: The driver's end of the socket, in the driver.
_THEIR_FD: Final = 3


def launch(
    executor: str = AUTO,
    *,
    name: str | None = None,
    cpus: Iterable[int] | None = None,
    extensions: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    options: Mapping[str, str] | None = None,
    device_nodes: Iterable[str | os.PathLike[str]] = (),
    recover: Recover = False,
) -> Device:
    """Start a driver process and connect to it.

    Args:
        executor: "auto" for the best one that is installed ("litert", else "onnxruntime", else "reference"),
            one of these, "null", a name of the entry-point group `nnburst.executors`, `module:attribute`, or
            the path of a shared library, such as "./libfoo.so" (nnburst/executor.h).
        name: the device's name, by which its file of capabilities is found; the executor's unless given.
        cpus: numbers of the cores that the driver may run on; those of this process unless given.
        extensions: vendor extensions to serve beside those of entry points, each as `module:attribute`.
        env: variables to set or change in the driver's environment.
        timeout: seconds until it must have answered.
        options: options for opening the executor: one in a shared library, openvino, or litert and
            onnxruntime for plugins of vendors (docs/vendor_plugins.md). A path among them is read from the
            working directory of each start.
        device_nodes: paths of device nodes that the sandbox lets the driver open for writing.
        recover: whether to restart the driver when it has died, prepare again the models of `prepare`, and
            open their bursts again; a thread of the client does that at once, or at the next call if the
            driver died within a second of its start. An execution during which the driver died raises
            DeadObject once and is never repeated. Other calls meanwhile wait for the new driver as long as
            their timeouts permit ("wait", or True), or raise DeadObject at once ("raise"). With "wait" a
            program has one error to handle for each death; "raise" is for loops that have other work to do
            until then. An event loop is never blocked. Pools outlive the driver; buffers, and objects of
            other ways to prepare and to execute, do not.

    Returns:
        The device, which the caller closes; that ends the driver. Keep it while its models and bursts are
        used: a device that is collected is closed, too.

    Raises:
        DeviceUnavailable: the driver does not start; the message has the reason, or the last lines of its
            log.
        ResourceExhausted: this process may have no more descriptors, threads or children.
        InvalidArgument: `executor`, `cpus`, `extensions`, `env`, `options`, `device_nodes`, `timeout` or
            `recover` is invalid.
        MissedDeadline: the driver does not answer.
    """
    executor, seconds = chosen_executor(executor), check_timeout(timeout)
    cpus = None if cpus is None else check_integers("cpus", cpus)
    extensions = listed("extensions", extensions)
    device_nodes = listed("device_nodes", device_nodes)
    for what, given in (("extensions", extensions), ("device_nodes", device_nodes)):
        for at, word in enumerate(given):
            check_path(f"{what}[{at}]", word)
    name = check_path("name", name or device_name(executor))
    variables, options = _texts("env", env), _texts("options", options)
    if recover is not False:
        library = executor_library(executor)
        again = partial(
            launch,
            executor if library is None else str(library),
            name=name,
            cpus=cpus,
            extensions=extensions,
            env=variables,
            timeout=seconds,
            options=options,
            device_nodes=device_nodes,
        )
        return recovering_device(again, recover)
    warn_of_unknown_names()
    record_if_asked()
    with trace(Layer.RUNTIME, Phase.INITIALIZATION, "launch"):
        words = _words(executor, name, cpus, extensions)
        for key, value in options.items():
            words += ["--option", f"{key}={value}"]
        for node in device_nodes:
            words += ["--device-node", os.fspath(node)]
        device = _launch(words, name, variables, seconds)
    vlog.write("manager", "launched a driver of %s: process %d", executor, device.pid)
    return device


def _texts(what: str, given: Mapping[str, str] | None) -> dict[str, str]:
    found = {} if given is None else given
    texts = [each for pair in found.items() for each in pair] if isinstance(found, Mapping) else [0]
    if not all(map(is_text, texts)):
        raise InvalidArgument(f"{what}: {given!r}, expected a mapping of texts to texts")
    for key in found:
        if not key or "=" in key:
            raise InvalidArgument(
                f"{what}: {key!r}, expected a name that is not empty and has no ="
            )
    return dict(found)


def _words(
    executor: str, name: str, cpus: Iterable[int] | None, extensions: Iterable[str]
) -> list[str]:
    words = ["--executor", executor, "--name", name]
    if cpus is not None:
        words += ["--cpus", _cores(cpus)]
    for extension in extensions:
        words += ["--extension", extension]
    return words


def _launch(words: Sequence[str], name: str, env: Mapping[str, str], seconds: float) -> Device:
    # A path instead of `-m`, which imports ten modules; -P keeps the file's folder out of the search path.
    file = Path(nnburst.__file__).with_name("driver") / "__main__.py"
    command = python_command(str(file), *words)
    scarce = Scarce(f"{name}: a driver cannot be started")
    with scarce:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process: DriverProcess | None = None
        session: Session | None = None
        try:
            try:
                with theirs, scarce:
                    process = _start([*command, "--fd", str(_THEIR_FD)], theirs.fileno(), env)
            except OSError as error:
                raise DeviceUnavailable(f"{name}: a driver cannot be started: {error}") from error
            # Import this now, while the driver starts; it is needed later.
            importlib.import_module("nnburst.client.burst.burst")
            session = Session(
                ours, f"driver {name}", lambda: DriverDied(process.ending), timeout=seconds
            )
            return Device(session, process)
        except BaseException as error:
            if session is not None:
                session.close()
            ours.close()  # the session may not have got as far as closing it
            if process is not None:
                if isinstance(error, MissedDeadline):
                    process.kill()  # there is no time left in which it may end by itself
                process.close()
                if isinstance(error, DeadObject):
                    raise DeviceUnavailable(f"{name}: {process.ending()}") from None
            raise


def _cores(cpus: Iterable[int]) -> str:
    wanted, allowed = sorted(set(cpus)), os.sched_getaffinity(0)
    if not wanted or not allowed.issuperset(wanted):
        raise InvalidArgument(f"cpus: {wanted}, expected some of {sorted(allowed)}")
    return ",".join(map(str, wanted))


def _start(command: list[str], fd: int, env: Mapping[str, str]) -> DriverProcess:
    process = Child()
    try:
        with (
            Path(os.devnull).open("r+b", buffering=0) as nothing,
            Pipe() as pipe,
        ):
            streams = {0: nothing.fileno(), 1: nothing.fileno(), 2: pipe.write, _THEIR_FD: fd}
            process.start(command, streams, {**driver_environment(), **env})
            return DriverProcess(process, pipe.reader())
    except BaseException:
        process.close()
        raise
