"""Executors with one defect each: what is for drivers of others finds every one, and an honest one passes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnburst.client.connect import connect
from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing import assessment
from nnburst.testing.assessment import Plan, assess, other_cases, subjects_of
from nnburst.testing.conformance.runners import BurstRunner
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.pack import campaign
from nnburst.testing.pack.cases import Case, Triple
from nnburst.testing.report import TripleResult

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing_drivers.md"
HONEST: str = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
SUM = "np.add(a, b, out=self.values[operation.outputs[0]])"
OUT = "self.values[operation.outputs[0]]"


def with_sum(*lines: str) -> str:
    """The honest executor with other lines where it adds."""
    assert SUM in HONEST
    return HONEST.replace(SUM, ("\n" + " " * 12).join(lines))


DEFECTS = {
    "last_element": with_sum(SUM, f"if a.size > 1000: {OUT}.reshape(-1)[-1] += 1"),
    "wrong_sum": with_sum(f"np.subtract(a, b, out={OUT})"),
    "float16": with_sum(f"{OUT}[...] = a.astype(np.float16) + b.astype(np.float16)"),
    "writes_input": with_sum(
        SUM, "import ctypes", "a.size and ctypes.memset(a.ctypes.data, 7, a.nbytes)"
    ),
    "run_before": with_sum(
        SUM, "last = getattr(self, 'last', 0)", f"self.last = {OUT}.copy()", f"{OUT}[...] += last"
    ),
    "500th_run_empty": with_sum(
        "self.count = getattr(self, 'count', 0) + 1", f"if self.count % 500: {SUM}"
    ),
    "overclaims": HONEST.replace(
        "operation.type != OperationType.ADD",
        "operation.type not in (OperationType.ADD, OperationType.MUL)",
    ),
    "long_list": HONEST.replace("model.main.operations]", "model.main.operations] + [True]"),
    "support_changes": HONEST.replace(
        "        return [self.can_add",
        "        self.asked = getattr(self, 'asked', 0) + 1\n"
        "        if self.asked % 7 == 0: return [False] * len(model.main.operations)\n"
        "        return [self.can_add",
    ),
    "keeps_memory": HONEST.replace(
        "        return PreparedSums(model)",
        "        self.kept = [*getattr(self, 'kept', ()), np.ones(100_000, np.uint8)]\n"
        "        return PreparedSums(model)",
    ),
}  # fmt: skip


@pytest.fixture
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverUnderTest]:
    """A driver around the executor that the test's parameter is the source of."""
    (tmp_path / "adder.py").write_text(request.param)
    with DriverUnderTest.start("adder:Adder", [tmp_path]) as started:
        yield started


def planted(*names: str) -> pytest.MarkDecorator:
    """Parametrise a test with executors of these defects."""
    assert all(DEFECTS[name] != HONEST for name in names)
    return pytest.mark.parametrize(
        "driver", [DEFECTS[name] for name in names], ids=names, indirect=True
    )


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    """A driver around the executor without a defect; each test has a worker of its own in it."""
    folder = tmp_path_factory.mktemp("honest")
    (folder / "adder.py").write_text(HONEST)
    with DriverUnderTest.start("adder:Adder", [folder]) as started:
        yield started


@pytest.fixture(scope="module")
def computed(honest: DriverUnderTest) -> list[Case]:
    """The cases that it computes."""
    return tried(honest)[1]


def tried(
    driver: DriverUnderTest, operation: OperationType = OperationType.ADD
) -> tuple[TripleResult, list[Case]]:
    """All cases of vectors of float32."""
    session = campaign.PackSession(lambda: BurstRunner.over(connect(driver.address)))
    try:
        triple = Triple(operation, OperandType.TENSOR_FLOAT32, 1)
        (found,) = campaign.run([triple], session, campaign.PackOptions())
        return found
    finally:
        session.close()


def reasons(result: TripleResult) -> str:
    return "\n".join(failure.reason for failure in result.failures)


