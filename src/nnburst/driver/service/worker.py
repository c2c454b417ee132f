"""Serves one client: threads take turns to receive calls and run them.

When the client is gone, the process ends at once without cleaning up: the kernel frees everything within
milliseconds, whatever its threads are doing. The client is gone when its socket or its process has ended. The
socket alone is not enough: sockets can be sent, so a client could leave its end with a child, or with its
worker, in a queue that the worker does not empty. The client is the process that made the upcall socket
(which is sent with `Hello`); another process may have connected for it, and it may run another program now.

The end of the control socket is the reliable sign of the worker's death for a client. The death word is a
quicker one: the kernel writes it before it frees the process's memory, and ends the socket after that.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from nnburst._native import ffi, lib
from nnburst.control.address import state_directory
from nnburst.control.channel import HELLO_TIMEOUT, Channel, Disconnected, Fds, ProtocolError
from nnburst.control.connection import Connection
from nnburst.control.death_word import Liveness
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    Hello,
    Message,
    Ping,
    Welcome,
    decode_call,
)
from nnburst.control.service import Answer, Job, Service, nothing, text_of
from nnburst.driver.calls import HANDLERS, WORK
from nnburst.driver.client_session import ClientSession, priority_of
from nnburst.driver.confinement import (
    begin_realtime,
    call_budget,
    enter_sandbox,
    limit_this_process,
)
from nnburst.driver.counters import CounterPage
from nnburst.driver.executors import make_executor
from nnburst.driver.model.compilation_cache import has_cache_key
from nnburst.driver.model.device import Device
from nnburst.driver.model.execution import LatencyEstimate
from nnburst.driver.owner_client import OwnedExecutor
from nnburst.driver.scheduler import Scheduler, Work
from nnburst.driver.served_models import ServedModels, ServedNetwork
from nnburst.driver.weights_client import WeightsClient
from nnburst.executor.base import Executor
from nnburst.fmq.shared_memory import close_received
from nnburst.hal import vlog
from nnburst.hal.enums import FeatureLevel, Priority
from nnburst.hal.errors import (
    DeadObject,
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    ResourceExhausted,
)
from nnburst.hal.utils import ReadyThread, executor_library, is_readable
from nnburst.tracing.recording import record_if_asked

if TYPE_CHECKING:
    from nnburst._native import nnb_receive_lock


class Admission(NamedTuple):
    """The sockets for serving a client; the worker owns them.

    Attributes:
        client: the client's SEQPACKET socket, from which nothing has been received yet.
        weights: socket to the server of weights; None if this worker uses none.
        owner: socket to the process that owns the device; None if this worker opens it.
    """

    client: socket.socket
    weights: socket.socket | None = None
    owner: socket.socket | None = None


class Waiting(NamedTuple):
    """The supervisor's part in the wait of a worker whose client comes later.

    Attributes:
        report: takes the reason why the worker's executor cannot be made, or an empty text.
        has_come: returns whether the client has come.
    """

    report: Callable[[str], None]
    has_come: Callable[[], bool]


# -- client process --------------------------------------------------------------------------------


#: asm-generic/socket.h, since Linux 6.5; Python does not name it.
_SO_PEERPIDFD: Final = 77


def watch_client(upcalls: socket.socket) -> int | None:
    """Open a pidfd of the process that made `upcalls`; the caller owns it.

    It becomes readable when all threads of the process have ended. None if the kernel gives no pidfd: before
    Linux 6.5 for a client in another PID namespace.

    Raises:
        InvalidArgument: that process has ended already.
    """
    try:
        pidfd = _open(upcalls)
    except ProcessLookupError:
        pidfd = -1
    if pidfd is not None and (pidfd < 0 or is_readable(pidfd)):
        if pidfd >= 0:
            os.close(pidfd)
        raise InvalidArgument("Hello: the process that made the upcall socket has ended")
    return pidfd


def _open(upcalls: socket.socket) -> int | None:
    try:
        return upcalls.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ESRCH):  # or, by version, if it was reaped
            raise ProcessLookupError from error
        if error.errno != errno.ENOPROTOOPT:
            raise
    # The client is waiting for its Welcome, so its number does not belong to another process yet.
    pid = _pid_of_peer(upcalls)
    return os.pidfd_open(pid) if pid > 0 else None


def _pid_of_peer(upcalls: socket.socket) -> int:
    return Channel(upcalls).peer.pid


logger = logging.getLogger(__name__)


# -- worker ----------------------------------------------------------------------------------------


#: Types of calls that are answered at once, not on a lane.
_AT_ONCE: Final = (Hello, Ping)
#: Name in `ps` of a worker that has a client.
_WORKER: Final = b"nnburst worker"
#: Seconds for which a worker stays after it has announced its end. When the owner of a device ends, all
#: workers end; without this the kernel frees their memory on the cores on which their clients must notice it.
_NOTICE: Final = 0.05
#: Held by the thread that ends the process.
_ending: Final = threading.RLock()
#: Rehearsals of a worker: CPython makes its code faster once that has run eight times.
_REHEARSALS: Final = 9
#: Seconds after which a worker begins no further rehearsal.
_REHEARSING: Final = 0.03
#: Most calls that may run on receiving threads, however many cores there are.
_MOST_AT_ONCE: Final = 4


def serve_client(
    client: Callable[[], Admission],
    executor: str,
    name: str,
    *,
    waiting: Waiting | None = None,
    counter_page: CounterPage | None = None,
    networks: Sequence[ServedNetwork] = (),
    weights: socket.socket | None = None,
    owner: socket.socket | None = None,
    is_owned: bool = False,
) -> NoReturn:
    """Serve one client, then end the process.

    All work that needs no client is done first; so a spare worker does it before its client comes.

    Args:
        client: waits for the client, and returns its sockets.
        executor: name of the executor.
        name: the device's name.
        waiting: given if the client comes later, so that there is time to rehearse.
        counter_page: counts executions for the supervisor.
        networks: the networks that clients may open by name.
        weights: socket to the server of weights, for the networks, before the client comes.
        owner: socket to the owner of the device, if the worker may call it before the client comes.
        is_owned: whether another process owns the device.
    """
    record_if_asked(f"driver {name}")
    limit_this_process()
    enter_sandbox(None if has_cache_key() else _remembered())
    worker = Worker(executor, name, counter_page, networks, is_owned=is_owned)
    # Some devices can be open in one process only, so a worker without a client does not open the device.
    opens_a_device = not is_owned and executor_library(executor) is not None
    worker.owner = owner
    budget = call_budget()
    is_spare = waiting is not None
    loads = is_spare if is_owned else not (is_spare and opens_a_device)
    failure = worker.load() if loads else ""
    if waiting is not None:
        waiting.report(failure)
    gc.freeze()  # what was imported stays
    gc.enable()
    if weights is not None:
        worker.weights = WeightsClient(weights)
    if waiting is not None and not opens_a_device and not failure:
        worker.prepare_networks()
        worker.rehearse(waiting.has_come)
        worker.start_threads()
        gc.collect()
        gc.freeze()  # what the rehearsal left stays, too
    admission = client()
    channel = Channel(admission.client)
    worker.choose_weights(admission.weights, channel.peer.uid)
    worker.has_client = True
    if admission.owner is not None:
        worker.choose_owner(admission.owner, channel.peer.uid)
    lib.nnb_set_thread_name(_WORKER)
    worker.watch_process = channel.watch_process
    service: Service[Message] = Service(channel, decode_call, worker.handle, worker.submit, budget)
    receivers = Receivers(service, channel, _end, worker.second_receiver)
    worker.another_receives = receivers.have_another
    try:
        begin_realtime()
        service.serve(HELLO_TIMEOUT, worker.knows_its_client, receivers.receive)
    except BaseException as error:
        _end(error)
    _end(None)


def _end(error: BaseException | None) -> NoReturn:
    """End the process, because the client is gone, or because of `error`."""
    status = 0
    _ending.acquire()  # until the process has ended
    try:
        if isinstance(error, ProtocolError | TimeoutError | ConnectionResetError):
            logger.warning("connection ended, and its worker with it: %s", error)
            status = 1
        elif error is not None:
            logger.error("connection ended by a fault, and its worker with it", exc_info=error)
            status = 70
    finally:
        os._exit(status)


def _remembered() -> Path | None:
    """The folder in which a worker makes the key of the compilation caches; None if the user has none."""
    try:
        return state_directory()
    except GeneralFailure:
        return None


class Worker:
    """Answers the calls of one client.

    Attributes:
        another_receives: returns whether another thread receives calls while the calling thread works.
        watch_process: takes and owns a pidfd of the client's process; ends the worker when that has ended.
        weights: provides packed weights of the service; None if this worker packs by itself.
        owner: socket to the device's owner, until its first use; None if this worker opens the device.
        has_client: whether the client has come; the end of the owner in use then ends the worker.
        second_receiver: a thread for it, which waits since before the client came; None without.
    """

    def __init__(
        self,
        executor: str,
        name: str,
        counter_page: CounterPage | None = None,
        networks: Sequence[ServedNetwork] = (),
        *,
        is_owned: bool = False,
    ) -> None:
        """Serve `executor` as device `name`; nothing is started before the client's `Hello`.

        Args:
            executor: name of the executor.
            name: the device's name.
            counter_page: counts executions for the supervisor.
            networks: the networks that clients may open by name.
            is_owned: whether another process owns the device.
        """
        self._executor_name = executor
        self._is_owned = is_owned
        self.owner: socket.socket | None = None
        self.has_client = False
        self._counter_page = counter_page
        self._executor: Executor | None = None
        self._name = name
        self._device: Device | None = None
        self._session: ClientSession | None = None
        self._networks = networks
        self._served_models = ServedModels(networks)
        self._liveness = Liveness()
        self._scheduler = Scheduler()
        self.another_receives: Callable[[], bool] = lambda: False
        self.watch_process: Callable[[int], None] = os.close
        self.weights: WeightsClient | None = None
        self.second_receiver: ReadyThread | None = None
        self._upcall_reader: ReadyThread | None = None

    def load(self) -> str:
        """Make the executor now, since its engine may take longer to load than the rest of a worker's start.

        After a failure it is made again for the client's `Hello`, whose answer has the reason of a failure.
        Until then nothing is prepared.

        Returns:
            The reason why it cannot be made; empty if it was.
        """
        try:
            self._made_executor()
        except Exception as error:
            logger.debug("executor %s is made again for the client: %s", self._executor_name, error)
            return text_of(error) or type(error).__name__
        return ""

    def choose_weights(self, given: socket.socket | None, user: int) -> None:
        """Keep the connection to the server of weights from before the client came, or replace it.

        Args:
            given: the new connection; owned from here on. None keeps the old one for a client of this
                process's own user.
            user: the client's user.
        """
        if given is None and user == os.geteuid():
            return
        if self.weights is not None:
            self.weights.close()
        self.weights = None if given is None else WeightsClient(given)

    def choose_owner(self, given: socket.socket, user: int) -> None:
        """Keep the connection to the owner from before the client came, or replace it by a new one.

        Args:
            given: the new connection, for a client of `user`; owned from here on.
            user: the client's user.
        """
        known = self._executor
        if isinstance(known, OwnedExecutor) and known.is_alive and user == os.geteuid():
            given.close()
            return
        if isinstance(known, OwnedExecutor):
            known.close()
        self.owner = given
        self._executor = self._device = None
        self._served_models = ServedModels(self._networks)

    def prepare_networks(self) -> None:
        """Prepare the networks that clients may open by name, before a client comes."""
        if self._served_models.names:
            try:
                self._device = Device(self._name, self._made_executor(), self.weights)
            except Exception as error:
                logger.warning("no model is prepared before a client comes: %s", error)
            else:
                self._served_models.prepare_all(self._device)

    def rehearse(self, has_come: Callable[[], bool]) -> None:
        """Answer the calls of rehearsals and drop their sessions (`nnburst.driver.service.rehearsal`).

        Args:
            has_come: whether the client has come; it waits for no further rehearsal.
        """
        from nnburst.driver.service.rehearsal import rehearse  # which only services need

        self.another_receives = lambda: True  # the rehearsal runs its calls itself
        page, self._counter_page = self._counter_page, None  # without counting them
        end = time.monotonic() + _REHEARSING
        for _ in range(_REHEARSALS):
            succeeded = rehearse(
                lambda channel: Service(
                    channel, decode_call, self.handle, self.submit, call_budget()
                ),
                self._served_models.names,
            )
            session, self._session = self._session, None
            if session is not None:
                session.upcalls.close()
            if not succeeded or has_come() or time.monotonic() > end:
                break
        self.another_receives = lambda: False
        self._counter_page = page

    def start_threads(self) -> None:
        """Start the threads that the client's Hello needs, before the client comes, if there may be more."""
        with contextlib.suppress(ResourceExhausted, MemoryError):  # they are started for the client
            self._upcall_reader = ReadyThread("nnburst the client")
            self.second_receiver = ReadyThread("nnburst receiver")

    def _made_executor(self) -> Executor:
        if self._is_owned and self._executor is None:
            owner, self.owner = self.owner, None
            if owner is None:
                raise DeviceUnavailable(f"{self._name}: the device's owner is not there")
            try:
                self._executor = OwnedExecutor(owner, self._owner_ended)
            except DeadObject as error:
                raise DeviceUnavailable(
                    f"{self._name}: the device's owner has ended: {error}"
                ) from None
        if self._executor is None:
            executor = make_executor(self._executor_name)
            _ = executor.engine_version  # opens an engine that is opened at its first use
            self._executor = executor
        return self._executor

    def _owner_ended(self) -> None:
        # Even before the client's Hello is answered: the client comes again, and waits for the next owner.
        if self.has_client:
            with _ending:
                self._liveness.announce_death()
                time.sleep(_NOTICE)
                _end(ConnectionResetError("the process that owns the device has ended"))

    def submit(self, call: Message, job: Job) -> Job | None:
        """Run `job` at once or on one of the scheduler's lanes, or return it to the receiving thread.

        Returns:
            `job`, if the thread that received the call is to run it: a quick call, or an execution of a model
            whose executions have been quick, while no other job waits and another thread can receive
            meanwhile (ADR 15).
        """
        if self._session is None or isinstance(call, _AT_ONCE):
            job()
            return None
        work, priority = WORK.get(type(call), Work.CALL), Priority.MEDIUM
        if work in (Work.EXECUTION, Work.START):
            target = self._session.objects.find(getattr(call, "handle", 0))
            priority = priority_of(target)
            latency = getattr(target, "latency", None)
            if work is Work.EXECUTION and isinstance(latency, LatencyEstimate):
                job = partial(run_timed, job, latency)
                if (
                    latency.is_quick
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
        """Whether the client has sent its Hello."""
        return self._session is not None

    def handle(self, call: Message, fds: Fds) -> Answer:
        """Answer a call; exceptions are sent to the client as the answer."""
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
        device = self._device or Device(self._name, self._made_executor())
        device.weights = self.weights
        upcalls = _upcall_socket(fds)
        try:
            client = watch_client(upcalls)
        except BaseException:
            upcalls.close()
            raise
        if client is not None:
            self.watch_process(client)
        reader, self._upcall_reader = self._upcall_reader, None
        self._session = ClientSession(
            device,
            Connection(Channel(upcalls), "the client", reader=reader),
            self._counter_page,
            self._served_models,
            self._scheduler,
        )
        self._device = device
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
    """The threads that receive a client's calls, one thread at a time, in the order of arrival (ADR 15).

    A thread that receives a quick call runs it itself; meanwhile another thread, which has waited, receives.
    The first thread is the one that calls `receive`, which starts a second one; others start when they are
    first needed. All stay.
    """

    def __init__(
        self,
        service: Service[Message],
        channel: Channel,
        ended: Callable[[BaseException | None], NoReturn],
        second: ReadyThread | None = None,
    ) -> None:
        """Receive for `service` from `channel`.

        Args:
            service: answers the calls.
            channel: the channel of the service.
            ended: ends the process: because the client is gone (None), or because of an exception.
            second: the second thread, which receives nothing yet; None to start one.
        """
        self._service = service
        self._channel = channel
        self._ended = ended
        self._second = second
        self._most = 1 + min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE)
        self._threads = 1
        self._standing_by: set[int] = set()
        self._receive_lock: nnb_receive_lock = ffi.new("struct nnb_receive_lock *")

    def have_another(self) -> bool:
        """Whether another thread takes over when the calling thread stops receiving; starts one if needed."""
        if not self._standing_by and self._threads < self._most:
            self._start()
        return bool(self._standing_by)

    def _start(self) -> None:
        """Start one more thread."""
        self._threads += 1  # before it starts, since it may start others
        second, self._second = self._second, None
        if second is not None:
            second.begin(self._receive)
            return
        try:
            threading.Thread(target=self._receive, name="nnburst receiver", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            logger.warning(
                "cannot start a second receiver, so calls go through the scheduler: %s", error
            )
            self._threads -= 1
            self._most = self._threads

    def receive(self) -> NoReturn:
        """Receive calls until the process ends. Called once, by the first thread, after the Hello."""
        socket, client = self._channel.fileno(), self._channel.peer_process
        failed = lib.nnb_receive_lock_open(self._receive_lock, socket, client)
        if failed:
            why = f"cannot wait for calls: {os.strerror(failed)}"
            self._ended(ResourceExhausted(why))
        self._start()  # for the client's first call; meanwhile the client reads the answer to its Hello
        self._receive()

    def _receive(self) -> NoReturn:
        try:
            while True:
                job = self._take_turn()
                try:
                    job()
                except BaseException:  # as on the scheduler's lanes
                    logger.exception("a job raised; the receiver goes on with the next")
                del job  # free its objects before the next job comes
        except Disconnected:
            self._ended(None)
        except BaseException as error:
            self._ended(error)

    def _take_turn(self) -> Callable[[], None]:
        """Wait for this thread's turn, and receive until there is a job for this thread."""
        me = threading.get_ident()
        self._standing_by.add(me)
        lib.nnb_receive_lock_acquire_unlocked(self._receive_lock)
        self._standing_by.discard(me)
        while (job := self._service.accept()) is None:
            pass  # another thread runs the call
        lib.nnb_receive_lock_release(self._receive_lock)
        return job


def run_timed(job: Job, latency: LatencyEstimate) -> None:
    """Run one execution and note how long it took."""
    began = time.perf_counter_ns()
    try:
        job()
    finally:
        latency.note(time.perf_counter_ns() - began)


def _upcall_socket(fds: Fds) -> socket.socket:
    try:
        upcalls = socket.socket(fileno=fds[0])
    except OSError as error:
        raise InvalidArgument(f"Hello: fd 0 is not a socket: {error}") from error
    fds.take(0)
    kind = upcalls.family, upcalls.type
    if kind != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        close_received(upcalls.detach())
        raise InvalidArgument("Hello: fd 0 must be an AF_UNIX SEQPACKET socket")
    if not _is_one_of_a_pair(upcalls):
        upcalls.close()
        raise InvalidArgument(
            "Hello: fd 0 must be one of a socketpair, whose other one has no name"
        )
    return upcalls


def _is_one_of_a_pair(upcalls: socket.socket) -> bool:
    """Whether the socket is one end of a socketpair, and not of a connection to a named socket."""
    try:
        return not upcalls.getpeername()
    except OSError:
        return False
