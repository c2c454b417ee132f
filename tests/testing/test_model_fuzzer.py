"""Mutations against live drivers, in short: one model of each family of operations.

`nnburst fuzz models builtin` is the long form.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import nnburst
from nnburst.cli import main
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import DeadObject
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.types import OutputShape, Timing
from nnburst.serialize import serialize_result
from nnburst.serialize.wire import RESULT
from nnburst.testing.fuzzing import model_fuzzer as model_step
from nnburst.testing.fuzzing import model_fuzzer as packet_step
from nnburst.testing.fuzzing import model_fuzzer as request_step
from nnburst.testing.fuzzing.model_asking import (
    EVERYTHING,
    KINDS,
    FuzzReport,
    FuzzSelection,
    Target,
)
from nnburst.testing.fuzzing.model_fuzzer import fuzz
from nnburst.testing.fuzzing.model_mutators import ModelMutation
from nnburst.testing.fuzzing.packet_fuzzer import Mutation, judge
from nnburst.testing.models.small_models import (
    SmallModel,
    all_models,
    chain,
    made_models,
    open_outputs,
    pooled,
)
from shared_drivers import connect_to

OK, FAILED, SHORT = (
    ErrorStatus.NONE,
    ErrorStatus.GENERAL_FAILURE,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
)


def one_per_family() -> Iterator[SmallModel]:
    """Models whose kernels lie in different modules; without the largest ones."""
    seen = {REGISTRY[operation].kernel.__module__ for operation in chain().operations}
    yield from (chain(), pooled(), open_outputs())
    for small in sorted(all_models(), key=lambda s: len(s.model.main.operands)):
        families = {REGISTRY[operation].kernel.__module__ for operation in small.operations}
        if not families <= seen:
            seen |= families
            yield small


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("reference") as launched:
        yield launched


@pytest.fixture(scope="module")
def report(device: nnburst.Device) -> FuzzReport:
    """All mutations of made models, and of those of the first families, sent once."""
    return fuzz(device, itertools.islice(one_per_family(), 6))


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.rule(k)) for k in KINDS])
def test_driver_refuses_every_mutation_and_accepts_what_it_was_made_from(
    report: FuzzReport, kind: str
) -> None:
    mutated = [f for f in report.failures if re.match(rf"{kind}\b", f.mutation)]
    original = [f for f in report.failures if "valid" in f.mutation]
    assert mutated == original == []
    assert report.sent[kind] > 0


def test_hundreds_of_mutations_leave_the_driver_alive(
    report: FuzzReport, device: nnburst.Device
) -> None:
    assert report.failures == []
    assert report.total > 500
    assert device.is_alive


@pytest.mark.campaign
def test_thousands_of_mutations_leave_the_driver_alive(device: nnburst.Device) -> None:
    report = fuzz(device, one_per_family())
    assert report.failures == []
    assert all(report.sent[kind] > 0 for kind in KINDS)
    assert report.total > 5000
    assert "(unnamed)" not in report.refused_by
    assert {f"validation:{rule}" for rule in ("S1", "S2", "P4", "O22")} <= set(report.refused_by)
    assert device.is_alive


@pytest.fixture
def target(device: nnburst.Device) -> Iterator[Target]:
    with Target(device, pooled()) as staged:
        yield staged


def test_model_that_is_accepted_is_a_failure_of_both_calls(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmless = [ModelMutation("VM1 nothing", target.model)]
    monkeypatch.setattr(model_step, "suite_mutations", lambda _: harmless)
    found = FuzzReport()
    model_step.fuzz_model(target, found)
    assert [f.reason for f in found.failures] == [
        "GetSupportedOperations: accepted",
        "PrepareModel: accepted",
    ]


def test_request_that_is_accepted_is_a_failure_of_every_way(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmless = [("without nothing", target.request)]
    monkeypatch.setattr(request_step, "_shortened", lambda _: harmless)
    found = FuzzReport()
    request_step.fuzz_requests(target, found)
    assert {(f.mutation, f.reason) for f in found.failures} == {
        (f"{rule} without nothing ({rule})", "answered NONE")
        for rule in (
            *("VR1", "VR2", "VR3", "VR4"),
            *("VR9 fenced object", "VR9 object", "VR9 burst"),
        )
    }


def test_packet_that_is_accepted_is_a_failure(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = (("VB1", lambda valid: [Mutation("nothing", valid)]),)
    monkeypatch.setattr(packet_step, "_KINDS", kinds)
    found = FuzzReport()
    packet_step.fuzz_packets_of(target, found)
    assert [(f.mutation, f.reason) for f in found.failures] == [("VB1 nothing", "answered NONE")]


def test_driver_that_dies_ends_the_campaign_with_the_mutation_that_killed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connect_to("reference") as device:

        def lethal(model: nnburst.Model) -> Iterator[ModelMutation]:
            os.kill(device.pid, signal.SIGKILL)
            yield ModelMutation("VM1 lethal", model)

        monkeypatch.setattr(model_step, "suite_mutations", lethal)
        found = fuzz(device, made_models())
    assert found.failures[0].mutation == "VM1 lethal"
    assert "died" in found.failures[0].reason
    assert {f.model for f in found.failures} == {"chain"}


def test_dead_driver_is_not_taken_for_one_that_refuses(target: Target) -> None:
    with connect_to("reference") as device, Target(device, chain()) as doomed:
        os.kill(device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            model_step.fuzz_model(doomed, FuzzReport())


@pytest.mark.rule("VB6")
def test_answer_with_anything_in_its_padding_is_a_problem() -> None:
    answer = serialize_result(OK, (), Timing(1, 2)).tobytes()
    assert judge(answer, {OK}) == (OK, [])
    dirty = bytearray(answer)
    dirty[1] = 1
    assert judge(bytes(dirty), {OK}) == (OK, ["padding is not 0"])


def test_time_that_the_device_does_not_have_is_no_problem() -> None:
    assert judge(serialize_result(OK, (), Timing(NO_TIMING, 2)).tobytes(), {OK}) == (OK, [])
    assert judge(serialize_result(OK, (), Timing(3, 2)).tobytes(), {OK})[1] != []


def sent_as(status: int, answer: np.ndarray) -> np.ndarray:
    """A result packet with another status in it."""
    RESULT.variants[0].view(answer[:1])["error_status"] = status
    return answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (serialize_result(OK, (), Timing(2, 1)), "Timing"),
        (serialize_result(SHORT, (OutputShape((2,), False),)), "with shapes"),
        (sent_as(3, serialize_result(OK, (), Timing(1, 2))), "with a timing"),
        (sent_as(5, serialize_result(OK)), "sent as status 5"),
        (serialize_result(FAILED), "answered GENERAL_FAILURE"),
    ],
)
def test_answer_that_breaks_a_promise_is_a_problem(answer: np.ndarray, problem: str) -> None:
    _, problems = judge(answer.tobytes(), {OK, SHORT} | ({FAILED} if "5" in problem else set()))
    assert len(problems) == 1
    assert problem in problems[0]


def test_selection_sends_only_what_was_asked_for(device: nnburst.Device) -> None:
    found = fuzz(device, [chain()], FuzzSelection("VM3 operand 1"))
    assert set(found.sent) == {"VM3"}
    assert found.sent["VM3"] == 4
    assert EVERYTHING.takes("anything")


def test_command_prints_counts_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    words = ["fuzz", "models", "builtin", "--model", "^RANK$", "--json", str(path)]
    assert main(words) == 0
    assert "mutations of 1 models" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert written["passed"]
    assert written["failures"] == []
    assert written["mutations"] == sum(written["by_mutation"].values()) > 100


def test_failure_is_shown_with_the_words_that_send_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["fuzz", "models", "builtin", "--executor", "null", "--model", "^RELU"]
    assert main([*words, "--per-operation", "1", "--mutation", "VR7"]) == 1
    shown = capsys.readouterr().out
    again = next(line for line in shown.splitlines() if line.startswith("       nnburst fuzz"))
    assert main(shlex.split(again)[1:]) == 1
    assert "FAILED missing_row: VR7" in capsys.readouterr().out


def test_driver_that_ends_is_shown_with_the_words_for_all_mutations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ends.py").write_text(_ENDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = ["fuzz", "models", "builtin", "--model", "^chain$", "--executor", "ends:Ends"]
    assert main(words) == 1
    again = [line for line in capsys.readouterr().out.splitlines() if "nnburst fuzz" in line]
    assert set(again) == {
        "       nnburst fuzz models builtin --executor ends:Ends --model '^chain$'"
    }


_ENDS = """
import os

