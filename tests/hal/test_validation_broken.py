"""A broken rule keeps its id on the way from the check that found it to the caller that knows the place."""

from __future__ import annotations

import pytest

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.validation.values import Broken, check_range


def test_an_error_that_names_its_rule_keeps_it() -> None:
    broken = Broken.by(InvalidArgument("validation:D11: one line\nand another"), "P4")
    assert (broken.rule, broken.message) == ("D11", "one line\nand another")


@pytest.mark.parametrize("text", ["no rule", "d1: small", "D: no number", "see P4: later", ""])
def test_an_error_without_a_rule_gets_that_of_the_caller(text: str) -> None:
    broken = Broken.by(InvalidArgument(text), "P4")
    assert (broken.rule, broken.message) == ("P4", text)


def test_the_place_stands_between_rule_and_message() -> None:
    error = Broken("M3", "fd_index is -1").at("pools[0]")
    assert isinstance(error, InvalidArgument)
    assert str(error) == "validation:M3: pools[0]: fd_index is -1"


@pytest.mark.parametrize("value", [2, 3, 5])
def test_both_ends_of_a_range_are_in_it(value: int) -> None:
    check_range("O1", "type", value, 2, 5)


@pytest.mark.parametrize("value", [1, 6])
def test_a_number_outside_a_range_is_named_with_it(value: int) -> None:
    with pytest.raises(Broken) as caught:
        check_range("O1", "type", value, 2, 5)
    assert caught.value.rule == "O1"
    assert caught.value.message == f"type is {value}, expected 2 to 5"
