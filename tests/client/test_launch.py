from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from descriptors import descriptors
from faults.processes import stop
from nnburst import DeadObject, Device, DeviceType, DeviceUnavailable, MissedDeadline, Model
from nnburst.client.session.handshake import Session
from nnburst.control.channel import Channel, Fds
from nnburst.control.connection import _Waiting
from nnburst.control.messages import PROTOCOL_VERSION, Hello, Reply, Welcome, decode_call, encode
from nnburst.testing.faults.footprint import is_running
from waiting import wait_for

A = np.zeros((2, 3), np.float32)


def test_device_reports_what_it_is(own_device: Device) -> None:
    assert own_device.name == "null"
    assert own_device.type == DeviceType.CPU
    assert own_device.version_string
    assert own_device.pid != os.getpid()
    assert own_device.is_alive
    assert str(own_device.pid) in repr(own_device)


def test_closing_the_device_ends_its_driver() -> None:
    device = nnburst.launch("null")
    pid = device.pid
    device.close()
    assert not is_running(pid)


def test_dropping_the_device_ends_its_driver() -> None:
    device = nnburst.launch("null")
    pid = device.pid
    del device
    wait_for(lambda: not is_running(pid))


def test_driver_runs_on_the_cores_it_was_given() -> None:
    core = max(os.sched_getaffinity(0))
    with nnburst.launch("null", cpus=[core]) as device:
        assert os.sched_getaffinity(device.pid) == {core}


def test_environment_reaches_the_driver() -> None:
    with nnburst.launch("null", env={"NNBURST_TEST": "yes"}) as device:
        environment = Path(f"/proc/{device.pid}/environ").read_bytes().split(b"\0")
    assert b"NNBURST_TEST=yes" in environment


def test_no_thread_or_descriptor_outlives_the_device() -> None:
    nnburst.launch("null").close()
    threads, fds = threading.active_count(), descriptors()
    for _ in range(3):
        nnburst.launch("null").close()
    assert threading.active_count() <= threads  # those of earlier tests may have ended meanwhile
    assert descriptors() <= fds


