"""Steps in a loop in C are timed to their ends, however long one takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nnburst
from nnburst.bench import plans
from nnburst.bench.cases import adding_model

#: An execution outlasts the time after which a wait in C looks for signals.
SLOW = """
from nnburst.bench import plans
from nnburst.bench.plans import TimedWait

plans.WAIT = 0.08
"""


def test_step_that_outlasts_a_slice_of_the_wait_is_a_sample_like_any_other(
    make_module: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_module("slow_wait", SLOW)
    monkeypatch.setattr(plans, "WARM_UP", 1)
    with (
        nnburst.launch("slow_wait:TimedWait") as device,
        device.prepare(adding_model(1, 1)) as prepared,
        prepared.open_burst() as burst,
    ):
        for case in plans.steps_in_c(burst):
            assert min(case.samples(2)) >= 2 * 80e6, case.name
