"""Two nodes on one machine: what is lost is a typed error once, and the next call goes to who answers."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnburst.hal.environment import KILLS, RAY

if not RAY.read():
    pytest.skip("set NNBURST_RAY=1 for a cluster of Ray", allow_module_level=True)
pytest.importorskip("ray", reason="extra ray is not installed")

import ray
from ray.cluster_utils import Cluster

import nnburst
import nnburst.ray
from nnburst.control.address import directory
from nnburst.ray.client import Client, Route
from nnburst.ray.service import Place

pytestmark = [pytest.mark.timing, pytest.mark.filterwarnings("ignore")]

TESTS = Path(__file__).resolve().parent.parent
TIMES = KILLS.read() if KILLS.is_set else 2
MODELS = {"add": "serving.networks:add"}
NODE = {"num_cpus": 1, "resources": {"nnburst": 1}, "object_store_memory": 80 << 20}
#: Seconds for anything that has no promise.
PATIENCE = 90.0


class Nodes:
    """A cluster of two nodes that each take one host."""

    def __init__(self) -> None:
        head = {**NODE, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.second = self.cluster.add_node(**NODE)
        ray.init(address=self.cluster.address, log_to_driver=False)

    def lose_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)

    def add_second(self) -> None:
        self.second = self.cluster.add_node(**NODE)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), before]))
    sys.path.insert(0, str(TESTS))
    nodes = Nodes()
    yield nodes
    ray.shutdown()
    nodes.cluster.shutdown()


@pytest.fixture(scope="module")
def hosts(nodes: Nodes) -> Iterator[nnburst.ray.Hosts]:
    with nnburst.ray.start(
        "tested", MODELS, executor="serving.networks:Obedient", grpc_host="127.0.0.1"
    ) as hosts:
        hosts.wait(2, PATIENCE)
        yield hosts
        places = hosts.places()
    assert [
        left for each in places for left in directory().glob(f"{Path(each.address).name}*")
    ] == []


def arguments(value: float) -> list[Any]:
    return [np.full((2, 3), value, np.float32)] * 2


def check(client: Client, value: float, timeout: float = PATIENCE) -> None:
    (found,) = client.infer(arguments(value), timeout)
    np.testing.assert_array_equal(found, np.full((2, 3), 2 * value, np.float32))


def lose(client: Client, value: float) -> float:
    """Execute until the loss shows as a typed error; seconds until the next right result."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            check(client, value)
        except (nnburst.DeadObject, nnburst.DeviceUnavailable):
            began = time.monotonic()
            check(client, value + 1)
            return time.monotonic() - began
    raise AssertionError("nothing was lost")


def settle(hosts: nnburst.ray.Hosts) -> list[Place]:
    """Both hosts, once their fronts answer, too: what is lost next is the only thing that is lost."""
    places = hosts.wait(2, PATIENCE)
    for place in places:
        with Client(lambda: [[place]], "add", MODELS["add"], route=Route.GRPC) as client:  # noqa: B023
            check(client, 1)
    return places


def place_of(client: Client) -> Place:
    place = client.place
    assert place is not None
    return place


@pytest.mark.parametrize("route", list(Route))
def test_each_route_gives_the_same_result(hosts: nnburst.ray.Hosts, route: Route) -> None:
    with hosts.client("add", route=route) as client:
        check(client, 3)
        assert client.uses_burst is (route is not Route.GRPC)
        batch = [arguments(value) for value in range(5)]
        assert [found[0][0, 0] for found in client.infer_many(batch)] == [0, 2, 4, 6, 8]
        (awaited,) = asyncio.run(client.infer_async(arguments(4)))
        assert awaited[1, 2] == 8
        with pytest.raises(nnburst.InvalidArgument):
            client.infer(arguments(1)[:1])
        with pytest.raises(nnburst.InvalidArgument):
            client.infer([np.zeros((2, 4), np.float32)] * 2)
        check(client, 5)


def test_unknown_model_is_refused_by_name(hosts: nnburst.ray.Hosts) -> None:
    with pytest.raises(nnburst.InvalidArgument, match="'nothing'"):
        hosts.client("nothing")


def test_host_that_only_grpc_reaches_is_reached_by_grpc(hosts: nnburst.ray.Hosts) -> None:
    def elsewhere() -> list[list[Place]]:
        return [[replace(each, address="/nowhere/driver") for each in hosts.places()]]

    with Client(elsewhere, "add", MODELS["add"]) as client:
        check(client, 6)
        assert client.uses_burst is False


def test_hosts_can_be_used_in_a_task(hosts: nnburst.ray.Hosts) -> None:
    copy = pickle.loads(pickle.dumps(hosts))

    @ray.remote(num_cpus=0)
    def task(found: nnburst.ray.Hosts) -> float:
        with found.client("add") as client:
            (result,) = client.infer(arguments(7))
            return float(result[0, 0])

    assert ray.get(task.remote(copy), timeout=PATIENCE) == 14


