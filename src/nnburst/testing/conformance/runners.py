"""Executes a model in each of the ways of `--via`.

`local` calls the executor in this process. `execute` uses a driver's socket and `burst` shared memory; both
make their requests themselves, so that a suite can choose every buffer size and gets every status of the
driver. A new way is a class with `prepare`, listed in `RUNNERS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.client.device import Device
from nnburst.client.execution.buffer import Buffer
from nnburst.client.launch import launch
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.staging import Layout
from nnburst.control.channel import Fds
from nnburst.control.messages import Executed, ExecuteSynchronously
from nnburst.driver.executors import make_executor
from nnburst.executor.base import (
    Argument,
    Bytes,
    Execution,
    Executor,
    Prepared,
    supported_with,
)
from nnburst.executor.graph.tensor import read_only
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.hal.utils import Closing
from nnburst.hal.validation import RequestValidator, validate_model
from nnburst.serialize import deserialize_result, serialize_request
from nnburst.testing.conformance.comparison import RunResult, Unsupported, require_supported
from nnburst.testing.raw_peer import RawBurst

#: Seconds that one execution may take.
_TIMEOUT = 120.0

Answer = tuple[ErrorStatus, tuple[OutputShape, ...], Timing, str]


class DriverRequest(Closing):
    """Inputs and output buffers of one execution in one pool, with the request for them.

    Attributes:
        memory: the pool; outputs are 0xA5 at first.
        request: without the pool.
    """

    def __init__(
        self, device: Device, inputs: Sequence[Array | None], output_sizes: Sequence[int]
    ) -> None:
        """Write `inputs` to the pool; None stands for an omitted input."""
        layout = Layout()
        arrays = [
            None if a is None else np.asarray(a, order="C") for a in inputs
        ]  # keeps scalars 0-d
        places = [None if a is None else layout.place(a.nbytes) for a in arrays]
        self._inputs = list(zip(arrays, places, strict=True))
        self._outputs = [(layout.place(size), size) for size in output_sizes]
        self.memory = device.allocate(max(layout.size, 1))
        view = np.asarray(self.memory)
        view[:] = 0xA5
        for array, place in zip(arrays, places, strict=True):
            if array is not None and place is not None:
                view[place : place + array.nbytes] = array.reshape(-1).view(np.uint8)
        self.request = Request(
            tuple(_input(a, p) for a, p in zip(arrays, places, strict=True)),
            tuple(_room(offset, size) for offset, size in self._outputs),
        )

    def changed_inputs(self) -> tuple[int, ...]:
        """Numbers of the inputs whose memory has changed."""
        view = np.asarray(self.memory)
        return tuple(
            number
            for number, (array, place) in enumerate(self._inputs)
            if array is not None
            and place is not None
            and view[place : place + array.nbytes].tobytes() != array.tobytes()
        )

    def outputs(self) -> tuple[bytes, ...]:
        """Bytes of each output buffer."""
        view = np.asarray(self.memory)
        return tuple(view[offset : offset + size].tobytes() for offset, size in self._outputs)

    def close(self) -> None:
        """Close the pool. May be called twice."""
        self.memory.close()


def _input(array: Array | None, place: int | None) -> RequestArgument:
    if array is None or place is None:
        return RequestArgument(has_no_value=True)
    return RequestArgument(location=DataLocation(0, place, array.nbytes), dimensions=array.shape)


def _room(offset: int, size: int) -> RequestArgument:
    return RequestArgument(location=DataLocation(0, offset, size))


class _DriverPrepared:
    """A model prepared by a driver; `_answer` sends one request and reads the answer."""

    def __init__(self, device: Device, prepared: PreparedModel, pools: Sequence[Memory]) -> None:
        self._device = device
        self._prepared = prepared
        self._pools = tuple(pools)  # closed with this object; the driver has mapped them

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Execute once; see `PreparedRun`."""
        staged = DriverRequest(self._device, inputs, output_sizes)
        with staged:
            began = time.perf_counter_ns()
            status, shapes, timing, message = self._answer(staged, loop_timeout_ns)
            total_ns = time.perf_counter_ns() - began
            outputs, changed = staged.outputs(), staged.changed_inputs()
            return RunResult(status, shapes, outputs, message, timing, total_ns, changed)

    def _answer(self, staged: DriverRequest, loop_timeout_ns: int) -> Answer:
        raise NotImplementedError

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Raise Unsupported: this way has no buffers; see `PreparedRun`."""
        del inputs
        raise Unsupported("bursts cannot carry buffers")

    def close(self) -> None:
        """Release the prepared model."""
        self._prepared.close()


class _ExecutePrepared(_DriverPrepared):
    def _answer(self, staged: DriverRequest, loop_timeout_ns: int) -> Answer:
        request = Request(
            staged.request.inputs, staged.request.outputs, (MemoryPool(staged.memory.size),)
        )
        message = ExecuteSynchronously(
            self._prepared._prepared.handle, request, measure=True, loop_timeout_ns=loop_timeout_ns
        )
        try:
            with Fds([staged.memory.duplicate()]) as fds:
                executed, _ = self._device._session.connection.call(
                    message, Executed, list(fds), timeout=_TIMEOUT
                )
        except NnburstError as error:
            return error.status, error.output_shapes, Timing(), str(error)
        return ErrorStatus.NONE, executed.output_shapes, executed.timing, ""

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Execute once with every argument in a buffer of the driver's; see `PreparedRun`."""
        prepared, allocate = self._prepared, self._device.allocate_buffer
        with ExitStack() as stack:
            given: list[Buffer | None] = []
            for index, array in enumerate(inputs):
                buffer = None
                if array is not None:
                    buffer = allocate(inputs=[(prepared, index)], dimensions=array.shape)
                    stack.enter_context(buffer).copy_from(np.asarray(array, order="C"))
                given.append(buffer)
            taken = [
                stack.enter_context(allocate(outputs=[(prepared, index)]))
                for index in range(len(prepared.outputs))
            ]
            began = time.perf_counter_ns()
            try:
                result = prepared.execute(given, taken, measure=True, timeout=_TIMEOUT)
            except NnburstError as error:
                return RunResult(error.status, error.output_shapes, (), str(error))
            total_ns = time.perf_counter_ns() - began
            outputs = tuple(buffer.copy_to().tobytes() for buffer in taken)
            shapes = result.output_shapes
            return RunResult(ErrorStatus.NONE, shapes, outputs, "", result.timing, total_ns)


