"""Accepts clients, forks a worker for each, and keeps some ready in advance.

The supervisor imports the large modules once; workers share them copy-on-write and start within milliseconds.
It keeps two spare workers, forked in advance, so that neither a single client nor one right after it waits
for a worker's start. A fork copies only the calling thread, so this process never starts a second thread.

A spare worker has its limits, its sandbox and its executor, but no client yet. The supervisor checks a client
and sends the client's socket to the worker, over a socketpair whose other end only the supervisor has. The
worker shuts that direction down when it is ready.

The service announces itself, accepts clients and starts its front when the first spare worker has reported,
over its pair, that its executor was made. If it cannot be made, the service ends with the reason.

If systemd has started the driver, it is notified when the driver is ready, regularly while it runs, and when
it stops (sd_notify's protocol; no library is needed).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from nnburst._native import lib
from nnburst.control.address import Listener
from nnburst.control.counts import ServiceCounts
from nnburst.driver.counters import CounterBook, CounterPage
from nnburst.driver.executors import import_executor
from nnburst.driver.served_models import ServedNetwork
from nnburst.driver.service.child_supervisors import (
    Fork,
    FrontSupervisor,
    OwnerSupervisor,
    WeightsSupervisor,
)
from nnburst.driver.service.worker import Admission, Waiting, serve_client
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.environment import EMULATED
from nnburst.hal.errors import DeviceUnavailable, ResourceExhausted
from nnburst.hal.peer import receive_fds, unix_peer
from nnburst.hal.utils import is_readable, polled

# -- spare workers ---------------------------------------------------------------------------------


#: Most bytes of the names that are sent with a worker's sockets.
_NAMES_BYTES: Final = len(",".join(Admission._fields))
#: A worker's report that its executor was made, or is only to be made for a client.
_MADE: Final = b"\0"
#: Most bytes of a report that are read.
_REPORT_BYTES: Final = 4096


class SpareWorker:
    """A worker without a client, as the supervisor sees it. Not thread-safe.

    Attributes:
        pid: number of the worker's process.
        is_ready: whether it has reported that it is ready for a client.
        has_executor: whether it has reported its executor, or the reason why that cannot be made.
        keeper: number of the process that it asks for weights, as the service's user; 0 if none.
    """

    def __init__(self, pid: int, pair: socket.socket, keeper: int = 0) -> None:
        """Own `pair`; at its other end, process `pid` waits for its client."""
        self.pid = pid
        self.keeper = keeper
        self.is_ready = self.has_executor = False
        self._pair = pair

    def fileno(self) -> int:
        """The pair's descriptor: at its end when the worker is ready, hung up when the worker has ended."""
        return self._pair.fileno()

    def read_report(self) -> str | None:
        """The reason why the worker cannot make its executor; empty if it was made, None without a report.

        Raises:
            OSError: it cannot be read now, for example because memory is short.
        """
        report = self._pair.recv(_REPORT_BYTES, socket.MSG_DONTWAIT)
        if report in (b"", _MADE):
            return "" if report else None
        return report.decode(errors="replace")

    def give(self, admission: Admission) -> bool:
        """Send the worker a client; False if the worker has ended. Closes the pair, but no given socket."""
        with self._pair as pair:
            given = {
                name: one.fileno() for name, one in admission._asdict().items() if one is not None
            }
            try:
                socket.send_fds(
                    pair,
                    [",".join(given).encode()],
                    list(given.values()),
                    socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
                )
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Close the pair, which ends the worker. Twice is fine."""
        self._pair.close()


def _report_to(pair: socket.socket) -> Callable[[str], None]:
    """A function that sends, from a worker, the reason why it cannot make its executor; empty if it was made.

    The supervisor must read it before it closes its end, or the worker would lose what was sent to it.
    """

    def report(reason: str) -> None:
        words = reason.encode(errors="replace")[:_REPORT_BYTES] or _MADE
        with contextlib.suppress(OSError):  # the supervisor has ended; so will this process
            pair.send(words, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    return report


def _log_failure(reason: str) -> None:
    if reason:
        logger.warning(
            "a worker cannot make its executor, which is made again for its client: %s", reason
        )


def await_client(pair: socket.socket, supervisors: socket.socket) -> Admission:
    """Wait, in the worker, for the sockets of a client; if the pair is closed instead, end the process.

    Args:
        pair: this worker's end; closed here.
        supervisors: the supervisor's end, which the fork has copied; closed first.
    """
    supervisors.close()
    with pair:
        pair.shutdown(socket.SHUT_WR)
        try:
            names, fds, _ = receive_fds(pair, _NAMES_BYTES, len(Admission._fields))
        except ConnectionResetError:  # the supervisor has ended before it read the report
            names, fds = b"", []
    if not fds:
        os._exit(0)
    given = zip(names.decode().split(","), fds, strict=True)
    return Admission(**{name: socket.socket(fileno=fd) for name, fd in given})


# -- systemd ---------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that started this process, if it wants notifications of the state."""

    def __init__(self) -> None:
        """Find it in the environment, and remove its variables, so that no child process inherits them."""
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        period = os.environ.pop("WATCHDOG_USEC", "")
        wanted = os.environ.pop("WATCHDOG_PID", str(os.getpid()))
        #: Longest time in seconds between two notifications that it expects; None if it expects none.
        self.patience: float | None = None
        if self._address and period.isdecimal() and wanted == str(os.getpid()):
            self.patience = int(period) / 1e6

    def ready(self, status: str) -> None:
        """Notify that clients can connect."""
        self._tell(f"READY=1\nSTATUS={status}")

    def alive(self, status: str) -> None:
        """Notify that the service still runs; due within `patience`."""
        self._tell(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        """Notify that the service ends in good order."""
        self._tell("STOPPING=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
                manager.sendto(text.encode(), address)
        except OSError as error:
            logger.warning("cannot notify the service manager, and goes on without: %s", error)


# -- supervisor ------------------------------------------------------------------------------------


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
#: Names in `ps` of this process, and of a worker that has no client yet.
_SUPERVISOR: Final = b"nnburst driver"
_SPARE: Final = b"nnburst spare"
#: Names of the process that keeps packed weights, and of the one that owns the device.
_KEEPER: Final = b"nnburst weights"
_OWNER: Final = b"nnburst owner"
#: Most clients served at once; more are refused until one leaves.
MAX_WORKERS: Final = 256
#: Most clients of one process, or of one other user.
MAX_WORKERS_OF_ONE: Final = 64
#: Seconds that workers have to end after SIGTERM.
_GRACE: Final = 1.0
#: Seconds that the kernel has to end a killed worker.
_LAST_GRACE: Final = 0.5
#: Seconds without accepting after a connection could not be accepted: it stays in the backlog, and trying
#: again at once would use a whole core.
_PAUSE: Final = 0.1
#: Milliseconds without an event after which the next spare worker is forked, without a spare and with one: so
#: the fork slows down neither the latest client nor one right after it.
_CALM: Final = (5, 50)


class Supervisor:
    """Owns a listener, and runs a worker for each of its connections."""

    _receiver: socket.socket
    _wake: socket.socket

    def __init__(
        self,
        listener: Listener,
        executor: str,
        name: str,
        *,
        any_user: bool = False,
        front: FrontSupervisor | None = None,
        until_stdin_ends: bool = False,
        weights: WeightsSupervisor | None = None,
        owner: OwnerSupervisor | None = None,
        networks: Sequence[ServedNetwork] = (),
    ) -> None:
        """Prepare to serve.

        Args:
            listener: accepts clients; owned from here on.
            executor: name of the executor of every worker.
            name: the device's name.
            any_user: whether to serve clients of other users, too.
            front: runs the front for other protocols, if any.
            until_stdin_ends: whether to stop when standard input ends.
            weights: runs the process by which clients share packed weights; None if each worker packs.
            owner: runs the process that owns the device of all workers; None if each worker opens it.
            networks: the networks to serve by name.
        """
        self._listener = listener
        self._front = front
        self._weights = weights
        self._owner = owner
        self._networks = networks
        self._executor = executor
        self._name = name
        self._any_user = any_user
        self._until_stdin_ends = until_stdin_ends
        self._manager = ServiceManager()
        #: Workers by number, and their clients: "pid 7", or "user 7" for another user.
        self._workers: dict[int, str] = {}
        #: Spare workers, the oldest first.
        self._spares: list[SpareWorker] = []
        self._poller = select.poll()
        #: Whether clients are accepted, as an executor can be made; the reason why none can be.
        self._is_open = False
        self._refusal = ""
        #: Whether no spare is forked until a client comes, since the latest spare ended by itself.
        self._spare_failed = False
        self._failures = 0
        self._counters = CounterBook()
        self._stop = False
        self._interrupted = False

    def prepare(self) -> None:
        """Import the modules that workers need, and handle signals from here on.

        Raises:
            DeviceUnavailable: the executor is unknown, or cannot be imported.
            RuntimeError: the process has more than one thread.
        """
        lib.nnb_set_thread_name(_SUPERVISOR)
        self._warm_up()
        self._receiver, self._wake = socket.socketpair()
        self._receiver.setblocking(False)
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # by nohup
            signal.signal(number, self._on_signal)
        for side, fork in self._sides():
            side.start(fork)

    def _sides(self) -> list[tuple[WeightsSupervisor | OwnerSupervisor, Fork]]:
        """The supervisors of the processes beside the workers, each with the function that forks for it."""
        found: list[tuple[WeightsSupervisor | OwnerSupervisor, Fork]] = []
        if self._weights is not None:
            found.append((self._weights, lambda become: self._fork(become, _KEEPER)))
        if self._owner is not None:
            found.append((self._owner, lambda become: self._fork(become, _OWNER)))
        return found

    def run(self, announce: Callable[[], None]) -> bool:
        """Serve until SIGTERM, SIGINT or SIGHUP; then end the workers and release the name.

        Args:
            announce: called when clients are accepted from now on.

        Returns:
            Whether it was SIGINT.

        Raises:
            DeviceUnavailable: the first worker cannot make its executor.
        """
        self._poller.register(self._receiver, select.POLLIN)
        if self._front is not None:
            self._poller.register(self._front.questions, select.POLLIN)
        if self._until_stdin_ends:
            self._poller.register(sys.stdin.fileno(), select.POLLIN)
        patience = self._manager.patience
        while not self._stop and not self._refusal:
            if self._front is not None and self._is_open:
                self._front.tend()
            calm = self._calm()
            events = polled(self._poller, self._longest_wait() if calm is None else calm)
            for fd, event in events:
                if fd == self._receiver.fileno():
                    self._drain()
                elif self._until_stdin_ends and fd == sys.stdin.fileno():
                    self._stop = not os.read(fd, 4096)
                elif self._front is not None and fd == self._front.questions.fileno():
                    if self._front.answer(self._counts):
                        self._manager.ready(self._status())
                elif fd == self._listener.socket.fileno():
                    self._accept()
                else:
                    self._look_at_spare(fd, event)
            self._reap()
            for side, fork in self._sides():
                side.tend(fork)
            if calm is not None and not events:
                self._fork_spare()
            if not self._is_open and not self._refusal and self._has_tried():
                self._open(announce)
            if patience is not None and self._is_open:
                self._manager.alive(self._status())
        self._manager.stopping()
        self._close()
        if self._refusal and not self._stop:
            raise DeviceUnavailable(self._refusal)
        return self._interrupted

    def _has_tried(self) -> bool:
        """Whether the first spare worker has made its executor; true as well if none could be forked."""
        return self._spare_failed or any(spare.has_executor for spare in self._spares)

    def _open(self, announce: Callable[[], None]) -> None:
        self._is_open = True
        self._poller.register(self._listener.socket, select.POLLIN)
        announce()
        if self._front is None:  # else it is ready when the front's ports listen
            self._manager.ready(self._status())

    def _longest_wait(self) -> float | None:
        """Milliseconds until the watchdog or the start of a process is due; None if neither is."""
        starts = [side.patience for side, _ in self._sides()]
        if self._front is not None and self._is_open:
            starts.append(self._front.patience)
        waits = [seconds * 1000 + 1 for seconds in starts if seconds is not None]
        if self._manager.patience is not None:
            waits.append(self._manager.patience * 500)  # half the time that the watchdog gives
        return min(waits, default=None)

    def _status(self) -> str:
        """The status of the service, for its administrator."""
        ended = f", {self._failures} workers have failed" if self._failures else ""
        return f"{self._executor} serves {len(self._workers)} clients{ended}"

    def _counts(self) -> ServiceCounts:
        restarts = self._front.restarts if self._front is not None else 0
        return self._counters.counts(len(self._workers), self._failures, restarts)

    def _warm_up(self) -> None:
        import_executor(self._executor)
        others = _other_threads()
        if len(others) > EMULATED.read():
            raise RuntimeError(
                f"threads besides the first one before forking: {', '.join(others)}, expected none;"
                " a profiler or the executor's import may have started them"
            )
        gc.collect()
        gc.freeze()  # a collection in a worker then leaves the shared pages alone
        gc.enable()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._stop = self._stop or number != signal.SIGCHLD
        self._interrupted = self._interrupted or number == signal.SIGINT

    def _drain(self) -> None:
        try:
            self._receiver.recv(4096)
        except OSError:
            pass  # nothing is there, or memory is short: the loop looks at everything anyway

    def _accept(self) -> None:
        try:
            connected = self._listener.accept()
        except OSError as error:
            logger.warning("a connection was lost while it was accepted: %s", error)
            self._rest(_PAUSE)
            return
        with connected:  # the worker has its own copy
            peer = unix_peer(connected)
            stranger = peer.uid != os.geteuid()
            whose = f"user {peer.uid}" if stranger else f"pid {peer.pid}"
            if stranger and not self._any_user:
                logger.warning(
                    "refused pid %d: it is of user %d, not the driver's own", peer.pid, peer.uid
                )
            elif len(self._workers) >= MAX_WORKERS:
                logger.warning(
                    "refused pid %d: %d clients are served, as many as may be",
                    peer.pid,
                    MAX_WORKERS,
                )
            elif list(self._workers.values()).count(whose) >= MAX_WORKERS_OF_ONE:
                logger.warning(
                    "refused %s: it has %d workers, as many as it may", whose, MAX_WORKERS_OF_ONE
                )
            else:
                self._serve(connected, peer.uid, whose)

    def _serve(self, connected: socket.socket, user: int, whose: str) -> None:
        weights = None if self._spare_has_weights(user) else self._admit_to_weights(user)
        owner = None if self._owner is None else self._owner.admit(user)
        if not self._give_to_spare(Admission(connected, weights, owner), whose):
            if weights is None:  # the spare was to keep its own
                weights = self._admit_to_weights(user)
            pid = self._fork_worker(lambda: Admission(connected, weights, owner))
            if pid is not None:
                self._workers[pid] = whose
        for given in filter(None, (weights, owner)):
            given.close()

    def _admit_to_weights(self, user: int) -> socket.socket | None:
        return None if self._weights is None else self._weights.admit(user)

    def _spare_has_weights(self, user: int) -> bool:
        """Whether the next spare worker is connected for weights as it is to be for a client of `user`."""
        if self._weights is None or not self._spares or user != os.geteuid():
            return False
        return self._spares[0].keeper == self._weights.pid != 0

    def _rest(self, seconds: float) -> None:
        """Wait up to `seconds` for a signal, such as that of a worker's end."""
        poller = select.poll()
        poller.register(self._receiver, select.POLLIN)
        polled(poller, seconds * 1000)

    def _calm(self) -> float | None:
        """Milliseconds without an event after which the next spare is forked; None if none is to be forked.

        Spares start one after the other: so they do not compete, and a faulty executor ends only one.
        """
        if (
            len(self._spares) == len(_CALM)
            or self._spare_failed
            or len(self._workers) >= MAX_WORKERS
            or not all(spare.is_ready for spare in self._spares)
        ):
            return None
        return _CALM[len(self._spares)] if self._is_open else 0

    def _fork_spare(self) -> None:
        """Fork a spare worker, for a later client."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            _warn_of_no_worker(error)
            self._spare_failed = True
            return
        with theirs, contextlib.ExitStack() as cleanup:
            weights = None
            if self._networks:  # all users open them, so they count as this user's
                weights = self._admit_to_weights(os.geteuid())
            owner = None if self._owner is None else self._owner.admit(os.geteuid())
            for given in filter(None, (weights, owner)):
                cleanup.enter_context(given)
            pid = self._fork_worker(
                lambda: await_client(theirs, ours),
                waiting=Waiting(
                    _log_failure if self._is_open else _report_to(theirs),
                    lambda: is_readable(theirs.fileno()),
                ),
                weights=weights,
                owner=owner,
            )
        if pid is None:
            self._spare_failed = True
            ours.close()
        else:
            keeper = 0 if self._weights is None or weights is None else self._weights.pid
            self._spares.append(SpareWorker(pid, ours, keeper))
            self._poller.register(ours, select.POLLIN)

    def _look_at_spare(self, fd: int, event: int) -> None:
        """Note what the spare worker with `fd` reports, or that it is ready, unless it has ended."""
        for spare in self._spares:
            if spare.fileno() != fd:  # or it just got its client
                continue
            try:
                reason = spare.read_report()
            except OSError:  # it is read at the next look, unless the worker ends first
                return
            if reason is None:
                spare.is_ready = not event & select.POLLHUP
                self._poller.unregister(fd)
            else:
                spare.has_executor, self._refusal = True, reason

    def _release_spare(self, spare: SpareWorker) -> None:
        """Remove a worker from the spares."""
        self._spares.remove(spare)
        with contextlib.suppress(KeyError):  # a ready spare is not polled any more
            self._poller.unregister(spare.fileno())

    def _give_to_spare(self, admission: Admission, whose: str) -> bool:
        """Let the oldest spare worker serve a client; False if there is no live one."""
        self._spare_failed = False
        if not self._spares:
            return False
        spare = self._spares[0]
        self._release_spare(spare)
        self._workers[spare.pid] = whose  # first: its end is counted even if it has failed
        return spare.give(admission)

    def _fork_worker(
        self,
        client: Callable[[], Admission],
        *,
        waiting: Waiting | None = None,
        weights: socket.socket | None = None,
        owner: socket.socket | None = None,
    ) -> int | None:
        """Fork a worker, which gets its client from `client`; returns its number, or None if that fails."""
        try:
            page = self._counters.make_page()
        except ResourceExhausted as error:
            _warn_of_no_worker(error)
            return None
        pid = self._fork(lambda: self._serve_client(client, page, weights, owner, waiting), _SPARE)
        if pid is None:
            page.close()
        else:
            self._counters.open(pid, page)
        return pid

    def _serve_client(
        self,
        client: Callable[[], Admission],
        page: SharedMemory,
        weights: socket.socket | None,
        owner: socket.socket | None,
        waiting: Waiting | None,
    ) -> NoReturn:
        """Serve one client in a worker process, which counts in `page`."""
        with page:
            counter_page = CounterPage(page)
        serve_client(
            client,
            self._executor,
            self._name,
            waiting=waiting,
            counter_page=counter_page,
            networks=self._networks,
            weights=weights,
            owner=owner,
            is_owned=self._owner is not None,
        )

    def _fork(self, become: Callable[[], NoReturn], name: bytes) -> int | None:
        """Fork a process called `name` that runs `become`; returns its number, or None if that fails."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        supervisor = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                self._enter_child(become, supervisor, name)
        except OSError as error:
            _warn_of_no_worker(error)
            return None
        else:
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _enter_child(
        self, become: Callable[[], NoReturn], supervisor: int, name: bytes
    ) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # The signals of a terminal are the supervisor's to handle.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            lib.nnb_set_thread_name(name)
            _end_with_parent(supervisor)
            self._listener.abandon_in_child()
            if self._front is not None:
                self._front.abandon_in_child()
            for side, _ in self._sides():
                side.abandon_in_child()
            for spare in self._spares:
                spare.close()  # this end: what comes by it would be taken for a client
            self._wake.close()
            self._receiver.close()
            self._counters.abandon_in_child()
            become()
        except BaseException:
            logger.exception("a worker failed and ends")
        finally:
            os._exit(70)

    def _reap(self) -> None:
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._workers[pid]
                self._note_end(pid, status)
        for spare in list(self._spares):
            ended, status = os.waitpid(spare.pid, os.WNOHANG)
            if ended:
                self._release_spare(spare)
                spare.close()
                self._spare_failed = True
                self._note_end(ended, status)
                if not self._is_open and not spare.has_executor:
                    code = os.waitstatus_to_exitcode(status)
                    self._refusal = (
                        f"executor {self._executor!r} cannot be made: its process ended with {code}"
                    )
        for side, _ in self._sides():
            ended, status = os.waitpid(side.pid, os.WNOHANG) if side.pid else (0, 0)
            if ended:
                side.note_end()
                self._note_end(ended, status)

    def _note_end(self, pid: int, status: int) -> None:
        self._counters.keep_last(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not (self._stop and code == -signal.SIGTERM):  # which `_close` has sent
            self._failures += 1
            logger.warning("worker %d ended with %d", pid, code)

    def _close(self) -> None:
        self._listener.close()
        if self._front is not None:
            self._front.close()
        for pid in self._workers:
            os.kill(pid, signal.SIGTERM)
        for spare in self._spares:
            spare.close()
            self._workers[spare.pid] = ""
        self._spares.clear()
        for side, _ in self._sides():
            side.close()
            if side.pid:
                self._workers[side.pid] = ""
        self._weights = self._owner = None
        self._await_workers(_GRACE)
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
        self._await_workers(_LAST_GRACE)
        for pid in self._workers:  # stuck in the kernel; init reaps it
            logger.warning("worker %d still runs after SIGKILL and is left to init", pid)
        signal.set_wakeup_fd(-1)

    def _await_workers(self, seconds: float) -> None:
        """Wait up to `seconds` until all workers have ended."""
        deadline = time.monotonic() + seconds
        self._reap()
        while self._workers and (left := deadline - time.monotonic()) > 0:
            self._rest(left)  # SIGCHLD ends it
            self._drain()
            self._reap()


def _other_threads() -> list[str]:
    """Names of the threads of this process besides its first one."""
    names: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        if task.name != str(os.getpid()):
            with contextlib.suppress(OSError):  # one that has ended since does not count
                names.append((task / "comm").read_text().strip())
    return sorted(names)


def _warn_of_no_worker(error: Exception) -> None:
    logger.warning("cannot start a worker; its connection, if it has one, is closed: %s", error)


def _end_with_parent(parent: int) -> None:
    """Be killed when `parent` ends; ends this process at once if it has ended already."""
    error = lib.nnb_die_with_parent(signal.SIGKILL)
    if error:
        raise OSError(error, os.strerror(error))
    if os.getppid() != parent:
        os._exit(0)  # as it would have been killed a moment later: silently
