"""Measures what a head of Ray spends on hosts: `python -m tools.host_simulation.measure`, with the extra ray.

Costs are processor time of the head's store (`gcs_server`), so that what else runs counts little. Actors that
are registered wait for a resource that is not there; those that start run on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.cluster_utils import Cluster
from tools.host_simulation.model import Costs

from nnburst.bench.cases import process_cpu

REGISTERED, STARTED, SECONDS = 300, 6, 8.0


class Waiting:
    """An actor that does nothing."""

    def where(self) -> None:
        """Answer."""


def spent(work: Callable[[], object], pid: int) -> float:
    """Processor time of a process while `work` runs."""
    before = process_cpu(pid)
    work()
    return process_cpu(pid) - before


def measure() -> Costs:
    """Measure the fields of `Costs`, by a cluster of one node, then of three."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    ray.init(address=cluster.address, log_to_driver=False)
    spent_by_head = partial(spent, pid=cluster.head_node.all_processes["gcs_server"][0].process.pid)
    idle = spent_by_head(lambda: time.sleep(SECONDS)) / SECONDS
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
    registered = (spent_by_head(register) - idle * (time.monotonic() - began)) / REGISTERED
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
    took = spent_by_head(start)
    seconds = time.monotonic() - began
    create = max(0.0, took - idle * seconds) / STARTED + registered
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    time.sleep(3)
    beat = max(0.0, spent_by_head(lambda: time.sleep(SECONDS)) / SECONDS - idle) / 2
    ray.shutdown()
    cluster.shutdown()
    return Costs(
        create=create, node=beat, list_one=listed, ask_one=asked[0], start=seconds / STARTED
    )


if __name__ == "__main__":
    for name, value in vars(measure()).items():
        print(f"{name}: {value:.6f}")
