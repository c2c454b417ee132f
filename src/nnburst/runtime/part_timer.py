"""Measures how long a prepared part takes, and keeps the figures in a file for each device."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np

from nnburst.client.memory import Memory as Pool
from nnburst.control.address import cache_directory, locked, replace_file
from nnburst.fmq.cores import thread_budget
from nnburst.hal.enums import OperandLifeTime, OperandType, ResultCode
from nnburst.hal.environment import OF_EXECUTORS
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import DTYPES, Model, Operand, is_extension, size_bytes
from nnburst.hal.regular_file import read_regular_file
from nnburst.hal.utils import believed_environment
from nnburst.runtime.argument import Argument, BurstController, Options, PreparedPart

Clock = Callable[[], float]
_FLOATS: Final = (np.dtype("<f4"), np.dtype("<f2"))
#: Number of first executions of a part that do not count.
_WARM_UP: Final = 2
#: Seconds after which no further execution of a part begins; at least one counts.
_ENOUGH: Final = 0.25


class PartTimer:
    """Times prepared parts. Not thread-safe.

    Attributes:
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        clock: Clock = time.perf_counter,
        *,
        rounds: int = 9,
        deadline_ns: int | None = None,
    ) -> None:
        """Set the clock and the limits.

        Args:
            clock: returns monotonic seconds.
            rounds: greatest number of executions that count.
            deadline_ns: deadline of executions on CLOCK_BOOTTIME; None for none.
        """
        self.clock: Final = clock
        self._rounds: Final = rounds
        self._deadline_ns: Final = deadline_ns

    def seconds(self, model: Model, part: PreparedPart, hopeless: float = inf) -> float:
        """Seconds of the shortest execution of a part, which other programs have disturbed the least.

        Args:
            model: the model that was prepared.
            part: the prepared part.
            hopeless: if the first execution takes longer than these seconds, it is the only one.

        Raises:
            GeneralFailure: the size of an input or output is unknown, or an execution fails.
        """
        with TimedPart(model, part, self.clock, self._deadline_ns) as timed:
            began = self.clock()
            for _ in range(_WARM_UP):
                if (first := timed.seconds()) > hopeless:
                    return first
            taken = [timed.seconds()]
            while len(taken) < self._rounds and self.clock() - began < _ENOUGH:
                taken.append(timed.seconds())
        return min(taken)


class TimedPart:
    """A part with its own arguments and burst, for timing. A context manager; does not own the part."""

    def __init__(
        self, model: Model, part: PreparedPart, clock: Clock, deadline_ns: int | None = None
    ) -> None:
        """Allocate arguments in pools, inputs with made-up data, and open the burst.

        Raises:
            GeneralFailure: the size of an argument is unknown.
        """
        main = model.main
        self._part: Final = part
        self._clock: Final = clock
        self._options: Final = Options(deadline_ns=deadline_ns)
        self._pools: Final[list[Pool]] = []
        self._burst: BurstController | None = None
        try:
            self._inputs = [self._input(main.operands[index]) for index in main.input_indexes]
            self._outputs = [self._argument(main.operands[index]) for index in main.output_indexes]
            self._burst = part.open_burst()
        except BaseException:
            self.close()
            raise

    def seconds(self) -> float:
        """Seconds that one execution takes.

        Raises:
            GeneralFailure: the execution fails.
        """
        executor = self._burst or self._part
        began = self._clock()
        outcome = executor.execute(self._inputs, self._outputs, self._options)
        taken = self._clock() - began
        if outcome.code is not ResultCode.NO_ERROR:
            raise GeneralFailure(f"{outcome.code.name}: {outcome.message}")
        return taken

    def close(self) -> None:
        """Close the burst and free the arguments."""
        if self._burst is not None:
            self._burst.close()
        for pool in self._pools:
            pool.close()

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Call `close`."""
        self.close()

    def _argument(self, operand: Operand) -> Argument:
        size = (
            0
            if is_extension(operand.type)
            else size_bytes(OperandType(operand.type), operand.dimensions)
        )
        if not size:
            raise GeneralFailure("the size of an argument is not known before an execution")
        self._pools.append(Pool(size))
        return Argument(np.asarray(self._pools[-1]), operand.dimensions)

    def _input(self, operand: Operand) -> Argument:
        """Made-up data of an input: moderate numbers for floats; else 0, a valid index, axis and extent."""
        argument = self._argument(operand)
        dtype = DTYPES[OperandType(operand.type)]
        assert argument.bytes is not None
        if dtype in _FLOATS:
            values = argument.bytes.view(dtype)
            values[...] = np.linspace(-1, 1, values.size, dtype=dtype)
        return argument


#: Constants of more bytes are weights, whose values do not change the time of an operation.
_COUNTS_AT_MOST = 128


def part_signature(model: Model) -> str:
    """A hash of everything but the weights: equal for models that take a device the same time.

    Short constants are included, since strides, axes and shapes change the amount of computation.
    """
    described = [
        (
            [_described(model, operand) for operand in graph.operands],
            [(o.type, o.inputs, o.outputs) for o in graph.operations],
            graph.input_indexes,
            graph.output_indexes,
        )
        for graph in (model.main, *model.referenced)
    ]
    relaxed = model.relax_computation_float32_to_float16
    return hashlib.sha256(msgspec.msgpack.encode((described, relaxed))).hexdigest()


def _described(model: Model, operand: Operand) -> tuple[object, ...]:
    at, value = operand.location, b""
    if operand.lifetime == OperandLifeTime.CONSTANT_COPY and at.length <= _COUNTS_AT_MOST:
        value = model.operand_values[at.offset : at.offset + at.length]
    elif operand.lifetime == OperandLifeTime.SUBGRAPH:
        value = str(at.offset).encode()
    return (
        operand.type,
        operand.dimensions,
        operand.scale,
        operand.zero_point,
        operand.lifetime,
        value,
    )


#: Greatest number of entries in a file; the oldest are dropped first.
_KEPT_AT_MOST: Final = 20_000


#: Stands for a part that the device has refused, instead of seconds.
_REFUSED: Final = 0.0


class _Contents(msgspec.Struct):
    """The content of a file: device, version, processor and settings in words; seconds by signature."""

    device: str
    version: str
    processor: str
    seconds: dict[str, float]


_decode: Final = msgspec.json.Decoder(_Contents).decode


def cost_directory() -> Path | None:
    """`$XDG_CACHE_HOME/nnburst/costs`, or `~/.cache/nnburst/costs`; None without a home directory."""
    with contextlib.suppress(GeneralFailure):
        return cache_directory() / "costs"
    return None


def processor_model() -> str:
    """Name and number of the processors, which measurements depend on."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return f"{value.strip()} ×{os.cpu_count()}"
    except OSError:
        pass
    return f"{platform.machine()} ×{os.cpu_count()}"


