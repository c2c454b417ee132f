"""Ends of a queue that wait, in threads and other processes: signals, closing, deaths, successors."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from subprocess import PIPE, Popen
from typing import Any

import msgspec
import numpy as np
import pytest

from fmq.queues import ELEMENT, opened_again
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal.errors import BadState, Closed, DeadObject, InvalidArgument
from programs import environ_of_tests, run_program
from waiting import wait_for


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start a thread; what it returns or raises comes into the list."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_second_thread_is_refused_while_one_waits() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    reader = opened_again(queue)
    thread, outcome = in_thread(lambda: reader.read(1, timeout=20))
    wait_for(lambda: reader.statistics().sleeps > 0)
    with pytest.raises(BadState, match="another thread is using this reader"):
        reader.read(1)
    queue.write(np.zeros(1, ELEMENT))
    thread.join(20)
    assert len(outcome) == 1
    assert isinstance(outcome[0], np.ndarray)


@pytest.mark.parametrize("side", ["reader", "writer"])
def test_close_ends_a_wait_of_another_thread(side: str) -> None:
    queue = MessageQueue.create(ELEMENT, 2)
    if side == "writer":
        queue.write(np.zeros(2, ELEMENT))
        thread, outcome = in_thread(lambda: queue.write(np.zeros(1, ELEMENT), timeout=20))
    else:
        thread, outcome = in_thread(lambda: queue.read(1, timeout=20))
    wait_for(lambda: queue.statistics().waits > 0)
    queue.close()
    thread.join(20)
    assert [type(found) for found in outcome] == [Closed]


def test_wait_ends_when_the_other_end_closes() -> None:
    queue = MessageQueue.create(ELEMENT, 2)
    reader = opened_again(queue)
    assert reader.read(1) is None
    queue.write(np.zeros(2, ELEMENT))
    thread, outcome = in_thread(lambda: queue.write(np.zeros(1, ELEMENT), timeout=20))
    wait_for(lambda: queue.statistics().waits > 0)
    reader.close()
    thread.join(20)
    assert [type(found) for found in outcome] == [Closed]


def has_slept(queue: MessageQueue, times: int) -> bool:
    return queue.statistics().sleeps > times


def test_reader_sleeps_on_until_all_that_it_wants_is_there() -> None:
    queue = MessageQueue.create(ELEMENT, 8)
    reader = opened_again(queue)
    thread, outcome = in_thread(lambda: reader.read(3, timeout=20))
    for number in range(3):
        wait_for(partial(has_slept, reader, number))
        queue.write(np.array([number], ELEMENT))
    thread.join(20)
    assert isinstance(outcome[0], np.ndarray)
    assert outcome[0].tolist() == [0, 1, 2]


def test_every_reader_of_an_unsynchronized_queue_is_woken() -> None:
    writer = MessageQueue.create(ELEMENT, 64, Flavor.UNSYNCHRONIZED_WRITE, spin_window=0.0)
    readers = [opened_again(writer) for _ in range(4)]

    def read_all(reader: MessageQueue) -> list[int]:
        return [
            int(found[0]) for _ in range(50) if (found := reader.read(1, timeout=20)) is not None
        ]

    threads = [in_thread(partial(read_all, reader)) for reader in readers]
    for number in range(50):
        wait_for(lambda number=number: all(r.statistics().read >= number for r in readers))  # type: ignore[misc]
        assert writer.write(np.array([number], ELEMENT))
    for thread, _ in threads:
        thread.join(20)
    assert [outcome for _, outcome in threads] == [[list(range(50))]] * 4
    assert [reader.statistics().missed for reader in readers] == [0] * 4


def test_queue_that_may_not_spin_sleeps_at_once() -> None:
    queue = MessageQueue.create(ELEMENT, 4, spin_window=0.0)
    assert queue.read(1, timeout=0.002) is None
    found = queue.statistics()
    assert (found.waits, found.spun_seconds) == (1, 0.0)
    assert found.sleeps >= 1


@pytest.mark.parametrize("window", [-1, 1.5, "1", float("nan")])
def test_spin_window_is_checked(window: Any) -> None:
    with pytest.raises(InvalidArgument, match="spin_window"):
        MessageQueue.create(ELEMENT, 4, spin_window=window)


class Interrupted(Exception):
    """An exception that a signal handler raises."""


def test_signal_handler_that_raises_ends_a_wait_and_nothing_is_lost() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    reader = opened_again(queue)

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident or 0

    def disturb() -> None:
        wait_for(lambda: reader.statistics().sleeps > 0)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread, _ = in_thread(disturb)
    try:
        with pytest.raises(Interrupted):
            reader.read(1, timeout=20)
        thread.join(20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    queue.write(np.array([5], ELEMENT))
    found = reader.read(1, timeout=20)
    assert found is not None
    assert found.tolist() == [5]


# --- another process ---

OPENED = """
import os, sys
import msgspec, numpy as np
from nnburst.fmq.shared_memory import MQDescriptor
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import NnburstError
queue = MessageQueue.open(
    msgspec.json.decode(sys.argv[1], type=MQDescriptor), [SharedMemory.adopt(int(sys.argv[2]))], "<u4"
)
"""


def start(queue: MessageQueue, program: str) -> Popen[str]:
    """Another program that has opened the queue."""
    fd = queue.memories[0].fd
    descriptor = msgspec.json.encode(queue.descriptor).decode()
    return Popen(
        [sys.executable, "-c", OPENED + program, descriptor, str(fd)],
        pass_fds=[fd],
        env=environ_of_tests(),
        stdin=PIPE,
        stdout=PIPE,
        text=True,
    )


def test_second_writer_in_another_process_is_refused() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    queue.write(np.zeros(1, ELEMENT))
    program = """