class _BurstPrepared(_DriverPrepared):
    def __init__(self, device: Device, prepared: PreparedModel, pools: Sequence[Memory]) -> None:
        super().__init__(device, prepared, pools)
        self._burst = RawBurst(prepared)

    def _answer(self, staged: DriverRequest, loop_timeout_ns: int) -> Answer:
        del loop_timeout_ns  # a burst has no loop timeout (burst:§2)
        slot = self._burst.slot_of(staged.memory)
        packet = serialize_request(staged.request, [slot], MeasureTiming.YES)
        status, shapes, timing = deserialize_result(self._burst.exchange(packet, _TIMEOUT))
        return status, shapes, timing, ""

    def close(self) -> None:
        """Close the burst and release the prepared model."""
        self._burst.close()
        super().close()


def allocate_pools(device: Device, pools: Sequence[bytes]) -> list[Memory]:
    """Allocate memory for each pool of a model, and fill it."""
    memories = []
    for data in pools:
        memory = device.allocate(max(len(data), 1))
        np.asarray(memory)[: len(data)] = np.frombuffer(data, np.uint8)
        memories.append(memory)
    return memories


class ExecuteRunner:
    """Launches a driver and executes over its socket."""

    _kind: type[_DriverPrepared] = _ExecutePrepared

    def __init__(self, executor: str) -> None:
        """Launch a driver with the executor of this name."""
        self._device = launch(executor)

    @classmethod
    def over(cls, device: Device) -> Self:
        """Use a device that is already connected; `close` closes it."""
        runner = cls.__new__(cls)
        runner._device = device
        return runner

    def prepare(self, model: Model, pools: Sequence[bytes]) -> _DriverPrepared:
        """Prepare `model`; see `Runner`."""
        memories = allocate_pools(self._device, pools)
        require_supported(model, self._device.supported_operations(model, pools=memories))
        prepared = self._device.prepare(model, pools=memories, bursts=False)
        return self._kind(self._device, prepared, memories)

    def close(self) -> None:
        """End the driver."""
        self._device.close()


class BurstRunner(ExecuteRunner):
    """Launches a driver and executes over one burst per model."""

    _kind = _BurstPrepared


Array = npt.NDArray[Any]

#: The byte that memory is filled with before it is written: NaN in every floating-point type.
_STALE: Final = 0xFF


class PreparedRun(Protocol):
    """A prepared model that a runner can execute."""

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Execute once.

        Args:
            inputs: one array per model input with the element type and the extents to pass; None for an
                omitted input.
            output_sizes: bytes of each output buffer.
            loop_timeout_ns: limit of WHILE.
        """

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Execute once with every argument in a buffer that the driver manages.

        Args:
            inputs: as for `run`.

        Raises:
            Unsupported: this runner has no buffers.
        """

    def close(self) -> None:
        """Release the prepared model."""


class Runner(Protocol):
    """A way to prepare models."""

    def prepare(self, model: Model, pools: Sequence[bytes]) -> PreparedRun:
        """Prepare `model`, whose pools hold these bytes.

        Raises:
            Unsupported: the executor reports that it cannot run some operation.
            NnburstError: the model is refused; `.status` has the reason.
        """

    def close(self) -> None:
        """Release the runner's resources, such as processes."""


