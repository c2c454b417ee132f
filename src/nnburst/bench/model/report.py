"""Shows the figures of all networks as one HTML page, and compares them with an older report.

The ratios of burst to engine are compared, round by round: both run in turn, so a change in the machine's
speed does not change a ratio. The ratio of a round is that of the medians of single executions, since one
lost time slice can double a mean.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nnburst.bench.model.accuracy import steps_in_words
from nnburst.bench.model.latency import (
    BURST,
    C_API,
    EXECUTE,
    EXECUTOR,
    INTERPRETER,
    LOWERED,
    ONNXRUNTIME,
    Latency,
)
from nnburst.bench.rounds import Measured, as_svg, draw_distributions
from nnburst.bench.verdict import MOST_SPREAD, Comparison, Verdict, compare, spread
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.html import Cell, document, paragraph, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- an older report -------------------------------------------------------------------------------
Figures = Mapping[str, Any]


def read_baseline(path: Path) -> dict[str, Figures]:
    """Read the networks of an older report, by name.

    Raises:
        InvalidArgument: the file is not a report of `nnburst bench model`.
    """
    try:
        networks = json.loads(path.read_text(encoding="utf-8"))["networks"]
        found = {network["network"]: network for network in networks}
        for network in found.values():
            ratio_blocks(network)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidArgument(
            f"--baseline: {path} has no blocks of networks, expected what bench model --json wrote"
            f" ({type(error).__name__}: {error})"
        ) from None
    return found


def engine_of(figures: Figures) -> str:
    """The route that the burst is compared with: the engine's C interface, or another route in process."""
    names = {case["name"] for case in figures["latency"]["cases"]}
    engines = (C_API, LOWERED, INTERPRETER, EXECUTOR, ONNXRUNTIME)
    return next((name for name in engines if name in names), BURST)


def ratio_blocks(figures: Figures) -> list[float]:
    """The ratio of the burst to the engine in process, for each round."""
    return _beside(figures, BURST)


def differences(figures: Figures) -> dict[str, float | None]:
    """For each route, the share by which it takes longer than the engine in process; None if too noisy."""
    engine = engine_of(figures)
    found: dict[str, float | None] = {}
    for case in figures["latency"]["cases"]:
        if case["name"] != engine:
            blocks = _beside(figures, case["name"])
            noisy = spread(blocks) > MOST_SPREAD
            found[case["name"]] = None if noisy else float(np.median(blocks)) - 1
    return found


def _beside(figures: Figures, route: str) -> list[float]:
    """The ratio of a route to the engine in process, for each round."""
    blocks = {case["name"]: case["typical_ns"] for case in figures["latency"]["cases"]}
    pairs = zip(blocks[route], blocks[engine_of(figures)], strict=True)
    return [mine / engine for mine, engine in pairs]


