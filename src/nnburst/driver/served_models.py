"""Prepares the networks that a service reads from files and serves by name.

The supervisor reads each file once, and keeps its large parts in sealed memory that every worker maps. A
spare worker prepares all networks before its client comes; any other worker prepares the networks that its
client opens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nnburst.control.messages import OpenedServedModel, ServedArgument, ServedName, ServedState
from nnburst.driver.counters import CounterPage, ModelCounters
from nnburst.driver.model.device import Device
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.weights_client import seal
from nnburst.executor.base import DEFAULT_OPTIONS, memory_file
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.extensions import Extension
from nnburst.hal.model import MemoryPool, Operand
from nnburst.hal.whole_graph import ElementTypes, engine_of, has_slots

if TYPE_CHECKING:
    from nnburst.importer.imported_model import ImportedModel
    from nnburst.importer.named_sources import NamedSource

logger = logging.getLogger(__name__)


class ServedNetwork:
    """One network that was read, for all workers. Immutable.

    Attributes:
        name: the name under which it is served.
        version: the version under which it is served.
        model: the network; its pools are `views`.
        states: its variables, without their values.
        input_names: names of all inputs, states included.
        output_names: names of all outputs, states included.
        initial: the states' initial values, one after the other; None without states.
    """

    def __init__(self, source: NamedSource) -> None:
        """Read the network.

        Raises:
            NnburstError: the file is invalid, or the network cannot be served.
            OSError: the file cannot be read.
        """
        from nnburst.importer.load import load_named  # which drivers of one client do not need

        imported = load_named(source)
        self.name, self.version = source.name, source.version
        self.states = tuple(
            ServedState(state.name, state.input_index, state.output_index)
            for state in imported.states
        )
        self.input_names, self.output_names = imported.input_names, imported.output_names
        values = [np.ascontiguousarray(state.initial) for state in imported.states]
        self.initial = _sealed(values) if values else None
        self._pools = [_sealed([pool]) for pool in imported.pools]
        pools = tuple(MemoryPool(pool.size, index) for index, pool in enumerate(self._pools))
        self.model = msgspec.structs.replace(imported.model, pools=pools)

    def views(self) -> list[memoryview]:
        """The pools' bytes, mapped into this process."""
        return [pool.map_memory(writable=False) for pool in self._pools]


