"""Calls in progress stay together within a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.control.channel import CallBudget, Cost
from nnburst.hal.errors import ResourceExhausted

LIMIT = Cost(3, 8, 100)


def test_what_is_given_back_can_be_taken_again() -> None:
    budget = CallBudget(LIMIT)
    for _ in range(5):
        budget.take(LIMIT)
        budget.release(LIMIT)


@pytest.mark.parametrize(
    ("cost", "named"),
    [
        (Cost(4, 0, 0), "3 calls"),
        (Cost(1, 9, 0), "8 file descriptors of calls"),
        (Cost(1, 0, 101), "100 bytes of calls"),
    ],
)
def test_each_kind_has_its_limit_and_nothing_is_taken_beyond(cost: Cost, named: str) -> None:
    budget = CallBudget(LIMIT)
    with pytest.raises(ResourceExhausted, match=f"at most {named} may be in progress"):
        budget.take(cost)
    budget.take(LIMIT)


@given(st.lists(st.tuples(*(st.integers(0, limit + 1) for limit in LIMIT)), max_size=20))
def test_never_more_is_taken_than_the_limit_and_all_of_it_comes_back(
    costs: list[tuple[int, int, int]],
) -> None:
    budget, taken = CallBudget(LIMIT), []
    for cost in (Cost(*c) for c in costs):
        try:
            budget.take(cost)
            taken.append(cost)
        except ResourceExhausted:
            pass
        sums = [sum(column) for column in zip(*taken, strict=True)]
        assert all(s <= limit for s, limit in zip(sums, LIMIT, strict=False))
    for cost in taken:
        budget.release(cost)
    budget.take(LIMIT)
