"""A network's burst beside the engine in process, now and in an older report, in one sentence.

The ratio is what is compared, round by round: burst and engine run in turn, so a machine that is slower as
a whole changes neither. Medians of single executions stand for both in a round: a time slice that is lost
doubles a mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnburst.bench.model.latency import BURST, C_API, EXECUTOR, INTERPRETER, LOWERED, ONNXRUNTIME
from nnburst.bench.verdict.verdict import MOST_SPREAD, Comparison, Verdict, compare, spread
from nnburst.hal.errors import InvalidArgument

Figures = Mapping[str, Any]


def read_baseline(path: Path) -> dict[str, Figures]:
    """The networks of an older report by name.

    Raises:
        InvalidArgument: the file is not a report of `nnburst bench model`.
    """
    try:
        networks = json.loads(path.read_text(encoding="utf-8"))["networks"]
        found = {network["network"]: network for network in networks}
        for network in found.values():
            ratio_blocks(network)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"--baseline: {path} has no blocks of networks, expected what bench model --json wrote"
            f" ({type(error).__name__}: {error})"
        ) from None
    return found


def engine_of(figures: Figures) -> str:
    """The route that the burst is compared with: the engine's C interface, or another in process."""
    names = {case["name"] for case in figures["latency"]["cases"]}
    engines = (C_API, LOWERED, INTERPRETER, EXECUTOR, ONNXRUNTIME)
    return next((name for name in engines if name in names), BURST)


def ratio_blocks(figures: Figures) -> list[float]:
    """The burst beside the engine in process, in each round."""
    return _beside(figures, BURST)


def differences(figures: Figures) -> dict[str, float | None]:
    """How much longer each route takes than the engine in process, as a share; None if too noisy to tell."""
    engine = engine_of(figures)
    found: dict[str, float | None] = {}
    for case in figures["latency"]["cases"]:
        if case["name"] != engine:
            blocks = _beside(figures, case["name"])
            noisy = spread(blocks) > MOST_SPREAD
            found[case["name"]] = None if noisy else float(np.median(blocks)) - 1
    return found


def _beside(figures: Figures, route: str) -> list[float]:
    """A route beside the engine in process, in each round."""
    blocks = {case["name"]: case["typical_ns"] for case in figures["latency"]["cases"]}
    pairs = zip(blocks[route], blocks[engine_of(figures)], strict=True)
    return [mine / engine for mine, engine in pairs]


def judge(figures: Figures, baseline: Mapping[str, Figures]) -> Comparison | None:
    """A network beside the older report; None if that does not have it.

    Raises:
        DeviceUnavailable: scipy is not installed.
    """
    name = figures["network"]
    old = baseline.get(name)
    if old is None:
        return None
    if engine_of(old) != engine_of(figures):
        why = f"compared with {engine_of(old)} then and {engine_of(figures)} now"
        return Comparison(name, 0.0, 0.0, 0.0, 0.0, 1.0, Verdict.NOISY, why)
    return compare(name, ratio_blocks(old), ratio_blocks(figures))


def sentence(figures: Figures, comparison: Comparison | None = None) -> str:
    """What there is to say of a network, first of all."""
    blocks = ratio_blocks(figures)
    median = next(c["median_ns"] for c in figures["latency"]["cases"] if c["name"] == BURST)
    words = [f"{figures['network']}: {median / 1000:.1f} µs by a burst"]
    if spread(blocks) > MOST_SPREAD:
        words.append(f"too noisy for a ratio to {engine_of(figures)}")
    else:
        words.append(f"{float(np.median(blocks)):.2f} × {engine_of(figures)}")
    words += _agreement(figures)
    text = ", ".join(words)
    if comparison is None:
        return f"{text}."
    beside = f"{comparison.verdict} as the baseline" if comparison.verdict == "same" else ""
    beside = beside or f"{comparison.verdict} beside the baseline"
    if comparison.why:
        return f"{text}; {beside}: {comparison.why}."
    return f"{text}; {beside} ({comparison.before:.2f} ×, {comparison.effect:+.1%})."


def _agreement(figures: Figures) -> list[str]:
    found = [a for a in figures["accuracy"] if a["top1_agreement"] is not None]
    if not found:
        return []
    worst = min(found, key=lambda a: float(a["top1_agreement"]))
    return [
        f"same top class for {worst['top1_agreement']:.1%} of {worst['examples']} {worst['data_set']}"
    ]


def missed(figures: Figures, expected: Mapping[str, float]) -> Sequence[str]:
    """Which expectations of `--expect` a network misses, in words."""
    tops = [a["top1_agreement"] for a in figures["accuracy"] if a["top1_agreement"] is not None]
    largest = [a["max_abs_difference"] for a in figures["accuracy"]]
    known = {
        "top1": (min(tops) if tops else None, True),
        "largest": (None if None in largest else max(largest), False),
        "ratio": (float(np.median(ratio_blocks(figures))), False),
    }
    lines = []
    for key, wanted in expected.items():
        value, at_least = known[key]
        rule = "at least" if at_least else "at most"
        if value is None or (value < wanted if at_least else value > wanted):
            shown = "unknown" if value is None else f"{value:.4g}"
            lines.append(f"{figures['network']}: {key} is {shown}, expected {rule} {wanted:g}")
    return lines
