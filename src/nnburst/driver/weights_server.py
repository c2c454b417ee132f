"""Packs the weights of each model once for all workers of a service, in a process of its own.

A worker sends the bytes of a model in a sealed file. The server computes their hash, which alone decides
which weights the worker gets: memory files that were packed from the same bytes for the same owner. If no
such files exist yet, the server forks a process for these bytes, which packs them.

A client may have taken over its worker. Such a worker cannot read weights of a model whose bytes it does not
have. It cannot publish weights, since the server keeps nothing that a worker sends, and cannot change any,
since the files are sealed. The server itself never parses the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import resource
import select
import signal
import socket
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from nnburst._native import lib
from nnburst._version import __version__
from nnburst.driver.confinement import enter_sandbox, limit_this_process, machine_memory
from nnburst.driver.executors import find_executor
from nnburst.driver.weights_client import MESSAGE, read_only, read_pack_request, seal
from nnburst.executor.base import MAX_FILES, Executor, PackingExecutor
from nnburst.fmq.shared_memory import checked_size, close_received
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.peer import receive_fds
from nnburst.hal.utils import processor_features

# -- The process that packs one model and then ends ------------------------------------------------
# It parses bytes that a client chose and runs an engine on them, so these bytes may take it over. Then it
# can spoil only the weights that are stored for exactly these bytes: their hash was computed before it was
# forked, and it has no other descriptors than that of the request and that of its result.


logger = logging.getLogger(__name__)

#: Seconds of computing that a model may take.
SECONDS: Final = 60
_STDERR: Final = 2


def pack(executor: Executor, pack_request: int, result: socket.socket) -> NoReturn:
    """Pack the model of a request, send its memory files, and end this process.

    Args:
        executor: loaded, not used before.
        pack_request: sealed memory file.
        result: the socket that the files are sent to.
    """
    status = 1
    try:
        lib.nnb_set_thread_name(b"nnburst packing")
        _close_others({pack_request, result.fileno()})
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(SECONDS)
        enter_sandbox()  # that of the server, which it inherits, would let it signal the server
        files = _packed(executor, pack_request)
        socket.send_fds(result, [b"packed"], list(files))
        status = 0
    except NnburstError as error:
        logger.info("a model's weights are not shared, its workers pack for themselves: %s", error)
        status = 0
    except BaseException:
        logger.exception("packing a model's weights failed: its workers pack for themselves")
    finally:
        os._exit(status)


def _packed(executor: Executor, pack_request: int) -> tuple[int, ...]:
    model, pools, options = read_pack_request(pack_request)
    if not isinstance(executor, PackingExecutor) or not all(executor.supported(model)):
        raise InvalidArgument(f"executor {executor.name} packs no such model")
    return executor.pack(model, pools, options)


def _close_others(kept: set[int]) -> None:
    """Close every descriptor above stderr but `kept`: those of the server lead to other clients."""
    start = _STDERR + 1
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


# -- The packed weights that are stored ------------------------------------------------------------


#: Models that are stored for one owner at most; those that have nothing to share count, too.
MODELS_OF_ONE: Final = 64
#: Owners for which models are stored at most.
OWNERS: Final = 16


class Packed(NamedTuple):
    """Memory files of one model.

    Attributes:
        files: sealed, read-only descriptors; none if the model has nothing to share.
        size: bytes of all files together.
    """

    files: tuple[int, ...] = ()
    size: int = 0

    def close(self) -> None:
        """Close the descriptors; workers have their own."""
        for fd in self.files:
            os.close(fd)


class WeightsStore:
    """Stores packed weights and drops the least recently used first. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` bytes for each owner."""
        self._limit = limit
        self._owners: OrderedDict[int, OrderedDict[bytes, Packed]] = OrderedDict()

    def find(self, owner: int, key: bytes) -> Packed | None:
        """The weights that are stored for `owner`; never another's."""
        models = self._owners.get(owner)
        if models is None or key not in models:
            return None
        self._owners.move_to_end(owner)
        models.move_to_end(key)
        return models[key]

    def keep(self, owner: int, key: bytes, packed: Packed) -> None:
        """Store `packed` and own it; if it is too large, store that the model has nothing to share."""
        if packed.size > self._limit:
            packed.close()
            packed = Packed()
        models = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        if (known := models.pop(key, None)) is not None:
            known.close()
        models[key] = packed
        while len(models) > MODELS_OF_ONE or sum(p.size for p in models.values()) > self._limit:
            models.popitem(last=False)[1].close()
        while len(self._owners) > OWNERS:
            _, others = self._owners.popitem(last=False)
            for other in others.values():
                other.close()


# -- The server ------------------------------------------------------------------------------------


#: Share of the machine's memory that the weights of one owner may take, and a single request likewise.
_SHARE: Final = 1 / 16
#: Models that may wait to be packed; the worker of a further one packs for itself.
_MOST_JOBS: Final = 16
#: Packing processes that took too long and have not ended: with so many, no further one is started.
_MOST_GIVEN_UP: Final = 4
#: Milliseconds between checks of whether such processes have ended.
_REAPING: Final = 500.0
#: Owner, as the supervisor sends it with a worker's socket.
OWNER_BYTES: Final = 8


@dataclass(eq=False)
class _Worker:
    pair: socket.socket
    owner: int
    waits_for: bytes = b""


@dataclass(eq=False)
class _Job:
    owner: int
    key: bytes
    pack_request: int
    waiting: list[_Worker] = field(default_factory=list)


@dataclass(eq=False)
class _Packing:
    job: _Job
    pid: int
    result: socket.socket
    until: float
    files: list[int] = field(default_factory=list)


def keep_weights(supervisor: socket.socket, executor: str) -> NoReturn:
    """Serve weights until the supervisor has ended, then end this process.

    Args:
        supervisor: sends the sockets of workers, each with its owner.
        executor: name of the executor that packs.
    """
    limit_this_process()
    enter_sandbox()
    try:
        server = _WeightsServer(supervisor, find_executor(executor)())
    except NnburstError as error:
        logger.info(
            "no weights are shared, each worker packs its own: %s", error
        )  # every client gets this error
        os._exit(0)
    try:
        while server.step():
            pass
    except BaseException:
        logger.exception("weights are not shared any more: each worker packs its own")
        os._exit(70)
    os._exit(0)


class _WeightsServer:
    def __init__(self, supervisor: socket.socket, executor: Executor) -> None:
        self._supervisor = supervisor
        self._executor = executor
        named = f"{__version__} {executor.name} {executor.engine_version}\n"
        self._salt = hashlib.sha256(named.encode() + processor_features()).digest()
        self._limit = int(machine_memory() * _SHARE)
        self._store = WeightsStore(self._limit)
        self._workers: dict[int, _Worker] = {}
        self._jobs: deque[_Job] = deque()
        self._packing: _Packing | None = None
        self._given_up: set[int] = set()
        self._poller = select.poll()
        self._poller.register(supervisor, select.POLLIN)

    def step(self) -> bool:
        """Wait for the next event and handle it; False if the supervisor has ended."""
        packing = self._packing
        wait = _REAPING if self._given_up else None
        if packing is not None:
            wait = max(0.0, packing.until - time.monotonic()) * 1000 + 1
        for fd, _ in self._poller.poll(wait):
            if fd == self._supervisor.fileno():
                if not self._admit():
                    return False
            elif (worker := self._workers.get(fd)) is not None:
                self._receive(worker)
            elif packing is not None and fd == packing.result.fileno():
                self._collect(packing)
        if self._packing is not None and time.monotonic() >= self._packing.until:
            logger.warning(
                "packing a model's weights takes too long: its workers pack for themselves"
            )
            self._finish(self._packing, Packed())
        self._start_next()
        return True

    def _admit(self) -> bool:
        data, fds, _ = receive_fds(self._supervisor, OWNER_BYTES, 1)
        for fd in fds:
            worker = _Worker(socket.socket(fileno=fd), int.from_bytes(data, "little", signed=True))
            worker.pair.setblocking(False)
            self._workers[fd] = worker
            self._poller.register(fd, select.POLLIN)
        return bool(data)

    def _receive(self, worker: _Worker) -> None:
        """Receive one message of a worker, which its client may have taken over."""
        try:
            # TRUST: a number that goes back as it is, and a file of which only the hash counts.
            data, fds, flags = receive_fds(worker.pair, MESSAGE.size, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds, flags = b"", [], 0
        truncated = flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        if len(data) != MESSAGE.size or len(fds) != 1 or truncated or worker.waits_for:
            for fd in fds:
                close_received(fd)
            self._close_worker(worker)
            return
        worker.waits_for = data
        try:
            self._look_up(worker, fds[0])
        except (InvalidArgument, OSError, ValueError) as error:
            logger.info("a worker's request to pack is refused, it packs for itself: %s", error)
            self._answer(worker, Packed())
        finally:
            close_received(fds[0])

    def _look_up(self, worker: _Worker, pack_request: int) -> None:
        size = checked_size(pack_request, is_final=True)
        if not 0 < size <= self._limit:
            raise InvalidArgument(f"a request to pack of {size} bytes, expected 1 to {self._limit}")
        key = self._hash(pack_request)
        found = self._store.find(worker.owner, key)
        if found is not None:
            self._answer(worker, found)
            return
        jobs = [*self._jobs, *([self._packing.job] if self._packing is not None else [])]
        job = next((j for j in jobs if (j.owner, j.key) == (worker.owner, key)), None)
        if job is None:
            if len(self._jobs) >= _MOST_JOBS or len(self._given_up) >= _MOST_GIVEN_UP:
                self._answer(worker, Packed())
                return
            job = _Job(worker.owner, key, os.dup(pack_request))
            self._jobs.append(job)
        job.waiting.append(worker)

    def _hash(self, pack_request: int) -> bytes:
        """The hash of all bytes, and of everything else that the packed weights depend on."""
        reading = read_only(pack_request)
        try:
            with mmap.mmap(reading, 0, mmap.MAP_SHARED, mmap.PROT_READ) as content:
                return hashlib.sha256(self._salt + hashlib.sha256(content).digest()).digest()
        finally:
            os.close(reading)

    def _start_next(self) -> None:
        self._reap()
        while self._packing is None and self._jobs:
            job = self._jobs.popleft()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    pid = os.fork()
                except OSError as error:
                    logger.info(
                        "cannot start a process for packing, workers pack for themselves: %s", error
                    )
                    ours.close()
                    self._publish(job, Packed())
                    continue
                if pid == 0:
                    pack(self._executor, job.pack_request, theirs)
            self._packing = _Packing(job, pid, ours, time.monotonic() + SECONDS)
            self._poller.register(ours, select.POLLIN)

    def _collect(self, packing: _Packing) -> None:
        """Receive from a packing process: at most one message, then its end, after which it maps no file."""
        try:
            # TRUST: it may be taken over by the bytes that it packs; what it sends is kept for these alone.
            data, fds, _ = receive_fds(packing.result, 16, MAX_FILES)
        except OSError:
            data, fds = b"", []
        if data and not packing.files:
            packing.files = fds
            return
        for fd in fds:
            close_received(fd)
        if data:
            return
        files, packing.files = packing.files, []
        self._finish(packing, self._sealed(files))

    def _sealed(self, files: list[int]) -> Packed:
        """Seal the files of a packing process for the store; nothing if one of them is not a memory file."""
        kept: list[int] = []
        size = 0
        try:
            for fd in files:
                seal(fd)
                size += checked_size(fd, is_final=True)
                kept.append(read_only(fd))
        except (InvalidArgument, OSError) as error:
            logger.warning("packed weights are not kept, workers pack for themselves: %s", error)
            Packed(tuple(kept)).close()
            return Packed()
        finally:
            for fd in files:
                close_received(fd)
        return Packed(tuple(kept), size)

    def _finish(self, packing: _Packing, packed: Packed) -> None:
        self._poller.unregister(packing.result)
        packing.result.close()
        for fd in packing.files:
            close_received(fd)
        self._packing = None
        self._given_up.add(packing.pid)
        self._publish(packing.job, packed)

    def _publish(self, job: _Job, packed: Packed) -> None:
        os.close(job.pack_request)
        for worker in job.waiting:
            self._answer(worker, packed)
        self._store.keep(job.owner, job.key, packed)

    def _answer(self, worker: _Worker, packed: Packed) -> None:
        number, worker.waits_for = worker.waits_for, b""
        if worker.pair.fileno() < 0:
            return  # closed meanwhile
        try:
            socket.send_fds(worker.pair, [number], list(packed.files))
        except OSError:  # its socket is full, or it has ended
            self._close_worker(worker)

    def _close_worker(self, worker: _Worker) -> None:
        if worker.pair.fileno() < 0:
            return
        del self._workers[worker.pair.fileno()]
        self._poller.unregister(worker.pair)
        worker.pair.close()

    def _reap(self) -> None:
        for pid in list(self._given_up):
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                if code := os.waitstatus_to_exitcode(status):
                    logger.warning(
                        "a process that packed weights ended with %d: workers pack for themselves",
                        code,
                    )
            self._given_up.discard(pid)
