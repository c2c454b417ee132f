"""Notifications for a client that does not read: none is lost, none comes twice, none is out of order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnburst.control.channel import Channel
from nnburst.control.connection import Connection
from nnburst.control.messages import Message, NotifyPrepared, decode_upcall
from nnburst.driver.client_session import Outbox
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import ResourceExhausted
from waiting import wait_for

HANG = 20.0
#: More than a socket takes.
MANY = 2000


class Ends:
    """An outbox, and the client that it writes to."""

    def __init__(self, limit: int = 2 * MANY) -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.connection = Connection(Channel(left), "the client")
        self.outbox = Outbox(self.connection, limit)
        self.client = Channel(right)

    def post(self, number: int) -> None:
        assert self.outbox.ticket().post(message(number))

    def read(self) -> int:
        incoming = self.client.receive(HANG)
        assert incoming.id == 0
        decoded: Message = decode_upcall(incoming.body)
        assert isinstance(decoded, NotifyPrepared)
        return decoded.callback

    def close(self) -> None:
        self.connection.close()
        self.client.close()


def message(number: int) -> NotifyPrepared:
    return NotifyPrepared(number, ErrorStatus.NONE, "x" * 100, handle=1)


@pytest.fixture
def ends() -> Iterator[Ends]:
    pair = Ends()
    yield pair
    pair.close()


def outbox_threads() -> int:
    return sum(thread.name == "nnburst outbox" for thread in threading.enumerate())


def test_notification_has_left_when_post_returns(ends: Ends) -> None:
    ends.post(1)
    assert ends.client.receive(0) is not None
    assert outbox_threads() == 0


def test_client_that_reads_late_misses_nothing_and_holds_up_no_thread(ends: Ends) -> None:
    for number in range(MANY):
        ends.post(number)
    assert [ends.read() for _ in range(MANY)] == list(range(MANY))
    ends.post(MANY)
    assert ends.read() == MANY
    wait_for(lambda: outbox_threads() == 0)


def test_posts_of_many_threads_all_arrive(ends: Ends) -> None:
    def post(first: int) -> None:
        for number in range(first, first + 100):
            ends.post(number)

    threads = [threading.Thread(target=post, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    got = [ends.read() for _ in range(800)]
    for thread in threads:
        thread.join(HANG)
    assert sorted(got) == list(range(800))
    for first in range(0, 800, 100):
        mine = [number for number in got if first <= number < first + 100]
        assert mine == sorted(mine)


def test_only_the_first_message_of_a_ticket_is_posted(ends: Ends) -> None:
    ticket = ends.outbox.ticket()
    assert ticket.post(message(1))
    assert not ticket.post(message(2))
    ticket.cancel()
    ends.post(3)
    assert [ends.read(), ends.read()] == [1, 3]


def test_tickets_count_until_their_message_has_left() -> None:
    ends = Ends(limit=3)
    kept = [ends.outbox.ticket() for _ in range(3)]
    with pytest.raises(ResourceExhausted, match="3 notifications"):
        ends.outbox.ticket()
    kept.pop().cancel()
    ends.post(1)
    kept.pop().post(message(2))
    kept.pop().cancel()
    assert [ends.outbox.ticket() for _ in range(3)]
    ends.close()


def test_tickets_of_a_client_that_does_not_read_run_out() -> None:
    ends, posted = Ends(limit=MANY), 0
    with pytest.raises(ResourceExhausted):
        for _ in range(10 * MANY):  # those that the socket takes do not count any more
            ends.post(posted)
            posted += 1
    assert posted > MANY
    assert [ends.read() for _ in range(posted)] == list(range(posted))
    wait_for(lambda: outbox_threads() == 0)
    ends.post(0)
    ends.close()


def test_client_that_is_gone_holds_up_no_thread() -> None:
    ends = Ends()
    for number in range(MANY):
        ends.post(number)
    ends.client.close()
    wait_for(lambda: outbox_threads() == 0)
    ends.post(1)
    ends.close()


@pytest.mark.parametrize("failure", [ResourceExhausted("no descriptor"), MemoryError()])
def test_notification_that_nothing_is_left_for_leaves_when_there_is(
    ends: Ends, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, notify = [failure] * 3, ends.connection.notify

    def short(message: Message, timeout: float) -> None:
        if failures:
            raise failures.pop()
        notify(message, timeout)

    monkeypatch.setattr(ends.connection, "notify", short)
    ends.post(1)
    ends.post(2)
    assert [ends.read(), ends.read()] == [1, 2]
    assert not failures
    wait_for(lambda: outbox_threads() == 0)


@given(st.lists(st.sampled_from(["ticket", "post", "cancel", "read"]), max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_order_of_steps_keeps_the_count(steps: list[str]) -> None:
    ends, limit = Ends(limit=5), 5
    tickets, posted, read = [], 0, 0
    for step in steps:
        if step == "ticket" and len(tickets) < limit:
            tickets.append(ends.outbox.ticket())
        elif step == "ticket":
            with pytest.raises(ResourceExhausted):
                ends.outbox.ticket()
        elif step == "post" and tickets:
            assert tickets.pop().post(message(posted))
            posted += 1
        elif step == "cancel" and tickets:
            tickets.pop().cancel()
        elif step == "read" and read < posted:
            assert ends.read() == read
            read += 1
    assert [ends.read() for _ in range(posted - read)] == list(range(read, posted))
    ends.close()
