"""Serves one client: threads take turns to receive; a quick call runs where it was received, others on lanes.

When the client is gone the process ends at once, without cleaning up: the kernel frees everything
within milliseconds, whatever a thread is doing.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from nnburst._native import ffi, lib
from nnburst.control.channel import Channel, Disconnected, Fds, ProtocolError
from nnburst.control.connection import Connection
from nnburst.control.limits import HELLO_TIMEOUT
from nnburst.control.messages.message import Message
from nnburst.control.messages.session import Hello, Ping, Welcome
from nnburst.control.protocol import PROTOCOL_VERSION, decode_call, encode
from nnburst.control.service import Answer, Job, Service, nothing
from nnburst.control.user_files import state_directory
from nnburst.driver.calls import HANDLERS, WORK
from nnburst.driver.counting.counter_page import CounterPage
from nnburst.driver.executors import make_executor
from nnburst.driver.limits.quotas import call_budget, limit_this_process
from nnburst.driver.limits.sandbox import enter_sandbox
from nnburst.driver.model.cache.cache_key import has_cache_key
from nnburst.driver.model.device import Device
from nnburst.driver.model.pace import Pace
from nnburst.driver.service.admission import Admission
from nnburst.driver.session.client_process import watch_client
from nnburst.driver.session.client_session import ClientSession, priority_of
from nnburst.driver.session.liveness import Liveness
from nnburst.driver.session.scheduler import Work
from nnburst.driver.weights.borrower import Borrower
from nnburst.executor.base import Executor
from nnburst.hal.diagnostics import vlog
from nnburst.hal.enums import FeatureLevel, Priority
from nnburst.hal.errors import (
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    ResourceExhausted,
)
from nnburst.tracing.recording import record_if_asked

if TYPE_CHECKING:
    from nnburst._native import nnb_turn

logger = logging.getLogger(__name__)

#: Calls that wait for no lane.
_AT_ONCE: Final = (Hello, Ping)
#: What `ps` calls a process that has a client.
_WORKER: Final = b"nnburst worker"
#: Calls that may run on threads that receive, whatever the number of cores.
_MOST_AT_ONCE: Final = 4


def serve_client(
    client: Callable[[], Admission],
    executor: str,
    name: str,
    *,
    is_spare: bool = False,
    counter_page: CounterPage | None = None,
) -> NoReturn:
    """Serve one client, then end the process.

    All that needs no client comes first, so that a worker that is forked ahead of need saves its time.

    Args:
        client: waits for the client.
        executor: name of the executor.
        name: the device's name.
        is_spare: whether the client is yet to come, so that there is time to rehearse.
        counter_page: where executions are counted for a supervisor.
    """
    record_if_asked(f"driver {name}")
    limit_this_process()
    enter_sandbox(None if has_cache_key() else _remembered())
    worker = Worker(executor, name, counter_page)
    worker.load()
    gc.freeze()  # what was imported stays
    gc.enable()
    if is_spare:
        worker.rehearse()
    admission = client()
    channel = Channel(admission.client)
    if admission.weights is not None:
        worker.weights = Borrower(admission.weights)
    lib.nnb_set_thread_name(_WORKER)
    worker.watch_process = channel.watch_process
    service = Service[Message](channel, decode_call, worker.handle, worker.submit, call_budget())
    receivers = Receivers(service, channel, _end)
    worker.another_receives = receivers.have_another
    try:
        service.serve(HELLO_TIMEOUT, worker.knows_its_client, receivers.receive)
    except BaseException as error:
        _end(error)
    _end(None)


def _end(error: BaseException | None) -> NoReturn:
    """End the process: the client is gone, or was given up for `error`."""
    status = 0
    try:
        if isinstance(error, ProtocolError | TimeoutError):
            logger.warning("connection ended, and its worker with it: %s", error)
            status = 1
        elif error is not None:
            logger.error("connection ended by a fault, and its worker with it", exc_info=error)
            status = 70
    finally:
        os._exit(status)


def _remembered() -> Path | None:
    """Where a worker makes the key of the compilation caches; None if the user has no such place."""
    try:
        return state_directory()
    except GeneralFailure:
        return None


class Worker:
    """The calls of one client.

    Attributes:
        another_receives: whether calls are received while the thread that asks does something else.
        watch_process: takes a pidfd of the client's process, whose end is the worker's; owns it.
        weights: from which packed weights are borrowed; None if this worker packs for itself.
    """

    def __init__(self, executor: str, name: str, counter_page: CounterPage | None = None) -> None:
        """Serve `executor` as device `name`; nothing is started before the client's `Hello`.

        Args:
            executor: name of the executor.
            name: the device's name.
            counter_page: where executions are counted for a supervisor.
        """
        self._executor_name = executor
        self._counter_page = counter_page
        self._executor: Executor | None = None
        self._name = name
        self._session: ClientSession | None = None
        self._liveness = Liveness()
        self.another_receives: Callable[[], bool] = lambda: False
        self.watch_process: Callable[[int], None] = os.close
        self.weights: Borrower | None = None

    def load(self) -> None:
        """Make the executor, whose engine may take longer to load than all the rest of a worker's start.

        One that cannot be made now is made again for the client's `Hello`, which is answered with the reason.
        """
        try:
            self._made_executor()
        except Exception as error:
            logger.debug("executor %s is made again for the client: %s", self._executor_name, error)

    def rehearse(self) -> None:
        """Answer a `Hello` of this process's own and forget it.

        What answering takes is then imported, and in memory that is this process's alone: of the
        milliseconds that a forked process needs for its first `Hello`, most are copies of pages.
        """
        (near, far), (upcalls, theirs) = _pair(), _pair()
        with upcalls, theirs:
            channel, client = Channel(near), Channel(far)
            client.send(1, encode(Hello(PROTOCOL_VERSION, FeatureLevel.V1_2)), [theirs.fileno()])
            Service(channel, decode_call, self.handle, self.submit, call_budget()).accept()
            client.receive().fds.close()
            channel.close()
            client.close()
        session, self._session = self._session, None
        if session is not None:
            session.upcalls.close()

    def _made_executor(self) -> Executor:
        if self._executor is None:
            executor = make_executor(self._executor_name)
            _ = executor.engine_version  # which opens an engine that is opened when it is needed
            self._executor = executor
        return self._executor

    def submit(self, call: Message, job: Job) -> Job | None:
        """Run `job`: on one of the scheduler's lanes, unless it answers at once or comes first.

        Returns:
            `job`, if the thread that received the call is to run it: a call that is answered soon, or an
            execution of what has shown to be quick, while no other waits and another thread can receive
            meanwhile (ADR 15).
        """
        if self._session is None or isinstance(call, _AT_ONCE):
            job()
            return None
        work, priority = WORK.get(type(call), Work.CALL), Priority.MEDIUM
        if work in (Work.EXECUTION, Work.START):
            target = self._session.objects.find(getattr(call, "handle", 0))
            priority = priority_of(target)
            pace = getattr(target, "pace", None)
            if work is Work.EXECUTION and isinstance(pace, Pace):
                job = partial(run_timed, job, pace)
                if (
                    pace.is_quick
                    and priority is not Priority.LOW
                    and not self._session.scheduler.waiting(work)
                    and self.another_receives()
                ):
                    return job
        elif (
            work is Work.CALL
            and not self._session.scheduler.waiting(work)
            and self.another_receives()
        ):
            return job
        self._session.scheduler.submit(job, priority, work)
        return None

    def knows_its_client(self) -> bool:
        """Whether the client has introduced itself."""
        return self._session is not None

    def handle(self, call: Message, fds: Fds) -> Answer:
        """Answer a call; raises what the client gets as its answer."""
        if isinstance(call, Hello):
            return self._introduce(call, fds)
        if isinstance(call, Ping):
            return nothing()
        if self._session is None:
            raise InvalidArgument(f"the first call is {type(call).__name__}, expected Hello")
        if not vlog.on("driver"):
            return HANDLERS[type(call)](self._session, call, fds)
        name, began = type(call).__name__, time.perf_counter_ns()
        try:
            answer = HANDLERS[type(call)](self._session, call, fds)
        except BaseException as error:
            vlog.write("driver", "%s: %s", name, type(error).__name__)
            raise
        vlog.write("driver", "%s: %d µs", name, (time.perf_counter_ns() - began) // 1000)
        return answer

    def _introduce(self, call: Hello, fds: Fds) -> Answer:
        if self._session is not None:
            raise InvalidArgument("Hello: a second one, expected one for each connection")
        if call.protocol != PROTOCOL_VERSION:
            raise DeviceUnavailable(
                f"the driver speaks protocol {PROTOCOL_VERSION}, the client {call.protocol}"
            )
        if call.feature_level < FeatureLevel.V1_2:
            raise DeviceUnavailable(
                f"the client speaks feature level {call.feature_level},"
                f" bursts came with {int(FeatureLevel.V1_2)}"
            )
        device = Device(self._name, self._made_executor(), self.weights)
        upcalls = _upcall_socket(fds)
        try:
            client = watch_client(upcalls)
        except BaseException:
            upcalls.close()
            raise
        if client is not None:
            self.watch_process(client)
        self._session = ClientSession(
            device, Connection(Channel(upcalls), "the client"), self._counter_page
        )
        return Welcome(
            protocol=PROTOCOL_VERSION,
            feature_level=device.feature_level,
            name=device.name,
            version_string=device.version_string,
            type=device.type,
            thread_budget=device.thread_budget,
            pid=os.getpid(),
            death_word=self._liveness.has_death_word,
        ), self._liveness.fds()


class Receivers:
    """The threads that receive a client's calls, one at a time, in the order of coming (ADR 15).

    The one that receives a quick call runs it itself; another one, which waits for that, receives meanwhile.
    The first is the thread that calls `receive`; others start when they are first needed, and stay.
    """

    def __init__(
        self,
        service: Service[Message],
        channel: Channel,
        ended: Callable[[BaseException | None], NoReturn],
    ) -> None:
        """Receive for `service` from `channel`.

        Args:
            service: answers the calls.
            channel: of the service.
            ended: ends the process: the client is gone, or this exception came.
        """
        self._service = service
        self._channel = channel
        self._ended = ended
        self._most = 1 + min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE)
        self._threads = 1
        self._standing_by: set[int] = set()
        self._turn: nnb_turn = ffi.new("struct nnb_turn *")

    def have_another(self) -> bool:
        """Whether another thread receives as soon as this one, whose turn it is, does not."""
        if not self._standing_by and self._threads < self._most:
            self._start()
        return bool(self._standing_by)

    def _start(self) -> None:
        """Start one, for the calls to come."""
        try:
            threading.Thread(target=self._receive, name="nnburst receiver", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            logger.warning(
                "cannot start a second receiver, so calls go through the scheduler: %s", error
            )
            self._most = self._threads
        else:
            self._threads += 1

    def receive(self) -> NoReturn:
        """Receive until the process ends. Once, by the first thread, when the client is known."""
        failed = lib.nnb_turn_open(self._turn, self._channel.fileno(), self._channel.peer_process)
        if failed:
            why = f"cannot wait for calls: {os.strerror(failed)}"
            self._ended(ResourceExhausted(why))
        self._receive()

    def _receive(self) -> NoReturn:
        try:
            while True:
                job = self._take_turn()
                try:
                    job()
                except BaseException:  # as on the scheduler's lanes
                    logger.exception("a job raised; the receiver goes on with the next")
                del job  # with all that it holds, before the next one comes
        except Disconnected:
            self._ended(None)
        except BaseException as error:
            self._ended(error)

    def _take_turn(self) -> Callable[[], None]:
        """Wait for the turn and keep it until there is something to do here."""
        me = threading.get_ident()
        self._standing_by.add(me)
        lib.nnb_turn_take_unlocked(self._turn)
        self._standing_by.discard(me)
        while (job := self._service.accept()) is None:
            pass  # another thread does it
        lib.nnb_turn_pass(self._turn)
        return job


def run_timed(job: Job, pace: Pace) -> None:
    """Run one execution and note how long it took."""
    began = time.perf_counter_ns()
    try:
        job()
    finally:
        pace.note(time.perf_counter_ns() - began)


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _upcall_socket(fds: Fds) -> socket.socket:
    try:
        upcalls = socket.socket(fileno=fds[0])
    except OSError as error:
        raise InvalidArgument(f"Hello: fd 0 is not a socket: {error}") from error
    fds.take(0)
    kind = upcalls.family, upcalls.type
    if kind != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        upcalls.close()
        raise InvalidArgument("Hello: fd 0 must be an AF_UNIX SEQPACKET socket")
    if not _is_one_of_a_pair(upcalls):
        upcalls.close()
        raise InvalidArgument(
            "Hello: fd 0 must be one of a socketpair, whose other one has no name"
        )
    return upcalls


def _is_one_of_a_pair(upcalls: socket.socket) -> bool:
    """Whether it is neither alone nor the end of a connection to a name, such as the control socket."""
    try:
        return not upcalls.getpeername()
    except OSError:
        return False
