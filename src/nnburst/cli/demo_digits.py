"""`nnburst demo digits`: recognise digits in another process, and see what each route costs.

It classifies images that the network was not trained on, in float32 and in 8 bits, by three routes;
then it kills its own driver, shows what the client sees, and goes on with a new one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

import nnburst
from nnburst.cli.demo_routes import BURST, IN_PROCESS, Route, open_routes
from nnburst.cli.output import (
    microseconds,
    progress,
    table,
    text_for_people,
    write_json,
)
from nnburst.demo.network import Precision, build_network, encode
from nnburst.demo.split import Split, load_split

_EXECUTOR: Final = "reference"


def recognise(json_path: Path | None, rounds: int) -> int:
    """Classify, compare, kill, recover; 1 if a route disagrees or too few digits are right.

    Args:
        json_path: where the figures go; None for nowhere.
        rounds: how often every image is classified.
    """
    split = load_split()
    with text_for_people(json_path):
        with nnburst.launch(_EXECUTOR) as device:
            networks = [_classify(device, p, split, rounds) for p in Precision]
        _show(networks, len(split.labels))
        death = _die_and_recover(split)
    write_json(json_path, {"images": len(split.labels), "networks": networks, "death": death})
    right = all(n["accuracy"] >= 0.96 and n["routes_agree"] for n in networks)
    return 0 if right and death["recovered"] else 1


def _classify(
    device: nnburst.Device, precision: Precision, split: Split, rounds: int
) -> dict[str, Any]:
    """Figures of one network by all routes, which take turns round by round."""
    inputs = encode(split.images, precision)
    with open_routes(build_network(precision), device, inputs[0]) as routes:
        total = rounds * len(routes) * len(inputs)
        with progress(f"{precision.value}: executing {total} times", total) as advance:
            for _ in range(rounds):
                for route in routes:
                    route.run_round(inputs)
                    advance(len(inputs))
        found = {route.name: route.found for route in routes}
        return {
            "precision": precision.value,
            "accuracy": float((np.array(found[BURST]) == split.labels).mean()),
            "routes_agree": all(digits == found[IN_PROCESS] for digits in found.values()),
            "executions_per_route": rounds * len(inputs),
            "routes": [_figures(route) for route in routes],
        }


def _figures(route: Route) -> dict[str, Any]:
    median, p99 = np.percentile(route.durations_ns, [50, 99])
    figures = {"name": route.name, "median_ns": float(median), "p99_ns": float(p99)}
    if route.driver_us:
        figures["driver_median_us"] = float(np.median(route.driver_us))
    return figures


def _show(networks: list[dict[str, Any]], images: int) -> None:
    for network in networks:
        table(
            f"{network['precision']}: {network['accuracy']:.1%} of {images} unseen digits right,"
            f" {network['executions_per_route']} executions by each route",
            ["route", "median µs", "p99 µs", "driver's own µs"],
            [
                [
                    route["name"],
                    microseconds(route["median_ns"]),
                    microseconds(route["p99_ns"]),
                    f"{route['driver_median_us']:.0f}" if "driver_median_us" in route else "",
                ]
                for route in network["routes"]
            ],
        )


def _die_and_recover(split: Split) -> dict[str, Any]:
    """Kill a driver in the middle of its work, and start again."""
    model, inputs = build_network(Precision.QUANT8), encode(split.images, Precision.QUANT8)
    with nnburst.launch(_EXECUTOR) as device, device.prepare(model) as prepared:
        burst = prepared.open_burst()
        burst.execute([inputs[0]])
        start = perf_counter()
        os.kill(device.pid, signal.SIGKILL)
        try:
            while True:
                burst.execute([inputs[0]])
        except nnburst.DeadObject as error:
            noticed = perf_counter() - start
            print(f"killed the driver; after {noticed * 1e3:.1f} ms the client sees\n  {error}")
            message = str(error)
    with (
        nnburst.launch(_EXECUTOR) as device,
        device.prepare(model) as prepared,
        prepared.open_burst() as burst,
    ):
        digit = int(burst.execute([inputs[0]]).outputs[0].argmax())
    recovered = perf_counter() - start
    right = digit == int(split.labels[0])
    print(f"a new driver answers {recovered * 1e3:.0f} ms after the kill: a {digit}")
    return {
        "message": message,
        "noticed_ms": noticed * 1e3,
        "recovered_ms": recovered * 1e3,
        "recovered": right,
    }