def judge(figures: Figures, baseline: Mapping[str, Figures]) -> Comparison | None:
    """Compare a network with the older report; None if the report does not have it.

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
    """The sentence about a network at the beginning of the report."""
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
    word = "as" if comparison.verdict == "same" else "beside"
    beside = f"{comparison.verdict} {word} the baseline"
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
    """The expectations of `--expect` that a network misses, in words."""
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


# -- the report ------------------------------------------------------------------------------------

#: Largest difference at which two routes count as the same.
_SAME: Final = 0.01


@dataclass(frozen=True)
class Measurement:
    """The measurement of one network.

    Attributes:
        figures: the figures as `--json` writes them.
        latency: the latencies with single durations, for the charts.
    """

    figures: Mapping[str, Any]
    latency: Latency

    def judged(self, comparison: Comparison | None) -> Measurement:
        """The same measurement with a verdict beside the older report; None without an older report."""
        beside = None if comparison is None else comparison.as_json()
        return replace(self, figures={**self.figures, "beside_baseline": beside})


def page(
    about: Mapping[str, Any],
    measurements: Sequence[Measurement],
    lead: Sequence[str] = (),
    conditions: Mapping[str, object] | None = None,
) -> str:
    """Make the report's HTML page.

    Args:
        about: properties of the machine and the software, by name.
        measurements: measurements of the networks.
        lead: sentences about the networks, for the beginning.
        conditions: the machine's load during the measurement, for the end.

    Raises:
        ImportError: matplotlib is not installed (extra `cli`).
    """
    facts = table((), [[name, str(value)] for name, value in about.items()])
    return document(
        "nnburst: networks through a driver process",
        (
            *(paragraph(line, _look(line)) for line in lead),
            _errors(measurements),
            _data_sets(measurements),
            _overview(measurements),
            as_svg(_medians(measurements), "medians of all networks"),
            *(_section(measured) for measured in measurements),
            f"<section><h2>Where it was measured</h2>{facts}{_machine(conditions)}</section>",
        ),
    )


def _look(line: str) -> str:
    """The colour of a verdict."""
    if "worse beside" in line or ", expected at" in line:
        return "worse"
    return "better" if "better beside" in line else ""


def _machine(conditions: Mapping[str, object] | None) -> str:
    if not conditions:
        return ""
    shown = {name.replace("_", " "): value for name, value in conditions.items()}
    doubts = shown.pop("doubts", ())
    rows = [
        [name, f"{value:.3g}" if isinstance(value, float) else str(value)]
        for name, value in shown.items()
    ]
    told = [str(doubt) for doubt in doubts] if isinstance(doubts, list) else []
    notes = "".join(paragraph(f"Not quiet: {doubt}.", "worse") for doubt in told)
    return table((), rows, "The machine meanwhile") + notes


def _errors(measurements: Sequence[Measurement]) -> str:
    """The failures that evaluators found."""
    rows = [
        [measured.figures["network"], found["device"] or "driver", found["evaluator"], failure]
        for measured in measurements
        for found in measured.figures["ground_truth"]
        for failure in found["failures"]
    ]
    columns = ["network", "device", "evaluator", "error"]
    return table(columns, rows, "Errors") if rows else ""


def _data_sets(measurements: Sequence[Measurement]) -> str:
    """The data sets, each with the networks that were run on it."""
    tried: dict[tuple[str, str], list[str]] = {}
    for measured in measurements:
        for agreement in measured.figures["accuracy"]:
            key = agreement["data_set"], agreement["source"]
            tried.setdefault(key, []).append(measured.figures["network"])
    rows = [
        [name, source, ", ".join(dict.fromkeys(networks))]
        for (name, source), networks in tried.items()
    ]
    return table(["name", "source", "networks"], rows, "Data sets")


def _overview(measurements: Sequence[Measurement]) -> str:
    routes = (BURST, EXECUTE, C_API, LOWERED, EXECUTOR, INTERPRETER, ONNXRUNTIME)
    known = dict.fromkeys(name for measured in measurements for name in measured.latency.cases)
    shown = [name for name in routes if name in known]
    shown += [name for name in known if name not in routes]
    columns = ["group", "network", *shown, "beside the baseline", "same top class"]
    rows: list[Sequence[str | Cell]] = []
    for measured in sorted(measurements, key=lambda one: str(one.figures["group"])):
        figures = measured.figures
        medians = {case["name"]: case["median_ns"] for case in figures["latency"]["cases"]}
        more = differences(figures)
        rows.append(
            [
                figures["group"],
                Cell(figures["network"], "words worse" if _failed(figures) else "words"),
                *(_beside_engine(medians.get(name), more.get(name, 0.0)) for name in shown),
                _beside_baseline(figures.get("beside_baseline")),
                _share(_worst_agreement(figures["accuracy"])),
            ]
        )
    title = "Overview: medians in microseconds, and how much longer than the engine in process"
    return table(columns, rows, title)


def _failed(figures: Mapping[str, Any]) -> bool:
    """Whether an evaluator found something wrong."""
    return any(found["failures"] for found in figures["ground_truth"])


def _beside_engine(median_ns: float | None, more: float | None) -> Cell:
    """A median with its difference in colour; the baseline engine has no difference."""
    if median_ns is None:
        return Cell("")
    difference = _difference(more)
    return difference._replace(text=f"{_micro(median_ns)} {difference.text}".rstrip())


def _difference(more: float | None) -> Cell:
    """A share by which a route takes longer, in colour; 0 is the baseline itself."""
    if more is None:
        return Cell("noisy")
    if more == 0:
        return Cell("")
    if abs(more) < _SAME:
        return Cell("same")
    return Cell(f"{more:+.1%}", "worse" if more > 0 else "better")


def _beside_baseline(comparison: Mapping[str, Any] | None) -> Cell:
    """The verdict of the comparison with an older report, in colour."""
    if comparison is None:
        return Cell("")
    verdict = str(comparison["verdict"])
    effect = comparison["effect"]
    text = verdict if effect is None else f"{verdict}, {effect:+.1%}"
    return Cell(text, verdict if verdict in ("worse", "better") else "")


def _worst_agreement(accuracy: Sequence[Mapping[str, Any]]) -> float | None:
    shares = [found["top1_agreement"] for found in accuracy]
    return min((share for share in shares if share is not None), default=None)


def _medians(measurements: Sequence[Measurement]) -> Figure:
    """Draw the median of each route as a dot, one network below the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.5 * len(measurements)), layout="constrained")
    axes = figure.add_subplot()
    for number, route in enumerate(
        (BURST, C_API, LOWERED, EXECUTOR, INTERPRETER, ONNXRUNTIME, EXECUTE)
    ):
        shown = [
            (measured.latency.cases[route].median_ns / 1000, at + 0.1 * number - 0.3)
            for at, measured in enumerate(measurements)
            if route in measured.latency.cases
        ]
        if shown:
            axes.plot(*zip(*shown, strict=True), "o", label=route)
    names = [measured.figures["network"] for measured in measurements]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("median, microseconds")
    axes.grid(visible=True, which="both", alpha=0.3)
    figure.legend(fontsize="small", loc="outside upper center", ncols=4)
    return figure


