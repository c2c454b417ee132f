"""Threads whose start nothing waits for."""

from __future__ import annotations

import threading
import weakref

import pytest

from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.utils import DaemonThread, ReadyThread

PATIENCE = 30.0


def test_function_runs_on_another_thread_and_the_end_can_be_waited_for() -> None:
    ran: list[int] = []
    thread = DaemonThread(lambda: ran.append(threading.get_ident()))
    assert thread.join(PATIENCE)
    assert ran != [threading.get_ident()]
    assert thread.join(0)


def test_waiting_for_a_thread_that_goes_on_ends_with_its_timeout() -> None:
    go_on = threading.Event()
    thread = DaemonThread(lambda: _wait(go_on))
    assert not thread.join(0.01)
    go_on.set()
    assert thread.join(PATIENCE)


def test_what_a_thread_raises_goes_where_that_of_other_threads_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda about: raised.append(about.exc_value))
    wrong = ValueError("as wanted")

    def fail() -> None:
        raise wrong

    assert DaemonThread(fail).join(PATIENCE)
    assert raised == [wrong]


def test_thread_keeps_neither_its_maker_nor_the_function_after_the_end() -> None:
    class Maker:
        def __init__(self) -> None:
            self.thread = DaemonThread(self.run)

        def run(self) -> None:
            """End at once."""

    maker = Maker()
    assert maker.thread.join(PATIENCE)
    seen = weakref.ref(maker)
    del maker
    deadline = threading.Event()
    for _ in range(1000):
        if seen() is None:
            break
        deadline.wait(0.01)
    assert seen() is None


def test_profilers_see_the_thread_as_they_see_those_of_threading() -> None:
    seen: list[str] = []
    before = threading.getprofile()
    threading.setprofile(lambda frame, _event, _argument: seen.append(frame.f_code.co_name))
    try:
        assert DaemonThread(_named).join(PATIENCE)
    finally:
        threading.setprofile(before)
    assert "_named" in seen


def _named() -> None:
    return


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE)


def test_thread_that_was_started_ahead_runs_its_function_once_that_is_known() -> None:
    thread, ran = ReadyThread("ahead"), list[threading.Thread]()
    assert thread.is_alive()
    thread.begin(lambda: ran.append(threading.current_thread()))
    thread.join(PATIENCE)
    assert ran == [thread]
    assert (thread.name, thread.daemon) == ("ahead", True)


def test_thread_that_cannot_be_started_ahead_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ResourceExhausted, match="cannot start the thread 'ahead'"):
        ReadyThread("ahead")