def _sealed(arrays: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> SharedMemory:
    """Copy arrays to sealed memory, which no process can change any more."""
    fd = memory_file("model", *(array.reshape(-1).view(np.uint8).data for array in arrays))
    seal(fd)
    return SharedMemory.adopt(fd)


def read_networks(
    options: Sequence[tuple[str, str]], *, with_front: bool = False
) -> tuple[ServedNetwork, ...]:
    """Read the networks of `--model` options and of the options that belong to them.

    Args:
        options: each with its value, in order.
        with_front: whether a front serves them, too, and reports the errors of each: a network that cannot
            be read is then left out, and the others are served.

    Raises:
        NnburstError: a network cannot be read; the message names it.
        InvalidArgument: a name and version are used twice.
    """
    if not options:
        return ()
    from nnburst.importer.named_sources import named_sources

    networks = []
    for source in named_sources(options):
        try:
            networks.append(ServedNetwork(source))
        except (NnburstError, OSError) as error:
            if with_front:
                logger.error("%s is not served: %s", source.name, error)  # noqa: TRY400
            elif isinstance(error, NnburstError):
                raise
            else:
                reason = error.strerror or error
                raise InvalidArgument(f"--model: {source.source}: {reason}") from None
    return tuple(networks)


def engine_of_all(networks: Sequence[ServedNetwork]) -> str | None:
    """The executor for networks that one engine runs as whole files; None if there are no such networks.

    Raises:
        InvalidArgument: these networks need different executors.
    """
    found: dict[str, ServedNetwork] = {}
    for network in networks:
        engine = engine_of(network.model)
        if engine is not None:
            found.setdefault(engine, network)
    if len(found) > 1:
        each = " and ".join(f"{network.name} by {engine}" for engine, network in found.items())
        raise InvalidArgument(
            f"--model: whole files that no one executor runs, {each}: serve them by two services"
        )
    return next(iter(found), None)


class OpenServed(NamedTuple):
    """A network that is prepared.

    Attributes:
        prepared: the prepared model, which the worker owns.
        description: its description for clients, without a handle.
        initial: the states' initial values, one after the other; None without states.
    """

    prepared: PreparedModel
    description: OpenedServedModel
    initial: SharedMemory | None


class _Entry:
    """A network in this worker."""

    def __init__(self, network: ServedNetwork) -> None:
        self.network = network
        self.lock = threading.Lock()
        self.opened: OpenServed | None = None
        self.is_counted = False


class ServedModels:
    """The service's networks as one worker prepares them. Thread-safe."""

    def __init__(self, networks: Sequence[ServedNetwork] = ()) -> None:
        """Serve `networks`, none of which is prepared at first."""
        self._entries = {(network.name, network.version): _Entry(network) for network in networks}

    @property
    def names(self) -> tuple[ServedName, ...]:
        """Names and versions, sorted."""
        return tuple(ServedName(name, version) for name, version in sorted(self._entries))

    def prepare_all(self, device: Device) -> None:
        """Prepare all networks. After a failure, the network is prepared again when a client opens it."""
        for key, entry in self._entries.items():
            try:
                self._prepare(entry, device)
            except NnburstError as error:
                logger.warning("model %s@%d: clients that open it get an error: %s", *key, error)

    def open(
        self, name: str, version: int, device: Device, counter_page: CounterPage | None = None
    ) -> OpenServed:
        """Open a network for a client; prepare it if it is not prepared yet.

        Args:
            name: the network's name.
            version: the network's version; 0 is the newest.
            device: the device that prepares it.
            counter_page: the page that counts its executions from now on.

        Raises:
            InvalidArgument: no such model is served, or the executor does not support it.
            NnburstError: the executor could not prepare it.
        """
        newest = max((v for n, v in self._entries if n == name), default=0)
        key = name, version or newest
        entry = self._entries.get(key)
        if entry is None:
            known = ", ".join(f"{n}@{v}" for n, v in sorted(self._entries)) or "none"
            wanted = f"{name}@{version}" if version else name
            raise InvalidArgument(f"name: {wanted!r} is not served, expected one of: {known}")
        opened = self._prepare(entry, device)
        if counter_page is not None:
            with entry.lock:
                if not entry.is_counted:
                    opened.prepared.counters = ModelCounters.of(entry.network.model, counter_page)
                    entry.is_counted = True
        return opened

    def _prepare(self, entry: _Entry, device: Device) -> OpenServed:
        network = entry.network
        with entry.lock:
            if entry.opened is None:
                views = network.views()
                device.check(network.model, views)
                device.check_supported(network.model, views)
                prepared = device.prepare_checked(network.model, views, DEFAULT_OPTIONS)
                prepared.is_kept = True
                description = describe(network, prepared, device.supported_extensions())
                entry.opened = OpenServed(prepared, description, network.initial)
            return entry.opened


def describe(
    network: ServedNetwork | ImportedModel,
    prepared: PreparedModel,
    extensions: Sequence[Extension],
) -> OpenedServedModel:
    """Describe a network for clients, without a handle.

    Args:
        network: the network that was read; a served one has a name and states.
        prepared: the prepared model of the network.
        extensions: the extensions whose types its arguments may have.
    """
    main = network.model.main
    types = ElementTypes(network.model, lambda: extensions)

    def arguments(names: Sequence[str], indexes: Sequence[int]) -> tuple[ServedArgument, ...]:
        named = [*names, *[""] * (len(indexes) - len(names))]
        return tuple(
            _argument(name, main.operands[i], types) for name, i in zip(named, indexes, strict=True)
        )

    served = network if isinstance(network, ServedNetwork) else None
    return OpenedServedModel(
        handle=1,
        name=served.name if served else "",
        version=served.version if served else 1,
        inputs=arguments(network.input_names, main.input_indexes),
        outputs=arguments(network.output_names, main.output_indexes),
        states=served.states if served else (),
        extension_name_to_prefix=network.model.extension_name_to_prefix,
        fields={
            "num_threads": prepared.num_threads,
            "has_slots": int(has_slots(network.model)),
        },
    )


def _argument(name: str, operand: Operand, types: ElementTypes) -> ServedArgument:
    plain = Operand(
        operand.type, operand.dimensions, scale=operand.scale, zero_point=operand.zero_point
    )
    found = types.of(operand.type)
    return ServedArgument(name, plain, found.dtype.str, found.is_scalar)
