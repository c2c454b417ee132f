"""Owns a device for all workers of a service: one process opens it and runs the requests of all workers.

Each worker has its own connection, with its own handles; no message can name another worker's handle. A
connection has one thread that receives, binds and releases, one that checks and prepares models, and one for
each priority of its executions. Executions wait for their turns (`FairTurns`): one at a time uses the device.

Users have equal shares of the device's time. Among the clients of one user, work of the highest priority goes
first, and clients with work of that priority have equal shares. Shares are of time, not of executions, so
that long executions get no advantage. A client gains no credit while it is idle. This is start-time fair
queueing: waiting work has a start tag, the smallest tag is served first, and the client's next start tag is
later by the duration of the work.
NNAPI: priority is relative among the clients of one application.

A client may have taken over its worker: the worker's messages, models, requests and memory are checked here
as a worker checks those of its client.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Final, NoReturn

import msgspec

from nnburst._native import lib
from nnburst.control.channel import (
    MAX_CALL_BYTES,
    NO_FDS,
    CallBudget,
    Channel,
    Cost,
    Fds,
    ProtocolError,
)
from nnburst.control.death_word import Liveness
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    CreateReusableExecution,
    GetCapabilities,
    GetSupportedExtensions,
    GetSupportedOperations,
    Opened,
    PrepareModel,
    Release,
    Welcome,
)
from nnburst.control.service import Answer, Job, Service
from nnburst.driver.calls.device import (
    Preparation,
    get_capabilities,
    get_supported_extensions,
    get_supported_operations,
)
from nnburst.driver.calls.fenced_execution import ReusableExecution, create_reusable_execution
from nnburst.driver.calls.registry import release
from nnburst.driver.client_session import ModelSession, priority_of
from nnburst.driver.confinement import (
    Quota,
    begin_realtime,
    enter_sandbox,
    limit_this_process,
    machine_memory,
)
from nnburst.driver.executors import make_executor
from nnburst.driver.model.device import Device
from nnburst.driver.model.execution import LatencyEstimate
from nnburst.driver.owner_client import Attach, RunBound
from nnburst.hal.enums import ErrorStatus, Priority
from nnburst.hal.errors import (
    Closed,
    DeviceUnavailable,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.peer import receive_fds
from nnburst.hal.utils import start_thread
from nnburst.tracing.recording import record_if_asked

logger = logging.getLogger(__name__)

#: The user of a worker's client, as the supervisor sends it with the worker's socket.
USER_BYTES: Final = 8
#: Limits of one connection's calls in progress: all connections share the descriptors of this process.
_BUDGET: Final = Cost(1024, 128, MAX_CALL_BYTES)
#: Seconds for which an owner that cannot open the device answers with the reason; then it ends, and the next
#: owner tries.
_REFUSING: Final = 2.0
#: Seconds that an execution may keep the device from others after its deadline, or after its client's end.
_PATIENCE: Final = 10.0


class _Share:
    """A competitor for the device: a user among all users, or a client among the clients of a user.

    Attributes:
        tag: start tag of its current or next service, in the virtual time of its competitors.
        finish: start tag for its next work.
        waiting: number of executions that wait.
    """

    def __init__(self) -> None:
        self.tag = 0.0
        self.finish = 0.0
        self.waiting = 0

    def begin_waiting(self, now: float) -> None:
        """Count one more waiting execution, at the virtual time `now`."""
        if not self.waiting:
            self.tag = max(now, self.finish)
        self.waiting += 1

    def charge(self, seconds: float) -> None:
        """Count a service of `seconds`."""
        self.finish = self.tag + seconds
        self.tag = max(self.tag, self.finish)


class _User(_Share):
    """All clients of one user.

    Attributes:
        now: the virtual time of its clients.
        clients: number of clients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.clients = 0


class _Waiter:
    """A thread that waits for its turn, and the lock that it sleeps on (`bell`)."""

    def __init__(self, client: TurnTaker, priority: Priority, deadline_ns: int | None) -> None:
        self.client = client
        self.priority = priority
        self.deadline_ns = deadline_ns
        self.overdue_since: float | None = None
        self.bell = threading.Lock()
        self.bell.acquire()


