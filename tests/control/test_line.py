"""Threads that call read their own answers, those of others beside them, and leave the rest to the reader."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interrupting import Handlers
from nnburst.control.channel import Channel, Disconnected
from nnburst.control.connection import Connection
from nnburst.control.messages import (
    Allocated,
    Fenced,
    Message,
    Nothing,
    Opened,
    Ping,
    Release,
    Reply,
    decode_call,
    encode,
)
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import Closed, DeadObject, MissedDeadline, ResourceExhausted
from waiting import wait_for

HANG = 10.0
#: What a peer does with a call: its number and message, and how to send an answer.
Answering = Callable[[int, Message], None]


class Watched(Connection):
    """A connection that counts what its reader hands out."""

    delivered = 0

    def _deliver(self, incoming: object) -> None:
        self.delivered += 1
        super()._deliver(incoming)  # type: ignore[arg-type]  # whatever it was given


class Peer:
    """Receives every call on a thread and answers as the test sets."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = Channel(theirs)
        self.connection = Watched(Channel(ours), "the driver")
        self.heard: list[Message] = []
        self.answering: Answering = lambda number, _: self.answer(number)
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def answer(self, number: int, result: Message | None = None, *fds: int) -> None:
        self.channel.send(number, encode(Reply(result=result or Nothing())), fds)

    def _hear(self) -> None:
        try:
            while True:
                incoming = self.channel.receive()
                incoming.fds.close()
                message = decode_call(incoming.body)
                self.heard.append(message)
                if incoming.id:
                    self.answering(incoming.id, message)
        except Disconnected:
            pass

    def close(self) -> None:
        self.connection.close()
        self._thread.join(HANG)
        self.channel.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def call(peer: Peer, timeout: float = HANG) -> Nothing:
    return peer.connection.call(Ping(), Nothing, timeout=timeout)[0]


def test_answer_is_read_by_who_called_and_wakes_no_reader(peer: Peer) -> None:
    for _ in range(200):
        assert call(peer) == Nothing()
    assert peer.connection.delivered == 0


def test_answer_with_a_descriptor_comes_by_the_reader(peer: Peer) -> None:
    peer.answering = lambda number, _: peer.answer(number, Fenced(7), peer.channel.fileno())
    fenced, fds = peer.connection.call(Ping(), Fenced, timeout=HANG)
    with fds:
        assert (fenced.handle, len(fds)) == (7, 1)
    assert peer.connection.delivered == 1


def test_large_answer_comes_by_the_reader(peer: Peer) -> None:
    def answer(number: int, _: Message) -> None:
        reply = Reply(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "x" * 4000)
        peer.channel.send(number, encode(reply))

    peer.answering = answer
    with pytest.raises(ResourceExhausted, match=r"x{4000}"):
        call(peer)
    assert peer.connection.delivered == 1


def test_who_leads_hands_others_their_answers(peer: Peer) -> None:
    """The first caller's answer comes last, so it reads for all."""
    waiting: list[int] = []

    def answer(number: int, _: Message) -> None:
        waiting.append(number)
        if len(waiting) == 8:
            for held in reversed(waiting):
                peer.answer(held, Opened(held))

    peer.answering = answer
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(peer.connection.call, Ping(), Opened, timeout=HANG) for _ in range(8)]
        handles = {done.result(HANG)[0].handle for done in calls}
    assert handles == set(waiting)
    assert peer.connection.delivered == 0


def test_lead_is_passed_on_by_who_waits_no_longer(peer: Peer) -> None:
    numbers: list[int] = []
    peer.answering = lambda number, _: numbers.append(number)
    with ThreadPoolExecutor(2) as pool:
        impatient = pool.submit(call, peer, 0.05)
        wait_for(lambda: len(numbers) == 1)
        patient = pool.submit(call, peer)
        wait_for(lambda: len(numbers) == 2)
        with pytest.raises(MissedDeadline):
            impatient.result(HANG)
        peer.answer(numbers[1])
        assert patient.result(HANG) == Nothing()
    assert peer.connection.delivered == 0


def test_late_answer_is_released_by_the_reader(peer: Peer) -> None:
    numbers: list[int] = []
    peer.answering = lambda number, _: numbers.append(number)
    with pytest.raises(MissedDeadline):
        peer.connection.call(Ping(), Opened, timeout=0.001)
    wait_for(lambda: numbers)
    peer.answer(numbers[0], Opened(5))
    wait_for(lambda: Release(5) in peer.heard)


def test_close_ends_all_who_wait(peer: Peer) -> None:
    numbers: list[int] = []
    peer.answering = lambda number, _: numbers.append(number)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(call, peer) for _ in range(4)]
        wait_for(lambda: len(numbers) == 4)
        peer.connection.close()
        for done in calls:
            with pytest.raises(Closed):
                done.result(HANG)
    with pytest.raises(Closed):
        call(peer)


def test_death_ends_all_waits_and_is_noticed_by_the_reader(peer: Peer) -> None:
    numbers: list[int] = []
    told: list[threading.Thread] = []
    peer.connection.on_end(lambda: told.append(threading.current_thread()))
    peer.answering = lambda number, _: numbers.append(number)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(call, peer) for _ in range(4)]
        wait_for(lambda: len(numbers) == 4)
        peer.channel.shutdown()
        for done in calls:
            with pytest.raises(DeadObject):
                done.result(HANG)
    wait_for(lambda: told)
    assert told == [peer.connection._reader]


def test_death_is_noticed_between_calls(peer: Peer) -> None:
    call(peer)
    ended = threading.Event()
    peer.connection.on_end(ended.set)
    peer.channel.shutdown()
    assert ended.wait(HANG)


def test_answers_of_launched_calls_come_while_others_wait(peer: Peer) -> None:
    numbers: list[int] = []
    peer.answering = lambda number, _: numbers.append(number)
    told = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, peer)
        wait_for(lambda: numbers)
        for _ in range(50):
            peer.connection.call_async(
                Ping(), Nothing, (), lambda _error: told.release(), timeout=HANG
            )
        wait_for(lambda: len(numbers) == 51)
        for number in numbers[1:]:
            peer.answer(number)
        for _ in range(50):
            assert told.acquire(timeout=HANG)
        peer.answer(numbers[0])
        assert waiting.result(HANG) == Nothing()


def test_handlers_that_raise_at_any_moment_lose_no_call_of_others(peer: Peer) -> None:
    """The main thread reads for all, is interrupted at random, and nothing that it read is lost."""
    peer.answering = lambda number, _: peer.answer(number, Allocated(number, 1))
    stop, failures, done = threading.Event(), [], 0

    def others() -> None:
        nonlocal done
        while not stop.is_set():
            try:
                peer.connection.call(Ping(), Allocated, timeout=HANG)
                done += 1
            except Exception as error:  # of whatever kind: the test shows it
                failures.append(error)
                return

    thread = threading.Thread(target=others)
    thread.start()
    handlers = Handlers(random.Random(7))
    try:
        with handlers.installed():
            for _ in range(300):
                handlers.around(
                    lambda: peer.connection.call(Ping(), Allocated, timeout=HANG), 0, 300e-6
                )
    finally:
        stop.set()
        thread.join(HANG)
    assert not failures
    assert done
    assert handlers.interrupted
    assert peer.connection.call(Ping(), Allocated, timeout=HANG)
    assert peer.connection.is_alive
