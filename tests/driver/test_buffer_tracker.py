from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nnburst.control.service import Closable, ObjectTable
from nnburst.driver.model.buffers import BufferTracker
from nnburst.hal.errors import InvalidArgument


class Bare:
    """A buffer as a tracker sees it."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self.close = closed


def bare(_token: int, closed: Callable[[], None]) -> Any:
    return Bare(closed)


class Hasty(ObjectTable):
    """Of a client that guesses the handle and releases it before it gets it."""

    def add(self, target: Closable) -> int:
        handle = super().add(target)
        self.release(handle)
        return handle


def test_buffer_that_is_released_before_its_handle_is_sent_leaves_no_token() -> None:
    tracker = BufferTracker(Hasty())
    _, token = tracker.add(bare)
    assert token == 1
    assert not tracker._handles
    with pytest.raises(InvalidArgument, match="token: 1 does not name a buffer"):
        tracker.acquire(token)
    assert tracker.add(bare)[1] == 1, "the token is free again"
