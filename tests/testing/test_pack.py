"""The pack of `nnburst conformance`: which cases there are, and how much room it takes."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Set as AbstractSet
from itertools import chain, zip_longest
from pathlib import Path

import msgspec
import numpy as np
import pytest

import nnburst.executor.operations
import nnburst.testing
from nnburst.cli import main
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.signature import Role, Signature
from nnburst.testing import assessment
from nnburst.testing.models.random_graphs.builder import TEMPLATES
from nnburst.testing.pack.campaign import EXCLUSIONS, LEFT_OUT_TYPES, left_out
from nnburst.testing.pack.cases import (
    FILLING,
    LARGE,
    LEAST,
    RECIPES,
    Triple,
    cases,
    triples,
    wanted,
)
from nnburst.testing.pack.trial import model_of
from nnburst.testing.report import OPERATIONS, Report

#: The everyday tests draw the cases of one triple in so many.
EVERY = 90
#: What the cases are made by: specifications, seeds, and the naive evaluator of their results.
ROOMS = ("pack", "models/naive", "models/random_graphs")


def problems(triple: Triple) -> list[str]:
    """The values that a triple's cases lack."""
    found = list(cases(triple))
    names = [case.name for case in found]
    lacking = [] if len(found) >= LEAST == 20 else [f"{triple}: {len(found)} cases"]
    lacking += [f"{name}: more than once" for name, n in Counter(names).items() if n > 1]
    lacking += [f"{case.name}: {len(case.feeds)} sets" for case in found if len(case.feeds) != 3]
    if not {case.recipe for case in found} <= {*RECIPES, *FILLING}:
        lacking.append(f"{triple}: an unknown recipe")
    return lacking


@pytest.mark.campaign
def test_every_operation_has_cases_or_a_reason_why_not() -> None:
    drawn = {triple.operation for triple in triples()}
    assert drawn == set(TEMPLATES)
    assert not drawn & set(EXCLUSIONS)
    assert {operation.name for operation in (*drawn, *EXCLUSIONS)} == set(OPERATIONS)
    assert all(EXCLUSIONS.values())


@pytest.mark.campaign
def test_every_type_of_a_template_is_drawn() -> None:
    expected = {(operation, kind) for operation, t in TEMPLATES.items() for kind in t.kinds}
    assert {(triple.operation, triple.kind) for triple in triples()} == expected


def types_of(signature: Signature) -> dict[OperandType | str, set[OperandType]]:
    """By each type variable of a signature, in the order of its operands: the types that it can be."""
    slots = [slot for form in signature.forms for slot in (*form.inputs, *form.outputs)]
    variables = [
        slot.type for slot in slots if slot.role is Role.DATA and isinstance(slot.type, str)
    ]
    variables += [slot.type for slot in slots if isinstance(slot.type, str)]
    found: dict[OperandType | str, set[OperandType]] = {}
    for variable in dict.fromkeys(variables):
        types = [row.types[variable] for row in signature.rows]
        found[variable] = {
            t for each in types for t in (each if isinstance(each, AbstractSet) else (each,))
        }
    return found


def test_every_type_that_an_operation_takes_is_drawn_or_has_a_reason_why_not() -> None:
    for operation, template in TEMPLATES.items():
        types = types_of(REGISTRY[operation].signature)
        taken = next(iter(types.values())) if types else {OperandType.TENSOR_BOOL8}
        left = {kind for other, kind in LEFT_OUT_TYPES if other == operation}
        assert not left & set(template.kinds), operation
        assert taken == {*template.kinds, *left}, operation
    assert left_out()["DIV:TENSOR_QUANT8_ASYMM_SIGNED"]