@planted("last_element")
def test_pack_finds_last_element_of_large_tensors(driver: DriverUnderTest) -> None:
    result, _ = tried(driver)
    assert result.passed
    assert {f.case for f in result.failures} <= {
        name
        for name in Triple(OperationType.ADD, OperandType.TENSOR_FLOAT32, 1).case_names
        if "1031" in name
    }
    assert "[1030] expected" in reasons(result)


@planted("wrong_sum", "float16")
def test_pack_finds_wrong_sums_and_float16_arithmetic(driver: DriverUnderTest) -> None:
    assert "expected" in reasons(tried(driver)[0])


@planted("writes_input")
def test_pack_finds_an_executor_that_writes_its_input(driver: DriverUnderTest) -> None:
    # The driver maps inputs so that nothing can be written to them.
    assert "killed by SIGSEGV" in reasons(tried(driver)[0])


@planted("run_before")
def test_contract_finds_results_that_depend_on_the_run_before(driver: DriverUnderTest) -> None:
    assert "gave other bits" in contract(driver, "thousand_executions_give_the_same_bits")


@planted("overclaims")
def test_pack_finds_an_operation_that_is_claimed_and_not_computed(driver: DriverUnderTest) -> None:
    assert "expected" in reasons(tried(driver, OperationType.MUL)[0])


@planted("long_list")
def test_pack_finds_a_list_of_wrong_length(driver: DriverUnderTest) -> None:
    assert "returned [True, True]: expected a bool for each of 1 operations" in reasons(
        tried(driver)[0]
    )


@pytest.mark.campaign
@planted("500th_run_empty")
def test_thousand_executions_find_one_that_computes_nothing(driver: DriverUnderTest) -> None:
    result = contract(driver, "thousand_executions_give_the_same_bits")
    assert "execution 500 gave other bits" in result


@planted("support_changes")
def test_contract_finds_support_that_changes(driver: DriverUnderTest) -> None:
    assert "was answered with" in contract(driver, "support_does_not_change")


@pytest.mark.campaign
@planted("keeps_memory")
def test_contract_finds_memory_kept_for_closed_models(driver: DriverUnderTest) -> None:
    assert "the worker grew by" in contract(driver, "closed_models_leave_no_memory")


def contract(driver: DriverUnderTest, name: str) -> str:
    """Why a check fails with the smallest case; "" if it passes."""
    return reason(driver, name, tried(driver)[1])


def reason(driver: DriverUnderTest, name: str, passed: list[Case]) -> str:
    """Why a check fails with the smallest of these cases; "" if it passes."""
    subject, *_ = subjects_of(passed)
    return assessment.run_check(
        "contract", name, driver.address, subject, other_cases([subject])
    ).reason


@pytest.mark.campaign
@pytest.mark.parametrize("suite", assessment.SUITES)
def test_honest_executor_passes_every_check(
    honest: DriverUnderTest, computed: list[Case], suite: str
) -> None:
    subject, *_ = subjects_of(computed)
    for name in assessment.SUITES[suite]:
        result = assessment.run_check(suite, name, honest.address, subject, other_cases([subject]))
        assert result.outcome != "failed", f"{name}: {result.reason}"


@pytest.mark.campaign
def test_narrow_honest_executor_conforms_with_value_tests_run(honest: DriverUnderTest) -> None:
    plan = Plan("generated", operation="ADD", required=("ADD:TENSOR_FLOAT32",))
    report = assess(honest, plan, lambda *_: None)
    assert report.failures == []
    assert report.tried > 20
    assert report.covered == ["ADD"]
    graphs = {check.name: check.outcome for check in report.checks if check.suite == "graphs"}
    assert "passed" in graphs.values()


@pytest.mark.campaign
def test_required_operation_that_is_skipped_and_a_latency_above_its_limit_are_failures(
    honest: DriverUnderTest,
) -> None:
    """Both in one assessment; that neither is one by itself shows in the one above."""
    required = ("ADD:TENSOR_FLOAT16", "ADD")
    plan = Plan("basic", operation="ADD", required=required, max_latency_us=0.001)
    failures = assess(honest, plan, lambda *_: None).failures
    (line,) = (failure for failure in failures if not failure.startswith("latency: ADD"))
    assert line.startswith("required: ADD:TENSOR_FLOAT16 was not executed: the executor does not")
    assert len(failures) > 1
