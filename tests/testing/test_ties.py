"""The one rule by which a result may differ from its vector: it excuses roundings, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.model import Model
from nnburst.testing.conformance.campaign import Selection, run_file
from nnburst.testing.conformance.comparison import RunResult
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import (
    ChannelQuant,
    Vector,
    VectorGraph,
    VectorOperand,
    VectorOperation,
    write,
)
from testing.ties import Array, unexcused, wrong_element

KIND = "TENSOR_QUANT8_ASYMM"


def operand(
    kind: str, dimensions: tuple[int, ...], scale: float, lifetime: str, data: int
) -> VectorOperand:
    return VectorOperand(
        type=kind,
        dimensions=dimensions,
        scale=scale,
        zero_point=0,
        lifetime=lifetime,
        number_of_consumers=0 if lifetime == "SUBGRAPH_OUTPUT" else 1,
        data=data,
    )


def larger(value: int, expected: int, kind: str = KIND, scale: float = 2.0) -> Vector:
    """MAXIMUM of `value` steps of 1 and 0, in steps of `scale`."""
    dtype = "i4" if kind == "TENSOR_INT32" else "u1"
    operands = (
        operand(kind, (1,), scale and 1.0, "SUBGRAPH_INPUT", 0),
        operand(kind, (1,), scale and 1.0, "SUBGRAPH_INPUT", 1),
        operand(kind, (1,), scale, "SUBGRAPH_OUTPUT", 2),
    )
    graph = VectorGraph(operands, (VectorOperation("MAXIMUM", (0, 1), (2,)),), (0, 1), (2,))
    buffers = tuple(np.array([n], dtype).tobytes() for n in (value, 0, expected))
    return Vector(name="larger", spec="larger", folder="test", main=graph, buffers=buffers)


def convolved(
    weight: int, expected: int, *, per_channel: bool, value: int = 100, scale: float = 0.5
) -> Vector:
    """CONV_2D of `value` steps of 0.5 with one weight in steps of 0.4, in steps of `scale`."""
    filter_ = operand(KIND, (1, 1, 1, 1), 0.4, "CONSTANT_COPY", 1)
    if per_channel:
        filter_ = VectorOperand(
            type="TENSOR_QUANT8_SYMM_PER_CHANNEL",
            dimensions=(1, 1, 1, 1),
            scale=0.0,
            zero_point=0,
            lifetime="CONSTANT_COPY",
            number_of_consumers=1,
            channel_quant=ChannelQuant((0.4,), 0),
            data=1,
        )
    bias_scale = 0.0 if per_channel else 0.2
    operands = (
        operand(KIND, (1, 1, 1, 1), 0.5, "SUBGRAPH_INPUT", 0),
        filter_,
        operand("TENSOR_INT32", (1,), bias_scale, "CONSTANT_COPY", 2),
        *(operand("INT32", (), 0.0, "CONSTANT_COPY", data) for data in (3, 4, 4, 2)),
        operand(KIND, (1, 1, 1, 1), scale, "SUBGRAPH_OUTPUT", 5),
    )
    graph = VectorGraph(
        operands, (VectorOperation("CONV_2D", (0, 1, 2, 3, 4, 5, 6), (7,)),), (0,), (7,)
    )
    numbers = [np.int32(n).tobytes() for n in (0, 1, 1)]
    buffers = (bytes([value]), bytes([weight]), *numbers, bytes([expected]))
    return Vector(name="convolved", spec="c", folder="test", main=graph, buffers=buffers)


def connected(value: int, expected: int, *, bias: int) -> Vector:
    """FULLY_CONNECTED of `value` steps of 0.5 with a weight of 0.4, in steps of 0.8."""
    operands = (
        operand(KIND, (1, 1), 0.5, "SUBGRAPH_INPUT", 0),
        operand(KIND, (1, 1), 0.4, "CONSTANT_COPY", 1),
        operand("TENSOR_INT32", (1,), 0.2, "CONSTANT_COPY", 2),
        operand("INT32", (), 0.0, "CONSTANT_COPY", 3),
        operand(KIND, (1, 1), 0.8, "SUBGRAPH_OUTPUT", 4),
    )
    operations = (VectorOperation("FULLY_CONNECTED", (0, 1, 2, 3), (4,)),)
    numbers = [np.int32(n).tobytes() for n in (bias, 0)]
    return Vector(
        name="connected",
        spec="connected",
        folder="test",
        main=VectorGraph(operands, operations, (0,), (4,)),
        buffers=(bytes([value]), b"\1", *numbers, bytes([expected])),
    )


@pytest.fixture
def runner() -> LocalRunner:
    return LocalRunner("reference")


@pytest.mark.parametrize("expected", [2, 3])
def test_at_a_tie_either_step_is_right(runner: LocalRunner, expected: int) -> None:
    assert wrong_element(larger(5, expected), runner) == ""


@pytest.mark.parametrize("expected", [1, 4])
def test_two_steps_or_the_other_side_of_a_tie_are_wrong(runner: LocalRunner, expected: int) -> None:
    assert "element 0 is 3" in wrong_element(larger(5, expected), runner)


@pytest.mark.parametrize("expected", [1, 3])
def test_a_step_beside_no_tie_is_wrong(runner: LocalRunner, expected: int) -> None:
    assert "element 0 is 2" in wrong_element(larger(4, expected), runner)


def test_integers_are_never_excused(runner: LocalRunner) -> None:
    assert wrong_element(larger(4, 5, "TENSOR_INT32", 0.0), runner)


@pytest.mark.parametrize("expected", [79, 81])
def test_weights_of_each_channel_excuse_a_step_from_the_nearest(
    runner: LocalRunner, expected: int
) -> None:
    assert wrong_element(convolved(2, expected, per_channel=True), runner) == ""
    assert wrong_element(convolved(2, expected, per_channel=False), runner)


@pytest.mark.parametrize("expected", [78, 82])
def test_weights_of_each_channel_excuse_no_two_steps(runner: LocalRunner, expected: int) -> None:
    assert wrong_element(convolved(2, expected, per_channel=True), runner)


def test_bias_of_a_fully_connected_layer_is_in_steps_of_what_it_multiplies() -> None:
    assert wrong_element(connected(80, 22, bias=6), Gives(21)) == ""  # (80 + 6) / 4: 21.5 steps
    assert "exact 22.0" in wrong_element(connected(80, 22, bias=8), Gives(21))


class Gives:
    """A runner that gives one element, whatever it is asked for."""

    def __init__(self, element: int) -> None:
        self.element = element

    def prepare(self, _model: Model, _pools: Sequence[bytes]) -> Gives:
        return self

    def run(self, _inputs: object, _output_sizes: Sequence[int], _limit: int = 0) -> RunResult:
        return RunResult(ErrorStatus.NONE, (), (bytes([self.element]),), "")

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        return self.run(inputs, ())

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("given", "expected"), [(20, 21), (21, 20)])
def test_convolutions_that_round_their_own_way_reach_three_quarters_of_a_step(
    given: int, expected: int
) -> None:
    vector = convolved(1, expected, per_channel=False, value=81, scale=0.8)  # 20.25 steps
    assert wrong_element(vector, Gives(given), rounds_its_own_way=True) == ""
    assert wrong_element(vector, Gives(given))


@pytest.mark.parametrize(("given", "expected"), [(20, 19), (19, 20), (20, 22)])
def test_convolutions_that_round_their_own_way_reach_no_further(given: int, expected: int) -> None:
    vector = convolved(1, expected, per_channel=False, value=81, scale=0.8)
    assert wrong_element(vector, Gives(given), rounds_its_own_way=True)


def test_nothing_but_convolutions_rounds_its_own_way() -> None:
    vector = larger(5, 3, scale=4.0)  # 1.25 steps, of which 3 is none
    assert wrong_element(vector, Gives(2), rounds_its_own_way=True)
    vector = larger(5, 2, scale=4.0)
    assert wrong_element(vector, Gives(1), rounds_its_own_way=True)


def test_failures_that_do_not_come_from_rounding_stay(tmp_path: Path, runner: LocalRunner) -> None:
    judged = []
    for name, vector in {"tie": larger(5, 2), "off": larger(4, 3)}.items():
        write(tmp_path / f"{name}.json.gz", vector)
        selection = Selection(exact=True, dump=tmp_path / name)
        judged += run_file(tmp_path / f"{name}.json.gz", selection, runner)
    assert [r.outcome for r in judged] == ["failed", "failed"]
    (wrong,) = unexcused(judged, runner)
    assert wrong[:2] == ("larger", "run")
    assert "expected 3, exact 2.0" in wrong[2]
