"""The calling end, which notices its peer's death in several ways at once."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn

import msgspec
import pytest

from nnburst.control import connection as connection_module
from nnburst.control.channel import (
    SEND_TIMEOUT,
    Channel,
    Disconnected,
    Fds,
    Incoming,
    ProtocolError,
)
from nnburst.control.connection import Connection, ReceivedReply, _ReplyReader, _Waiting
from nnburst.control.messages import (
    Fenced,
    Message,
    Nothing,
    Ping,
    Release,
    Reply,
    decode_call,
    encode,
)
from nnburst.hal.errors import DeadObject, MissedDeadline, ResourceExhausted

HANG = 10.0


class LateReader(Channel):
    """A channel whose receiver notices the end only when the test allows it."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.may_hear = threading.Event()

    def receive(self, timeout: float | None = None) -> Incoming:
        try:
            return super().receive(timeout)
        except Disconnected:
            self.may_hear.wait(HANG)
            raise


@pytest.fixture
def channel() -> Iterator[LateReader]:
    """Its peer is gone."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    right.close()
    late = LateReader(left)
    yield late
    late.may_hear.set()


def call(connection: Connection) -> None:
    connection.call(Ping(), Nothing, timeout=HANG)


def launch(connection: Connection) -> None:
    def answered(_: object) -> NoReturn:
        raise AssertionError("the call has raised")

    connection.call_async(Ping(), Nothing, (), answered, timeout=HANG)


def notify(connection: Connection) -> None:
    connection.notify(Ping(), HANG)


@pytest.mark.parametrize("use", [call, launch, notify])
def test_a_callback_for_a_death_finds_it_everywhere(
    channel: LateReader, use: Callable[[Connection], None]
) -> None:
    connection = Connection(channel, "the driver")
    assert connection.is_alive
    with pytest.raises(DeadObject):
        use(connection)
    assert not connection.is_alive
    told = threading.Event()
    connection.on_end(told.set)
    assert told.wait(HANG)
    channel.may_hear.set()
    connection.close()


def test_callbacks_for_the_end_run_though_a_send_found_it_first(channel: LateReader) -> None:
    connection, told = Connection(channel, "the driver"), threading.Event()
    connection.on_end(told.set)
    with pytest.raises(DeadObject):
        call(connection)
    channel.may_hear.set()
    assert told.wait(HANG)
    connection.close()


@pytest.fixture
def replies() -> Iterator[_ReplyReader]:
    """Nothing ever comes on its socket."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        quiet = _ReplyReader(left.fileno())
        yield quiet
        quiet.close()


def test_an_answer_that_comes_while_its_call_is_given_up_is_disposed_of(
    replies: _ReplyReader,
) -> None:
    disposed: list[object] = []
    for puts_first in (True, False):
        waiting = _Waiting(disposed.append, replies)
        answer = ReceivedReply(Reply(), Fds())
        steps = [partial(waiting.put, answer), waiting.abandon]
        for step in steps if puts_first else reversed(steps):
            step()
        assert disposed.pop() is answer
        assert not disposed


def test_signals_that_keep_coming_stretch_no_wait(replies: _ReplyReader) -> None:
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                _Waiting(lambda _: None, replies).wait(None, time.monotonic() + 0.003)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard


class Peer:
    """A connection, and the other end of its channel, which the test controls."""

    def __init__(self, kind: Callable[[socket.socket], Channel] = Channel) -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs = Channel(right)
        self.ours = kind(left)
        self.connection = Connection(self.ours, "the driver")

    def hear(self) -> tuple[int, Message]:
        """Receive the next call."""
        incoming = self.theirs.receive(HANG)
        incoming.fds.close()
        return incoming.id, decode_call(incoming.body)

    def answer(self, reply: Reply, fds: Sequence[int] = ()) -> None:
        """Answer the next call; with a descriptor it is for the reader."""
        self.theirs.send(self.hear()[0], encode(reply), fds)


@pytest.fixture
def peers() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(kind: Callable[[socket.socket], Channel] = Channel) -> Peer:
        made.append(Peer(kind))
        return made[-1]

    yield make
    for peer in made:
        peer.connection.close()
        peer.theirs.close()


class NoRoom(Channel):
    """A channel that has no room for the first message that it receives."""

    failure: MemoryError | ResourceExhausted | None = None

    def receive(self, timeout: float | None = None) -> Incoming:
        incoming = super().receive(timeout)
        failure, self.failure = self.failure, None
        return msgspec.structs.replace(incoming, failure=failure)


def test_an_answer_without_room_for_its_descriptors_fails_its_call_alone(
    peers: Callable[..., Peer],
) -> None:
    peer = peers(NoRoom)
    peer.ours.failure = ResourceExhausted("no descriptors")
    answered = threading.Thread(
        target=peer.answer, args=(Reply(result=Fenced(7)), [peer.theirs.fileno()]), daemon=True
    )
    answered.start()
    with pytest.raises(ResourceExhausted, match="no descriptors"):
        peer.connection.call(Ping(), Fenced, timeout=HANG)
    answered.join(HANG)
    assert peer.hear() == (0, Release(7))
    assert peer.connection.is_alive