try:
    queue.write(np.zeros(1, "<u4"))
except NnburstError as error:
    print(type(error).__name__, error)
print(queue.read(1), queue.peer == os.getppid())
"""
    with start(queue, program) as peer:
        output, _ = peer.communicate(timeout=60)
    assert output == "BadState the queue has a writer already: one at a time\n[0] True\n"


def test_reader_learns_at_once_that_the_process_of_the_writer_was_killed() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    program = 'queue.write(np.arange(2, dtype="<u4")); print("ready", flush=True); sys.stdin.read()'
    with start(queue, program) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        assert queue.read(1, timeout=20) is not None
        thread, outcome = in_thread(lambda: queue.read(2, timeout=20))
        wait_for(lambda: queue.statistics().sleeps > 0)
        peer.kill()
        thread.join(20)
    assert [type(found) for found in outcome] == [DeadObject]
    assert queue.read(1) is not None, "what it has written is still there"


def test_writer_learns_that_the_process_of_the_reader_was_killed() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    program = 'queue.read(1); print("ready", flush=True); sys.stdin.read()'
    with start(queue, program) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        assert queue.write(np.zeros(4, ELEMENT))
        thread, outcome = in_thread(lambda: queue.write(np.zeros(1, ELEMENT), timeout=20))
        wait_for(lambda: queue.statistics().waits > 0)
        peer.kill()
        thread.join(20)
    assert [type(found) for found in outcome] == [DeadObject]
    with pytest.raises(DeadObject):
        queue.write(np.zeros(1, ELEMENT))


def test_program_that_ends_has_closed_its_end() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    with start(queue, 'queue.write(np.zeros(1, "<u4"))') as peer:
        peer.communicate(timeout=60)
    assert queue.read(1, timeout=20) is not None
    with pytest.raises(Closed, match="writer has closed"):
        queue.read(1, timeout=20)


def test_program_takes_the_place_of_one_that_was_killed_and_finds_what_is_unread() -> None:
    queue = MessageQueue.create(ELEMENT, 8, reopen=True)
    program = 'queue.write(np.arange(3, dtype="<u4")); print("ready", flush=True); sys.stdin.read()'
    for _ in range(2):
        with start(queue, program) as peer:
            assert peer.stdout is not None
            assert peer.stdout.readline() == "ready\n"
            peer.kill()
    found = queue.read(6, timeout=20)
    assert found is not None
    assert found.tolist() == [0, 1, 2, 0, 1, 2]


FORKED = """
from fmq.queues import ELEMENT
import multiprocessing
import os
import pickle
import numpy as np
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal.errors import BadState, Closed
queue = MessageQueue.create(ELEMENT, 4)
send, receive = queue.sender(np.zeros(1, ELEMENT)), queue.receiver(np.zeros(1, ELEMENT))
send()
if (pid := os.fork()) == 0:
    refused = 0
    for call, error in (
        (send, Closed),
        (receive, Closed),
        (lambda: queue.write(np.zeros(1, ELEMENT)), BadState),
        (lambda: queue.read(1), BadState),
    ):
        try:
            call()
        except error as found:
            refused += "forked" in str(found) or "already" in str(found)
    queue.close()
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), receive() is not None, send())
"""


def test_forked_child_is_refused_and_takes_no_end_with_it() -> None:
    assert run_program(FORKED) == "4 True True\n"


def echo(there: MessageQueue, back: MessageQueue) -> None:
    """The work of a child of multiprocessing."""
    while (found := there.receive(timeout=20)) is not None and found:
        back.send(found[::-1], timeout=20)


ECHO = """
import multiprocessing, os, sys
from fmq.test_waiting_ends import echo
from nnburst.fmq import MessageQueue
there, back = MessageQueue.create(bytes, 256), MessageQueue.create(bytes, 256)
before = len(os.listdir("/proc/self/fd"))
child = multiprocessing.get_context("fork").Process(target=echo, args=(there, back))
child.start()
for message in (b"one", b"two"):
    assert there.send(message)
    assert back.receive(timeout=60) == message[::-1]
assert there.send(b"")
child.join(60)
child.close()
print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_queues_go_on_in_a_child_that_is_forked() -> None:
    assert run_program(ECHO) == "0\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_queues_go_to_a_child_that_is_spawned(method: str) -> None:
    there, back = MessageQueue.create(bytes, 256), MessageQueue.create(bytes, 256)
    child = multiprocessing.get_context(method).Process(target=echo, args=(there, back))
    child.start()
    for message in (b"one", b"two"):
        assert there.send(message)
        assert back.receive(timeout=60) == message[::-1]
    assert there.send(b"")
    child.join(60)
    assert child.exitcode == 0


def test_queue_is_pickled_for_nothing_else() -> None:
    with pytest.raises(TypeError, match="neither pickled nor copied"):
        pickle.dumps(MessageQueue.create(ELEMENT, 4))
