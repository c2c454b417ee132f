"""The pytest plugin: right drivers pass the suites, wrong ones fail them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import DeviceUnavailable
from nnburst.testing import plugin
from nnburst.testing.conformance.vectors import write
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.models.random_graphs import generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from nnburst.testing.report import Report

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing_drivers.md"
EXAMPLE = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
#: An executor that supports another operation, and not ADD.
MULTIPLIER = EXAMPLE.replace("OperationType.ADD", "OperationType.MUL").replace(
    "np.add", "np.multiply"
)
#: A few tests of each suite; all of them take more than a minute.
SOME = "(sum and not test_pack) or deadline or given_back or no_sealed or reads_no_results or burst_runs"
#: Tests that execute sums, or kill who does.
SUMS = f"({SOME} or mutated_packets or test_faults) and not what_is_supported and not test_pack"

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the suites in a directory of their own."""
    monkeypatch.setenv("NNBURST_KILLS", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(driver: str, *words: str, suites: bool = True) -> pytest.RunResult:
        where = ["--pyargs", "nnburst.testing.suites_for_drivers"] if suites else []
        return pytester.runpytest_subprocess(
            *("-p", "nnburst.testing.plugin", "-p", "no:randomly", "-W", "error", *where),
            *(f"--nnburst-driver={driver}", *words),
            timeout=900,
        )

    return run


@pytest.fixture
def served() -> Iterator[DriverUnderTest]:
    """A driver that was there before."""
    with DriverUnderTest.start("reference") as driver:
        yield driver


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    found = result.parseoutcomes()
    assert "errors" not in found, result.stdout.str()
    return found


@pytest.mark.campaign
def test_right_executor_passes_and_a_wrong_one_fails(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(adder=EXAMPLE, wrong=EXAMPLE.replace("np.add", "np.subtract"))
    assert set(outcomes(run("adder:Adder", "-k", "sum and not test_pack"))) == {
        "passed",
        "deselected",
    }
    assert outcomes(run("wrong:Adder", "-k", "sum and not test_pack", "--maxfail=1"))["failed"]


def test_report_is_about_a_driver_with_the_same_options(
    monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    options: list[object] = []

    def start(name: str, _paths: object = (), given: object = ()) -> DriverUnderTest:
        options.append(given)
        return started(name)

    started = DriverUnderTest.start
    monkeypatch.setattr(DriverUnderTest, "start", start)
    words = ["--nnburst-driver=null", "--nnburst-option=node=/tmp/n", "--nnburst-report=report"]
    pytester.runpytest_inprocess("-p", "nnburst.testing.plugin", "-p", "no:xdist", *words)
    assert options == [["node=/tmp/n"]]
    assert (pytester.path / "report" / "report.json").exists()


@pytest.mark.campaign
def test_skip_of_what_is_required_fails_and_the_report_has_it(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(adder=EXAMPLE)
    words = ["-k", "naive_evaluator_gives and ABS", "--nnburst-profile=basic"]
    found = outcomes(run("adder:Adder", *words, "--nnburst-report=skipped"))
    assert (found["skipped"], found.get("failed")) == (1, None)
    words += ["--nnburst-require=ABS", "--nnburst-report=required"]
    assert outcomes(run("adder:Adder", *words))["failed"] == 1
    skipped, required = (
        msgspec.json.decode((pytester.path / name / "report.json").read_bytes(), type=Report)
        for name in ("skipped", "required")
    )
    assert skipped.required == ()
    [line] = required.required
    assert line.startswith("ABS was not executed: the executor does not support ABS")
    assert line in (pytester.path / "required" / "report.html").read_text(encoding="utf-8")


@pytest.mark.campaign
def test_reference_executor_passes(run: Run) -> None:
    found = outcomes(run("reference", "-k", SOME))
    assert found["passed"] >= 6
    assert "failed" not in found


@pytest.mark.campaign
def test_executor_of_the_documentation_passes_all_suites(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(adder=EXAMPLE)
    result = run("adder:Adder", "--verbose")
    found = outcomes(result)
    assert "failed" not in found, result.stdout.str()
    passed = set(re.findall(r"(test_\w+)\.py::.* PASSED", result.stdout.str()))
    # No random graph is made of nothing but its sums, and it is given no vectors.
    assert passed == {"test_contract", "test_faults", "test_hostile_input", "test_pack"}


@pytest.mark.campaign
def test_what_an_executor_does_not_support_is_skipped(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(multiplier=MULTIPLIER)
    assert set(outcomes(run("multiplier:Adder", "-k", SUMS))) == {"skipped", "deselected"}
    assert outcomes(run("multiplier:Adder", "-k", "supports_something"))["passed"] == 1


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("right", "wrong", "which"),
    [
        ("np.add", "np.subtract", "sum"),
        ("np.add(a, b", "np.add(a, np.copy(b) if np.isnan(b).any() else b + 1e-3", "sum"),
        ("return Outcome(ErrorStatus.NONE)", "raise ValueError", "sum"),
        ("return False", "return True", "refused"),
        ("return (\n", "return False and (\n", "supports_something"),
    ],
    ids=["other results", "a little off", "raises", "promises too much", "refuses all"],
)
def test_wrong_executor_fails(
    pytester: pytest.Pytester, run: Run, right: str, wrong: str, which: str
) -> None:
    assert right in EXAMPLE
    pytester.makepyfile(adder=EXAMPLE.replace(right, wrong))
    assert outcomes(run("adder:Adder", "-k", which, "--maxfail=1"))["failed"]


@pytest.mark.campaign
def test_executor_that_takes_its_process_along_fails(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(adder=EXAMPLE.replace("return Outcome", "import os; os._exit(3)"))
    assert outcomes(run("adder:Adder", "-k", "sum and not test_pack", "--maxfail=1"))["failed"]


@pytest.mark.campaign
def test_null_executor_passes_what_looks_at_no_results_and_fails_the_rest(run: Run) -> None:
    without = outcomes(run("null", "-k", SOME, "-m", "not nnburst_values"))
    assert without["passed"] >= 3
    assert "failed" not in without
    assert outcomes(run("null", "-k", "sum and not test_pack"))["failed"]


@pytest.mark.campaign
def test_nothing_of_a_driver_that_was_there_before_is_killed(
    run: Run, served: DriverUnderTest
) -> None:
    found = outcomes(run(served.address, "-k", SOME))
    assert found["skipped"] >= 2
    assert found["passed"] >= 3
    assert "failed" not in found


@pytest.mark.campaign
def test_vectors_are_run_both_ways_and_a_wrong_one_fails(
    pytester: pytest.Pytester, run: Run
) -> None:
    vector = as_vector(generate("single", OperandType.TENSOR_FLOAT32, 0), None)
    write(pytester.path / "right" / "a.json.gz", vector)
    words = ("-k", "vectors", "--nnburst-vectors", "right")
    assert outcomes(run("reference", *words))["passed"] == 2
    at = vector.outputs[0].data
    assert at is not None
    buffers = list(vector.buffers)
    buffers[at] = bytes(byte ^ 0x5A for byte in buffers[at])
    wrong = msgspec.structs.replace(vector, buffers=tuple(buffers))
    write(pytester.path / "wrong" / "a.json.gz", wrong)
    assert outcomes(run("reference", *words[:-1], "wrong"))["failed"] == 2


def test_fixtures_are_there_for_other_tests(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import nnburst

        def test_connections(nnburst_device, nnburst_address, nnburst_driver):
            assert nnburst_driver.pid
            with nnburst.connect(nnburst_address) as other:
                assert other.pid != nnburst_device.pid

        def test_next(nnburst_device):
            assert nnburst_device.is_alive
        """
    )
    assert outcomes(run("null", suites=False)) == {"passed": 2}


def test_parts_that_the_documentation_names_are_there() -> None:
    named = re.findall(r"`(nnburst\.testing\.faults\.\w+)\.(\w+)`", PAGE.read_text())
    assert len(named) >= 5
    for module, name in named:
        assert hasattr(importlib.import_module(module), name), (module, name)


def test_fixtures_that_the_documentation_names_are_those_of_the_plugin() -> None:
    named = re.findall(r"^\| `(nnburst_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    there = [name for name in vars(plugin) if name.startswith("nnburst_")]
    assert sorted(named) == sorted(there)


@pytest.mark.campaign
def test_driver_that_is_not_there_is_an_error(run: Run) -> None:
    result = run("nobody", "-k", "sum")
    assert "DeviceUnavailable" in result.stdout.str()
    assert result.ret != 0


def test_executor_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(DeviceUnavailable):
        DriverUnderTest.start("no_such_module:Executor")


def test_address_belongs_to_this_user_alone_and_goes_with_the_driver() -> None:
    with DriverUnderTest.start("null") as driver:
        folder = Path(driver.address).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    driver.close()
    assert not folder.exists()