def _section(measured: Measurement) -> str:
    figures = measured.figures
    name = figures["network"]
    remarks = list(figures["remarks"])
    if figures["comparable"]:
        remarks.insert(0, f"May be compared with {figures['comparable']}.")
    notes = "".join(paragraph(remark, "note") for remark in remarks)
    picture = as_svg(draw_distributions(list(measured.latency.cases.values()), (9, 4)), name)
    return (
        f"<section><h2>{escape(name)}</h2>\n"
        f"<p>{figures['operations']} operations, {figures['file_bytes']} bytes</p>\n{notes}"
        f"{_accuracy(figures)}\n{_truth(figures)}\n{_latency(figures)}\n{picture}\n"
        f"{as_svg(_bars(figures), f'{name} histogram')}\n"
        f"{_preparation(figures['preparation'])}</section>"
    )


def _accuracy(figures: Mapping[str, Any]) -> str:
    columns = [
        "data set",
        "device",
        "examples",
        "same top class",
        "largest difference",
        "mean difference",
        "equal values",
        "values by steps apart",
    ]
    rows = []
    for found in figures["accuracy"]:
        steps = found["steps"]
        equal = steps.get("0", 0) / found["elements"] if steps else None
        rows.append(
            [
                found["data_set"],
                found["device"] or "driver",
                str(found["examples"]),
                _share(found["top1_agreement"]),
                _real(found["max_abs_difference"]),
                _real(found["mean_abs_difference"]),
                _share(equal),
                steps_in_words(steps),
            ]
        )
    return table(columns, rows, f"Accuracy beside {figures['reference']}")


def _truth(figures: Mapping[str, Any]) -> str:
    """The evaluators' findings, if the network has a truth or golden sequences."""
    rows = [
        [
            found["evaluator"],
            found["device"] or "driver",
            ", ".join(f"{name} {_real(value)}" for name, value in found["figures"].items()),
            "; ".join(found["failures"]) or "as expected",
        ]
        for found in figures["ground_truth"]
    ]
    columns = ["evaluator", "device", "figures", "verdict"]
    return table(columns, rows, "Beside the truth and golden outputs") if rows else ""


