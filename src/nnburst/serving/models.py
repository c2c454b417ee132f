"""Keeps the served models, by name and version, and loads and unloads them while requests come.

One thread loads one model after another; another thread releases models. The set of served models is an
immutable object: when a model is loaded again, a new set replaces it. Requests that have already found the
old model are still answered by it; then it is released.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nnburst.hal.errors import (
    DeadObject,
    DeviceUnavailable,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.utils import Closing
from nnburst.serving.network import Network
from nnburst.serving.options import Options
from nnburst.serving.pools import Pool
from nnburst.serving.queue import Clock
from nnburst.serving.sources import Source, Sources, UnknownModel
from nnburst.serving.statistics import Statistics
from nnburst.serving.workers import Workers

logger = logging.getLogger(__name__)

#: Seconds between attempts to reach a driver that is not there.
_PAUSE: Final = 0.2
#: Seconds that the last requests of an unloaded model have: the longest time of any request.
_LAST_REQUESTS: Final = 90.0
_TRANSIENT: Final = (DeadObject, DeviceUnavailable, MissedDeadline)
#: Greatest number of attempts at the start if descriptors, threads or memory are lacking, and the most
#: seconds between two. The number is limited because an exceeded quota is the same error, and does not pass.
_TRIES: Final = 20
_LONGEST_PAUSE: Final = 2.0


@dataclass(frozen=True)
class ServedModel:
    """The versions of one model. Immutable.

    Attributes:
        versions: the versions in ascending order, with those that could not be prepared.
        failure: reason why there is no version; empty if there are some.
    """

    versions: Mapping[int, Network]
    failure: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether every version is ready."""
        return not self.failure and all(each.is_ready for each in self.versions.values())


@dataclass(frozen=True)
class Served:
    """The models that are served at one moment. Immutable."""

    models: Mapping[str, ServedModel] = field(default_factory=dict)

    def find(self, name: str, version: str) -> Network:
        """Find a model by the name and version in a request; the newest version if `version` is empty.

        Raises:
            UnknownModel: the model is not served.
            DeviceUnavailable: the model could not be read.
        """
        found = self.models.get(name)
        if found is not None and found.failure:
            raise DeviceUnavailable(f"model {name!r} is not ready: {found.failure}")
        versions = found.versions if found is not None else {}
        if versions and not version:
            return versions[max(versions)]
        for number, network in versions.items():
            if str(number) == version:
                return network
        raise UnknownModel(f"model {name!r} of version {version or 'any'} is not served")

    def networks(self) -> list[Network]:
        """All versions of all models."""
        return [each for model in self.models.values() for each in model.versions.values()]


class IndexEntry(NamedTuple):
    """An entry of the repository's index, in the protocol's terms."""

    name: str
    version: str
    state: str
    reason: str


