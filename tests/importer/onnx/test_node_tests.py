from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="the node tests are the package onnx's")

from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.testing.conformance.onnx_nodes import OPERATORS, NodeVerdict, cases, judge

#: The package computes what every operator gives to make its tests.
pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def verdicts() -> list[NodeVerdict]:
    executor = ReferenceExecutor()
    return [judge(case, executor) for case in cases()]


@pytest.mark.filterwarnings("ignore")
def test_no_node_test_gives_a_wrong_result(verdicts: list[NodeVerdict]) -> None:
    assert [f"{v.case.name}: {v.reason}" for v in verdicts if v.outcome == "wrong"] == []


@pytest.mark.filterwarnings("ignore")
def test_more_than_four_of_five_node_tests_pass(verdicts: list[NodeVerdict]) -> None:
    passed = sum(verdict.outcome == "pass" for verdict in verdicts)
    assert passed >= 0.85 * len(verdicts)
    assert len({v.case.operator for v in verdicts}) > len(OPERATORS) // 2


@pytest.mark.filterwarnings("ignore")
def test_every_refused_node_test_has_a_reason(verdicts: list[NodeVerdict]) -> None:
    assert all(verdict.reason for verdict in verdicts if verdict.outcome == "refused")
