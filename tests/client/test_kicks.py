"""The socket that wakes an event loop, where it is closed at the wrong moment."""

from __future__ import annotations

import pytest

from nnburst import Closed
from nnburst.client.burst.kicks import Kicks


def test_closed_kicks_cannot_be_watched() -> None:
    kicks = Kicks()
    kicks.close()
    with pytest.raises(Closed):
        kicks.hold()
    kicks.close()


def test_kicks_that_are_watched_keep_their_descriptor_until_nobody_watches() -> None:
    kicks = Kicks()
    kicks.hold()
    kicks.close()
    assert kicks.fileno() >= 0
    assert not kicks.drain()
    kicks.let_go()
    assert kicks.fileno() < 0
