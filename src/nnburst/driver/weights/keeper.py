"""The process that keeps packed weights: it answers workers, but reads nothing of what they hand over.

A worker sends the bytes of a model, sealed. Their hash, computed here, is all that decides what it gets:
memory files that were packed of the same bytes for the same owner, or, if these are the first, those that a
process forked for them packs. So a worker that its client has taken over reads no weights of a model that it
has not got; it publishes none, as nothing that a worker sends is kept, and changes none, as they are sealed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import select
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import nnburst
from nnburst.driver.executors import find_executor
from nnburst.driver.limits.quotas import limit_this_process, machine_memory
from nnburst.driver.limits.sandbox import enter_sandbox
from nnburst.driver.weights.borrower import MESSAGE
from nnburst.driver.weights.packing import SECONDS, pack
from nnburst.driver.weights.sealing import read_only, seal
from nnburst.driver.weights.store import Packed, Store
from nnburst.executor.base import Executor
from nnburst.executor.sharing import MAX_FILES
from nnburst.fmq.shared_memory import checked_size
from nnburst.hal.errors import InvalidArgument, NnburstError

logger = logging.getLogger(__name__)

#: Share of the machine's memory that the weights of one owner may take, and one offer.
_SHARE: Final = 1 / 16
#: Models that wait for being packed; who comes then packs for itself.
_MOST_JOBS: Final = 16
#: Processes that were given up and have not ended; with so many nothing is packed any more.
_MOST_GIVEN_UP: Final = 4
#: Milliseconds after which a process that was given up is looked after.
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
    offer: int
    waiting: list[_Worker] = field(default_factory=list)


@dataclass(eq=False)
class _Packing:
    job: _Job
    pid: int
    result: socket.socket
    until: float
    files: list[int] = field(default_factory=list)


def keep_weights(supervisor: socket.socket, executor: str) -> NoReturn:
    """Keep until the supervisor is gone, then end the process.

    Args:
        supervisor: sends the sockets of workers, each with its owner.
        executor: name of the executor that packs.
    """
    limit_this_process()
    enter_sandbox()
    try:
        keeper = _Keeper(supervisor, find_executor(executor)())
    except NnburstError as error:
        logger.info(
            "no weights are shared, each worker packs its own: %s", error
        )  # every client gets this error
        os._exit(0)
    try:
        while keeper.step():
            pass
    except BaseException:
        logger.exception("weights are not shared any more: each worker packs its own")
        os._exit(70)
    os._exit(0)


class _Keeper:
    def __init__(self, supervisor: socket.socket, executor: Executor) -> None:
        self._supervisor = supervisor
        self._executor = executor
        named = f"{nnburst.__version__} {executor.name} {executor.engine_version}\n"
        self._salt = hashlib.sha256(named.encode() + _processor_features()).digest()
        self._limit = int(machine_memory() * _SHARE)
        self._store = Store(self._limit)
        self._workers: dict[int, _Worker] = {}
        self._jobs: deque[_Job] = deque()
        self._packing: _Packing | None = None
        self._given_up: set[int] = set()
        self._poller = select.poll()
        self._poller.register(supervisor, select.POLLIN)

    def step(self) -> bool:
        """Wait for something to happen; False if the supervisor is gone."""
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
        data, fds, _, _ = socket.recv_fds(self._supervisor, OWNER_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        for fd in fds:
            worker = _Worker(socket.socket(fileno=fd), int.from_bytes(data, "little", signed=True))
            worker.pair.setblocking(False)
            self._workers[fd] = worker
            self._poller.register(fd, select.POLLIN)
        return bool(data)

    def _receive(self, worker: _Worker) -> None:
        """One message of a worker, which its client may have taken over."""
        try:
            # TRUST: a number that goes back as it is, and a file of which only the hash counts.
            data, fds, flags, _ = socket.recv_fds(
                worker.pair, MESSAGE.size, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, fds, flags = b"", [], 0
        truncated = flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        if len(data) != MESSAGE.size or len(fds) != 1 or truncated or worker.waits_for:
            for fd in fds:
                os.close(fd)
            self._close_worker(worker)
            return
        worker.waits_for = data
        try:
            self._look_up(worker, fds[0])
        except (InvalidArgument, OSError, ValueError) as error:
            logger.info("a worker's offer is not taken, it packs for itself: %s", error)
            self._answer(worker, Packed())
        finally:
            os.close(fds[0])

    def _look_up(self, worker: _Worker, offer: int) -> None:
        size = checked_size(offer, is_final=True)
        if not 0 < size <= self._limit:
            raise InvalidArgument(f"an offer of {size} bytes, expected 1 to {self._limit}")
        key = self._hash(offer)
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
            job = _Job(worker.owner, key, os.dup(offer))
            self._jobs.append(job)
        job.waiting.append(worker)

    def _hash(self, offer: int) -> bytes:
        """Of all bytes, and of all that decides beside them what they are packed to."""
        reading = read_only(offer)
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
                    pack(self._executor, job.offer, theirs)
            self._packing = _Packing(job, pid, ours, time.monotonic() + SECONDS)
            self._poller.register(ours, select.POLLIN)

    def _collect(self, packing: _Packing) -> None:
        """What a packing process sends: at most one message, then its end, after which nothing is mapped."""
        try:
            # TRUST: it may be taken over by the bytes that it packs; what it sends is kept for these alone.
            data, fds, _, _ = socket.recv_fds(
                packing.result, 16, MAX_FILES, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            data, fds = b"", []
        if data and not packing.files:
            packing.files = fds
            return
        for fd in fds:
            os.close(fd)
        if data:
            return
        files, packing.files = packing.files, []
        self._finish(packing, self._sealed(files))

    def _sealed(self, files: list[int]) -> Packed:
        """Files of a packing process as they are kept; nothing if one of them is not a memory file."""
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
                os.close(fd)
        return Packed(tuple(kept), size)

    def _finish(self, packing: _Packing, packed: Packed) -> None:
        self._poller.unregister(packing.result)
        packing.result.close()
        for fd in packing.files:
            os.close(fd)
        self._packing = None
        self._given_up.add(packing.pid)
        self._publish(packing.job, packed)

    def _publish(self, job: _Job, packed: Packed) -> None:
        os.close(job.offer)
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


def _processor_features() -> bytes:
    """What the processors report that they can; kernels, and so what they read, are chosen by it."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    wanted = (b"flags", b"Features", b"model name", b"CPU part")
    return b"\n".join(sorted({line for line in lines if line.startswith(wanted)}))
