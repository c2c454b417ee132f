"""What came of a run: a table by suite, and the same as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cts.expected import CANNOT_HOLD, NEVER_CALLED, VACUOUS, reason, unexpected
from cts.program import Result

OUTCOMES = ("passed", "failed", "crashed", "skipped")
#: Results that must not be, shown to people; the JSON has all.
SHOWN = 20
COLUMNS = ("suite", "cases", *OUTCOMES, "seconds")


def suite(name: str) -> str:
    """The suite of a case, without its instance."""
    return name.rpartition(".")[0] if "/" not in name else name.split(".")[0]


def rows(results: Mapping[str, Result]) -> list[tuple[object, ...]]:
    """A row for each suite, and one for all."""
    counts: dict[str, Counter[str]] = {}
    seconds: Counter[str] = Counter()
    for name, result in results.items():
        for key in (suite(name), "all"):
            counts.setdefault(key, Counter())[result.outcome] += 1
            seconds[key] += result.seconds  # type: ignore[assignment]
    order = [*sorted(key for key in counts if key != "all"), *(["all"] if counts else [])]
    return [
        (
            key,
            counts[key].total(),
            *(counts[key][outcome] for outcome in OUTCOMES),
            round(seconds[key], 1),
        )
        for key in order
    ]


def added_up(folder: Path) -> dict[str, int]:
    """Executions by device, of the processes that have reported theirs into a folder."""
    total: Counter[str] = Counter()
    for path in folder.glob("*.json"):
        total.update(json.loads(path.read_text(encoding="utf-8")))
    return {f"executions by {device}": count for device, count in sorted(total.items())}


def as_json(
    results: Mapping[str, Result], executions: Mapping[str, int], facts: Mapping[str, object]
) -> dict[str, Any]:
    """The whole of a run.

    Args:
        results: by case.
        executions: by device.
        facts: minutes, memory and what else was measured.
    """
    total = Counter(result.outcome for result in results.values())
    return {
        **{outcome: total[outcome] for outcome in OUTCOMES},
        **facts,
        "executions": dict(executions),
        "suites": [dict(zip(COLUMNS, row, strict=True)) for row in rows(results)],
        "cannot_hold": dict(CANNOT_HOLD),
        "vacuous": {name: why for name in results if (why := reason(name, VACUOUS)) is not None},
        "never_called": list(NEVER_CALLED),
        "unexpected": [as_row(result) for result in unexpected(results)],
    }


def as_row(result: Result) -> dict[str, object]:
    """One result, as JSON has it."""
    return {
        "name": result.name,
        "outcome": result.outcome,
        "seconds": result.seconds,
        "detail": result.detail,
    }


def text(results: Mapping[str, Result], facts: Mapping[str, object]) -> str:
    """The table, what was measured, and the first results that must not be."""
    line = "{:44} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}"
    lines = [line.format(*map(str, row)) for row in (COLUMNS, *rows(results))]
    lines.append(", ".join(f"{value} {name}" for name, value in facts.items()))
    lines += [
        f"{result.outcome}: {result.name}\n{result.detail}\n"
        for result in unexpected(results)[:SHOWN]
    ]
    return "\n".join([*lines, ""])
