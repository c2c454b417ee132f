"""What `nnburst bench model` prints, as tables."""

from __future__ import annotations

from typing import Any

from nnburst.cli.output import microseconds, table


def print_tables(found: list[dict[str, Any]]) -> None:
    """Print accuracy, truth, latency, preparation and remarks of all networks."""
    _print_accuracy(found)
    _print_truth(found)
    _print_latency(found)
    _print_preparation(found)
    for remark in dict.fromkeys(remark for network in found for remark in network["remarks"]):
        print(remark)


def _print_accuracy(found: list[dict[str, Any]]) -> None:
    from nnburst.bench.model.accuracy import steps_in_words

    rows = []
    for network in found:
        for at, agreement in enumerate(network["accuracy"]):
            top = agreement["top1_agreement"]
            rows.append(
                [
                    network["network"] if at == 0 else "",
                    agreement["data_set"],
                    agreement["device"],
                    agreement["examples"],
                    "" if top is None else f"{top:.2%}",
                    _real(agreement["max_abs_difference"]),
                    _real(agreement["mean_abs_difference"]),
                    steps_in_words(agreement["steps"]),
                ]
            )
    table(
        f"accuracy beside {found[0]['reference']}",
        [
            "network",
            "data set",
            "device",
            "examples",
            "same top",
            "largest",
            "mean",
            "steps apart: values",
        ],
        rows,
    )
    sources = {a["data_set"]: a["source"] for network in found for a in network["accuracy"]}
    for name, source in sources.items():
        print(f"  {name}: {source}")
    print()


def _print_truth(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            network["network"],
            one["device"],
            one["evaluator"],
            ", ".join(f"{name} {_real(value)}" for name, value in one["figures"].items()),
            "; ".join(one["failures"]) or "as expected",
        ]
        for network in found
        for one in network["ground_truth"]
    ]
    if rows:
        columns = ["network", "device", "evaluator", "figures", ""]
        table("beside the truth and golden outputs", columns, rows)


def _print_latency(found: list[dict[str, Any]]) -> None:
    rows = []
    for network in found:
        latency = network["latency"]
        for at, case in enumerate(latency["cases"]):
            key = f"burst / {case['name']}"
            rows.append(
                [
                    network["network"] if at == 0 else "",
                    case["name"],
                    microseconds(network["histograms"][case["name"]]["mean_ns"]),
                    microseconds(network["histograms"][case["name"]]["sigma_ns"]),
                    microseconds(case["median_ns"]),
                    microseconds(case["p99_ns"]),
                    f"{latency['ratios'][key]:.3f}" if key in latency["ratios"] else "",
                    f"{latency['typical_ratios'][key]:.3f}" if key in latency["ratios"] else "",
                    f"{latency['driver_us']:.0f}" if at == 0 else "",
                    f"{latency['device_us']:.0f}" if at == 0 else "",
                ]
            )
    columns = [
        *("network", "route", "mean µs", "σ µs", "median µs", "p99 µs"),
        *("burst / this", "of single medians"),
    ]
    table(
        "latency by route: one thread, all in turn",
        [*columns, "driver's own µs", "device's own µs"],
        rows,
    )


def _print_preparation(found: list[dict[str, Any]]) -> None:
    columns = {
        "load_ms": "load",
        "engine_ms": "engine's own",
        "launch_ms": "launch",
        "prepare_cold_ms": "cold",
        "prepare_to_cache_ms": "to cache",
        "prepare_cached_ms": "cached",
        "first_result_ms": "first result",
        "first_result_cached_ms": "first, cached",
        "first_run_ms": "first run",
        "second_run_ms": "second run",
    }
    rows = [
        [network["network"], *(_milliseconds(network["preparation"][key]) for key in columns)]
        for network in found
    ]
    table("preparation, median ms", ["network", *columns.values()], rows)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _real(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
