"""Keeps a plan's temporaries, the memory between its steps, and lays out their values (RT:R2, R3)."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from nnburst.client.memory import pool_over
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import OperandLifeTime, OperandType
from nnburst.hal.errors import GeneralFailure, ResourceExhausted
from nnburst.hal.model import Model, Operand, Subgraph
from nnburst.hal.utils import Closing
from nnburst.runtime.argument import Argument, Bytes
from nnburst.runtime.extensions import TYPES
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    SourceOperand,
    WhileStep,
)


class TemporaryPool(Closing):
    """A pool that some devices may write and all others may only read.

    Drivers that write get a descriptor of its memfd that is open for writing, the others one that is open for
    reading only. So no driver can change the results of another one.
    """

    def __init__(self, size: int, writers: frozenset[int]) -> None:
        """Allocate zeroed memory.

        Args:
            size: number of bytes, at least 1.
            writers: positions of the devices that may write.

        Raises:
            ResourceExhausted: there is not enough memory.
        """
        self.size: Final = size
        self.writers: Final = writers
        shared = SharedMemory.create(size, name="temporaries")
        try:
            reader = SharedMemory(_read_only(shared.fd), size)
        except BaseException:
            shared.close()
            raise
        self._for_writers: Final = pool_over(shared, writable=True)
        self._for_readers: Final = pool_over(reader, writable=False)

    def view(self, device: int | None, offset: int, length: int) -> Bytes:
        """A view of bytes for a device; None stands for this process."""
        writes = device is None or device in self.writers
        pool = self._for_writers if writes else self._for_readers
        found: Bytes = pool.array(np.uint8, (length,), offset)
        return found

    def close(self) -> None:
        """Close both attachments."""
        self._for_writers.close()
        self._for_readers.close()


def _read_only(fd: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ResourceExhausted(f"temporaries cannot be opened for reading: {error}") from error


class Value:
    """The place of an operand, and its dimensions as far as they are known.

    Attributes:
        dimensions: 0 is unknown.
    """

    def __init__(self, dimensions: tuple[int, ...]) -> None:
        """Start with the dimensions that the model or the argument declares."""
        self.dimensions = dimensions

    def argument(self, device: int | None) -> Argument:
        """The value as an argument for a device; None stands for the CPU, which is this process."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """Bytes that the value may have."""
        raise NotImplementedError

    def bytes(self, length: int) -> Bytes:
        """The first bytes of the value, in this process.

        Raises:
            GeneralFailure: the value lies in a driver's buffer.
        """
        found = self.argument(None).bytes
        if found is None:
            raise GeneralFailure(
                "control flow: an operand is omitted, or lies in a driver's buffer"
            )
        return found[:length]


class GivenValue(Value):
    """A value that is an argument of the application."""

    def __init__(self, argument: Argument) -> None:
        """Use the memory that the application has given."""
        super().__init__(argument.dimensions)
        self._argument: Final = argument

    def argument(self, device: int | None) -> Argument:  # noqa: ARG002 - the same for all
        """The argument with the dimensions that are known now."""
        given = self._argument
        return Argument(given.bytes, self.dimensions, given.buffer)

    @property
    def room(self) -> int:
        """Bytes of the argument; 0 if it lies in a buffer."""
        given = self._argument.bytes
        return 0 if given is None else given.size


class PooledValue(Value):
    """A value that is a temporary in a pool."""

    def __init__(
        self, pool: TemporaryPool, offset: int, length: int, dimensions: tuple[int, ...]
    ) -> None:
        """Use `length` bytes of the pool from `offset` on."""
        super().__init__(dimensions)
        self._place: Final = pool, offset, length
        self._views: Final[dict[int | None, Bytes]] = {}

    def argument(self, device: int | None) -> Argument:
        """The value's view for a device; always the same arrays, which a burst need not examine again."""
        view = self._views.get(device)
        if view is None:
            pool, offset, length = self._place
            view = self._views[device] = pool.view(device, offset, length)
        return Argument(view, self.dimensions)

    @property
    def room(self) -> int:
        """Bytes that were allotted to the value."""
        return self._place[2]


# -- temporaries -----------------------------------------------------------------------------------


#: Alignment that suits every device (RT:P19), since several may read a temporary.
ALIGNMENT: Final = 64

#: The key of a temporary: an operand, and which of its two buffers.
Slot = tuple[SourceOperand, int]


class _Place(NamedTuple):
    writers: frozenset[int]
    offset: int
    length: int


