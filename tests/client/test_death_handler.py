from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst import GeneralFailure, InvalidArgument
from nnburst.client.session.death_handler import DeathHandler, Protection
from nnburst.control.channel import Channel
from nnburst.control.connection import Connection

HANG = 10.0


class Driver:
    """A connection whose other end can die."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection = Connection(Channel(ours), "the driver")
        self._theirs = theirs
        self._ended = threading.Event()
        self.connection.on_end(self._ended.set)  # runs last: it was added first

    def die(self) -> None:
        self._theirs.close()
        assert self._ended.wait(HANG)

    def close(self) -> None:
        self._theirs.close()
        self.connection.close()


class Told:
    """A callback that counts."""

    def __init__(self) -> None:
        self.times = 0

    def notify_as_dead_object(self) -> None:
        self.times += 1


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


def test_death_in_the_scope_is_told_once(driver: Driver) -> None:
    handler, told = DeathHandler.create(driver.connection), Told()
    with handler.protect_callback(told):
        driver.die()
        assert told.times == 1
    driver.close()
    assert told.times == 1


def test_death_after_the_scope_is_not_told(driver: Driver) -> None:
    handler, told = DeathHandler.create(driver.connection), Told()
    with handler.protect_callback(told) as protection:
        pass
    protection.close()
    driver.die()
    assert told.times == 0


def test_death_before_the_scope_is_told_at_once(driver: Driver) -> None:
    handler, told = DeathHandler.create(driver.connection), Told()
    driver.die()
    with handler.protect_callback(told):
        assert told.times == 1
    assert told.times == 1


def test_protection_for_lifetime_needs_no_scope(driver: Driver) -> None:
    handler, told = DeathHandler.create(driver.connection), Told()
    handler.protect_callback_for_lifetime(told)
    driver.die()
    assert told.times == 1


def test_closing_the_connection_is_an_end_like_death(driver: Driver) -> None:
    handler, told = DeathHandler.create(driver.connection), Told()
    handler.protect_callback_for_lifetime(told)
    driver.connection.close()
    assert told.times == 1


def test_nothing_cannot_be_protected_or_watched(driver: Driver) -> None:
    handler = DeathHandler.create(driver.connection)
    with pytest.raises(InvalidArgument, match="callback is None"):
        handler.protect_callback(None)
    with pytest.raises(InvalidArgument, match="callback is None"):
        handler.protect_callback_for_lifetime(None)
    with pytest.raises(InvalidArgument, match="connection is None"):
        DeathHandler.create(None)


def test_dead_driver_cannot_be_watched(driver: Driver) -> None:
    driver.die()
    with pytest.raises(GeneralFailure):
        DeathHandler.create(driver.connection)


def test_callback_that_raises_keeps_no_other_from_being_told(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises:
        def notify_as_dead_object(self) -> None:
            raise RuntimeError("oh")

    handler, told = DeathHandler.create(driver.connection), Told()
    handler.protect_callback_for_lifetime(Raises())
    handler.protect_callback_for_lifetime(told)
    driver.die()
    assert told.times == 1
    assert "oh" in caplog.text


@given(st.lists(st.sampled_from(["protect", "leave", "die"]), max_size=10))
def test_any_order_of_steps_tells_who_is_in_the_scope_at_the_death(steps: list[str]) -> None:
    driver = Driver()
    handler = DeathHandler.create(driver.connection)
    inside: list[tuple[Protection, Told]] = []
    outside: list[Told] = []
    expected: dict[int, int] = {}
    dead = False
    for step in steps:
        if step == "protect":
            told = Told()
            inside.append((handler.protect_callback(told), told))
            expected[id(told)] = int(dead)
        elif step == "leave" and inside:
            protection, told = inside.pop()
            protection.close()
            outside.append(told)
        elif step == "die" and not dead:
            driver.die()
            dead = True
            expected |= {id(told): 1 for _, told in inside}
    for told in [*outside, *(told for _, told in inside)]:
        assert told.times == expected[id(told)]
    driver.close()
