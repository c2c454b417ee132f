"""The page of a conformance run, in a browser: legible in narrow and wide windows, whole by itself."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from browser import chromium
from nnburst.hal.enums import OperandType
from nnburst.hal.types import Capabilities, OperandPerformance, PerformanceInfo
from nnburst.testing.models.random_graphs.builder import TEMPLATES
from nnburst.testing.report import (
    SHORT,
    About,
    CheckResult,
    Failure,
    Latency,
    Performance,
    Report,
    TripleResult,
    page,
    performances,
)

VOID = ("meta", "link", "br", "img", "hr", "input")


def report(*, good: bool) -> Report:
    """A report with something of everything in it, and names that are no HTML."""
    about = About(
        "my<adder>:Adder", "adder & co", "nnburst 0 adder", "AIDL_V4", "CPU",
        tuple(Performance(*p) for p in (("TENSOR_FLOAT32", 0.5, 1), ("IF", 0.5, 1), ("WHILE", None, None))),
        "", "full", "0.1.0", "2026-11-22T12:00:00+00:00", "x86_64, 2 processors", 12.5,
    )  # fmt: skip
    failures = () if good else (Failure("ADD-TENSOR_FLOAT32-1-plain_1031", "at [1030] <wrong>"),)
    triples = (
        TripleResult("ADD", "TENSOR_FLOAT32", 1, 20, failures, {"broadcasting": 3}),
        TripleResult("ADD", "TENSOR_FLOAT16", 1, 0, (), {"the executor does not support ADD": 9}),
        TripleResult("BIDIRECTIONAL_SEQUENCE_LSTM", "TENSOR_QUANT8_ASYMM_SIGNED", 4, 24),
        TripleResult("MUL", "TENSOR_FLOAT32", 1, 0, (), {"the executor does not support MUL": 9}),
    )
    checks = (
        CheckResult("contract", "bindings_do_not_mix (ADD-TENSOR_FLOAT32-1-plain_1)", "passed"),
        CheckResult("test_faults", "test_killed[prepare]", "skipped", "was there before"),
    )
    late = (Latency("ADD-TENSOR_FLOAT32-1-plain_1", 3.5, 90.0),)
    return Report(about, triples, checks, late, {"RANK": "needs no execution"})


@pytest.mark.parametrize(
    ("profile", "outcome", "is_good"),
    [("faults", "passed", True), ("faults", "skipped", False), ("basic", "passed", False)],
)
def test_a_profile_that_has_no_cases_conforms_by_its_checks(
    profile: str, outcome: str, is_good: bool
) -> None:
    about = msgspec.structs.replace(report(good=True).about, profile=profile)
    check = CheckResult("test_faults", "test_killed[prepare]", outcome, "why")
    assert (not Report(about, (), (check,)).failures) is is_good


def test_a_filter_that_chooses_no_case_is_not_the_drivers_fault() -> None:
    full = report(good=True)
    without = Report(full.about, (), full.checks)
    unsupported = Report(full.about, full.triples[1:2], full.checks)
    assert without.failures == ["nothing was tried: no case was chosen"]
    assert unsupported.failures == ["nothing was tried: the driver supports no case"]


class Balance(HTMLParser):
    """Notes tags that are not closed in the order of their opening."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.parametrize("good", [True, False])
def test_every_tag_is_closed_and_names_are_text(good: bool) -> None:
    text = page(report(good=good))
    found = Balance(text)
    assert found.open == []
    assert found.wrong == []
    assert "<adder>" not in text
    assert "<wrong>" not in text


def test_capabilities_are_a_table_in_which_equal_ones_share_a_row() -> None:
    text = page(report(good=True))
    same, unknown = "TENSOR_FLOAT32, IF", "WHILE"
    number = "<td>"
    assert f"{same}</td>{number}0.5</td>{number}1</td></tr>" in text
    assert f"{unknown}</td>{number}unknown</td>{number}unknown</td></tr>" in text
    whole = report(good=True)
    about = msgspec.structs.replace(
        whole.about, capabilities=(), unknown_capabilities="no <answer>"
    )
    assert "Unknown: no &lt;answer&gt;" in page(msgspec.structs.replace(whole, about=about))


def test_capabilities_are_recorded_by_name_and_without_infinities() -> None:
    half, endless = PerformanceInfo(0.5, 0.25), PerformanceInfo(math.inf, 3.5e38)
    table = (OperandPerformance(int(OperandType.TENSOR_INT32), half),)
    found = performances(Capabilities(half, half, table, half, endless))
    assert found[0] == Performance("TENSOR_INT32", 0.5, 0.25)
    assert found[-1] == Performance("WHILE", None, None)
    assert len(found) == 5
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[Performance, ...]) == found


def test_matrix_has_a_column_for_every_type_of_the_pack() -> None:
    """A test of a campaign holds that the pack draws every type of a template (test_pack.py)."""
    assert {kind.name for template in TEMPLATES.values() for kind in template.kinds} == set(SHORT)


def test_verdict_comes_first() -> None:
    assert "does not conform: 1 findings" in page(report(good=False))
    assert "conforms. 44 cases" in page(report(good=True))
    assert "coverage: 2 of 106 operations" in page(report(good=True))


@pytest.mark.parametrize("width", [400, 1400])
def test_page_fits_its_window_logs_nothing_and_asks_for_nothing(tmp_path: Path, width: int) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(report(good=False)), encoding="utf-8")
    with chromium(tmp_path) as shown:
        shown.open(file.as_uri(), width)
        assert shown.value("window.innerWidth") == width
        assert shown.value("document.documentElement.scrollWidth") <= width
        assert shown.console == []
        assert [a for a in shown.requests if not a.startswith(("file:", "data:"))] == []
