"""`nnburst top`: shows live which models a service and its front execute, from the service's metrics."""

from __future__ import annotations

import argparse
import http.client
import math
import time
import urllib.request
from collections import defaultdict
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any, Final

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, text_for_people, write_json
from nnburst.hal.errors import DeviceUnavailable, NnburstError

#: Counters by model and name; a histogram's name ends with the bucket's upper bound.
Counts = dict[str, dict[str, float]]


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "top", help="what a service executes, live, from its metrics", description=__doc__
    )
    parser.add_argument("address", help="HOST:PORT, as given to `nnburst serve --metrics`")
    parser.add_argument(
        "--times",
        type=at_least_one,
        help="number of looks, a second apart (default: until Ctrl-C)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Show a table that changes every second; in a pipe, print one every second."""
    if find_spec("rich") is None:
        raise NnburstError("top needs the extra cli: pip install 'nnburst[cli]'")
    from rich.console import Console
    from rich.live import Live

    before, rows, service = read(args.address), [], {}
    console = Console()
    try:
        with (
            text_for_people(args.json),
            Live(console=console) if console.is_terminal else nullcontext() as live,
        ):
            show = live.update if live else console.print
            for _ in range(args.times) if args.times else iter(int, 1):
                time.sleep(1)
                now = read(args.address)
                rows = [
                    row(model, before.get(model, {}), now[model]) for model in sorted(now) if model
                ]
                service = {name.removeprefix("nnburst_"): int(n) for name, n in now[""].items()}
                show(tables(rows, service))
                before = now
    finally:  # after Ctrl-C, too
        write_json(args.json, {"models": rows, "service": service})
    return 0


def read(address: str) -> Counts:
    """Read the metrics once.

    Raises:
        DeviceUnavailable: no service of nnburst offers metrics at this address.
        NnburstError: the extra is not installed.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise NnburstError("top needs the extra metrics: pip install 'nnburst[metrics]'") from None
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            families = [*text_string_to_metric_families(answer.read().decode())]
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DeviceUnavailable(f"address: {address} has no metrics: {error}") from None
    own = [family for family in families if family.name.startswith("nnburst_")]
    if not own:
        raise DeviceUnavailable(f"address: {address} has no metrics of nnburst")
    found: Counts = defaultdict(dict)
    for family in own:
        for sample in family.samples:
            label = sample.labels.get("status") or sample.labels.get("le") or ""
            found[sample.labels.get("model", "")][f"{sample.name} {label}".strip()] = sample.value
    return defaultdict(dict, found)


def row(model: str, before: dict[str, float], now: dict[str, float]) -> dict[str, Any]:
    """The figures of a model from one reading of the metrics to the next.

    A service that was started again counts from 0: its counts are all since then.
    """
    if any(now.get(name, 0.0) < count for name, count in before.items() if _is_counted(name)):
        before = {}
    since = {name: value - before.get(name, 0.0) for name, value in now.items()}
    requests = _by_status(since, "nnburst_requests_total")
    succeeded = requests.pop("OK", 0.0)
    executions = _by_status(since, "nnburst_executions_total")
    executed = executions.pop("NONE", 0.0)
    return {
        "model": model,
        "served": "nnburst_ready" in now,
        "succeeded": int(succeeded),
        "failed": {status: int(count) for status, count in requests.items() if count},
        "in_flight": int(now.get("nnburst_in_flight", 0)),
        "recoveries": int(now.get("nnburst_recoveries_total", 0)),
        "p50_ms": quantile(since, 0.5),
        "p99_ms": quantile(since, 0.99),
        "executed": int(executed),
        "executions_failed": {status: int(count) for status, count in executions.items() if count},
        "executing": int(now.get("nnburst_executions_in_flight", 0)),
        "queue_full": int(now.get("nnburst_queue_full_total", 0)),
        "device_p50_ms": quantile(since, 0.5, "device"),
        "driver_p99_ms": quantile(since, 0.99, "driver"),
    }


def _is_counted(name: str) -> bool:
    """Whether the figure only grows while a service lives."""
    return name.partition(" ")[0].endswith(("_total", "_bucket"))


def _by_status(since: dict[str, float], series: str) -> dict[str, float]:
    return {
        name.partition(" ")[2]: count for name, count in since.items() if name.startswith(series)
    }


def quantile(since: dict[str, float], share: float, what: str = "total") -> float | None:
    """Upper end of the bucket that holds the quantile, in milliseconds; None if nothing was counted."""
    prefix = f"nnburst_{what}_seconds_bucket "
    buckets = sorted(
        (float(name.removeprefix(prefix)), count)
        for name, count in since.items()
        if name.startswith(prefix)
    )
    if not buckets or not buckets[-1][1]:
        return None
    bound = next(bound for bound, count in buckets if count >= share * buckets[-1][1])
    return bound * 1e3 if math.isfinite(bound) else None


#: The columns of the two tables: headings, and the keys of a row's figures.
_EXECUTIONS: Final = {
    "model": "model",
    "executions/s": "executed",
    "failed/s": "executions_failed",
    "now": "executing",
    "device p50 ≤ ms": "device_p50_ms",
    "driver p99 ≤ ms": "driver_p99_ms",
    "queue full": "queue_full",
}
_REQUESTS: Final = {
    "served": "model",
    "requests/s": "succeeded",
    "failed/s": "failed",
    "in flight": "in_flight",
    "p50 ≤ ms": "p50_ms",
    "p99 ≤ ms": "p99_ms",
    "recoveries": "recoveries",
}


def tables(rows: list[dict[str, Any]], service: dict[str, int]) -> Any:  # noqa: ANN401 - rich is an extra
    """The figures as `rich` tables: executions of all models, and gRPC requests to the served ones."""
    from rich.console import Group
    from rich.table import Table

    facts = ", ".join(f"{name.removesuffix('_total')} {count}" for name, count in service.items())
    executions = Table(*_EXECUTIONS)
    requests = Table(*_REQUESTS, caption=facts.replace("_", " "))
    for each in rows:
        executions.add_row(*(_shown(each[name]) for name in _EXECUTIONS.values()))
        if each["served"]:
            requests.add_row(*(_shown(each[name]) for name in _REQUESTS.values()))
    return Group(executions, requests)


def _shown(fact: object) -> str:
    if isinstance(fact, dict):
        return ", ".join(f"{count} {status}" for status, count in fact.items()) or "0"
    if isinstance(fact, float):
        return f"{fact:.3g}"
    return "" if fact is None else str(fact)
