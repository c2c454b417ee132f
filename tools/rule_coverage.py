"""Which rules of validation have an accepting and a rejecting test.

    python tools/rule_coverage.py [TESTS]

lists every rule with its tests and exits with 1 if one is missing. Nothing is run: tests are
collected, and each has by a marker which rule it is about and what it shows. Without words it shows
both:

    @pytest.mark.rule("O16")
    @pytest.mark.rule("M2", "accepts")

docs/rules/validation.md has the rules; VM, VR and VB are mutations of models, requests and packets.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

#: Letter of a chapter and its last number.
_CHAPTERS: Final = {
    "M": 9, "O": 23, "P": 14, "R": 15, "D": 12, "S": 11, "VM": 23, "VR": 9, "VB": 7,
}  # fmt: skip
RULES: Final = tuple(f"{name}{n}" for name, last in _CHAPTERS.items() for n in range(1, last + 1))
SIDES: Final = ("accepts", "rejects")

_BOTH: Final = SIDES
_REJECTS: Final = ("rejects",)
#: What cannot be tested, and why. An entry for something that has a test is an error, too.
EXEMPT: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "M2": (_REJECTS, "defines what passes: models without inputs or outputs"),
    "M7": (_REJECTS, "defines what passes: any value of the relaxed flag"),
    "O11": (_REJECTS, "defines what is not checked of OEM operands"),
    "O20": (_BOTH, "locations have no padding in the 1.3 layout"),
    "P3": (_REJECTS, "defines what is not checked of extension operations"),
    "P14": (_REJECTS, "defines what passes: a dimension 0 is unknown"),
    "R12": (_BOTH, "pointers cannot be sent"),
    "R13": (_REJECTS, "defines what passes: one range as input and output"),
    "R15": (_REJECTS, "defines what passes: operations decide about omitted inputs"),
    "VB7": (_BOTH, "defines what the original does not test"),
}

#: rule -> side -> test function -> number of its cases
Coverage = dict[str, dict[str, Counter[str]]]


class _Collector:
    """A pytest plugin that notes the rules of all collected tests."""

    def __init__(self) -> None:
        self.coverage: Coverage = defaultdict(lambda: defaultdict(Counter))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("rule"):
                rule, *sides = mark.args
                for side in sides or SIDES:
                    self.coverage[rule][side][item.nodeid.partition("[")[0]] += 1


def collect(tests: Sequence[Path]) -> Coverage:
    """The tests of each rule.

    Raises:
        ValueError: the tests cannot be collected.
    """
    collector, output = _Collector(), io.StringIO()
    words = ["--collect-only", "-q", "-n0", "-m", "", "-p", "no:cacheprovider", *map(str, tests)]
    with contextlib.redirect_stdout(output):
        status = pytest.main(words, plugins=[collector])
    if status != pytest.ExitCode.OK:
        raise ValueError(f"the tests cannot be collected:\n{output.getvalue()}")
    return collector.coverage


def problems(coverage: Coverage) -> Iterator[str]:
    """Lines about tests that are missing, and about exemptions that have one."""
    for rule in RULES:
        sides, reason = EXEMPT.get(rule, ((), ""))
        for side in SIDES:
            tested = bool(coverage.get(rule, {}).get(side))
            if side in sides and tested:
                yield f"{rule}: exempt ({reason}), but there is a test that {side}"
            elif side not in sides and not tested:
                yield f"{rule}: no test that {side}"
    for rule, found in coverage.items():
        if rule not in RULES:
            yield f"{rule}: not a rule"
        yield from (
            f"{rule}: {side!r} is not one of {SIDES}" for side in found if side not in SIDES
        )


def lines(coverage: Coverage) -> Iterator[str]:
    """The list for people."""
    for rule in RULES:
        sides, reason = EXEMPT.get(rule, ((), ""))
        for side in SIDES:
            tests = coverage.get(rule, {}).get(side, Counter())
            what = _listed(tests.items()) or (f"- ({reason})" if side in sides else "MISSING")
            yield f"{rule if side == SIDES[0] else '':5} {side}  {what}"


def _listed(tests: Iterable[tuple[str, int]]) -> str:
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in sorted(tests))


def main(argv: Sequence[str] | None = None) -> int:
    """List all rules; 0 only if nothing is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", type=Path, default=[Path("tests")])
    coverage = collect(parser.parse_args(argv).tests)
    for line in lines(coverage):
        print(line)
    found = list(problems(coverage))
    for problem in found:
        print(problem, file=sys.stderr)
    exempt = sum(len(sides) for sides, _ in EXEMPT.values())
    print(
        f"{len(RULES)} rules: {2 * len(RULES) - exempt} tests needed, {exempt} not possible,"
        f" {len(found)} problems"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
