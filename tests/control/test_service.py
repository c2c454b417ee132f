"""Connection against Service: every test has both ends in this process."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from descriptors import descriptors
from nnburst.control import channel as channel_module
from nnburst.control.channel import (
    MAX_CALLS,
    MAX_MESSAGE_CHARACTERS,
    CallBudget,
    Channel,
    Cost,
    Disconnected,
    Fds,
    Incoming,
)
from nnburst.control.connection import Connection
from nnburst.control.messages import (
    Allocated,
    Execute,
    Executed,
    Fenced,
    FreeMemory,
    GetMemories,
    Memories,
    Message,
    Nothing,
    Opened,
    OpenServedModel,
    Ping,
    Release,
    Reply,
    decode_call,
    decode_reply,
    encode,
)
from nnburst.control.service import Answer, Service, failure, nothing
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    Closed,
    DeadObject,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
    ResourceExhausted,
)
from nnburst.hal.model import MemoryPool
from nnburst.hal.types import OutputShape, Request

Handler = Callable[[Message, Fds], Answer]
decode_any = msgspec.msgpack.Decoder(Ping | Release | FreeMemory | GetMemories | Execute).decode


class Ends:
    """A connection and, behind it, a service on a thread whose handler a test can set."""

    def __init__(self, budget: CallBudget | None = None) -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server = Channel(right)
        self.handler: Handler = lambda _call, _fds: nothing()
        self.service = Service[Message](
            self.server, decode_any, lambda call, fds: self.handler(call, fds), self._submit, budget
        )
        self._threads: list[threading.Thread] = []
        self.failures: list[Exception] = []
        self._start(self._serve)
        self.connection = Connection(Channel(left), "the driver")

    def _serve(self) -> None:
        try:
            self.service.serve()
        except NnburstError as error:
            self.failures.append(error)

    def _submit(self, _call: Message, job: Callable[[], None]) -> None:
        self._start(job)

    def _start(self, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def finish_jobs(self) -> None:
        """Wait until the handlers' threads have ended; they outlive the replies by a moment."""
        for thread in self._threads[1:]:
            thread.join(timeout=10)
            assert not thread.is_alive()

    def close(self) -> None:
        self.connection.close()
        self.server.shutdown()
        self.finish_jobs()
        self._threads[0].join(timeout=10)
        self.server.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close()


def call(ends: Ends, message: Message | None = None, timeout: float = 10) -> Nothing:
    return ends.connection.call(message or Ping(), Nothing, timeout=timeout)[0]


def test_answers_reach_their_callers_whatever_order_they_come_in(ends: Ends) -> None:
    first_is_in, second_is_done = threading.Event(), threading.Event()

    def handler(message: Message, _fds: Fds) -> Answer:
        assert isinstance(message, Release)
        if message.handle == 1:
            first_is_in.set()
            assert second_is_done.wait(timeout=10)
        return Opened(message.handle), Fds()

    ends.handler = handler
    got: list[int] = []

    def first() -> None:
        got.append(ends.connection.call(Release(1), Opened, timeout=10)[0].handle)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_in.wait(timeout=10)
    got.append(ends.connection.call(Release(2), Opened, timeout=10)[0].handle)
    second_is_done.set()
    thread.join(timeout=10)
    assert got == [2, 1]


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (InvalidArgument("R4: no such pool"), InvalidArgument, "R4: no such pool"),
        (MemoryError(), ResourceExhausted, "out of memory"),
        (KeyError("oops"), GeneralFailure, "KeyError: 'oops'"),
        (RecursionError("deep"), InvalidArgument, "deep"),
        (SystemExit(3), GeneralFailure, "SystemExit: 3"),
        (GeneratorExit("x" * 10_000), GeneralFailure, "GeneratorExit: x{4081}$"),
    ],
)
def test_what_a_handler_raises_reaches_the_caller_and_the_next_call_works(
    ends: Ends, error: BaseException, expected: type[NnburstError], text: str
) -> None:
    def handler(_message: Message, _fds: Fds) -> Answer:
        raise error

    ends.handler = handler
    with pytest.raises(expected, match=text):
        call(ends)
    ends.handler = lambda _message, _fds: nothing()
    assert call(ends) == Nothing()


