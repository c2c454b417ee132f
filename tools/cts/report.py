"""Reports a run: a table by suite, and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cts.expected import CANNOT_HOLD, NEVER_CALLED, VACUOUS, reason, unexpected
from cts.program import Result

OUTCOMES = ("passed", "failed", "crashed", "skipped")
#: Results that must not be, shown to people; the JSON has all.
SHOWN = 20
COLUMNS = ("suite", "cases", *OUTCOMES, "seconds")


class Executions(msgspec.Struct, forbid_unknown_fields=True):
    """Executions that gave a result, as the library counts them (`NNBURST_EXECUTION_COUNTS`).

    Attributes:
        by_device: of models and of steps.
        supported_by_drivers: of whole models of which drivers support an operation or more.
        on_drivers: those of them of which a driver has executed some.
    """

    by_device: dict[str, int] = {}
    supported_by_drivers: int = 0
    on_drivers: int = 0

    @property
    def share(self) -> float:
        """Of what drivers support, how much ran on them: 0 to 1."""
        return self.on_drivers / self.supported_by_drivers if self.supported_by_drivers else 0.0

    def text(self) -> str:
        """For people."""
        by_device = [f"{count} executions by {name}" for name, count in self.by_device.items()]
        share = (
            f"{self.on_drivers} executions on drivers, of {self.supported_by_drivers} that they"
            f" support ({self.share:.1%})"
        )
        return ", ".join([*by_device, share])


_decode: Final = msgspec.json.Decoder(Executions).decode


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


def added_up(folder: Path) -> Executions:
    """All executions of the processes that have reported theirs into a folder."""
    by_device: Counter[str] = Counter()
    total = Executions()
    for path in folder.glob("*.json"):
        found = _decode(path.read_bytes())
        by_device.update(found.by_device)
        total.supported_by_drivers += found.supported_by_drivers
        total.on_drivers += found.on_drivers
    total.by_device = dict(sorted(by_device.items()))
    return total


def as_json(
    results: Mapping[str, Result], executions: Executions, facts: Mapping[str, object]
) -> dict[str, Any]:
    """The whole of a run.

    Args:
        results: by case.
        executions: of all its processes.
        facts: minutes, memory and what else was measured.
    """
    total = Counter(result.outcome for result in results.values())
    return {
        **{outcome: total[outcome] for outcome in OUTCOMES},
        **facts,
        "executions": {**msgspec.to_builtins(executions), "share": round(executions.share, 4)},
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


def text(results: Mapping[str, Result], executions: Executions, facts: Mapping[str, object]) -> str:
    """The table, what was measured, and the first results that must not be."""
    line = "{:44} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}"
    lines = [line.format(*map(str, row)) for row in (COLUMNS, *rows(results))]
    lines.append(", ".join(f"{value} {name}" for name, value in facts.items()))
    lines.append(executions.text())
    lines += [
        f"{result.outcome}: {result.name}\n{result.detail}\n"
        for result in unexpected(results)[:SHOWN]
    ]
    return "\n".join([*lines, ""])
