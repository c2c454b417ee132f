"""Options that cannot be meant: wrong usage in one line, before any work is done."""

from __future__ import annotations

import os

import pytest

from nnburst.cli import main
from nnburst.cli.options import cores


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["conformance", ".", "--filter", "("], "'(' is no regular expression"),
        (["conformance", ".", "--filter", "a{9999999999}"], "is no regular expression"),
        (["conformance", ".", "--jobs", "0"], "'0', expected a number of 1 or more"),
        (["conformance", ".", "--jobs", "many"], "'many', expected a number of 1 or more"),
        (["serve", "x", "--cpus", "abc"], "'abc', expected some of ["),
        (["serve", "x", "--cpus", "0,"], "'0,', expected some of ["),
        (["serve", "x", "--cpus", "100000"], "'100000', expected some of ["),
        (["serve", "x", "--cpus", "-1"], "expected"),
    ],
)
def test_option_that_cannot_be_meant_is_wrong_usage(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_cores_are_those_of_this_process() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert cores(",".join(map(str, reversed(allowed)))) == ",".join(map(str, allowed))
