"""Measures what a head of Ray spends on hosts: `python -m tools.host_simulation.measure`, with the extra ray.

Costs are processor time of the head's store (`gcs_server`), so that what else runs counts little. Actors that
are registered wait for a resource that is not there; those that start run on this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from tools.host_simulation.model import Costs

_TICKS = os.sysconf("SC_CLK_TCK")
REGISTERED, STARTED, SECONDS = 300, 6, 8.0


class Waiting:
    """An actor that does nothing."""

    def where(self) -> None:
        """Answer."""


def processor_seconds() -> float:
    """Of the only `gcs_server` of this user that was started last."""
    newest = max(
        (stat for stat in Path("/proc").glob("[0-9]*/stat") if "(gcs_server)" in _text(stat)),
        key=lambda stat: int(_text(stat).rpartition(")")[2].split()[19]),
    )
    fields = _text(newest).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _text(stat: Path) -> str:
    try:
        return stat.read_text()
    except OSError:
        return ""


def spent(work: Callable[[], object]) -> float:
    """Processor time of the head's store while `work` runs."""
    before = processor_seconds()
    work()
    return processor_seconds() - before


def measure() -> Costs:
    """What `Costs` has, from a cluster of one node, then of three."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    ray.init(address=cluster.address, log_to_driver=False)
    idle = spent(lambda: time.sleep(SECONDS)) / SECONDS
    actor = ray.remote(num_cpus=0)(Waiting)
    made: list[Any] = []

    def register() -> None:
        made.extend(
            actor.options(name=f"waiting {number}", resources={"nowhere": 1}).remote()
            for number in range(REGISTERED)
        )
        while len(ray.util.list_named_actors(all_namespaces=True)) < REGISTERED:
            time.sleep(0.1)

    began = time.monotonic()
    registered = (spent(register) - idle * (time.monotonic() - began)) / REGISTERED
    began = time.monotonic()
    for _ in range(20):
        ray.util.list_named_actors(all_namespaces=True)
    listed = (time.monotonic() - began) / 20 / REGISTERED
    for each in made:
        ray.kill(each)

    def start() -> None:
        running = [actor.remote() for _ in range(STARTED)]
        ray.get([each.where.remote() for each in running])
        began = time.monotonic()
        for _ in range(50):
            ray.get([each.where.remote() for each in running])
        asked.append((time.monotonic() - began) / 50 / STARTED)

    asked: list[float] = []
    began = time.monotonic()
    took = spent(start)
    seconds = time.monotonic() - began
    create = max(0.0, took - idle * seconds) / STARTED + registered
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    time.sleep(3)
    beat = max(0.0, spent(lambda: time.sleep(SECONDS)) / SECONDS - idle) / 2
    ray.shutdown()
    cluster.shutdown()
    return Costs(
        create=create, node=beat, list_one=listed, ask_one=asked[0], start=seconds / STARTED
    )


if __name__ == "__main__":
    for name, value in vars(measure()).items():
        print(f"{name}: {value:.6f}")