class Models(Closing):
    """The models of one front. Thread-safe.

    Attributes:
        served: the models that requests find now.
        on_change: called when a model was added or removed, or may have changed its readiness.
        preparing: name of the model that is being prepared; empty for none.
    """

    def __init__(
        self, sources: Sequence[Sources], options: Options, workers: Workers, clock: Clock
    ) -> None:
        """List the models of the sources; nothing is read before `start`.

        Args:
            sources: the sources; the first one that has a name counts.
            options: the limits.
            workers: workers that execute the models.
            clock: clock that must call `look`.
        """
        self.served = Served()
        self.on_change: Callable[[], None] = lambda: None
        self.preparing = ""
        self._sources = sources
        self._options = options
        self._workers = workers
        self._clock = clock
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        #: Kept when a model is loaded again, so that counts go on.
        self._statistics: dict[tuple[str, int], Statistics] = {}
        self._read: dict[Network, Source] = {}
        self._retiring: set[Network] = set()
        #: Reasons of failed loads, for models whose older versions are still served.
        self._failures: dict[str, str] = {}
        #: Reasons why models that were found at the start are prepared again and again.
        self._delays: dict[str, str] = {}
        self._unloaded: dict[str, tuple[int, ...]] = {}
        #: The sources that `follow` has loaded, or why it tries again; those that its last scan has seen.
        self._followed: dict[str, object] = {}
        self._seen: dict[str, object] = {}
        self._loading = Pool(1, "models")
        self._releasing = Pool(1, "retired models")
        for name in self.names():
            self._followed[name] = self._look_at(name)
            try:
                self._put(name, self._planned(name))
            except NnburstError as error:
                self._put(name, ServedModel({}, str(error)))

    def names(self) -> list[str]:
        """Names of all models in the sources, served or not."""
        try:
            return list(dict.fromkeys(name for each in self._sources for name in each.names()))
        except OSError as error:
            raise DeviceUnavailable(f"--repository: {error}") from None

    def start(self) -> None:
        """Begin to prepare the models; the driver may start later, or die meanwhile."""
        for name in self.served.models:
            self._loading.submit(self._prepare_first, name)

    def load(self, name: str, timeout: float | None) -> None:
        """Load a model, or its changed versions; meanwhile the old versions answer requests.

        Args:
            name: name of the model.
            timeout: seconds to wait; loading goes on after them.

        Raises:
            UnknownModel: no model has this name.
            MissedDeadline: loading takes longer.
            NnburstError: the model cannot be served; the old versions still are.
        """
        self._wait(self._loading.submit(self._load, name), timeout)

    def unload(self, name: str, timeout: float | None) -> None:
        """Stop serving a model; requests that were admitted are answered.

        Raises:
            UnknownModel: the model is not served.
            MissedDeadline: loading another model takes longer than `timeout`.
        """
        self._wait(self._loading.submit(self._unload, name), timeout)

    def follow(self) -> None:
        """Load new and changed models, and unload removed ones; failures are logged."""
        self._wait(self._loading.submit(self._follow), None)

    def index(self, *, ready: bool) -> list[IndexEntry]:
        """The index of all models, in the protocol's terms; with `ready` only of those that are ready."""
        found = []
        with self._lock:
            retiring, unloaded = set(self._retiring), dict(self._unloaded)
            failures, delays = dict(self._failures), dict(self._delays)
        for name, model in self.served.models.items():
            if model.failure:
                found.append(IndexEntry(name, "", "UNAVAILABLE", f"FAILED: {model.failure}"))
            for version, network in model.versions.items():
                state, reason = _state(network)
                if state == "LOADING":
                    reason = delays.get(name, "")
                reason = reason or failures.get(name, "")
                found.append(IndexEntry(name, str(version), state, reason))
        for name in sorted({*self.names(), *unloaded} - self.served.models.keys()):
            ends = [str(each.version) for each in retiring if each.name == name]
            for each in [str(number) for number in unloaded.get(name, ())] or [""]:
                state = "UNLOADING" if each in ends else "UNAVAILABLE"
                found.append(IndexEntry(name, each, state, "unloaded"))
        return [each for each in found if each.state == "READY" or not ready]

    @property
    def is_ready(self) -> bool:
        """Whether every model is ready."""
        return all(each.is_ready for each in self.served.models.values())

    def look(self, now_ns: int) -> float:
        """Refuse requests that are too late, and check the workers; return the time of the next deadline."""
        with self._lock:
            networks = [*self.served.networks(), *self._retiring]
        return min((each.look(now_ns) for each in networks), default=float("inf"))

    def statistics(self) -> dict[str, list[Statistics]]:
        """The statistics of every version that was ever served, by name."""
        with self._lock:
            found: dict[str, list[Statistics]] = {}
            for (name, _), each in self._statistics.items():
                found.setdefault(name, []).append(each)
            return found

    def close(self) -> None:
        """Release all models."""
        self._stopped.set()
        self._loading.shutdown(cancel_futures=True)
        self._releasing.shutdown(cancel_futures=True)
        with self._lock:
            networks = [*self.served.networks(), *self._retiring]
        for network in networks:
            network.close()
        self._workers.close()

    def load_no_more(self) -> None:
        """Stop loading models."""
        self._stopped.set()

    def _versions(self, name: str) -> dict[int, Source]:
        try:
            for each in self._sources:
                if name in each.names():
                    return each.versions(name)
        except OSError as error:
            raise InvalidArgument(f"model {name!r} cannot be read: {error}") from None
        raise UnknownModel(f"model {name!r} is not there")

    def _planned(self, name: str) -> ServedModel:
        """Make a model with all versions in the sources; unchanged served versions are reused."""
        before = self.served.models.get(name)
        found: dict[int, Network] = {}
        for version, source in sorted(self._versions(name).items()):
            old = before.versions.get(version) if before is not None else None
            keeps = old is not None and not old.failure and source.stamp is not None
            if old is not None and keeps and self._read.get(old) == source:
                found[version] = old
            else:
                found[version] = self._make(name, version, source)
        return ServedModel(found)

    def _make(self, name: str, version: int, source: Source) -> Network:
        with self._lock:
            statistics = self._statistics.setdefault((name, version), Statistics())
            worker = self._workers.lend()
            network = Network(source.network, self._options, worker, self._clock, statistics)
            network.on_change = self._changed
            self._read[network] = source
        return network

    def _prepare_first(self, name: str, tries: int = 1) -> None:
        """Prepare a model that was found at the start; try again until the driver is there.

        Args:
            name: name of the model.
            tries: number of this attempt among those that lacked resources.
        """
        if self._stopped.is_set():
            return
        model = self.served.models.get(name)
        if model is None:
            return
        if model.failure:
            logger.error("model %s is not served: %s", name, model.failure)
        for network in model.versions.values():
            if network.is_served or network.failure:
                continue
            try:
                self._prepare_now(network)
            except _TRANSIENT as error:
                self._prepare_again(name, tries, _PAUSE, error)
                return
            except NnburstError as error:
                if isinstance(error, ResourceExhausted) and tries < _TRIES:
                    pause = min(_PAUSE * 2.0**tries, _LONGEST_PAUSE)
                    self._prepare_again(name, tries + 1, pause, error)
                    return
                logger.error("model %s is not served: %s", name, error)  # noqa: TRY400
                network.fail(str(error))

    def _prepare_now(self, network: Network) -> None:
        self.preparing = network.name
        try:
            _prepare(network)
        finally:
            self.preparing = ""

    def _prepare_again(self, name: str, tries: int, pause: float, error: NnburstError) -> None:
        if str(error) != self._delays.get(name):
            logger.warning("model %s is not prepared yet, it is tried again: %s", name, error)
        with self._lock:
            self._delays[name] = str(error)
        self._stopped.wait(pause)
        if not self._stopped.is_set():  # after the other models
            self._loading.submit(self._prepare_first, name, tries)

    def _load(self, name: str) -> None:
        before = self.served.models.get(name)
        planned = ServedModel({})
        try:
            planned = self._planned(name)
            for network in planned.versions.values():
                if not network.is_served:
                    self._prepare_now(network)
        except NnburstError as error:
            self._note_failure(name, planned, error)
            raise
        with self._lock:
            self._failures.pop(name, None)
            self._unloaded.pop(name, None)
        if planned != before:
            self._put(name, planned)

    def _note_failure(self, name: str, planned: ServedModel, error: Exception) -> None:
        """Release the versions that failed, and note the reason; the old versions are still served."""
        before = self.served.models.get(name)
        kept = set(before.versions.values()) if before is not None else set()
        for network in planned.versions.values():
            if network not in kept:
                self._supersede(network)
        if isinstance(error, UnknownModel):
            return
        if any(each.is_served for each in kept):
            with self._lock:
                self._failures[name] = f"FAILED to load again: {error}"
        else:
            self._put(name, ServedModel({}, str(error)))

    def _unload(self, name: str) -> None:
        model = self.served.models.get(name)
        if model is None:
            raise UnknownModel(f"model {name!r} is not served")
        with self._lock:
            self._failures.pop(name, None)
            self._unloaded[name] = tuple(model.versions)
        self._put(name, None)

    def _follow(self) -> None:
        there = self.names()
        for name in [each for each in self.served.models if each not in there]:
            self._unload(name)
            with self._lock:
                self._unloaded.pop(name, None)
        for name in self._followed.keys() - set(there):  # loaded again when they are back
            del self._followed[name]
        seen, self._seen = self._seen, {name: self._look_at(name) for name in there}
        for name, found in self._seen.items():
            # Files that are being copied into the folder change from scan to scan.
            if self._followed.get(name) == found or seen.get(name) != found:
                continue
            if self._stopped.is_set():
                return
            before = self._followed.get(name)
            self._followed[name] = found
            try:
                self._load(name)
            except (*_TRANSIENT, ResourceExhausted) as error:
                self._followed[name] = str(error)
                if str(error) != before:
                    logger.warning(
                        "model %s is not loaded, it is tried again each second: %s", name, error
                    )
            except NnburstError as error:
                logger.error("model %s is not loaded: %s", name, error)  # noqa: TRY400

    def _look_at(self, name: str) -> object:
        """The sources of a model, or the reason why it has none, for comparisons by `follow`."""
        try:
            return self._versions(name)
        except NnburstError as error:
            return str(error)

    def _put(self, name: str, model: ServedModel | None) -> None:
        """Serve `model` under this name from now on, or nothing if it is None; release the old versions."""
        with self._lock:
            before = self.served.models.get(name)
            models = {each: found for each, found in self.served.models.items() if each != name}
            if model is not None:
                models[name] = model
            self.served = Served(models)
        self.on_change()
        kept = set(model.versions.values()) if model is not None else set()
        if before is not None:
            for network in before.versions.values():
                if network not in kept:
                    self._supersede(network)

    def _supersede(self, network: Network) -> None:
        with self._lock:
            self._retiring.add(network)
        network.admit_no_more()
        self._releasing.submit(self._release, network)

    def _release(self, network: Network) -> None:
        if not network.wait_until_unused(_LAST_REQUESTS):
            logger.warning("model %s is given back although requests of it run", network.name)
        network.close()
        with self._lock:
            self._retiring.discard(network)
            self._read.pop(network, None)
        self._workers.take_back(network.worker)

    def _changed(self) -> None:
        self.on_change()

    def _wait(self, future: Future[None], timeout: float | None) -> None:
        try:
            future.result(timeout)
        except FutureTimeout:
            raise MissedDeadline(f"timeout: not done after {timeout:g} s; it goes on") from None


def _prepare(network: Network) -> None:
    """Prepare a model version; every error becomes an NnburstError."""
    try:
        network.prepare()
    except NnburstError:
        raise
    except Exception as error:
        logger.exception("model %s cannot be prepared", network.name)
        raise InvalidArgument(f"{type(error).__name__}: {error}") from error


def _state(network: Network) -> tuple[str, str]:
    if network.failure:
        return "UNAVAILABLE", f"FAILED: {network.failure}"
    if not network.is_served:
        return "LOADING", ""
    return ("READY", "") if network.is_ready else ("UNAVAILABLE", network.ailment)
