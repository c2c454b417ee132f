"""One actor per node that offers the resource `nnburst`; Ray restarts them for ever and repeats no call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, SupportsIndex

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from nnburst.hal.closing import Closing
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.ray.client import Client, Route
from nnburst.ray.host import Host
from nnburst.ray.place import Place

logger = logging.getLogger(__name__)

#: What a node offers that takes a host: `ray start --resources '{"nnburst": 1}'`.
RESOURCE: Final = "nnburst"
NAMESPACE: Final = "nnburst"
#: Seconds between looks for nodes that have joined.
_WATCH: Final = 2.0
#: Seconds that actors have to answer where they are.
_PATIENCE: Final = 2.0


class Hosts(Closing):
    """The hosts of one name. Thread-safe; can be pickled and used in any process of the cluster."""

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

    def places(self) -> list[Place]:
        """Where services are now; those that are down or on their way back are left out."""
        pending = [actor.where.remote() for actor in self._actors()]
        found = []
        deadline = time.monotonic() + _PATIENCE
        for answer in pending:
            try:
                found.append(ray.get(answer, timeout=max(0.0, deadline - time.monotonic())))
            except (RayActorError, RayTaskError, GetTimeoutError, NnburstError) as error:
                logger.debug("a host of %s does not answer: %s", self.name, error)
        return found

    def client(self, model: str, *, route: Route = Route.BEST, **options: Any) -> Client:  # noqa: ANN401
        """A client of one model.

        Args:
            model: one of `models`.
            route: BURST or GRPC force one way.
            options: further ones of `Client`.

        Raises:
            InvalidArgument: the hosts serve no such model.
        """
        if model not in self.models:
            raise InvalidArgument(f"model: {model!r}, expected one of {sorted(self.models)}")
        return Client(self.places, model, self.models[model], route=route, **options)

    def wait(self, hosts: int = 1, timeout: float = 60.0) -> list[Place]:
        """Until so many services answer.

        Raises:
            DeviceUnavailable: they do not in time.
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
        if self._owner:
            for actor in self._actors():
                try:
                    ray.get(actor.close.remote(), timeout=_PATIENCE)
                except (RayActorError, RayTaskError, GetTimeoutError) as error:
                    logger.debug("a host of %s ended by itself: %s", self.name, error)
                ray.kill(actor)

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
        return _known, (self.name, self.models)


def start(
    name: str,
    models: Mapping[str, str],
    *,
    executor: str = "reference",
    grpc_host: str = "",
    words: Sequence[str] = (),
) -> Hosts:
    """Start a host on each node that offers the resource `nnburst`, now and when nodes join.

    Args:
        name: under which `find` has them.
        models: for each name a file that every node has, or `module:attribute`.
        executor: as for `nnburst serve`.
        grpc_host: at which gRPC listens on each node; empty is the node's address, which is reached by
            everyone unless `words` has TLS.
        words: further ones for `nnburst serve`.

    Returns:
        The hosts, which end with this object's `close` and with this program.

    Raises:
        InvalidArgument: the name has a slash.
    """
    if not name or "/" in name:
        raise InvalidArgument(f"name: {name!r}, expected text without '/'")
    sources = {
        model: source if ":" in source else str(Path(source).resolve())
        for model, source in models.items()
    }
    hosts = Hosts(name, sources, owner=True)
    arguments = (sources, executor, grpc_host, tuple(words))
    made: list[Any] = []
    _add_missing(name, arguments, made)
    watch = (hosts, arguments, made)
    threading.Thread(target=_watch, args=watch, name="nnburst hosts", daemon=True).start()
    return hosts


def find(name: str, models: Mapping[str, str]) -> Hosts:
    """Hosts that another program of the cluster has started, with the models that are to be used."""
    return Hosts(name, models, owner=False)


def _known(name: str, models: Mapping[str, str]) -> Hosts:
    return find(name, models)


def _add_missing(name: str, arguments: tuple[Any, ...], made: list[Any]) -> None:
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
    while len(made) < places:
        made.append(actor.options(name=f"{name}/{len(made)}").remote(*arguments))


def _watch(hosts: Hosts, arguments: tuple[Any, ...], made: list[Any]) -> None:
    while not hosts._ended.wait(_WATCH):
        try:
            _add_missing(hosts.name, arguments, made)
        except Exception as error:
            logger.warning("looking for new nodes failed, it goes on: %s", error)