@pytest.mark.parametrize(
    "operation",
    [
        operation
        for operation in sorted(TEMPLATES)
        if len(types_of(REGISTRY[operation].signature)) > 1
    ],
    ids=lambda operation: operation.name,
)
def test_every_type_beside_the_first_operands_is_drawn_too(operation: OperationType) -> None:
    """Filters with scales by channel, scales instead of sizes, what is cast to."""
    signature = REGISTRY[operation].signature
    lacking = types_of(signature)
    chosen = map(cases, wanted(lambda triple: triple.operation == operation))
    for case in filter(None, chain.from_iterable(zip_longest(*chosen))):  # the small ones first
        graph = model_of(case).model.main
        inputs, outputs = (
            [graph.operands[i] for i in indexes]
            for indexes in (graph.operations[0].inputs, graph.operations[0].outputs)
        )
        match = signature.match(inputs, outputs)
        slots = [*zip(match.inputs, inputs, strict=True), *zip(match.outputs, outputs, strict=True)]
        for slot, operand in slots:
            lacking.get(slot.type, set()).discard(OperandType(operand.type))
        if not any(lacking.values()):
            return
    assert not any(lacking.values()), lacking


@pytest.mark.campaign
def test_some_operations_types_and_ranks_have_twenty_cases() -> None:
    assert [problem for triple in triples()[::EVERY] for problem in problems(triple)] == []


@pytest.mark.campaign
@pytest.mark.parametrize("operation", sorted(TEMPLATES), ids=lambda operation: operation.name)
def test_every_operation_type_and_rank_has_twenty_cases(operation: OperationType) -> None:
    chosen = [triple for triple in triples() if triple.operation == operation]
    assert [problem for triple in chosen for problem in problems(triple)] == []


def test_extents_reach_from_one_beyond_a_thousand() -> None:
    chosen = next(wanted(lambda triple: triple.operation is OperationType.ADD))
    extents = {
        extent
        for case in cases(chosen)
        for o in case.graph.operands
        for extent in o.value.dimensions
    }
    assert {1, 2, 7, 64, LARGE} <= extents
    assert LARGE > 1000


@pytest.mark.parametrize("operation", [OperationType.CONV_2D, OperationType.FULLY_CONNECTED])
def test_biases_leave_room_for_sums(operation: OperationType) -> None:
    """Int32 that overflows is not defined: engines wrap where the naive evaluator has no bound."""
    kind = OperandType.TENSOR_QUANT8_ASYMM
    chosen = next(wanted(lambda triple: (triple.operation, triple.kind) == (operation, kind)))
    edges = [case for case in cases(chosen) if case.recipe.edge is not None]
    assert edges
    for case in edges:
        bias = case.graph.operands[case.graph.operations[0].inputs[2]].value
        assert bias.meta.kind is OperandType.TENSOR_INT32
        assert np.abs(bias.array).max() < 1000


def test_pack_takes_little_room_in_a_wheel() -> None:
    root = Path(nnburst.testing.__file__).parent
    modules = [path for room in ROOMS for path in sorted((root / room).glob("*"))]
    packed = sum(len(zlib.compress(path.read_bytes(), 6)) for path in modules if path.is_file())
    assert 10_000 < packed <= 300_000


def test_command_writes_both_reports_and_fails_for_what_is_required(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With one check of the contract, all of which test_planted_defects.py runs."""
    name, check = next(iter(assessment.SUITES["contract"].items()))
    monkeypatch.setattr(assessment, "SUITES", {"contract": {name: check}})
    words = ["--device", "reference", "--profile", "basic", "--operation", "LOGICAL_NOT"]
    required = ["--require", "LOGICAL_NOT:TENSOR_BOOL8,ADD", "--report", str(tmp_path)]
    assert main(["conformance", *words, *required]) == 1
    shown = capsys.readouterr().out
    assert "FAILED required: ADD was not executed: no such case" in shown
    assert "coverage 1 of 106 operations" in shown
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report)
    assert report.covered == ["LOGICAL_NOT"]
    assert [check.outcome for check in report.checks] == ["passed", "passed"]
    assert report.failures == ["required: ADD was not executed: no such case"]
    assert "LOGICAL_NOT" in (tmp_path / "report.html").read_text(encoding="utf-8")
