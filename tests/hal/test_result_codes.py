"""Result codes of the framework side: which exception stands for which, and which status becomes which."""

from __future__ import annotations

import pickle

import pytest

from nnburst.hal.enums import ErrorStatus, ResultCode
from nnburst.hal.errors import (
    BadState,
    BurstBusy,
    Closed,
    InvalidArgument,
    error_for_code,
    result_code,
)


@pytest.mark.parametrize("code", [code for code in ResultCode if code], ids=lambda c: c.name)
def test_each_code_has_an_exception_that_carries_it_through_pickling(code: ResultCode) -> None:
    error = error_for_code(code, "execution: …")
    assert error.code == code
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, str(again)) == (type(error), code, "execution: …")


def test_statuses_become_the_codes_of_the_original() -> None:
    codes = [result_code(status) for status in ErrorStatus]
    assert codes == [0, 9, 5, 8, 4, 10, 11, 12, 13, 14]


def test_what_is_in_the_wrong_state_is_not_bad_data() -> None:
    assert BadState("…").code == BurstBusy("…").code == Closed("…").code == ResultCode.BAD_STATE
    assert InvalidArgument("…").code == ResultCode.BAD_DATA
