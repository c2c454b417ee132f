"""Options that cannot be meant: wrong usage in one line, before any work is done."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

import pytest

import nnburst.cli
from nnburst.cli import main
from nnburst.cli.options import above_zero, at_least_one, cores, not_negative, zero_or_more


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["conformance", ".", "--filter", "("], "'(' is not a regular expression"),
        (["conformance", ".", "--filter", "a{9999999999}"], "is not a regular expression"),
        (["fuzz", "models", "builtin", "--model", "("], "'(' is not a regular expression"),
        (["fuzz", "models", "builtin", "--mutation", "["], "'[' is not a regular expression"),
        (["conformance", ".", "--jobs", "0"], "'0', expected a number of 1 or more"),
        (["conformance", ".", "--jobs", "many"], "'many', expected a number of 1 or more"),
        (["conformance", ".", "--operation", "relu"], "'relu', expected the name of an operation"),
        (["conformance", "--operation", "NOSUCH"], "'NOSUCH', expected the name of an operation"),
        (
            ["conformance", "--operation", "ADD", "--report", "/dev/null/x"],
            "cannot write /dev/null/x",
        ),
        (["conformance", ".", "--dump", "/dev/null"], "cannot write /dev/null"),
        (["fuzz", "graphs", "--dump", "/dev/null/x"], "cannot write /dev/null/x"),
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


def options(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.Action]]:
    """Every option of every command, with the words that lead to it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, nested in action.choices.items():
                yield from options(nested, (*words, name))
        elif action.option_strings:
            yield words, action


OPTIONS = list(options(nnburst.cli.parser([])))
#: What no number of its kind may be.
REFUSED = {
    at_least_one: ("-1", "0", "nan", "1.5", "many", ""),
    zero_or_more: ("-1", "nan", "1.5", "many", ""),
    not_negative: ("-1", "nan", "inf", "many", ""),
    above_zero: ("-1", "0", "nan", "inf", "many", ""),
}
NUMBERS = [
    pytest.param(words, action.option_strings[0], value, id=f"{' '.join(words)} {value!r}")
    for words, action in OPTIONS
    for value in REFUSED.get(action.type, ())  # type: ignore[call-overload]
]


def test_no_option_takes_any_number_at_all() -> None:
    bare = [(w, option.option_strings[0]) for w, option in OPTIONS if option.type in (int, float)]
    # Those of the front are looked at together, see tests/serving/test_options.py.
    of_front = ("--grpc-", "--max-", "--lanes", "--watchdog", "--drain")
    named = [(words, option) for words, option in bare if not option.startswith(of_front)]
    assert named == []
    assert len(NUMBERS) > 50


@pytest.mark.parametrize(("words", "option", "value"), NUMBERS)
def test_number_outside_of_its_rule_is_refused_by_option_value_and_rule(
    words: tuple[str, ...], option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, f"{option}={value}"])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert option in last
    assert f"{value!r}, expected " in last


def test_every_option_of_every_command_is_described_by_more_than_its_default() -> None:
    assert [
        (words, action.option_strings[0])
        for words, action in OPTIONS
        if action.help is None or action.help.startswith(("default:", "of ", "that "))
    ] == []


def test_cores_are_those_of_this_process() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert cores(",".join(map(str, reversed(allowed)))) == ",".join(map(str, allowed))