class LocalRunner:
    """Calls the executor in this process, without driver or transport."""

    def __init__(self, executor: str) -> None:
        """Use the executor registered under this name.

        Raises:
            InvalidArgument: the executor does not exist.
        """
        self._executor = load_executor(executor)

    def prepare(self, model: Model, pools: Sequence[bytes]) -> LocalPrepared:
        """Validate and prepare; every operation must be supported (device:P8)."""
        validate_model(model, SIGNATURES)
        arrays = [np.frombuffer(pool, np.uint8) for pool in pools]
        require_supported(model, supported_with(self._executor, model, arrays))
        prepared = self._executor.prepare(model, arrays)
        return LocalPrepared(model, prepared)

    def close(self) -> None:
        """Do nothing, since the runner holds no resources."""


class LocalPrepared:
    """A model prepared by an executor in this process."""

    def __init__(self, model: Model, prepared: Prepared) -> None:
        """Own `prepared`, which was made from `model`."""
        self._validator = RequestValidator(model)
        self._prepared = prepared

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Validate, bind, execute twice, and unbind; the result is that of the second execution.

        As over a burst, inputs are written after the request was bound, and a bound request is executed
        again: an executor must not rely on earlier contents of the memory.
        """
        given = [None if a is None else np.full(a.nbytes, _STALE, np.uint8) for a in inputs]
        buffers = [np.empty(size, np.uint8) for size in output_sizes]
        execution = self._bind(inputs, given, buffers)
        for memory, array in zip(given, inputs, strict=True):
            if memory is not None and array is not None:
                memory[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for _ in range(2):
            for buffer in buffers:
                buffer[...] = _STALE
            outcome = execution.run(loop_timeout_ns=loop_timeout_ns)
        execution.close()
        outputs = tuple(b.tobytes() for b in buffers)
        return RunResult(outcome.status, outcome.output_shapes, outputs, outcome.message)

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Raise Unsupported: there is no driver; see `PreparedRun`."""
        del inputs
        raise Unsupported("not available: buffers are a driver's")

    def _bind(
        self, inputs: Sequence[Array | None], given: Sequence[Bytes | None], buffers: list[Bytes]
    ) -> Execution:
        memory = [*given, *buffers]
        arguments = tuple(_argument(pool, m) for pool, m in enumerate(memory))
        dims = [() if a is None else a.shape for a in inputs]
        request = Request(
            tuple(
                msgspec.structs.replace(a, dimensions=d)
                for a, d in zip(arguments, dims, strict=False)
            ),
            arguments[len(given) :],
        )
        merged = self._validator.validate(request, [0 if m is None else m.size for m in memory])
        return self._prepared.bind(
            [
                Argument(None if m is None else read_only(m), d)
                for m, d in zip(given, merged.inputs, strict=True)
            ],
            [Argument(m, d) for m, d in zip(buffers, merged.outputs, strict=True)],
        )

    def close(self) -> None:
        """Release the prepared model."""
        self._prepared.close()


def _argument(pool: int, memory: Array | None) -> RequestArgument:
    if memory is None:
        return RequestArgument(has_no_value=True)
    return RequestArgument(location=DataLocation(pool, 0, memory.size))


class Observed:
    """A runner that keeps the results of its last execution.

    Attributes:
        last: results of the last execution; None before the first one.
    """

    def __init__(self, runner: Runner) -> None:
        """Observe `runner`, which its owner closes."""
        self._runner = runner
        self.last: RunResult | None = None

    def prepare(self, model: Model, pools: Sequence[bytes]) -> PreparedRun:
        """See `Runner`."""
        return _ObservedRun(self, self._runner.prepare(model, pools))

    def close(self) -> None:
        """Do nothing, since the owner closes the runner."""


class _ObservedRun:
    def __init__(self, observed: Observed, prepared: PreparedRun) -> None:
        self._observed = observed
        self._prepared = prepared

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """See `PreparedRun`."""
        self._observed.last = self._prepared.run(inputs, output_sizes, loop_timeout_ns)
        return self._observed.last

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """See `PreparedRun`."""
        self._observed.last = self._prepared.run_in_buffers(inputs)
        return self._observed.last

    def close(self) -> None:
        """Release the prepared model."""
        self._prepared.close()


def load_executor(name: str) -> Executor:
    """Load the executor that a driver would load by `name`.

    Raises:
        InvalidArgument: the name is unknown; the message lists the known ones.
    """
    try:
        return make_executor(name)
    except DeviceUnavailable as error:
        raise InvalidArgument(str(error)) from error


#: Runners by their `--via` names; each is made with the executor's name.
RUNNERS: Final[dict[str, Callable[[str], Runner]]] = {
    "local": LocalRunner,
    "execute": ExecuteRunner,
    "burst": BurstRunner,
    "plans": lambda executor: _plans("PlansRunner", executor),
    "plans-burst": lambda executor: _plans("PlansBurstRunner", executor),
}


def _plans(name: str, executor: str) -> Runner:
    """A runner of the framework, which is imported only if this runner is chosen."""
    module = import_module("nnburst.testing.framework")
    runner: Runner = getattr(module, name)(executor)
    return runner