def _bars(figures: Mapping[str, Any]) -> Figure:
    """Draw histograms of all routes, one below the other, on one axis."""
    from matplotlib.figure import Figure

    found = figures["histograms"]
    figure = Figure(figsize=(9, 0.8 + 0.7 * len(found)), layout="constrained")
    rows = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    for number, (axes, (route, bars)) in enumerate(zip(rows, found.items(), strict=True)):
        step = bars["step_ns"] / 1000
        places = [bars["start_ns"] / 1000 + step * (n + 0.5) for n in range(len(bars["counts"]))]
        axes.bar(places, bars["counts"], width=0.9 * step, color=f"C{number}")
        axes.set_yticks([])
        axes.set_title(route, fontsize="small", loc="right", y=0.6)
    rows[-1].set_xlabel("microseconds; the last bar has what took longer")
    return figure


def _latency(figures: Mapping[str, Any]) -> str:
    latency = figures["latency"]
    more = differences(figures)
    rows: list[Sequence[str | Cell]] = []
    for case in latency["cases"]:
        name = case["name"]
        key = f"{BURST} / {name}"
        bars = figures["histograms"][name]
        rows.append(
            [
                name,
                str(bars["count"]),
                _micro(bars["mean_ns"]),
                _micro(bars["sigma_ns"]),
                _micro(case["median_ns"]),
                _micro(bars["p90_ns"]),
                *(_micro(case[column]) for column in ("p99_ns", "p999_ns")),
                _difference(more.get(name, 0.0)),
                f"{latency['ratios'][key]:.3f}" if key in latency["ratios"] else "",
                f"{latency['typical_ratios'][key]:.3f}" if key in latency["ratios"] else "",
            ]
        )
    columns = [
        *("route", "count", "mean µs", "σ µs", "median µs", "90 % µs", "99 % µs", "99.9 % µs"),
        *("beside the engine", "burst / this", "of single medians"),
    ]
    warmed = latency["warm_up"]
    own = (
        f"By the driver itself: {latency['driver_us']:.0f} µs,"
        f" of which {latency['device_us']:.0f} µs on the device."
    )
    notes = (f"Warmed up for {warmed['seconds']:.1f} s.", own)
    shown = table(columns, rows, "Latency by route")
    return shown + "".join(paragraph(note, "note") for note in notes)


def _preparation(times: Mapping[str, float | None]) -> str:
    names = {
        "load_ms": "reading the file",
        "engine_ms": "the engine's own preparation, in process",
        "launch_ms": "launching a driver",
        "prepare_cold_ms": "preparing, cold",
        "prepare_to_cache_ms": "preparing, cold and to a cache",
        "prepare_cached_ms": "preparing, from the cache",
        "first_run_ms": "the first execution",
        "second_run_ms": "the second execution",
        "first_result_ms": "from the launch to the first result, cold",
        "first_result_cached_ms": "from the launch to the first result, from the cache",
    }
    rows = []
    for key, name in names.items():
        value = times[key]
        spread = times.get(key.replace("_ms", "_spread"))
        digits = 3 if key.endswith("run_ms") else 1
        shown = "not available" if value is None else f"{value:.{digits}f}"
        rows.append([name, shown, "" if spread is None else f"{spread:.0%}"])
    cache = times["cache_bytes"]
    if times["prepare_cached_ms"] is not None and cache is not None:
        rows.append(["bytes of the cache", f"{cache:.0f}", ""])
    return table(["", "median ms", "spread"], rows, "Preparation")


def _micro(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / 1000:.2f}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _real(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


# -- Histograms, and the CSV file ------------------------------------------------------------------


#: Number of bars, as in the original.
BARS: Final = 32
#: The axis ends at this percentile of the slowest route; longer durations count in the last bar.
_END: Final = 99.0

_COLUMNS: Final = (
    "network", "group", "route", "count", "total_s", "mean_us", "sigma_us", "p50_us", "p90_us", "p99_us",
    "histogram_start_us", "histogram_step_us", *(f"bar{n}" for n in range(BARS)),
    "largest_difference", "examples", "evaluators", "errors",
    "prepare_cold_ms", "prepare_to_cache_ms", "prepare_cached_ms", "cache_bytes",
)  # fmt: skip


def histograms(cases: Mapping[str, Measured]) -> dict[str, dict[str, Any]]:
    """Compute each route's figures and bars, on the same axis.

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
    """Write one row for each network and route, after a line on the machine and the software.

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
