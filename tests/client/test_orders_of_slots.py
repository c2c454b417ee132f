"""Orders that open and close slots in a driver keep their words until they are seen to end."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnburst.client.burst.resident import _SharedBurst
from nnburst.hal.errors import MissedDeadline
from nnburst.hal.whole_graph import CLOSE_SLOT, OPEN_SLOT


class SlowDriver:
    """Takes orders and reads their words later; the first order's wait ends before it is done."""

    def __init__(self) -> None:
        self.words: list[Any] = []

    def execute(self, inputs: Sequence[Any], timeout: float) -> None:
        self.words.append(inputs[-1])
        if len(self.words) == 1:
            raise MissedDeadline(f"no result within {timeout:g} s")


def test_order_whose_wait_was_cut_short_keeps_its_word() -> None:
    driver = SlowDriver()
    burst: Any = SimpleNamespace(inputs=[None])
    shared = _SharedBurst(burst, driver.execute)
    with pytest.raises(MissedDeadline):
        shared.order(7, OPEN_SLOT, 1.0)
    shared.order(9, CLOSE_SLOT, 1.0)
    shared.order(11, CLOSE_SLOT, 1.0)
    assert driver.words[0].tolist() == [7, OPEN_SLOT], "the driver may read it only now"
    assert driver.words[1].tolist() == [11, CLOSE_SLOT]
    assert np.shares_memory(driver.words[1], driver.words[2]), (
        "an order that has ended gives it back"
    )