from nnburst.executor.reference.executor import ReferenceExecutor

class Ends(ReferenceExecutor):
    def prepare(self, *_):
        os._exit(3)
"""


def test_command_that_sent_nothing_fails_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fuzz", "models", "builtin", "--model", "no such model"]) == 1
    assert "nothing was sent" in capsys.readouterr().out


_FEW = """
from nnburst.executor.reference.executor import ReferenceExecutor

class Few(ReferenceExecutor):
    def supported(self, model):
        return [operation.type == 19 for operation in model.main.operations]  # RELU
"""


def test_driver_is_not_sent_the_special_models_that_it_does_not_support(
    make_module: Callable[[str, str], None],
) -> None:
    make_module("few", _FEW)
    relu = next(small for small in all_models() if small.operations == {19} and not small.pools)
    with nnburst.launch("few:Few") as device:
        report = fuzz(device, [relu])
    assert report.failures == []
    assert report.total


_CLOCKLESS = """
from dataclasses import dataclass
import msgspec
from nnburst.executor.base import Execution, Prepared
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.limits import NO_TIMING

class Clockless(ReferenceExecutor):
    def prepare(self, *arguments):
        return Model(super().prepare(*arguments))

class Model(Prepared):
    def __init__(self, inner):
        self.inner = inner

    def bind(self, *arguments):
        return Run(self.inner.bind(*arguments))

    def close(self):
        self.inner.close()

class Run(Execution):
    def __init__(self, inner):
        self.inner = inner

    def run(self, *arguments):
        return msgspec.structs.replace(self.inner.run(*arguments), device_ns=NO_TIMING)

    def close(self):
        self.inner.close()
"""


def test_time_that_a_device_does_not_have_is_no_failure(
    make_module: Callable[[str, str], None],
) -> None:
    make_module("clockless", _CLOCKLESS)
    with nnburst.launch("clockless:Clockless") as device:
        report = fuzz(device, [chain()], FuzzSelection("VR[49]"))
    assert report.failures == []
    assert report.total
