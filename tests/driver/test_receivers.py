"""The threads of a worker that receive: one at a time, in order, and one always does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from nnburst.control.channel import Channel, Fds, ProtocolError
from nnburst.control.messages import (
    FreeMemory,
    Message,
    Nothing,
    Ping,
    Release,
    decode_call,
    decode_reply,
    encode,
)
from nnburst.control.service import Answer, Job, Service, nothing
from nnburst.driver.service import worker as worker_module
from nnburst.driver.service.worker import Receivers
from nnburst.hal.enums import ErrorStatus
from waiting import wait_for

HANG = 10.0


class Ended(BaseException):
    """Stands for the end of the process."""


class Driver:
    """A service whose Pings run where they are received, as soon as another thread can take over."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.client, self.channel = Channel(ours), Channel(theirs)
        self.seen: list[Message] = []
        self.ran_on: list[threading.Thread] = []
        self.given_back = 0
        self.ends: list[BaseException | None] = []
        self.ended = threading.Event()
        self.handler: Callable[[Message], None] = lambda _: None
        service = Service[Message](self.channel, decode_call, self._handle, self._submit)
        self.receivers = Receivers(service, self.channel, self._end)  # type: ignore[arg-type]
        self._numbers = 0
        self._first = threading.Thread(target=self.receivers.receive, daemon=True)
        self._first.start()

    def _submit(self, call: Message, job: Job) -> Job | None:
        self.seen.append(call)
        if isinstance(call, Ping) and self.receivers.have_another():
            self.given_back += 1
            return job
        threading.Thread(target=job, daemon=True).start()
        return None

    def _handle(self, call: Message, _fds: Fds) -> Answer:
        self.ran_on.append(threading.current_thread())
        self.handler(call)
        return nothing()

    def _end(self, error: BaseException | None) -> None:
        self.ends.append(error)
        self.ended.set()

    def send(self, message: Message) -> int:
        self._numbers += 1
        self.client.send(self._numbers, encode(message))
        return self._numbers

    def call(self, message: Message) -> threading.Thread:
        """The thread that answered."""
        number = self.send(message)
        incoming = self.client.receive(HANG)
        while incoming.id < number:  # an answer to one that was only sent
            incoming = self.client.receive(HANG)
        assert incoming.id == number
        assert decode_reply(incoming.body).result == Nothing()
        return self.ran_on[-1]

    def warm_up(self) -> None:
        """Call until it runs where it is received."""
        deadline = time.monotonic() + HANG
        while "receiver" not in self.call(Ping()).name:
            assert time.monotonic() < deadline

    def close(self) -> None:
        self.client.close()
        assert self.ended.wait(HANG)
        self.channel.close()


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


def test_job_that_is_given_back_runs_on_a_thread_that_receives(driver: Driver) -> None:
    driver.warm_up()
    deadline, seen = time.monotonic() + HANG, 0
    while seen < 50:
        before = driver.given_back
        thread = driver.call(Ping())
        if driver.given_back > before:  # else the thread that answered last is not back yet
            assert thread is driver._first or thread.name == "nnburst receiver"
            seen += 1
        assert time.monotonic() < deadline


def test_another_thread_receives_while_one_runs_what_it_received(driver: Driver) -> None:
    driver.warm_up()
    held, go_on = threading.Event(), threading.Event()

    def hold(call: Message) -> None:
        if isinstance(call, Ping):
            held.set()
            assert go_on.wait(HANG)

    driver.handler = hold
    late = driver.send(Ping())
    assert held.wait(HANG)
    for handle in range(5):
        driver.call(Release(1 + handle))
    go_on.set()
    assert driver.client.receive(HANG).id == late


def test_end_of_the_client_is_noticed_while_a_job_runs(driver: Driver) -> None:
    driver.warm_up()
    held, go_on = threading.Event(), threading.Event()

    def hold(_: Message) -> None:
        held.set()
        assert go_on.wait(HANG)

    driver.handler = hold
    driver.send(Ping())
    assert held.wait(HANG)
    driver.client.shutdown()
    assert driver.ended.wait(HANG)
    assert driver.ends[0] is None
    go_on.set()


def test_broken_rule_is_reported_as_such(driver: Driver) -> None:
    driver.warm_up()
    driver.client._socket.send(b"no envelope")
    assert driver.ended.wait(HANG)
    assert isinstance(driver.ends[0], ProtocolError)


def test_calls_are_dealt_with_in_the_order_of_coming(driver: Driver) -> None:
    driver.warm_up()
    driver.seen.clear()
    calls: list[Message] = []
    for number in range(300):
        calls.append(Ping() if number % 3 else FreeMemory(number + 1, number))
        driver.send(calls[-1])
    for _ in calls:
        driver.client.receive(HANG)
    assert driver.seen == calls


# Until a receiver is ready again, which may take long, a thread of its own ends with such a job.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_job_that_fails_ends_no_thread(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver.warm_up()

    def fail(*_: object) -> None:
        raise SystemExit("a job")

    with monkeypatch.context() as patch:
        patch.setattr(Service, "_run", fail)
        deadline = time.monotonic() + HANG
        while caplog.text.count("a job raised") < 5:
            driver.send(Ping())
            assert time.monotonic() < deadline
            time.sleep(0.001)
    driver.warm_up()
    assert not driver.ended.is_set()


def test_without_a_second_thread_everything_is_answered_elsewhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            if "receiver" in self.name:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(worker_module.threading, "Thread", NoThread)
    driver = Driver()
    for _ in range(20):
        assert driver.call(Ping()) is not driver._first
    driver.close()
    assert caplog.text.count("cannot start a second receiver") == 1


def test_no_more_threads_receive_than_may_while_the_first_one_starts_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, started = threading.Event(), list[threading.Thread]()

    class SlowToStart(threading.Thread):
        def start(self) -> None:
            super().start()
            if self.name == "nnburst receiver":
                started.append(self)
                if len(started) == 1:
                    assert go_on.wait(HANG)

    monkeypatch.setattr(worker_module.threading, "Thread", SlowToStart)

    def hold(_: Message) -> None:
        assert go_on.wait(HANG)

    driver = Driver()
    driver.handler = hold
    for _ in range(30):
        driver.send(Ping())
    driver.send(Release(1))
    wait_for(lambda: Release(1) in driver.seen)
    go_on.set()
    driver.close()
    assert 1 + len(started) == driver.receivers._threads <= driver.receivers._most


def test_no_more_threads_receive_than_may(driver: Driver) -> None:
    driver.warm_up()
    go_on = threading.Event()

    def hold(_: Message) -> None:
        assert go_on.wait(HANG)

    driver.handler = hold
    sent = [driver.send(Ping()) for _ in range(30)]
    driver.handler = lambda _: None
    driver.send(Release(1))
    wait_for(lambda: Release(1) in driver.seen)
    assert driver.receivers._threads <= driver.receivers._most
    go_on.set()
    answered = {driver.client.receive(HANG).id for _ in range(31)}
    assert answered == {*sent, sent[-1] + 1}


def test_reply_of_a_failure_is_its_status(driver: Driver) -> None:
    driver.warm_up()

    def fail(_: Message) -> None:
        raise MemoryError

    driver.handler = fail
    driver.send(Ping())
    reply = decode_reply(driver.client.receive(HANG).body)
    assert reply.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