def test_client_killed_takes_its_driver_along() -> None:
    code = (
        "import nnburst, sys, time\n"
        "device = nnburst.launch('null')\n"
        "print(device.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    assert client.stdin is not None
    driver = int(client.stdout.readline())
    client.kill()
    client.wait(timeout=10)
    wait_for(lambda: not is_running(driver), 1.0)
    client.stdout.close()
    client.stdin.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_dead_object_names_the_signal(
    own_device: Device, make_model: Callable[..., Model], number: signal.Signals
) -> None:
    prepared = own_device.prepare(make_model())
    os.kill(own_device.pid, number)
    with pytest.raises(DeadObject, match=f"was killed by {number.name}"):
        prepared.execute([A, A])
    with pytest.raises(DeadObject):
        own_device.prepare(make_model())
    assert not own_device.is_alive
    prepared.close()


def test_call_in_progress_ends_with_dead_object(
    own_device: Device, make_model: Callable[..., Model]
) -> None:
    prepared = own_device.prepare(make_model())
    stop(own_device.pid)
    killer = threading.Thread(target=os.kill, args=(own_device.pid, signal.SIGKILL))
    caught: list[BaseException] = []

    def caller() -> None:
        try:
            prepared.execute([A, A], timeout=20)
        except DeadObject as error:
            caught.append(error)

    thread = threading.Thread(target=caller)
    thread.start()
    killer.start()
    thread.join(timeout=10)
    killer.join(timeout=10)
    assert len(caught) == 1


def test_stopped_driver_is_slow_and_not_dead(
    own_device: Device, make_model: Callable[..., Model]
) -> None:
    prepared = own_device.prepare(make_model())
    stop(own_device.pid)
    with pytest.raises(MissedDeadline, match="did not answer ExecuteSynchronously"):
        prepared.execute([A, A], timeout=0.05)
    os.kill(own_device.pid, signal.SIGCONT)
    assert prepared.execute([A, A]).outputs[0].shape == (2, 3)


def test_interrupt_leaves_the_model_usable(
    own_device: Device, make_model: Callable[..., Model]
) -> None:
    prepared = own_device.prepare(make_model())
    stop(own_device.pid)

    def interrupt() -> None:
        # The answer to what launched the preparation may still be on its way: that is no wait.
        calls = own_device._session.connection._pending
        wait_for(lambda: any(isinstance(call, _Waiting) for call in list(calls.values())))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # If the tests run in the background of a shell, the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            prepared.execute([A, A], timeout=20)
        thread.join(timeout=10)
    finally:
        signal.signal(signal.SIGINT, before)
    os.kill(own_device.pid, signal.SIGCONT)
    assert prepared.execute([A, A]).outputs[0].shape == (2, 3)


def test_death_is_notified_once_without_a_call(own_device: Device) -> None:
    told = threading.Semaphore(0)
    own_device.on_death(lambda: told.release())
    forgotten = lambda: pytest.fail("forgotten")  # noqa: E731
    own_device.on_death(forgotten)
    own_device.remove_callback(forgotten)
    os.kill(own_device.pid, signal.SIGKILL)
    assert told.acquire(timeout=60)
    assert not told.acquire(blocking=False)
    own_device.on_death(lambda: told.release())
    assert told.acquire(blocking=False)


def test_driver_that_cannot_start_is_reported_with_its_last_lines() -> None:
    with pytest.raises(
        DeviceUnavailable, match=r"exit status 1(.|\n)*NNBURST_LOG is 'ODD', expected DEBUG"
    ):
        nnburst.launch("null", env={"NNBURST_LOG": "ODD"})


@pytest.mark.parametrize("executor", ["", None, 3, b"null"])
def test_executor_that_is_no_name_is_refused_before_a_process_starts(executor: Any) -> None:
    with pytest.raises(nnburst.InvalidArgument, match=r"^executor: .*, expected a name"):
        nnburst.launch(executor)


def test_executor_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(DeviceUnavailable, match=r"'no\.such:Thing' cannot be imported"):
        nnburst.launch("no.such:Thing")


def test_driver_that_does_not_start_in_time_is_killed_at_the_deadline(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    )
    began = time.monotonic()
    with pytest.raises(MissedDeadline, match="did not answer Hello"):
        nnburst.launch("hangs:executor", env={"PYTHONPATH": str(tmp_path)}, timeout=1.0)
    assert time.monotonic() - began < 3


def answer_hello(peer: socket.socket, welcome: Welcome) -> threading.Thread:
    def answer() -> None:
        channel = Channel(peer)
        incoming = channel.receive(timeout=10)
        assert isinstance(decode_call(incoming.body), Hello)
        incoming.fds.close()
        with Fds([os.pidfd_open(os.getpid())]) as fds:
            channel.send(incoming.id, encode(Reply(result=welcome)), list(fds))

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("protocol", "level", "message"),
    [
        (99, 8, f"speaks protocol 99, expected {PROTOCOL_VERSION}"),
        (PROTOCOL_VERSION, 2, "is of feature level 2, expected 3 to 8"),
        (PROTOCOL_VERSION, 9, "is of feature level 9, expected 3 to 8"),
    ],
)
def test_driver_of_another_feature_level_is_refused(
    protocol: int, level: int, message: str
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    welcome = Welcome(protocol, level, "odd", "1", DeviceType.CPU, os.getpid())
    thread = answer_hello(theirs, welcome)
    with pytest.raises(DeviceUnavailable, match=message):
        Session(ours, "driver odd", lambda: DeadObject("gone"), timeout=10)
    thread.join(timeout=10)
    theirs.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_device_does_not_work_in_a_forked_child(own_device: Device) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            own_device.allocate(1)
        except nnburst.Closed as error:
            os.write(write, str(error).encode())
        own_device.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "which forked" in pipe.read()
    os.waitpid(pid, 0)
    assert own_device.is_alive
    own_device.allocate(1).close()


@pytest.mark.parametrize(
    "module", ["nnburst", "nnburst.driver.service.main", "nnburst.cli", "nnburst.cli.serve"]
)
def test_importing_the_package_or_what_starts_a_driver_imports_nothing_heavy(
    module: str,
) -> None:
    code = f"import sys, {module}; print('numpy' in sys.modules, 'msgspec' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.split() == ["False", "False"]


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in nnburst.__all__ if not hasattr(nnburst, name)]
    assert not missing
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = nnburst.nonesuch  # type: ignore[attr-defined]