def test_text_that_utf8_lacks_is_escaped() -> None:
    reply = failure(InvalidArgument("of file \udcff"))
    assert reply.message == r"of file \udcff"
    assert encode(reply)


@pytest.mark.parametrize("handle", [np.int64(3), 2**70], ids=repr)
def test_result_that_no_message_can_hold_fails_the_call_at_once(ends: Ends, handle: object) -> None:
    ends.handler = lambda _message, _fds: (Opened(handle), Fds())  # type: ignore[arg-type]
    with pytest.raises(GeneralFailure):
        ends.connection.call(Release(1), Opened, timeout=10)
    ends.handler = lambda _message, _fds: nothing()
    assert call(ends) == Nothing()


def test_peer_that_never_answers_is_given_up() -> None:
    silent, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(served)
    service = Service[Message](channel, decode_any, lambda _call, _fds: nothing())
    with pytest.raises(TimeoutError):
        service.serve(0.01)
    channel.close()
    silent.close()


def test_peer_that_calls_all_the_time_and_does_not_become_known_is_given_up() -> None:
    talking, served = map(Channel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    handled: list[Message] = []
    service = Service[Message](
        served, decode_any, lambda call, _fds: (handled.append(call), nothing())[1]
    )

    def talk() -> None:
        with contextlib.suppress(Disconnected, TimeoutError):
            for number in itertools.count(1):
                talking.send(number, encode(Ping()))
                talking.receive(10)

    talker = threading.Thread(target=talk)
    talker.start()
    with pytest.raises(TimeoutError):
        service.serve(0.05, lambda: False)
    served.close()
    talker.join(20)
    assert handled
    talking.close()


def test_shapes_travel_with_output_insufficient_size(ends: Ends) -> None:
    shapes = (OutputShape((2, 0), False), OutputShape((3,), True))

    def handler(_message: Message, _fds: Fds) -> Answer:
        raise OutputInsufficientSize("too small", output_shapes=shapes)

    ends.handler = handler
    with pytest.raises(OutputInsufficientSize) as caught:
        call(ends)
    assert caught.value.output_shapes == shapes


def test_descriptors_travel_both_ways_and_none_stays_behind(ends: Ends) -> None:
    def handler(message: Message, _fds: Fds) -> Answer:
        assert isinstance(message, GetMemories)
        return Memories((1,) * len(message.slots)), Fds(os.dup(0) for _ in message.slots)

    ends.handler = handler
    before = descriptors()
    for _ in range(200):
        result, fds = ends.connection.call(GetMemories(1, (5, 6, 7)), Memories, timeout=10)
        with fds:
            assert len(fds) == len(result.sizes) == 3
    ends.finish_jobs()
    assert descriptors() <= before


def test_wrong_number_of_descriptors_fails_the_call_and_not_the_connection(ends: Ends) -> None:
    before = descriptors()
    for _ in range(1000):
        with pytest.raises(InvalidArgument, match="Ping came with 2 file descriptors, expected 0"):
            ends.connection.call(Ping(), Nothing, [0, 0], timeout=10)
    assert descriptors() <= before
    assert call(ends) == Nothing()


def test_peer_that_no_reply_can_be_sent_to_is_given_up(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object, **__: object) -> None:
        raise ResourceExhausted("no memory")

    monkeypatch.setattr(ends.server, "send", short)
    with pytest.raises(DeadObject):
        call(ends)
    ends.finish_jobs()


def test_result_of_another_type_fails_the_call(ends: Ends) -> None:
    ends.handler = lambda _message, _fds: (Executed(), Fds())
    with pytest.raises(GeneralFailure, match="answered Executed, expected Nothing"):
        call(ends)


def test_result_with_too_few_descriptors_fails_the_call(ends: Ends) -> None:
    ends.handler = lambda _message, _fds: (Memories((1, 2)), Fds([os.dup(0)]))
    with pytest.raises(GeneralFailure, match="Memories"):
        ends.connection.call(Ping(), Memories, timeout=10)


@pytest.mark.parametrize(
    "late", [Opened(77), Allocated(77, token=1), Fenced(77, is_done=True)], ids=str
)
def test_call_ends_at_its_deadline_and_a_late_answer_is_dropped(
    ends: Ends, late: Opened | Allocated | Fenced
) -> None:
    answer_now = threading.Event()
    released = threading.Event()

    def handler(message: Message, _fds: Fds) -> Answer:
        if isinstance(message, Release):
            assert message.handle == 77
            released.set()
            return nothing()
        assert answer_now.wait(timeout=10)
        return late, Fds()

    ends.handler = handler
    with pytest.raises(MissedDeadline, match=r"did not answer Ping in 0.01 s"):
        ends.connection.call(Ping(), Opened, timeout=0.01)
    answer_now.set()
    assert released.wait(timeout=10), "the object in the late answer was not released"
    ends.handler = lambda _message, _fds: nothing()
    assert call(ends) == Nothing()


def test_pending_calls_end_with_dead_object_when_the_peer_goes(ends: Ends) -> None:
    is_in, caught = threading.Semaphore(0), []
    stop = threading.Event()

    def handler(_message: Message, _fds: Fds) -> Answer:
        is_in.release()
        stop.wait(timeout=10)
        return nothing()

    def caller() -> None:
        try:
            call(ends)
        except NnburstError as error:
            caught.append(error)

    ends.handler = handler
    threads = [threading.Thread(target=caller) for _ in range(3)]
    for thread in threads:
        thread.start()
        assert is_in.acquire(timeout=10)
    ends.server.shutdown()
    for thread in threads:
        thread.join(timeout=10)
    stop.set()
    assert [type(error) for error in caught] == [DeadObject] * 3
    with pytest.raises(DeadObject, match="the driver is gone"):
        call(ends)


def test_pending_calls_end_with_closed_when_this_side_closes(ends: Ends) -> None:
    is_in, stop = threading.Event(), threading.Event()

    def handler(_message: Message, _fds: Fds) -> Answer:
        is_in.set()
        stop.wait(timeout=10)
        return nothing()

    def close() -> None:
        assert is_in.wait(timeout=10)
        ends.connection.close()

    ends.handler = handler
    closer = threading.Thread(target=close)
    closer.start()
    for _ in range(2):
        with pytest.raises(Closed, match="the connection to the driver was closed"):
            call(ends)
    stop.set()
    closer.join(timeout=10)


def test_end_is_notified_once_and_at_once_to_latecomers(ends: Ends) -> None:
    told: list[str] = []
    early = threading.Event()
    ends.connection.on_end(lambda: told.append("early"))
    forgotten = lambda: told.append("never")  # noqa: E731
    ends.connection.on_end(forgotten)
    ends.connection.remove_callback(forgotten)
    ends.connection.on_end(early.set)
    assert ends.connection.is_alive
    ends.server.shutdown()
    assert early.wait(timeout=10)
    ends.connection.on_end(lambda: told.append("late"))
    assert told == ["early", "late"]
    assert not ends.connection.is_alive


class HeldChannel(Channel):
    """Receives messages, and returns them only when the test asks for them."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.received, self.go_on = threading.Event(), threading.Event()

    def receive(self, timeout: float | None = None) -> Incoming:
        incoming = super().receive(timeout)
        self.received.set()
        assert self.go_on.wait(timeout=10)
        return incoming


def test_answer_that_was_under_way_when_the_peer_was_declared_dead_is_not_a_violation() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    held, peer = HeldChannel(left), Channel(right)
    connection = Connection(held, "the driver")

    def answer() -> None:
        # With a descriptor it is for the reader.
        peer.send(peer.receive(timeout=10).id, encode(Reply(result=Nothing())), [left.fileno()])
        assert held.received.wait(timeout=10)
        connection.peer_died()
        held.go_on.set()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(DeadObject):
        connection.call(Ping(), Nothing, timeout=10)
    thread.join(timeout=10)
    connection.close()
    with pytest.raises(DeadObject):
        connection.call(Ping(), Nothing, timeout=10)
    peer.close()


def test_callback_that_fails_does_not_keep_others_from_being_called(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()

    def fail() -> None:
        raise KeyError("oops")

    ends.connection.on_end(told.set)
    ends.connection.on_end(fail)  # the one added last is called first
    ends.server.shutdown()
    assert told.wait(timeout=10)
    assert "oops" in caplog.text


def test_posted_call_gets_no_answer_and_disturbs_no_other(ends: Ends) -> None:
    seen = threading.Event()

    def handler(message: Message, _fds: Fds) -> Answer:
        if isinstance(message, Release):
            seen.set()
            raise InvalidArgument("nobody hears this")
        return nothing()

    ends.handler = handler
    ends.connection.post(Release(1))
    assert seen.wait(timeout=10)
    assert call(ends) == Nothing()


def test_call_posted_later_travels_before_the_next_one(ends: Ends) -> None:
    seen: list[Message] = []

    def handler(message: Message, _fds: Fds) -> Answer:
        seen.append(message)
        return nothing()

    ends.handler = handler
    ends.connection.post_later(Release(1))
    ends.connection.post_later(Release(2))
    assert not seen
    assert call(ends) == Nothing()
    assert [m.handle for m in seen[:2] if isinstance(m, Release)] == [1, 2]


def test_more_calls_than_a_connection_may_make_are_refused_at_once(ends: Ends) -> None:
    free = threading.Event()
    is_in = threading.Semaphore(0)

    def handler(_message: Message, _fds: Fds) -> Answer:
        is_in.release()
        assert free.wait(timeout=30)
        return nothing()

    ends.handler = handler
    threads = [threading.Thread(target=call, args=(ends,)) for _ in range(MAX_CALLS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert is_in.acquire(timeout=10)
    with pytest.raises(ResourceExhausted, match=f"{MAX_CALLS} calls"):
        call(ends)
    free.set()
    for thread in threads:
        thread.join(timeout=10)
    ends.handler = lambda _message, _fds: nothing()
    assert call(ends) == Nothing()


def test_descriptors_beyond_the_budget_are_closed_and_their_call_is_refused() -> None:
    free, is_in = threading.Event(), threading.Event()

    def handler(_message: Message, _fds: Fds) -> Answer:
        is_in.set()
        assert free.wait(timeout=30)
        return nothing()

    ends = Ends(CallBudget(Cost(9, 2, 10**6)))
    kept, given = os.pipe()
    ends.handler = handler
    message = Execute(1, Request((), (), (MemoryPool(1),)), callback=1)
    sent = threading.Thread(
        target=ends.connection.call, args=(message, Nothing, [given]), kwargs={"timeout": 30}
    )
    sent.start()
    assert is_in.wait(timeout=10)
    two = Execute(1, Request((), (), (MemoryPool(1), MemoryPool(1, 1))), callback=1)
    with pytest.raises(ResourceExhausted, match="2 file descriptors of calls"):
        ends.connection.call(two, Nothing, [given, given], timeout=10)
    free.set()
    sent.join(timeout=10)
    assert ends.connection.call(two, Nothing, [given, given], timeout=10)[0] == Nothing()
    os.close(given)
    assert os.read(kept, 1) == b""  # no other process has the other end
    os.close(kept)
    ends.close()


def test_body_for_which_there_is_no_memory_fails_its_call_alone(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(fd: int, _size: int) -> bytes:
        os.close(fd)
        raise MemoryError

    assert call(ends) == Nothing()
    with monkeypatch.context() as patch:
        patch.setattr(channel_module, "_large_body", exhausted)
        large = GetMemories(1, tuple(range(40_000)))
        with pytest.raises(ResourceExhausted, match="out of memory"):
            ends.connection.call(large, Nothing, timeout=10)
    assert call(ends) == Nothing()


@pytest.mark.parametrize(
    "reply",
    [b"", b"\xff", encode(Ping()), msgspec.msgpack.encode({"status": 99})],
    ids=["empty", "not msgpack", "no reply", "unknown status"],
)
def test_invalid_reply_ends_the_connection(reply: bytes) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection, peer = Connection(Channel(left), "the driver"), Channel(right)
    thread = threading.Thread(target=lambda: peer.send(peer.receive(timeout=10).id, reply))
    thread.start()
    with pytest.raises(GeneralFailure):
        connection.call(Ping(), Nothing, timeout=10)
    thread.join(timeout=10)
    connection.close()
    peer.close()


def test_answer_to_a_call_that_was_not_made_ends_the_connection() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection, peer = Connection(Channel(left), "the driver"), Channel(right)
    ended = threading.Event()
    connection.on_end(ended.set)
    peer.send(12345, encode(Reply(result=Nothing())))
    assert ended.wait(timeout=10)
    with pytest.raises(GeneralFailure, match="call 12345, which was never made"):
        connection.call(Ping(), Nothing, timeout=10)
    connection.close()
    peer.close()


def test_dead_object_from_the_wire_is_a_failure_of_the_driver() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection, peer = Connection(Channel(left), "the driver"), Channel(right)
    reply = encode(Reply(ErrorStatus.DEAD_OBJECT, "i am dead"))
    thread = threading.Thread(target=lambda: peer.send(peer.receive(timeout=10).id, reply))
    thread.start()
    with pytest.raises(GeneralFailure):
        connection.call(Ping(), Nothing, timeout=10)
    thread.join(timeout=10)
    connection.close()
    peer.close()


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
_names = st.sampled_from(
    ["Hello", "Ping", "PrepareModel", "Release", "ExecuteSynchronously", "FreeMemory", "X"]
)


@given(
    tag=_names,
    fields=st.dictionaries(
        st.sampled_from(["protocol", "feature_level", "handle", "model", "request", "slot"]),
        _values,
    ),
)
@settings(max_examples=3 * environment.EXAMPLES.read())
def test_call_with_any_fields_is_decoded_or_refused(tag: str, fields: dict[str, object]) -> None:
    body = msgspec.msgpack.encode({"message": tag, **fields})
    try:
        assert type(decode_call(body)).__name__ == tag
    except msgspec.ValidationError:
        pass


@given(body=st.binary(max_size=100))
@settings(max_examples=3 * environment.EXAMPLES.read())
def test_any_body_is_decoded_or_refused(body: bytes) -> None:
    try:
        decode_call(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass


def test_deep_nesting_is_refused_and_not_followed() -> None:
    body = b"\x81\xa7message" + b"\x91" * 100_000
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        decode_call(body)


def test_call_with_a_name_that_is_not_utf_8_is_answered_as_malformed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = encode(OpenServedModel("pose")).replace(b"pose", b"\xffose")
    left, right = (Channel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    service = Service[Message](right, decode_call, lambda _call, _fds: nothing())
    left.send(1, body)
    assert service.accept(10) is None
    reply = decode_reply(left.receive(timeout=10).body)
    assert reply.status is ErrorStatus.INVALID_ARGUMENT
    assert re.match("malformed message: .*utf-8", reply.message, re.IGNORECASE)
    assert not caplog.records
    left.close()
    right.close()


def test_answer_to_a_malformed_message_repeats_little_of_it() -> None:
    with pytest.raises(msgspec.MsgspecError) as caught:
        decode_call(msgspec.msgpack.encode({"message": "A" * 1_000_000}))
    assert len(failure(caught.value).message) <= MAX_MESSAGE_CHARACTERS
    told = failure(RecursionError("C" * 1_000_000))
    assert (told.status, len(told.message)) == (
        ErrorStatus.INVALID_ARGUMENT,
        MAX_MESSAGE_CHARACTERS,
    )
