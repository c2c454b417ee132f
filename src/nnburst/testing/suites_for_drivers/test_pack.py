"""Tests every operation that a driver supports, by type, rank and extent, and its report on support."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nnburst.client.connect import connect
from nnburst.hal.enums import OperationType
from nnburst.testing.assessment import BASIC, SUITES, other_cases, run_check, subjects_of
from nnburst.testing.conformance.runners import BurstRunner
from nnburst.testing.models.random_graphs.builder import TEMPLATES
from nnburst.testing.pack import campaign
from nnburst.testing.pack.cases import Case, wanted
from nnburst.testing.report import FAILED, SKIPPED, grouped, missing

pytestmark = [pytest.mark.nnburst_values, pytest.mark.nnburst_pack]


@pytest.mark.parametrize("operation", sorted(TEMPLATES), ids=lambda operation: operation.name)
def test_cases_of_an_operation_give_what_a_naive_evaluator_gives(
    nnburst_address: str,
    operation: OperationType,
    record_property: Callable[[str, object], None],
    pytestconfig: pytest.Config,
) -> None:
    basic = pytestconfig.getoption("nnburst_profile") == "basic"
    session = campaign.PackSession(lambda: BurstRunner.over(connect(nnburst_address)))
    chosen = list(wanted(lambda triple: triple.operation == operation))
    try:
        tried = campaign.run(chosen, session, campaign.PackOptions(BASIC if basic else None))
        results = [result for result, _ in tried]
    finally:
        session.close()
    record_property("nnburst_triples", msgspec.json.encode(results).decode())
    failures = [f"{f.case}: {f.reason}" for result in results for f in result.failures]
    required = str(pytestconfig.getoption("nnburst_require")).split(",")
    failures += missing([w for w in required if w.partition(":")[0] == operation.name], results)
    assert not failures, "\n".join(failures)
    if not any(result.passed for result in results):
        reasons = grouped((r, n) for result in results for r, n in result.skipped.items())
        pytest.skip("; ".join(f"{reason} ({times} cases)" for reason, times in reasons))


@pytest.fixture(scope="module")
def subjects(nnburst_address: str) -> list[Case]:
    """A few cases that the driver executes."""
    session = campaign.PackSession(lambda: BurstRunner.over(connect(nnburst_address)))
    found: dict[OperationType, Case] = {}
    try:
        for triple in wanted(lambda triple: triple.operation not in found):
            (_, passed), *_ = campaign.run(
                [triple], session, campaign.PackOptions(campaign.SCREENED)
            )
            found.update({case.triple.operation: case for case in passed})
            if len(found) == 2:
                break
    finally:
        session.close()
    if not found:
        pytest.skip("the driver supports no case")
    return subjects_of(list(found.values()))


@pytest.mark.parametrize(
    ("suite", "name"), [(suite, name) for suite in SUITES for name in SUITES[suite]]
)
def test_checks_of_a_suite_pass(
    nnburst_address: str, subjects: list[Case], suite: str, name: str
) -> None:
    others = other_cases(subjects)
    results = [run_check(suite, name, nnburst_address, subject, others) for subject in subjects]
    failures = [f"{r.name}: {r.reason}" for r in results if r.outcome == FAILED]
    assert not failures, "\n".join(failures)
    if all(result.outcome == SKIPPED for result in results):
        pytest.skip(results[0].reason)