@pytest.mark.parametrize(("attribute", "value"), [("platform", "darwin"), ("byteorder", "big")])
def test_machine_that_cannot_run_it_gets_a_clear_import_error(attribute: str, value: str) -> None:
    code = (
        f"import sys; sys.{attribute} = {value!r}\n"
        "try:\n    import nnburst\nexcept ImportError as error:\n    print(error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.startswith("nnburst needs ")


def test_driver_waits_for_its_children_although_its_client_ignores_its_own() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with nnburst.launch("null") as device:
            lines = Path(f"/proc/{device.pid}/status").read_text().splitlines()
    finally:
        signal.signal(signal.SIGCHLD, before)
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
    assert not ignored & 1 << (signal.SIGCHLD - 1)


def test_driver_starts_without_the_inherited_descriptors_beyond_a_limit_that_was_lowered() -> None:
    code = (
        "import nnburst, os, resource\n"
        "read, write = os.pipe()\n"
        "for number in (150, 251):\n"
        "    os.dup2(write, number, inheritable=True)\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))\n"
        "with nnburst.launch('null') as device:\n"
        "    device.supported_extensions()\n"
        "    for number in (150, 251, write):\n"
        "        os.close(number)\n"
        "    print(os.read(read, 1))\n"  # at once, since the driver holds no end
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout == "b''\n"


def test_program_that_cannot_be_started_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nnburst.client.launch.python_command", lambda *words: ["/none", *words])
    with pytest.raises(DeviceUnavailable, match=r"^null: .*started: .*No such file.*'/none'"):
        nnburst.launch("null")


@pytest.mark.parametrize("recover", [False, "wait"])
@pytest.mark.parametrize(
    "options",
    [{"extensions": "package:NAME"}, {"device_nodes": "/dev/null"}, {"cpus": 3}, {"cpus": "0"}],
    ids=str,
)
def test_one_thing_for_a_list_is_refused_before_a_process_starts(
    options: dict[str, Any], recover: Any
) -> None:
    with pytest.raises(
        nnburst.InvalidArgument, match=rf"^{next(iter(options))}: .*expected a list"
    ):
        nnburst.launch("null", recover=recover, **options)


@pytest.mark.parametrize("recover", [False, "wait"])
@pytest.mark.parametrize("name", ["env", "options"])
@pytest.mark.parametrize("given", [3, "HOME", {"HOME": 3}, {3: "x"}, {"HOME": "a\0b"}], ids=repr)
def test_what_is_no_mapping_of_texts_is_refused_before_a_process_starts(
    name: str, given: Any, recover: Any
) -> None:
    with pytest.raises(nnburst.InvalidArgument, match=rf"^{name}: .*expected a mapping of texts"):
        nnburst.launch("null", recover=recover, **{name: given})


@pytest.mark.parametrize("recover", [False, "wait"])
@pytest.mark.parametrize("name", ["env", "options"])
@pytest.mark.parametrize("key", ["", "=", "HOME=x"])
def test_what_is_no_name_for_a_text_is_refused_before_a_process_starts(
    name: str, key: str, recover: Any
) -> None:
    with pytest.raises(nnburst.InvalidArgument, match=rf"^{name}: '{key}', expected a name"):
        nnburst.launch("null", recover=recover, **{name: {key: "5"}})
