"""The executors in C among the examples conform, also under sanitizers, and each planted defect is found."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from driver.sample import EXAMPLE, compile_example
from nnburst.testing.assessment import SUITES, Plan, assess
from nnburst.testing.driver_under_test import DriverUnderTest

pytestmark = pytest.mark.skipif(
    not EXAMPLE.exists() or shutil.which("gcc") is None or shutil.which("make") is None,
    reason="needs gcc, make and the examples beside the tests",
)

#: Where each defect of faults.c shows: the operation to ask for, and words of what is reported.
DEFECTS: Final = {
    "last_element": ("ADD", "pack", "1031"),
    "writes_input": ("RELU", "pack", ""),
    "run_before": ("ADD", "pack", ""),
    "empty_run": ("ADD", "contract", "thousand_executions_give_the_same_bits"),
    "half_precision": ("MUL", "pack", ""),
    "zeroed_nan": ("ADD", "pack", "not_a_number"),
    "overclaims": ("SQUEEZE", "pack", "INVALID_ARGUMENT"),
    "wrong_operation": ("SQUEEZE", "pack", ""),
    "support_changes": ("ADD", "contract", "support_does_not_change"),
    "leak": ("ADD", "contract", "closed_models_leave_no_memory"),
    "saturates": ("ADD", "pack", "largest"),
    "short_copy": ("ABS", "pack", ""),
    "low_differs": ("ADD", "QualityOfService", "every_priority_is_taken"),
    "cache_differs": ("ADD", "CompilationCaching", "what_was_saved_is_loaded"),
    "cache_lost": ("ADD", "CompilationCaching", "what_was_saved_is_loaded"),
    "far_missed": ("ADD", "QualityOfService", "deadlines_of_executions_are_kept_or_missed"),
    "memory_unwritten": ("ADD", "MemoryDomain", "results_are_those_of_shared_memory"),
    "memory_short": ("ADD", "MemoryDomain", "content_comes_back_as_it_was_copied_in"),
    "memory_kept": ("ADD", "MemoryDomain", "closed_buffers_leave_no_memory"),
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    compile_example(folder)
    return folder


@pytest.mark.campaign
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sample_is_right_without_python_under_sanitizers(sanitizer: str, tmp_path: Path) -> None:
    compile_example(tmp_path, "check", f"SANITIZE={sanitizer}", "RUNS=400")


def test_harness_of_one_sanitizer_is_not_run_for_another_one(tmp_path: Path) -> None:
    for given in ((), ("SANITIZE=undefined",)):
        compile_example(tmp_path, "check", "RUNS=4", "CFLAGS=-O0", *given)
    plain, sanitized = sorted(
        path for path in tmp_path.iterdir() if path.name.startswith("harness")
    )
    assert b"ubsan" not in plain.read_bytes()
    assert b"ubsan" in sanitized.read_bytes()


def test_smallest_executor_has_at_most_80_lines_and_is_what_the_command_writes() -> None:
    shown = (EXAMPLE / "adder.c").read_text()
    assert len(shown.splitlines()) <= 80
    assert (files("nnburst.testing") / "executor.c.in").read_text() == shown


def failures_of(library: Path, operation: str, *options: str) -> dict[str, list[str]]:
    """The failures of a driver, by the place where they show."""
    plan = Plan("generated", filter="TENSOR_FLOAT32-2", operation=operation, options=options)
    with DriverUnderTest.start(str(library), options=options) as driver:
        report = assess(driver, plan, lambda *_: None)
    failures = [f"{f.case}: {f.reason}" for t in report.triples for f in t.failures]
    assert report.tried
    found: dict[str, list[str]] = {
        "pack": failures,
        "graphs": [],
        **{suite: [] for suite in SUITES},
    }
    for check in report.checks:
        if check.outcome == "failed":
            found[check.suite].append(f"{check.name}: {check.reason}")
    return found


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("library", "operation"),
    [("libadder.so", "ADD"), ("libsample.so", "FULLY_CONNECTED")],
)
def test_executors_conform(libraries: Path, library: str, operation: str) -> None:
    assert failures_of(libraries / library, operation) == {
        "pack": [],
        "graphs": [],
        **{suite: [] for suite in SUITES},
    }


@pytest.mark.campaign
def test_sample_conforms_in_everything(libraries: Path) -> None:
    with DriverUnderTest.start(str(libraries / "libsample.so")) as driver:
        report = assess(driver, Plan("generated"), lambda *_: None)
    assert report.failures == []
    assert {t.operation for t in report.triples if t.passed} >= {"ADD", "MUL", "FULLY_CONNECTED"}
    assert {t.type for t in report.triples if t.passed} == {"TENSOR_FLOAT32"}


@pytest.mark.every_day("wrong_operation")
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defect_is_found_where_it_is(libraries: Path, defect: str) -> None:
    operation, where, words = DEFECTS[defect]
    failures = failures_of(libraries / "libsample.so", operation, f"defect={defect}")
    assert any(words in failure for failure in failures[where]), failures