def _circumstances() -> str:
    """The processors, how many of them this process and its drivers may use, and the settings of engines."""
    environment = believed_environment()
    names = [variable.name for variables in OF_EXECUTORS.values() for variable in variables]
    settings = [f"{name}={environment[name]}" for name in names if name in environment]
    return ", ".join([processor_model(), f"{thread_budget()} usable", *settings])


class CostFile:
    """Seconds by signature, of one version of one device under the same circumstances. Not thread-safe.

    Failures to read or write are ignored: figures that cannot be read are measured anew, figures that
    cannot be written are lost.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, device: str, version: str) -> None:
        """Read the file, if there is one.

        Args:
            directory: directory of all such files, made if missing; None to keep nothing.
            device: name of the device.
            version: version string of the device.
        """
        self._of: Final = device, version, _circumstances()
        key = hashlib.sha256("\0".join(self._of).encode()).hexdigest()[:32]
        self._path: Final = None if directory is None else Path(directory, f"{key}.json")
        self._contents: Final = _Contents(*self._of, self._read())
        self._new: Final[dict[str, float]] = {}

    def _read(self) -> dict[str, float]:
        """The figures in the file now; none if there is no file of this device, or it cannot be read."""
        if self._path is not None:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                found = _decode(read_regular_file(self._path))
                if (found.device, found.version, found.processor) == self._of:
                    return found.seconds
        return {}

    def get(self, signature: str) -> float | None:
        """Seconds of a part; None if it was not measured."""
        seconds = self._contents.seconds.get(signature)
        return seconds if seconds is not None and seconds > 0 else None

    def is_refused(self, signature: str) -> bool:
        """Whether the device has refused a part."""
        return self._contents.seconds.get(signature) == _REFUSED

    def put(self, signature: str, seconds: float = _REFUSED) -> None:
        """Note the seconds of a part; by default, that the device has refused it."""
        self._contents.seconds[signature] = self._new[signature] = seconds

    def save(self) -> None:
        """Add what was measured to the file, which others may have written since it was read.

        The file is written as a whole, so that a reader sees the old or the new one, and under its lock, so
        that what others save at the same moment stays.
        """
        if self._path is None or not self._new:
            return
        with contextlib.suppress(OSError), locked(self._path):
            kept = self._contents.seconds
            kept.update(self._read())
            kept.update(self._new)
            while len(kept) > _KEPT_AT_MOST:
                del kept[next(iter(kept))]
            replace_file(self._path, msgspec.json.encode(self._contents))