class TurnTaker(_Share):
    """One client among those that share a device. Made by `FairTurns.join`.

    Attributes:
        is_gone: returns whether the client has ended, so that its results are no longer wanted.
    """

    is_gone: Callable[[], bool]

    def __init__(self, turns: FairTurns, user: _User) -> None:
        """Use `FairTurns.join`."""
        super().__init__()
        self.user: Final = user
        self.is_gone = lambda: False
        self._turns = turns

    @property
    def is_free(self) -> bool:
        """Whether no client is using the device or waiting for it at this moment."""
        return not self._turns.is_busy

    def turn(
        self, priority: Priority, deadline_ns: int | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Wait for this client's turn, and use the device alone in the returned context.

        Args:
            priority: priority of the work among the work of all clients of the user.
            deadline_ns: end of the wait, on CLOCK_BOOTTIME; None to wait as long as the others take.

        Raises:
            MissedDeadline: the turn did not come before the deadline (device:E4).
        """
        return self._turns.hold(self, priority, deadline_ns)

    def close(self) -> None:
        """Remove the client, which is gone; none of its threads may be waiting."""
        self._turns.leave(self)


class FairTurns:
    """Lets one execution at a time use a device, in fair turns. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        stuck: Callable[[], None] = lambda: None,
        patience: float = _PATIENCE,
    ) -> None:
        """Create turns without clients.

        Args:
            clock: returns seconds; measures the use of the device.
            stuck: called by a thread that waits while an execution that should have ended keeps the device:
                its client is gone, or its deadline has passed.
            patience: seconds until such an execution counts as stuck.
        """
        self._clock = clock
        self._stuck: Final = stuck
        self._patience: Final = patience
        self._lock = threading.Lock()
        self._users: dict[int, _User] = {}
        self._waiters: list[_Waiter] = []
        self._holder: _Waiter | None = None
        self._now = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a client is using the device."""
        return self._holder is not None

    @property
    def waiting(self) -> int:
        """The number of threads that wait for their turn."""
        return len(self._waiters)

    def join(self, user: int) -> TurnTaker:
        """Add a client of `user`."""
        with self._lock:
            known = self._users.setdefault(user, _User())
            known.clients += 1
        return TurnTaker(self, known)

    def leave(self, client: TurnTaker) -> None:
        """Implement `TurnTaker.close`."""
        with self._lock:
            client.user.clients -= 1
            self._users = {user: known for user, known in self._users.items() if known.clients}

    @contextlib.contextmanager
    def hold(
        self, client: TurnTaker, priority: Priority, deadline_ns: int | None
    ) -> Iterator[None]:
        """Implement `TurnTaker.turn`."""
        waiter = _Waiter(client, priority, deadline_ns)
        with self._lock:
            self._waiters.append(waiter)
            client.user.begin_waiting(self._now)
            client.begin_waiting(client.user.now)
            if self._holder is None:
                self._pass_on()
        self._wait(waiter)
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            with self._lock:
                client.charge(took)
                client.user.charge(took)
                self._pass_on()

    def _wait(self, waiter: _Waiter) -> None:
        """Wait for a turn; MissedDeadline as for `_miss`."""
        while True:
            left = _seconds_until(waiter.deadline_ns)
            glance = self._patience / 10
            if waiter.bell.acquire(timeout=glance if left < 0 else min(left, glance)):
                return
            self._look_at_holder()
            if 0 <= left <= glance:
                self._miss(waiter)
                return

    def _look_at_holder(self) -> None:
        """Report an execution that should have ended a while ago, and has the device that others wait for."""
        holder = self._holder
        if holder is None or not (
            holder.client.is_gone() or _seconds_until(holder.deadline_ns) == 0.0
        ):
            return
        now = time.monotonic()
        if holder.overdue_since is None:
            holder.overdue_since = now
        elif now - holder.overdue_since > self._patience:
            self._stuck()

    def _miss(self, waiter: _Waiter) -> None:
        """End a wait at its deadline, unless the waiter's turn has come meanwhile.

        Raises:
            MissedDeadline: it has not come.
        """
        with self._lock:
            if waiter not in self._waiters:
                return
            self._waiters.remove(waiter)
            waiter.client.user.waiting -= 1
            waiter.client.waiting -= 1
        raise MissedDeadline(
            "device:E4: the deadline has passed while others had the device",
            status=ErrorStatus.MISSED_DEADLINE_PERSISTENT,
        )

    def _pass_on(self) -> None:
        """Give the device to the next waiter, if any; the lock is held."""
        self._holder = None
        if not self._waiters:
            return
        user = min((w.client.user for w in self._waiters), key=lambda share: share.tag)
        of_user = [w for w in self._waiters if w.client.user is user]
        highest = max(w.priority for w in of_user)
        # Of equal tags `min` takes the first, which is the waiter that came first.
        chosen = min((w for w in of_user if w.priority == highest), key=lambda w: w.client.tag)
        self._waiters.remove(chosen)
        self._holder = chosen
        client = chosen.client
        user.waiting -= 1
        client.waiting -= 1
        self._now = max(self._now, user.tag)
        user.now = max(user.now, client.tag)
        chosen.bell.release()


def _seconds_until(deadline_ns: int | None) -> float:
    """The timeout for a lock: -1 without a deadline."""
    if deadline_ns is None:
        return -1.0
    left = (deadline_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9
    return min(max(left, 0.0), threading.TIMEOUT_MAX)


_Call = (
    Attach
    | GetCapabilities
    | GetSupportedExtensions
    | GetSupportedOperations
    | PrepareModel
    | CreateReusableExecution
    | RunBound
    | Release
)
_decode: Final[Callable[[bytes], _Call]] = msgspec.msgpack.Decoder(_Call).decode


def own_device(supervisor: socket.socket, executor: str) -> NoReturn:
    """Open the device, serve workers until the supervisor has ended, and end this process.

    Args:
        supervisor: sends the sockets of workers, each with its client's user.
        executor: name of the executor.
    """
    status = 0
    try:
        record_if_asked("owner")
        limit_this_process()
        enter_sandbox()
        try:
            device = _opened(executor)
        except NnburstError as error:
            logger.error("the device cannot be had: %s", error)  # noqa: TRY400 - the reader needs no traceback
            supervisor.settimeout(_REFUSING)
            _serve_all(supervisor, error)
            os._exit(1)
        begin_realtime()
        _serve_all(supervisor, device)
    except BaseException:
        logger.exception("the owner of the device failed, and its workers end with it")
        status = 70
    finally:
        os._exit(status)


def _opened(executor: str) -> Device:
    made = make_executor(executor)
    return Device(made.name, made)


def _end_stuck() -> NoReturn:
    logger.error(
        "an execution has not ended %g s after its deadline or its client's end: the device is opened anew,"
        " and the clients prepare again",
        _PATIENCE,
    )
    os._exit(70)


def _serve_all(supervisor: socket.socket, device: Device | NnburstError) -> None:
    """Serve each worker whose socket arrives, on threads of its own, until the supervisor has ended."""
    turns = FairTurns(stuck=_end_stuck)
    while True:
        try:
            data, fds, _ = receive_fds(supervisor, USER_BYTES, 1)
        except TimeoutError:
            return
        for fd in fds:
            client = OwnedWorker(
                socket.socket(fileno=fd), device, turns.join(int.from_bytes(data, "little"))
            )
            thread = threading.Thread(target=client.serve, name="nnburst owned", daemon=True)
            try:
                start_thread(thread, client)
            except ResourceExhausted as error:
                logger.warning("a worker is refused: %s", error)
        if not data:
            return


class OwnedWorker:
    """One worker's connection, with its objects and threads."""

    def __init__(
        self, connected: socket.socket, device: Device | NnburstError, taker: TurnTaker
    ) -> None:
        """Own `connected` and `taker`; `device` is an error if the device could not be opened."""
        self._channel = Channel(connected)
        self._refusal = device if isinstance(device, NnburstError) else None
        self._taker = taker
        taker.is_gone = self._channel.peer_has_ended
        self._queues: dict[Priority | None, SimpleQueue[Job | None]] = {}
        self._threads: list[threading.Thread] = []
        self._ended = False
        self._liveness: Liveness | None = None
        if isinstance(device, Device):
            shared_bytes = Quota("bytes of pools", machine_memory())
            self._session = ModelSession(device, shared_bytes=shared_bytes)

    @property
    def held(self) -> int:
        """The number of models and requests of the worker."""
        return 0 if self._refusal is not None else len(self._session.objects)

    def serve(self) -> None:
        """Answer calls until the worker has ended; then free its objects."""
        service: Service[_Call] = Service(
            self._channel, _decode, self._handle, self._submit, CallBudget(_BUDGET)
        )
        try:
            service.serve()
        except ProtocolError as error:
            logger.warning("a worker is given up: %s", error)
        finally:
            self.close()

    def close(self) -> None:
        """Free everything, after all work for the worker has ended."""
        self._ended = True
        self._channel.shutdown()
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._refusal is None:
            self._session.objects.close()
        if self._liveness is not None:
            self._liveness.close()
        self._taker.close()
        self._channel.close()
        lib.nnb_give_memory_back()

    def _submit(self, call: _Call, job: Job) -> Job | None:
        if self._refusal is None and isinstance(call, RunBound):
            target = self._session.objects.find(call.handle)
            queue = self._queue(priority_of(target))
            latency = getattr(target, "latency", None)
            is_quick = isinstance(latency, LatencyEstimate) and latency.is_quick
            if is_quick and queue.empty() and self._taker.is_free:
                job()  # what comes meanwhile waits no longer than it would for another thread
            else:
                queue.put(job)
        elif isinstance(call, PrepareModel | GetSupportedOperations):
            self._queue(None).put(job)
        else:
            job()
        return None

    def _queue(self, key: Priority | None) -> SimpleQueue[Job | None]:
        """The queue of executions of a priority (None: of preparations), with a running thread."""
        if key not in self._queues:
            queue: SimpleQueue[Job | None] = SimpleQueue()
            thread = threading.Thread(
                target=self._work, args=(queue,), name="nnburst owned work", daemon=True
            )
            start_thread(thread)
            self._queues[key] = queue
            self._threads.append(thread)
        return self._queues[key]

    def _work(self, queue: SimpleQueue[Job | None]) -> None:
        while (job := queue.get()) is not None:
            if self._ended:
                continue  # its client is gone; its descriptors go with it
            with contextlib.suppress(Exception):  # which the service has answered with
                job()
            del job

    def _handle(self, call: _Call, fds: Fds) -> Answer:
        if self._refusal is not None:
            raise DeviceUnavailable(str(self._refusal), status=self._refusal.status)
        session = self._session
        match call:
            case Attach():
                return self._welcome(session.device)
            case RunBound():
                return self._run(call)
            case PrepareModel():
                prepared = Preparation(session, call, fds).run()
                assert prepared.handle is not None
                return Opened(prepared.handle, prepared.fields), Fds()
            case CreateReusableExecution():
                return create_reusable_execution(session, call, fds)
            case GetSupportedOperations():
                return get_supported_operations(session, call, fds)
            case GetCapabilities():
                return get_capabilities(session, call, fds)
            case GetSupportedExtensions():
                return get_supported_extensions(session, call, fds)
            case Release():
                return release(session, call, fds)

    def _welcome(self, device: Device) -> Answer:
        # A word of each worker's own, whose wake-ups no other one can take.
        if self._liveness is None:
            self._liveness = Liveness()
        welcome = Welcome(
            PROTOCOL_VERSION,
            device.feature_level,
            device.name,
            device.version_string,
            device.type,
            os.getpid(),
            device.thread_budget,
            self._liveness.has_death_word,
        )
        return welcome, self._liveness.fds()

    def _run(self, call: RunBound) -> Answer:
        with (
            self._session.objects.acquire(call.handle, ReusableExecution) as reusable,
            self._taker.turn(reusable.target.priority, call.deadline_ns),
        ):
            if self._ended:
                raise Closed("the client is gone")
            began = time.perf_counter_ns()
            try:
                return reusable.target.run(call.deadline_ns, call.loop_timeout_ns), NO_FDS
            finally:
                reusable.target.latency.note(time.perf_counter_ns() - began)