@pytest.mark.parametrize("route", [Route.BURST, Route.GRPC])
def test_worker_that_dies_of_an_execution_is_one_typed_error(
    hosts: nnburst.ray.Hosts, route: Route
) -> None:
    from serving.networks import DIE

    with hosts.client("add", route=route) as client:
        for _ in range(TIMES):
            check(client, 1)
            with pytest.raises(nnburst.DeadObject):
                client.infer(arguments(DIE))
            began = time.monotonic()
            check(client, 2)
            print(f"worker, {route.value}: {time.monotonic() - began:.2f} s", flush=True)


@pytest.mark.parametrize("route", [Route.BURST, Route.GRPC])
def test_killed_driver_is_one_typed_error(hosts: nnburst.ray.Hosts, route: Route) -> None:
    with hosts.client("add", route=route) as client:
        for number in range(TIMES):
            settle(hosts)
            check(client, number)
            os.kill(place_of(client).pid, signal.SIGKILL)
            print(f"driver, {route.value}: {lose(client, number):.2f} s", flush=True)


@pytest.mark.parametrize("route", [Route.BURST, Route.GRPC])
def test_killed_actor_is_one_typed_error(hosts: nnburst.ray.Hosts, route: Route) -> None:
    with hosts.client("add", route=route) as client:
        for number in range(TIMES):
            settle(hosts)
            check(client, number)
            place = place_of(client)
            os.kill(place.actor_pid, signal.SIGKILL)
            print(f"actor, {route.value}: {lose(client, number):.2f} s", flush=True)
            wait_for_end(place.pid)


def test_lost_node_is_one_typed_error_and_its_successor_gets_a_host(
    nodes: Nodes, hosts: nnburst.ray.Hosts
) -> None:
    for number in range(TIMES):
        places = {place.node: place for place in settle(hosts)}
        place = places[nodes.second.node_id]
        others = [each for node, each in places.items() if node != place.node]
        known = iter([[place]])  # the first call is to go to the node that will be lost
        with Client(lambda: [next(known, others)], "add", MODELS["add"]) as client:  # noqa: B023
            check(client, number)
            assert place_of(client) == place
            nodes.lose_second()
            print(f"node: {lose(client, number):.2f} s", flush=True)
        wait_for_end(place.pid)
        nodes.add_second()
    assert len(hosts.wait(2, PATIENCE)) == 2


def test_node_that_joins_gets_a_host(nodes: Nodes, hosts: nnburst.ray.Hosts) -> None:
    third = nodes.cluster.add_node(**NODE)
    places = {place.node: place for place in hosts.wait(3, PATIENCE)}
    assert len(places) == 3
    nodes.cluster.remove_node(third, allow_graceful=False)
    wait_for_end(places[third.node_id].pid)
    wait_for_end(places[third.node_id].actor_pid)


def wait_for_end(pid: int) -> None:
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        pause.wait(0.05)
    assert not Path(f"/proc/{pid}").exists(), f"service {pid} is left over"


def test_what_a_killed_service_left_is_removed_by_the_next_host(
    nodes: Nodes, hosts: nnburst.ray.Hosts
) -> None:
    dead = directory() / f"ray-{'0' * 32}.sock"
    for left in (dead, Path(f"{dead}.lock")):
        left.touch()
    place = settle(hosts)[0]
    os.kill(place.actor_pid, signal.SIGKILL)
    wait_for_end(place.pid)
    assert len(hosts.wait(2, PATIENCE)) == 2
    assert list(directory().glob(f"{dead.name}*")) == []
    assert all(Path(each.address).exists() for each in hosts.places())


def test_example_of_ray_serve_computes_what_a_burst_does(hosts: nnburst.ray.Hosts) -> None:
    pytest.importorskip("ray.serve", reason="ray[serve] is not installed")
    text = (TESTS.parent / "docs" / "ray.md").read_text(encoding="utf-8")
    example = re.search(r"```\n(from ray import serve\n.*?)```", text, re.DOTALL)
    assert example is not None
    # The example's model has one input, this one two.
    code = example[1].replace('client("net")', 'client("add")').replace("[pixels]", "[pixels] * 2")
    known: dict[str, Any] = {"__name__": "__main__", "hosts": hosts, "pixels": arguments(3)[0]}
    try:
        exec(compile(code, "docs/ray.md", "exec"), known)
        np.testing.assert_array_equal(known["scores"], np.full((2, 3), 6, np.float32))
    finally:
        known["serve"].shutdown()


def test_closed_hosts_leave_nothing(nodes: Nodes) -> None:
    hosts = nnburst.ray.start(
        "short", MODELS, executor="serving.networks:Obedient", grpc_host="127.0.0.1"
    )
    # Every place is taken by the hosts of the other tests, so these wait; closing ends the wait.
    assert hosts.places() == []
    hosts.close()
    assert hosts.places() == []
