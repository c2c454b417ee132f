"""Every operation of NNAPI is registered, tested and documented; none is there that NNAPI lacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import REQUIRED, Signature, may_omit_inputs
from operation_docs import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"

#: NNAPI: OEM_OPERATION means what the vendor of a driver makes of it; the CPU executor has none.
OPERATIONS = set(OperationType) - {OperationType.OEM_OPERATION}

SIGNATURES = [pytest.param(d.signature, id=t.name) for t, d in sorted(REGISTRY.items())]


def names(operations: set[OperationType]) -> list[str]:
    return sorted(operation.name for operation in operations)


def test_every_operation_is_registered() -> None:
    assert len(OPERATIONS) == 106
    assert names(OPERATIONS - set(REGISTRY)) == []
    assert names(set(REGISTRY) - OPERATIONS) == []


def test_clients_omit_inputs_of_operations_with_optional_operands_alone() -> None:
    optional = {
        kind
        for kind, definition in REGISTRY.items()
        if any(slot.nullable for form in definition.signature.forms for slot in form.inputs)
    }
    assert {kind for kind in OPERATIONS if may_omit_inputs(kind)} == optional


def test_every_operation_is_tested() -> None:
    sources = (ROOT / "tests" / "executor").rglob("test_*.py")
    named = {name for path in sources for name in re.findall(r"\.([A-Z]\w+)", path.read_text())}
    assert sorted(set(names(OPERATIONS)) - named) == []


def test_every_operation_is_documented() -> None:
    headings = set(re.findall(r"^## ([A-Z]\w+)$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert sorted(headings) == names(OPERATIONS)


def test_the_page_on_disk_is_the_generated_one() -> None:
    assert PAGE.read_text("utf-8") == page(), (
        "write it again: python -m operation_docs docs/operations.md"
    )


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_signature_describes_what_it_means(signature: Signature) -> None:
    assert signature.summary.endswith(".")
    for form in signature.forms:
        slots = [*form.inputs, *form.outputs]
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", slot.name) for slot in slots)
        assert all(slot.repeats is None for slot in slots if slot.default is not REQUIRED)
        for operands in (form.inputs, form.outputs):
            assert len({slot.name for slot in operands}) == len(operands)
            assert sum(slot.repeats is not None for slot in operands) <= 1


@pytest.mark.parametrize("signature", SIGNATURES)
def test_every_type_variable_is_resolved_by_every_row(signature: Signature) -> None:
    used = {
        slot.type
        for form in signature.forms
        for slot in (*form.inputs, *form.outputs)
        if isinstance(slot.type, str)
    }
    assert all(used <= set(row.types) for row in signature.rows)
    assert all(set(row.types) <= used for row in signature.rows)


@pytest.mark.parametrize("signature", SIGNATURES)
def test_an_operation_can_be_used_as_soon_as_it_is_introduced(signature: Signature) -> None:
    assert min(row.since for row in signature.rows) <= signature.since
    assert min(form.since for form in signature.forms) <= signature.since
