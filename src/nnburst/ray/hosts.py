"""Keeps one service on each node of a Ray cluster by an actor, which watches its driver."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, SupportsIndex

import ray
from ray.exceptions import RayActorError, RayTaskError

from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.session.recovery import reach
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.hal.utils import AUTO, Closing
from nnburst.ray.client import Client, Route
from nnburst.ray.service import Place, Service, boot_id, name_of, remove_dead

#: Seconds that the first start of a service may take, and between looks whether it is there.
_DRIVER_PATIENCE: Final = 120.0
_PAUSE: Final = 0.02


class Host:
    """Control plane only: no tensor passes it. Ray makes one per node and calls its methods one at a time."""

    def __init__(
        self, models: Mapping[str, str], executor: str, host: str, words: Sequence[str]
    ) -> None:
        """Start the service and connect to its driver.

        Args:
            models: for each name a file on this node, or `module:attribute`.
            executor: as for `nnburst serve`.
            host: at which gRPC listens; empty is the node's address.
            words: further ones for `nnburst serve`.
        """
        address = host or ray.util.get_node_ip_address()
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        remove_dead()
        name = name_of(context.get_actor_id())
        self._service = Service(name, models, executor, address, words)
        self._device = self._connected()

    def _connected(self) -> Device:
        """Its driver, which has yet to take its name; Ray gives an actor up whose creation raises."""
        deadline = time.monotonic() + _DRIVER_PATIENCE
        while True:
            try:
                return connect(self._service.address, recover="raise")
            except (DeadObject, DeviceUnavailable):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def where(self) -> Place:
        """Where the service is; a driver that has died is connected to again first.

        Raises:
            DeadObject: it is on its way back.
        """
        reach(self._device, _DRIVER_PATIENCE)
        return Place(
            self._node,
            boot_id(),
            self._service.address,
            self._service.grpc,
            self._service.pid,
            os.getpid(),
        )

    def recoveries(self) -> int:
        """Times that the driver was connected to again."""
        return self._device.recoveries

    def close(self) -> None:
        """End the service."""
        self._device.close()
        self._service.close()


logger = logging.getLogger(__name__)

#: What a node offers that takes a host: `ray start --resources '{"nnburst": 1}'`.
RESOURCE: Final = "nnburst"
NAMESPACE: Final = "nnburst"
#: Seconds between looks for nodes that have joined.
_WATCH: Final = 2.0
#: Seconds that actors have to answer where they are.
_ANSWER_PATIENCE: Final = 2.0
#: Seconds that services have to end.
_GRACE: Final = 10.0
#: Seconds after an answer in which others come that may be better, such as one of this machine.
_TOGETHER: Final = 0.1


class Hosts(Closing):
    """The hosts of one name. Thread-safe; can be pickled and used in any process of the cluster.

    Attributes:
        name: name of these hosts, by which `find` has them.
        models: for each name the file, or `module:attribute`, that serves it.
    """

    def __init__(self, name: str, models: Mapping[str, str], *, owner: bool) -> None:
        """Use `start` or `find`.

        Args:
            name: of the hosts.
            models: what they serve.
            owner: whether `close` ends them.
        """
        self.name = name
        self.models = dict(models)
        self._owner = owner
        self._ended = threading.Event()
        self._lock = threading.Lock()
        #: Actors that this object has started; Ray ends one to which its maker has no handle any more.
        self._made: list[Any] = []

    def __repr__(self) -> str:
        return f"<nnburst.ray.Hosts {self.name!r}: {', '.join(self.models)}>"

    def places(self) -> list[Place]:
        """Where services are now; those that are down or starting again are left out."""
        return [place for answered in self._answers() for place in answered]

    def _answers(self) -> Iterator[list[Place]]:
        """Where services are, in the order of their answers: those together that answer within `_TOGETHER`.

        One that is on its way back does not hold up a client that needs only one.
        """
        pending = [actor.where.remote() for actor in self._actors()]
        deadline = time.monotonic() + _ANSWER_PATIENCE
        while pending and (left := deadline - time.monotonic()) > 0:
            first, pending = ray.wait(pending, num_returns=1, timeout=left)
            others = _done(pending, _TOGETHER)
            pending = [each for each in pending if each not in others]
            places = [place for answer in first + others if (place := self._place(answer))]
            if places:
                yield places
        if pending:
            logger.debug("%d hosts of %s do not answer", len(pending), self.name)

    def _place(self, answer: Any) -> Place | None:  # noqa: ANN401 - ray.ObjectRef
        try:
            place: Place = ray.get(answer)
        except (RayActorError, RayTaskError, NnburstError) as error:
            logger.debug("a host of %s does not answer: %s", self.name, error)
            return None
        return place

    def client(self, model: str, *, route: Route = Route.BEST, **options: Any) -> Client:  # noqa: ANN401
        """A client of one model.

        Args:
            model: one of `models`.
            route: BURST or GRPC force one way.
            options: further arguments of `Client`: `credentials` for gRPC.

        Returns:
            The client, which the caller closes; it connects with its first call.

        Raises:
            InvalidArgument: the hosts do not serve such a model.
        """
        if model not in self.models:
            raise InvalidArgument(f"model: {model!r}, expected one of {sorted(self.models)}")
        return Client(self._answers, model, self.models[model], route=route, **options)

    def wait(self, hosts: int = 1, timeout: float = 60.0) -> list[Place]:
        """Wait until so many services answer.

        Args:
            hosts: how many.
            timeout: seconds.

        Returns:
            Where they are.

        Raises:
            DeviceUnavailable: fewer answer in time.
        """
        deadline = time.monotonic() + timeout
        while len(found := self.places()) < hosts:
            if time.monotonic() > deadline:
                raise DeviceUnavailable(
                    f"hosts: {len(found)} of {self.name!r} answer after {timeout:g} s, expected {hosts}"
                )
            time.sleep(0.1)
        return found

    def close(self) -> None:
        """End the hosts, if this object has started them."""
        self._ended.set()
        if not self._owner:
            return
        with self._lock:
            asked = {actor.where.remote(): actor for actor in self._made}
            # One that waits for a node has nothing to close, and would not answer.
            there = _done([*asked], _ANSWER_PATIENCE)
            _done([asked[answer].close.remote() for answer in there], _GRACE)
            for actor in self._made:
                ray.kill(actor)
            self._made.clear()
        remove_dead()

    def _actors(self) -> list[Any]:
        prefix = f"{self.name}/"
        found = []
        for each in ray.util.list_named_actors(all_namespaces=True):
            if each["namespace"] == NAMESPACE and each["name"].startswith(prefix):
                try:
                    found.append(ray.get_actor(each["name"], NAMESPACE))
                except ValueError:
                    pass  # it has just ended
        return found

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:  # type: ignore[override]
        return find, (self.name, self.models)


def _done(pending: list[Any], seconds: float) -> list[Any]:
    """Those calls of `pending` that end in time, however they end."""
    return ray.wait(pending, num_returns=len(pending), timeout=seconds)[0] if pending else []


def start(
    name: str,
    models: Mapping[str, str],
    *,
    executor: str = AUTO,
    grpc_host: str = "",
    words: Sequence[str] = (),
) -> Hosts:
    """Start a host on each node that offers the resource `nnburst`, now and when nodes join.

    Args:
        name: name of these hosts, by which `find` has them.
        models: for each name a file that every node has, or `module:attribute`.
        executor: as for `nnburst serve`.
        grpc_host: host or address at which gRPC listens on each node; by default the node's address, which
            anyone in the network can use unless `words` ask for TLS with certificates of clients.
        words: further arguments for `nnburst serve`.

    Returns:
        The hosts, which end with this object's `close` and with this program.

    Raises:
        InvalidArgument: the name is empty or has a slash.
    """
    if not name or "/" in name:
        raise InvalidArgument(f"name: {name!r}, expected text without '/'")
    sources = {
        model: source if ":" in source else str(Path(source).resolve())
        for model, source in models.items()
    }
    hosts = Hosts(name, sources, owner=True)
    arguments = (sources, executor, grpc_host, tuple(words))
    _add_missing(hosts, arguments)
    watch = (hosts, arguments)
    threading.Thread(target=_watch, args=watch, name="nnburst hosts", daemon=True).start()
    return hosts


def find(name: str, models: Mapping[str, str]) -> Hosts:
    """Hosts that another program of the cluster has started; `close` does not end them.

    Args:
        name: as for `start`.
        models: as for `start`, as far as they are to be used.
    """
    return Hosts(name, models, owner=False)


def _add_missing(hosts: Hosts, arguments: tuple[Any, ...]) -> None:
    """One actor for each place; one whose node is lost waits for another node."""
    places = int(
        sum(node["Resources"].get(RESOURCE, 0) for node in ray.nodes() if node.get("Alive"))
    )
    actor = ray.remote(
        max_restarts=-1,
        max_task_retries=0,
        num_cpus=0,
        resources={RESOURCE: 1},
        scheduling_strategy="SPREAD",
        namespace=NAMESPACE,
    )(Host)
    with hosts._lock:
        made = hosts._made
        while len(made) < places and not hosts._ended.is_set():
            made.append(actor.options(name=f"{hosts.name}/{len(made)}").remote(*arguments))


def _watch(hosts: Hosts, arguments: tuple[Any, ...]) -> None:
    while not hosts._ended.wait(_WATCH):
        try:
            _add_missing(hosts, arguments)
        except Exception as error:
            logger.warning("looking for new nodes failed, it goes on: %s", error)
