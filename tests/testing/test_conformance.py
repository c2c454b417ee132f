"""The conformance runner: suites, selection, failures that can be reproduced, the command."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from nnburst.cli import main
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.types import OutputShape
from nnburst.testing.conformance import campaign as conformance
from nnburst.testing.conformance.campaign import Selection, find_files, run_files, run_suite
from nnburst.testing.conformance.comparison import RunResult, require_supported
from nnburst.testing.conformance.runners import BurstRunner, ExecuteRunner, LocalRunner
from nnburst.testing.conformance.vectors import (
    Vector,
    VectorGraph,
    VectorOperand,
    VectorOperation,
    read,
    write,
)
from testing.some_vectors import some_files
from testing.ties import unexcused


class Canned:
    """A runner that answers every execution alike."""

    def __init__(self, *results: RunResult) -> None:
        self.results = list(results)

    def prepare(self, _model: Model, _pools: Sequence[bytes]) -> Canned:
        return self

    def run(self, _inputs: object, _output_sizes: Sequence[int], _limit: int = 0) -> RunResult:
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]

    def run_in_buffers(self, _inputs: object) -> RunResult:
        return self.results[0]

    def close(self) -> None:
        pass


def relu(suites: tuple[str, ...] = ("run", "dynamic_output_shape")) -> Vector:
    """A RELU over two floats that gives [0, 1]."""

    def operand(lifetime: str, uses: int, data: int) -> VectorOperand:
        return VectorOperand(
            type="TENSOR_FLOAT32",
            dimensions=(2,),
            scale=0.0,
            zero_point=0,
            lifetime=lifetime,
            number_of_consumers=uses,
            data=data,
        )

    operands = (operand("SUBGRAPH_INPUT", 1, 0), operand("SUBGRAPH_OUTPUT", 0, 1))
    graph = VectorGraph(operands, (VectorOperation("RELU", (0,), (1,)),), (0,), (1,))
    buffers = (np.array([-1, 1], "f4").tobytes(), np.array([0, 1], "f4").tobytes())
    return Vector(
        name="relu", spec="relu", folder="random", main=graph, suites=suites, buffers=buffers
    )


def answer(
    values: Sequence[float] = (0, 1),
    status: ErrorStatus = ErrorStatus.NONE,
    dimensions: tuple[int, ...] = (2,),
    *,
    is_sufficient: bool = True,
) -> RunResult:
    shape = OutputShape(dimensions, is_sufficient)
    shapes = (shape,) if status.value in (0, 3) else ()
    return RunResult(status, shapes, (np.array(values, "f4").tobytes(),), "why")


TOO_SMALL = answer(status=ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, is_sufficient=False)


def test_right_results_pass() -> None:
    assert run_suite(relu(), "run", Canned(answer())).outcome == "passed"


def test_wrong_element_fails_with_its_place() -> None:
    verdict = run_suite(relu(), "run", Canned(answer([0, 2])))
    assert verdict.outcome == "failed"
    assert "at [1] expected 1.0, actual 2.0" in verdict.reason


def test_wrong_dimensions_fail() -> None:
    verdict = run_suite(relu(), "run", Canned(answer(dimensions=(2, 1))))
    assert verdict.outcome == "failed"


def test_error_fails_with_its_message() -> None:
    verdict = run_suite(relu(), "run", Canned(answer(status=ErrorStatus.GENERAL_FAILURE)))
    assert verdict == ("failed", "GENERAL_FAILURE: why")


def test_unknown_shapes_must_be_reported_also_for_a_buffer_one_byte_short() -> None:
    suite = "dynamic_output_shape"
    assert run_suite(relu(), suite, Canned(answer(), TOO_SMALL)).outcome == "passed"
    assert run_suite(relu(), suite, Canned(answer(), answer())).outcome == "failed"
    sufficient = answer(status=ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
    assert run_suite(relu(), suite, Canned(answer(), sufficient)).outcome == "failed"


def test_invalid_tests_must_report_an_error() -> None:
    vector = relu(("must_fail",))
    assert run_suite(vector, "must_fail", Canned(answer())).outcome == "failed"
    error = answer(status=ErrorStatus.GENERAL_FAILURE)
    assert run_suite(vector, "must_fail", Canned(error)).outcome == "passed"


def test_endless_loops_must_miss_their_deadline() -> None:
    missed = answer(status=ErrorStatus.MISSED_DEADLINE_PERSISTENT)
    assert run_suite(relu(), "timeout", Canned(missed)).outcome == "passed"
    other = answer(status=ErrorStatus.GENERAL_FAILURE)
    assert run_suite(relu(), "timeout", Canned(other)).outcome == "failed"


def test_results_in_buffers_are_compared() -> None:
    assert run_suite(relu(), "device_memory", Canned(answer())).outcome == "passed"
    assert run_suite(relu(), "device_memory", Canned(answer([0, 2]))).outcome == "failed"


@pytest.mark.parametrize("runner", [LocalRunner, ExecuteRunner, BurstRunner])
def test_buffers_are_skipped_where_only_execute_can_carry_them(
    runner: type[LocalRunner | ExecuteRunner],
) -> None:
    reached = runner("reference")
    try:
        outcome, reason = run_suite(relu(), "device_memory", reached)
    finally:
        reached.close()
    wanted = {
        LocalRunner: ("skipped", "not available: buffers are a driver's"),
        BurstRunner: ("skipped", "bursts cannot carry buffers"),
        ExecuteRunner: ("passed", ""),
    }
    assert (outcome, reason) == wanted[runner]


class Refusing(Canned):
    """A runner whose executor cannot run what is asked."""

    def prepare(self, model: Model, _pools: Sequence[bytes]) -> Canned:
        require_supported(model, [False] * len(model.main.operations))
        return self


@pytest.mark.parametrize("suite", ["run", "dynamic_output_shape", "must_fail", "timeout"])
def test_what_an_executor_does_not_support_is_skipped(suite: str) -> None:
    verdict = run_suite(relu(), suite, Refusing(answer()))
    assert verdict == ("skipped", "the executor does not support RELU")


def test_ignored_outputs_are_not_compared() -> None:
    vector = relu()
    x, y = vector.main.operands
    ignored = msgspec.structs.replace(y, is_ignored=True)
    graph = msgspec.structs.replace(vector.main, operands=(x, ignored))
    vector = msgspec.structs.replace(vector, main=graph)
    assert run_suite(vector, "run", Canned(answer([7, 7]))).outcome == "passed"


def test_reference_executor_passes_and_a_wrong_expectation_fails(tmp_path: Path) -> None:
    good = relu()
    bad = msgspec.structs.replace(
        good, name="bad", buffers=(good.buffers[0], np.array([0, 3], "f4").tobytes())
    )
    write(tmp_path / "good.json.gz", good)
    write(tmp_path / "bad.json.gz", bad)
    selection = Selection(dump=tmp_path / "dump")
    results = [r for found in run_files(find_files([tmp_path]), selection, 1) for r in found]
    outcomes = {(r.name, r.suite): r.outcome for r in results}
    assert outcomes["relu", "run"] == "passed"
    assert outcomes["bad", "run"] == "failed"
    dumps = [Path(r.dump) for r in results if r.outcome == "failed"]
    [again] = read(dumps[0])
    assert run_suite(again, again.suites[0], LocalRunner("reference")).outcome == "failed"


def test_crash_of_a_test_is_a_failure_of_that_test(tmp_path: Path) -> None:
    vector = relu(("run",))
    x, y = vector.main.operands
    wrong = msgspec.structs.replace(x, dimensions=(3,))
    graph = msgspec.structs.replace(vector.main, operands=(wrong, y))
    write(tmp_path / "x.json.gz", msgspec.structs.replace(vector, main=graph))
    [[result]] = run_files(find_files([tmp_path]), Selection(), 1)
    assert result.outcome == "failed"
    assert "ValueError" in result.reason


def test_selection_takes_names_and_operations() -> None:
    vector = relu()
    assert Selection(filter="^random/relu/").takes(vector)
    assert not Selection(filter="conv").takes(vector)
    assert Selection(operation="RELU").takes(vector)
    assert not Selection(operation="RELU6").takes(vector)


def test_folder_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no vector files"):
        find_files([tmp_path])


def test_command_reports_json_and_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "relu.json.gz", relu(("run", "device_memory")))
    report = tmp_path / "report.json"
    words = ["conformance", str(tmp_path), "--json", str(report), "--dump", str(tmp_path / "d")]
    assert main(words) == 0
    found = json.loads(report.read_text())
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 0, 1)
    assert found["tests"][0] == {
        "name": "relu",
        "suite": "run",
        "outcome": "passed",
        "reason": "",
    }
    assert "1 passed, 0 failed, 1 skipped" in capsys.readouterr().out
    assert main([*words, "--filter", "nothing"]) == 1
    assert "nothing was run: --filter" in capsys.readouterr().out


def test_run_in_which_every_test_is_skipped_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "relu.json.gz", relu(("device_memory",)))
    assert main(["conformance", str(tmp_path)]) == 1
    assert "0 passed, 0 failed, 1 skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value"),
    [("--report", "x"), ("--require", "ADD"), ("--max-latency", "9"), ("--profile", "full")],
)
def test_options_that_vector_files_have_no_use_for_are_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["conformance", str(tmp_path), option, value]) == 1
    assert f"{option}: given with vector files" in capsys.readouterr().err


@pytest.mark.parametrize("via", ["plans", "plans-burst"])
def test_plans_over_one_device_are_refused(
    via: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write(tmp_path / "relu.json.gz", relu())
    assert main(["conformance", str(tmp_path), "--device", "reference", "--via", via]) == 1
    assert f"--via {via}: given with --device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--via", "burst"], ["--suite", "run"], ["--exact"], ["--jobs", "2"]]
)
def test_options_of_vector_files_are_refused_without_any(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", "--device", "reference", "--operation", "ADD", *words]) == 1
    assert f"{words[0]}: given without vector files" in capsys.readouterr().err


def test_command_uses_several_processes(tmp_path: Path) -> None:
    for number in range(3):
        vector = msgspec.structs.replace(relu(("run",)), name=f"relu_{number}")
        write(tmp_path / f"{number}.json.gz", vector)
    report = tmp_path / "report.json"
    assert main(["conformance", str(tmp_path), "--jobs", "2", "--json", str(report)]) == 0
    assert json.loads(report.read_text())["passed"] == 3


@pytest.mark.campaign
def test_each_process_closes_its_runner_which_reports_its_plans(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in range(3):
        vector = msgspec.structs.replace(relu(("run",)), name=f"relu_{number}")
        write(tmp_path / f"{number}.json.gz", vector)
    assert main(["conformance", str(tmp_path), "--jobs", "2", "--via", "plans"]) == 0
    plans = re.findall(r"plans: (\d+) simple", capfd.readouterr().err)
    assert sum(map(int, plans)) == 3


def test_unknown_executor_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "relu.json.gz", relu())
    assert main(["conformance", str(tmp_path), "--executor", "nobody"]) == 1
    assert "nobody" in capsys.readouterr().err


def endless() -> Vector:
    """While true: x = x + x."""
    x = {"type": "TENSOR_FLOAT32", "dimensions": (1,), "scale": 0.0, "zero_point": 0}
    flag = {"type": "TENSOR_BOOL8", "dimensions": (1,), "scale": 0.0, "zero_point": 0}
    scalar = {"type": "INT32", "dimensions": (), "scale": 0.0, "zero_point": 0}
    graph = {"type": "SUBGRAPH", "dimensions": (), "scale": 0.0, "zero_point": 0}

    def operand(
        meta: dict[str, Any], lifetime: str, uses: int, data: int | None = None
    ) -> VectorOperand:
        return VectorOperand(**meta, lifetime=lifetime, number_of_consumers=uses, data=data)

    condition = VectorGraph(
        (operand(x, "SUBGRAPH_INPUT", 2), operand(flag, "SUBGRAPH_OUTPUT", 0)),
        (VectorOperation("EQUAL", (0, 0), (1,)),),
        (0,),
        (1,),
    )
    body = VectorGraph(
        (
            operand(x, "SUBGRAPH_INPUT", 2),
            operand(scalar, "CONSTANT_COPY", 1, 0),
            operand(x, "SUBGRAPH_OUTPUT", 0),
        ),
        (VectorOperation("ADD", (0, 0, 1), (2,)),),
        (0,),
        (2,),
    )
    loop = VectorGraph(
        (
            operand(graph, "SUBGRAPH", 1, 1),
            operand(graph, "SUBGRAPH", 1, 2),
            operand(x, "SUBGRAPH_INPUT", 1, 0),
            operand(x, "SUBGRAPH_OUTPUT", 0, 0),
        ),
        (VectorOperation("WHILE", (0, 1, 2), (3,)),),
        (2,),
        (3,),
    )
    numbers = tuple(n.to_bytes(4, "little") for n in (0, 0, 1))
    return Vector(
        name="endless",
        spec="endless",
        folder="test",
        main=loop,
        referenced=(condition, body),
        suites=("timeout",),
        buffers=numbers,
    )


@pytest.mark.parametrize("way", [LocalRunner, ExecuteRunner])
def test_endless_loop_ends_by_the_loop_time_limit(way: type[LocalRunner | ExecuteRunner]) -> None:
    runner = way("reference")
    try:
        assert run_suite(endless(), "timeout", runner).outcome == "passed"
    finally:
        runner.close()


def results_of(files: Sequence[Path], selection: Selection, jobs: int) -> list[conformance.Result]:
    return [result for found in run_files(files, selection, jobs) for result in found]


def check_with_exact_integers(files: Sequence[Path], dump: Path, jobs: int) -> int:
    """The reference executor passes all vectors; how many executions that were."""
    results = results_of(files, Selection(exact=True, dump=dump), jobs)
    assert unexcused(results, LocalRunner("reference")) == []
    skipped = {(r.suite, r.reason) for r in results if r.outcome == "skipped"}
    assert skipped == {("device_memory", "not available: buffers are a driver's")}
    return len(results)


def check_with_buffers(files: Sequence[Path], jobs: int) -> int:
    """A driver passes all vectors with buffers; how many executions that were."""
    results = results_of(files, Selection(via="execute", suites=("device_memory",)), jobs)
    assert [(r.name, r.reason) for r in results if r.outcome != "passed"] == []
    return len(results)


@pytest.mark.shared
def test_reference_executor_passes_some_open_vectors_and_their_integers_exactly(
    shared_dir: Path, tmp_path: Path
) -> None:
    assert check_with_exact_integers(some_files(shared_dir), tmp_path, 1) > 500


@pytest.mark.shared
@pytest.mark.campaign
def test_reference_executor_passes_every_open_vector_and_its_integers_exactly(
    shared_dir: Path, tmp_path: Path
) -> None:
    files = find_files([shared_dir / "vectors"])
    assert check_with_exact_integers(files, tmp_path, 2) > 20_000


@pytest.mark.campaign
@pytest.mark.shared
def test_driver_passes_some_open_vectors_with_buffers(shared_dir: Path) -> None:
    assert check_with_buffers(some_files(shared_dir), 1) > 200


@pytest.mark.shared
@pytest.mark.campaign
def test_driver_passes_every_open_vector_with_buffers(shared_dir: Path) -> None:
    assert check_with_buffers(find_files([shared_dir / "vectors"]), 2) > 7_000