def test_an_answer_without_room_for_its_body_fails_its_call_alone(
    peers: Callable[..., Peer],
) -> None:
    peer = peers(NoRoom)
    peer.ours.failure = MemoryError("no memory")
    threading.Thread(
        target=lambda: peer.theirs.send(peer.hear()[0], b"", [peer.theirs.fileno()]), daemon=True
    ).start()
    with pytest.raises(ResourceExhausted, match="no memory"):
        call(peer.connection)
    threading.Thread(target=peer.answer, args=(Reply(result=Nothing()),), daemon=True).start()
    call(peer.connection)


class Clock:
    """Time that passes only if a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class SlowToSend(Channel):
    """A channel whose sends take a while, and note how long they might have taken."""

    clock: Clock
    takes = 0.0
    full = False

    def send(
        self,
        id: int,  # noqa: A002 - what a channel calls it
        body: bytes,
        fds: Sequence[int] = (),
        timeout: float = SEND_TIMEOUT,
    ) -> None:
        self.timeouts = [*getattr(self, "timeouts", []), timeout]
        if self.full and id == 0:
            raise TimeoutError
        self.clock.now += self.takes
        super().send(id, body, fds, HANG)


@pytest.fixture
def slow(peers: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch) -> Peer:
    peer = peers(SlowToSend)
    peer.ours.clock = Clock()
    monkeypatch.setattr(connection_module, "time", peer.ours.clock)
    return peer


def test_a_call_has_one_timeout_for_sending_and_waiting(
    slow: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(_waiting: _Waiting, packet: bytes | None, deadline: float) -> bool:
        if packet is not None:
            return False  # the socket is full: the channel waits for room
        waits.append(deadline - slow.ours.clock.now)
        raise TimeoutError

    monkeypatch.setattr(_Waiting, "wait", wait)
    for slow.ours.takes in (4.0, 60.0):
        with pytest.raises(MissedDeadline, match="in 10 s"):
            slow.connection.call(Ping(), Nothing, timeout=10)
    assert waits == [6.0, -50.0]


def test_what_can_wait_does_not_hold_up_a_call_and_is_not_lost(slow: Peer) -> None:
    slow.ours.full = True
    for handle in (1, 2, 3):
        slow.connection.release_later(handle)
    with pytest.raises(MissedDeadline):
        slow.connection.call(Ping(), Nothing, timeout=0.01)
    assert slow.ours.timeouts == [0]
    assert slow.hear()[1] == Ping()
    slow.ours.full = False
    with pytest.raises(MissedDeadline):
        slow.connection.call(Ping(), Nothing, timeout=0.01)
    assert [slow.hear()[1] for _ in range(4)] == [Release(1), Release(2), Release(3), Ping()]


def test_a_call_that_could_not_leave_is_forgotten(peers: Callable[..., Peer]) -> None:
    connection = peers().connection
    while True:  # until the socket is full
        try:
            connection.notify(Ping(), 0)
        except TimeoutError:
            break
    for _ in range(10):
        with pytest.raises(MissedDeadline):
            connection.call(Ping(), Nothing, timeout=0.0001)
    assert not connection._abandoned
    assert not connection._pending


def test_calls_that_are_never_answered_do_not_pile_up(
    peers: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_MOST_ABANDONED", 8)
    peer, calls = peers(), []
    for _ in range(50):
        with pytest.raises(MissedDeadline):
            peer.connection.call(Ping(), Nothing, timeout=0.0001)
        calls.append(peer.hear()[0])
    assert len(peer.connection._abandoned) <= 8
    for call_number in calls:  # late, but no broken rule
        peer.theirs.send(call_number, encode(Reply(result=Nothing())))
    threading.Thread(target=peer.answer, args=(Reply(result=Nothing()),), daemon=True).start()
    call(peer.connection)


def test_a_second_answer_breaks_the_rules(peers: Callable[..., Peer]) -> None:
    peer = peers()

    def answer_twice() -> None:
        number = peer.hear()[0]
        for _ in range(2):
            peer.theirs.send(number, encode(Reply(result=Nothing())))

    threading.Thread(target=answer_twice, daemon=True).start()
    call(peer.connection)
    ended = threading.Event()
    peer.connection.on_end(ended.set)
    assert ended.wait(HANG)


def test_a_release_does_not_raise_where_the_peer_has_broken_the_rules(
    peers: Callable[..., Peer],
) -> None:
    peer = peers()
    threading.Thread(
        target=lambda: peer.theirs.send(peer.hear()[0], b"no reply"), daemon=True
    ).start()
    peer.connection.release(7)
    with pytest.raises(ProtocolError):
        call(peer.connection)
    peer.connection.release(7)