class SourceModels:
    """The main model and the referenced ones, to which a plan's operands belong."""

    def __init__(self, plan: CompoundPlan, model: Model) -> None:
        """Look up the source models of `plan` in the client's finished model."""
        graphs = (model.main, *model.referenced)
        self._graphs: Final[tuple[Subgraph, ...]] = tuple(graphs[n] for n in plan.source_models)

    def graph(self, source_model: int) -> Subgraph:
        """A source model."""
        return self._graphs[source_model]

    def operand(self, source: SourceOperand) -> Operand:
        """An operand of a source model."""
        return self._graphs[source.source_model].operands[source.operand]


class TemporaryLayout:
    """The temporaries of known size of a plan: the writers and the place of each. Immutable.

    These are the outputs of steps that other steps read, outer outputs of interpreted control flow, body
    outputs of each WHILE (twice) and its decision, and the constants that control flow reads.
    """

    def __init__(self, plan: CompoundPlan, models: SourceModels) -> None:
        """Lay out the temporaries of a plan."""
        self._plan: Final = plan
        self._models: Final = models
        self._dynamic: Final = {source for source, _ in plan.dynamic_temporaries}
        self.places: Final[dict[Slot, _Place]] = {}
        self.sizes: Final[dict[frozenset[int], int]] = {}
        for source, buffers in self._sources():
            for number in range(buffers):
                self._place(source, number)

    def _sources(self) -> Iterator[tuple[SourceOperand, int]]:
        """The operands that need memory, and the number of buffers for each, in the order of the steps."""
        for step in self._plan.steps:
            if isinstance(step, ExecutionStep):
                for pair in step.temps_out:
                    yield SourceOperand(step.source_model, pair.source), 1
            elif isinstance(step, IfStep):
                yield from self._outer(step.source_model, step.outer_outputs)
            elif isinstance(step, WhileStep):
                yield from self._outer(step.source_model, step.outer_outputs)
                for operand in step.body_outputs:
                    yield SourceOperand(step.body_model, operand), 2
                yield SourceOperand(step.cond_model, step.cond_output), 1
        for source in self._plan.boundary_constants:
            yield source, 1

    def _outer(
        self, source_model: int, operands: Sequence[int]
    ) -> Iterator[tuple[SourceOperand, int]]:
        for operand in operands:
            source = SourceOperand(source_model, operand)
            if self._models.operand(source).lifetime == OperandLifeTime.TEMPORARY_VARIABLE:
                yield source, 1

    def _place(self, source: SourceOperand, number: int) -> None:
        length = TYPES.size_bytes(self._models.operand(source))
        if (source, number) in self.places or source in self._dynamic or not length:
            return
        writers = self._writers(source)
        offset = -(-self.sizes.get(writers, 0) // ALIGNMENT) * ALIGNMENT
        length = -(-length // ALIGNMENT) * ALIGNMENT
        self.places[source, number] = _Place(writers, offset, length)
        self.sizes[writers] = offset + length

    def _writers(self, source: SourceOperand) -> frozenset[int]:
        """The devices whose steps write an operand, directly or through the branches of an IF."""
        found: set[int] = set()
        for step in self._plan.steps:
            if isinstance(step, GotoStep | WhileStep) or step.source_model != source.source_model:
                continue
            if isinstance(step, ExecutionStep):
                if any(pair.source == source.operand for pair in step.outputs):
                    found.add(step.device)
            elif source.operand in step.outer_outputs:
                at = step.outer_outputs.index(source.operand)
                found |= self._writers(SourceOperand(step.then_model, step.then_outputs[at]))
                found |= self._writers(SourceOperand(step.else_model, step.else_outputs[at]))
        return frozenset(found)


class Temporaries(Closing):
    """The pools of one computation at a time, kept for the next one.

    Attributes:
        values: the values of known size.
        lengths: the latest lengths of each step's temporaries of unknown size: the first guess next time.
    """

    def __init__(
        self, layout: TemporaryLayout, models: SourceModels, model: Model, pools: Sequence[Bytes]
    ) -> None:
        """Allocate, and fill the constants in.

        Args:
            layout: the layout of the temporaries.
            models: the models that the operands belong to.
            model: the client's model, whose constants are read.
            pools: bytes of the model's pools.

        Raises:
            ResourceExhausted: there is not enough memory.
        """
        self._pools: Final[dict[frozenset[int], TemporaryPool]] = {}
        self._dynamic: Final[dict[int, TemporaryPool]] = {}
        self.lengths: Final[dict[int, dict[int, int]]] = {}
        self.values: Final[dict[Slot, PooledValue]] = {}
        try:
            for writers, size in layout.sizes.items():
                self._pools[writers] = TemporaryPool(size, writers)
        except BaseException:
            self.close()
            raise
        for (source, number), place in layout.places.items():
            operand = models.operand(source)
            value = PooledValue(
                self._pools[place.writers], place.offset, place.length, operand.dimensions
            )
            self.values[source, number] = value
            content = constant_bytes(operand, model, pools)
            if content is not None:
                value.bytes(len(content))[...] = content

    def dynamic_pool(self, step: int, size: int, device: int) -> TemporaryPool:
        """Memory for the temporaries of unknown size that a step writes; reused if large enough (RT:R3).

        Raises:
            ResourceExhausted: there is not enough memory.
        """
        pool = self._dynamic.get(step)
        if pool is None or pool.size < size or pool.size > max(size * 1.2, 4096):
            if pool is not None:
                pool.close()
            self._dynamic[step] = pool = TemporaryPool(max(size, 1), frozenset((device,)))
        return pool

    def close(self) -> None:
        """Close all pools."""
        for pool in (*self._pools.values(), *self._dynamic.values()):
            pool.close()


def constant_bytes(operand: Operand, model: Model, pools: Sequence[Bytes]) -> Bytes | None:
    """The bytes of a constant operand; None for other operands."""
    at = operand.location
    if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
        return np.frombuffer(model.operand_values, np.uint8, at.length, at.offset)
    if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
        return pools[at.pool_index][at.offset : at.offset + at.length]
    return None


def element_size(operand: Operand) -> int:
    """Bytes of one element of an operand."""
    if operand.type in (OperandType.OEM, OperandType.SUBGRAPH):
        return 1
    dimensions = (1,) * len(operand.dimensions) or (1,)
    return max(TYPES.size_bytes(replace(operand, dimensions=dimensions)), 1)


def padded(length: int) -> int:
    """The length rounded up to a multiple of the padding."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def known_size(operand: Operand, dimensions: Sequence[int]) -> int:
    """Bytes of an operand with these dimensions; 0 if they are not all known."""
    if not dimensions or 0 in dimensions:
        return 0
    return element_size(operand) * math.prod(dimensions)


# -- compound memory -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """The model that a plan was made for.

    Attributes:
        model: the client's finished model.
        pools: bytes of the model's pools.
    """

    model: Model
    pools: Sequence[Bytes]


#: A request has ten datums for each operand at most, and a burst's channel has 1,024.
_MOST_OPERANDS: Final = 100


class CompoundMemory(Closing):
    """The temporaries of a plan, one set for each computation that runs at the same time. Thread-safe.

    Attributes:
        plan: the plan that the temporaries are for.
        models: the models that the operands belong to.
        all_go_by_bursts: whether the requests of all steps surely fit into the channels of bursts. Then
            the next computation of a burst may use the temporaries of an abandoned one, since each
            driver computes it after that one.
    """

    def __init__(self, plan: CompoundPlan, source: Source) -> None:
        """Lay out the temporaries; the first computation allocates them."""
        self.plan: Final = plan
        self.all_go_by_bursts: Final = all(
            len(step.inputs) + len(step.outputs) <= _MOST_OPERANDS for step in plan.execution_steps
        )
        self.models: Final = SourceModels(plan, source.model)
        self._source: Final = source
        self._layout: Final = TemporaryLayout(plan, self.models)
        # Reentrant: a signal handler may compute while its thread is in here.
        self._lock: Final = threading.RLock()
        self._free: list[Temporaries] = []
        self._closed = False

    def take(self) -> Temporaries:
        """Take temporaries that no computation uses: the last ones returned, or new ones.

        Raises:
            ResourceExhausted: there is not enough memory.
        """
        with self._lock:
            if self._free:
                return self._free.pop()
        return Temporaries(self._layout, self.models, self._source.model, self._source.pools)

    def release(self, temporaries: Temporaries, *, usable: bool = True) -> None:
        """Keep temporaries for the next computation; close them if a driver may still write to them."""
        with self._lock:
            if usable and not self._closed:
                self._free.append(temporaries)
                return
        temporaries.close()

    def close(self) -> None:
        """Free all temporaries that no computation uses; the others are freed when their computation ends."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for temporaries in free:
            temporaries.close()
