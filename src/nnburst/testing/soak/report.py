"""How a soak went, on paper and as JSON, from which its verdict can be computed again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from nnburst.testing.soak.series import Series, Trend, as_facts, from_facts

#: What is counted by hand; the rest of a report follows from its series.
_COUNTED: Final = ("seconds", "rounds", "counts", "errors")


@dataclass
class SoakReport:
    """How a soak went.

    Attributes:
        seconds: that it took.
        rounds: of each client that stayed.
        counts: of what came and went.
        errors: whatever should not have happened.
        series: all that was looked at, complete before the first look at `trends`.
    """

    seconds: float = 0.0
    rounds: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)

    @cached_property
    def trends(self) -> dict[str, Trend]:
        """Of every series that is long enough for one."""
        found = {name: series.trend() for name, series in self.series.items()}
        return {name: trend for name, trend in found.items() if trend is not None}

    @property
    def growing(self) -> list[str]:
        """Names of series that are not flat."""
        return [name for name, trend in self.trends.items() if not trend.is_flat]

    @property
    def not_judged(self) -> list[str]:
        """Names of series that allow no statement: the soak was too short for them."""
        return [name for name in self.series if name not in self.trends]

    @property
    def passed(self) -> bool:
        """Whether nothing grew and nothing failed, of what could be judged."""
        return not self.errors and not self.growing and bool(self.trends)

    def text(self) -> str:
        """For people."""
        lines = [f"{self.seconds:.0f} s"]
        lines += [f"  {count:9} {name}" for name, count in self.counts.items()]
        lines += [f"  {count:9} rounds of {name}" for name, count in self.rounds.items()]
        lines.append(f"  {'first':>9} {'growth':>8} {'chance':>8} {'allowed':>8}")
        for name, trend in self.trends.items():
            mark = "" if trend.is_flat else "   GROWS"
            lines.append(
                f"  {trend.first:9.1f} {trend.growth:+8.2f} {trend.uncertainty:8.2f}"
                f" {trend.allowance:8.1f} {name}{mark}"
            )
        if self.not_judged:
            lines.append(f"too short to judge {len(self.not_judged)} of {len(self.series)} series")
        lines += [f"error: {error}" for error in self.errors]
        lines.append("passed" if self.passed else "FAILED")
        return "\n".join(lines) + "\n"

    def facts(self) -> dict[str, Any]:
        """For a file: what was found, and all samples."""
        return {
            **{name: getattr(self, name) for name in _COUNTED},
            "growing": self.growing,
            "not_judged": self.not_judged,
            "trends": {
                name: {key: round(value, 6) for key, value in trend._asdict().items()}
                | {"is_flat": trend.is_flat}
                for name, trend in self.trends.items()
            },
            "passed": self.passed,
            "series": as_facts(self.series),
        }

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Self:
        """The report that gave these facts; its verdict is computed from the samples anew.

        Raises:
            KeyError: a fact is missing.
        """
        counted = {name: facts[name] for name in _COUNTED}
        return cls(**counted, series=from_facts(facts["series"]))
