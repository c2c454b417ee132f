"""`nnburst top`: what a driver's gRPC front does, live, from its metrics."""

from __future__ import annotations

import argparse
import math
import time
import urllib.error
import urllib.request
from collections import defaultdict
from typing import Any

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, write_json
from nnburst.hal.errors import DeviceUnavailable, NnburstError

#: By model, then by name; a histogram's are its buckets' upper ends and counts.
Counts = dict[str, dict[str, float]]


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "top", help="what a gRPC front does, live, from its metrics", description=__doc__
    )
    parser.add_argument("address", help="HOST:PORT, as given to `nnburst serve --metrics`")
    parser.add_argument(
        "--times",
        type=at_least_one,
        help="look so many times, a second apart (default: until Ctrl-C)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Show a table that changes every second."""
    from rich.live import Live

    before, rows = read(args.address), []
    with Live(refresh_per_second=4) as live:
        try:
            for _ in range(args.times) if args.times else iter(int, 1):
                time.sleep(1)
                now = read(args.address)
                rows = [row(model, before.get(model, {}), now[model]) for model in sorted(now)]
                live.update(table(rows))
                before = now
        except KeyboardInterrupt:
            pass
    if args.json:
        write_json(args.json, {"models": rows})
    return 0


def read(address: str) -> Counts:
    """One scrape.

    Raises:
        DeviceUnavailable: no service has metrics there.
        NnburstError: the extra is not installed.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise NnburstError("top needs the extra metrics: pip install 'nnburst[metrics]'") from None
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise DeviceUnavailable(f"address: {address} has no metrics: {error}") from None
    found: Counts = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            label = sample.labels.get("status") or sample.labels.get("le") or ""
            found[sample.labels["model"]][f"{sample.name} {label}".strip()] = sample.value
    return dict(found)


def row(model: str, before: dict[str, float], now: dict[str, float]) -> dict[str, Any]:
    """What happened to a model between two scrapes."""
    since = {name: value - before.get(name, 0.0) for name, value in now.items()}
    requests = {
        name.partition(" ")[2]: count
        for name, count in since.items()
        if name.startswith("nnburst_requests_total")
    }
    succeeded = requests.pop("OK", 0.0)
    return {
        "model": model,
        "succeeded": int(succeeded),
        "failed": {status: int(count) for status, count in requests.items() if count},
        "in_flight": int(now.get("nnburst_in_flight", 0)),
        "recoveries": int(now.get("nnburst_recoveries_total", 0)),
        "p50_ms": quantile(since, 0.5),
        "p99_ms": quantile(since, 0.99),
    }


def quantile(since: dict[str, float], share: float) -> float | None:
    """Upper end of the bucket that holds it, in milliseconds; None if nothing happened."""
    prefix = "nnburst_total_seconds_bucket "
    buckets = sorted(
        (float(name.removeprefix(prefix)), count)
        for name, count in since.items()
        if name.startswith(prefix)
    )
    if not buckets or not buckets[-1][1]:
        return None
    bound = next(bound for bound, count in buckets if count >= share * buckets[-1][1])
    return bound * 1e3 if math.isfinite(bound) else None


def table(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - rich is an extra
    """For people."""
    from rich.table import Table

    found = Table(
        "model", "requests/s", "failed/s", "in flight", "p50 ≤ ms", "p99 ≤ ms", "recoveries"
    )
    for each in rows:
        failed = ", ".join(f"{count} {status}" for status, count in each["failed"].items())
        numbers = (
            each["succeeded"],
            failed or 0,
            each["in_flight"],
            each["p50_ms"],
            each["p99_ms"],
        )
        shown = ("" if number is None else str(number) for number in (*numbers, each["recoveries"]))
        found.add_row(each["model"], *shown)
    return found
