"""Signatures against the reference table of operations: codes, versions, types, numbers of inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.graph import declarations
from nnburst.executor.graph.declarations import FL6, FL7, Q8S, V1_0, V1_1, V1_2, V1_3
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.signature import Role, Signature

pytestmark = pytest.mark.shared

LEVELS = {"1.0": V1_0, "1.1": V1_1, "1.2": V1_2, "1.3": V1_3, "FL6": FL6, "FL7": FL7}
TYPES: dict[str, OperandType] = {
    name: getattr(declarations, name)
    for name in ("F32", "F16", "I32", "B8", "Q8", "Q8S", "QSYM8", "QPC", "Q16A", "Q16S")
}
#: NNAPI: Elementwise.cpp validates this type for DIV and then fails to execute it.
ONLY_VALIDATED = {OperationType.DIV: {Q8S}}

Since = dict[OperandType, FeatureLevel]


def table(shared_dir: Path) -> Iterator[tuple[Signature, list[str]]]:
    """Each operation's signature and its cells: name, code, version, file, types, counts, shape."""
    for line in (shared_dir / "spec" / "ops" / "index.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 7 and cells[1].isdigit():
            yield REGISTRY[OperationType[cells[0]]].signature, cells


def earliest(found: Iterable[tuple[OperandType, FeatureLevel]]) -> Since:
    """The version that introduced each type."""
    result: Since = {}
    for kind, level in found:
        result[kind] = min(level, result.get(kind, level))
    return result


def written_types(cell: str) -> Since | None:
    """Types of a cell such as "1.0 F32 Q8; 1.2 F16"; None if it has more than that."""
    found = []
    for part in cell.replace("(zp 0)", "").split(";"):
        level, *names = part.split()
        if level not in LEVELS or not set(names) <= set(TYPES):
            return None
        found += [(TYPES[name], LEVELS[level]) for name in names]
    return earliest(found)


def main_types(signature: Signature) -> Since:
    """Types of the first tensor."""
    form = signature.forms[0]
    slot = next((s for s in form.inputs if s.role is Role.DATA), form.outputs[0])
    found = []
    for row in signature.rows:
        kinds = row.types[slot.type] if isinstance(slot.type, str) else slot.type
        level = max(row.since, signature.since)
        found += [(k, level) for k in ([kinds] if isinstance(kinds, OperandType) else kinds)]
    return earliest(found)


def written_counts(cell: str) -> set[int] | None:
    """Numbers of inputs of a cell such as "7,8 or 9/1/1"; None if they are not bounded."""
    counts: set[int] = set()
    for part in re.split(r" or |,", cell.split("/")[0]):
        numbers = re.fullmatch(r"(\d+)(?:\u2013(\d+))?", part)
        if numbers is None:
            return None
        counts.update(range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1))
    return counts


def test_codes_and_versions_are_those_of_the_table(shared_dir: Path) -> None:
    rows = list(table(shared_dir))
    assert len(rows) == 106
    for signature, cells in rows:
        assert (int(signature.type), signature.since) == (int(cells[1]), LEVELS[cells[2]]), cells[0]


def test_types_are_those_of_the_table(shared_dir: Path) -> None:
    checked = 0
    for signature, cells in table(shared_dir):
        wanted = written_types(cells[4])
        if wanted is None:
            continue
        extra = ONLY_VALIDATED.get(signature.type, set())
        found = {k: level for k, level in main_types(signature).items() if k not in extra}
        assert found == wanted, cells[0]
        checked += 1
    assert checked >= 75


def test_numbers_of_inputs_are_those_of_the_table(shared_dir: Path) -> None:
    for signature, cells in table(shared_dir):
        wanted = written_counts(cells[5])
        found = {n for form in signature.forms for n in form.counts or (len(form.inputs),)}
        assert wanted is None or found == wanted, cells[0]
