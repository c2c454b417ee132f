"""Durations as 32 bars on one axis for all routes of a network, and everything as rows of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from nnburst.bench.rounds import Measured

#: Bars, as many as the original's.
BARS: Final = 32
#: The axis ends at this percentile of the slowest route's typical ones; longer ones count in the last bar.
_END: Final = 99.0

_COLUMNS: Final = (
    "network", "group", "route", "count", "total_s", "mean_us", "sigma_us", "p50_us", "p90_us", "p99_us",
    "histogram_start_us", "histogram_step_us", *(f"bar{n}" for n in range(BARS)),
    "largest_difference", "examples", "evaluators", "errors",
    "prepare_cold_ms", "prepare_to_cache_ms", "prepare_cached_ms", "cache_bytes",
)  # fmt: skip


def histograms(cases: Mapping[str, Measured]) -> dict[str, dict[str, Any]]:
    """For each route its figures and its bars, whose axis is the same for all.

    Returns:
        By name: `count`, `total_ns`, `mean_ns`, `sigma_ns`, `p90_ns`, `start_ns`, `step_ns` and `counts`.
    """
    every = {name: case.samples.astype(np.float64) for name, case in cases.items()}
    start = min(float(samples.min()) for samples in every.values())
    end = max(float(np.percentile(samples, _END)) for samples in every.values())
    step = max((end - start) / BARS, 1.0)
    found = {}
    for name, samples in every.items():
        bars = np.minimum((samples - start) / step, BARS - 1).astype(np.int64)
        found[name] = {
            "count": len(samples),
            "total_ns": float(samples.sum()),
            "mean_ns": float(samples.mean()),
            "sigma_ns": float(samples.std()),
            "p90_ns": float(np.percentile(samples, 90)),
            "start_ns": start,
            "step_ns": step,
            "counts": np.bincount(bars, minlength=BARS).tolist(),
        }
    return found


def write_csv(path: Path, about: Mapping[str, Any], networks: Sequence[Mapping[str, Any]]) -> None:
    """Write one row for each network and route, after a line of what was measured where.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        words = "; ".join(f"{name}: {value}" for name, value in about.items())
        file.write(f"# {words}\n")
        rows = csv.writer(file)
        rows.writerow(_COLUMNS)
        for network in networks:
            rows.writerows(_rows(network))


def _rows(network: Mapping[str, Any]) -> Iterator[list[object]]:
    preparation = network["preparation"]
    largest = [found["max_abs_difference"] for found in network["accuracy"]]
    evaluators = ", ".join(
        f"{found['evaluator']} {name}={value}"
        for found in network["ground_truth"]
        for name, value in found["figures"].items()
    )
    errors = "; ".join(e for found in network["ground_truth"] for e in found["failures"])
    for case in network["latency"]["cases"]:
        bars = network["histograms"][case["name"]]
        yield [
            network["network"],
            network["group"],
            case["name"],
            bars["count"],
            f"{bars['total_ns'] / 1e9:.6f}",
            *(f"{bars[key] / 1e3:.3f}" for key in ("mean_ns", "sigma_ns")),
            *(
                f"{value / 1e3:.3f}"
                for value in (case["median_ns"], bars["p90_ns"], case["p99_ns"])
            ),
            *(f"{bars[key] / 1e3:.3f}" for key in ("start_ns", "step_ns")),
            *bars["counts"],
            "" if None in largest else max(largest, default=""),
            sum(found["examples"] for found in network["accuracy"]),
            evaluators,
            errors,
            *(
                "" if preparation[key] is None else preparation[key]
                for key in (
                    "prepare_cold_ms",
                    "prepare_to_cache_ms",
                    "prepare_cached_ms",
                    "cache_bytes",
                )
            ),
        ]
