"""Ways to have a model executed, one for each value of `--via`.

`local` calls the executor in this process; `execute` and `burst` go through a driver
(`driver_runners`). A further way is a class with `prepare`, listed in `RUNNERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.driver.executors import make_executor
from nnburst.executor.base import (
    Argument,
    Bytes,
    Execution,
    Executor,
    Prepared,
    supported_with,
)
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.validation import RequestValidator, validate_model
from nnburst.testing.conformance.comparison import RunResult, Unsupported, require_supported
from nnburst.testing.conformance.driver_runners import BurstRunner, ExecuteRunner

Array = npt.NDArray[Any]

#: The bytes of memory before it is written: not a number, in every floating point type.
_STALE: Final = 0xFF


class PreparedRun(Protocol):
    """A prepared model, reachable one way."""

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Execute once.

        Args:
            inputs: one array per model input with the element type and the extents to pass; None
                if the request gives no value.
            output_sizes: bytes of each output buffer.
            loop_timeout_ns: limit of WHILE.
        """

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Execute once with every argument in a buffer that the driver manages.

        Args:
            inputs: as for `run`.

        Raises:
            Unsupported: there are no buffers this way.
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
        """Release the runner's resources (processes, say)."""


class LocalRunner:
    """The executor in this process, without driver or transport."""

    def __init__(self, executor: str) -> None:
        """Use the executor registered under this name.

        Raises:
            InvalidArgument: it does not exist.
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
        """Nothing is held."""


class LocalPrepared:
    """A model prepared by an executor in this process."""

    def __init__(self, model: Model, prepared: Prepared) -> None:
        """`prepared` was made from `model`."""
        self._validator = RequestValidator(model)
        self._prepared = prepared

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Validate, bind, execute twice, and unbind; the second execution is reported.

        As over a burst, inputs are written after the request was bound, and a bound request is
        executed again: an executor must not rely on earlier contents of the memory.
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
        """There is no driver; see `PreparedRun`."""
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
                Argument(None if m is None else _read_only(m), d)
                for m, d in zip(given, merged.inputs, strict=True)
            ],
            [Argument(m, d) for m, d in zip(buffers, merged.outputs, strict=True)],
        )

    def close(self) -> None:
        """Release the prepared model."""
        self._prepared.close()


def _read_only(memory: Bytes) -> Bytes:
    view = memory.view()
    view.flags.writeable = False
    return view


def _argument(pool: int, memory: Array | None) -> RequestArgument:
    if memory is None:
        return RequestArgument(has_no_value=True)
    return RequestArgument(location=DataLocation(pool, 0, memory.size))


class Observed:
    """A runner that remembers the results of its last execution.

    Attributes:
        last: None before the first execution.
    """

    def __init__(self, runner: Runner) -> None:
        """Observe `runner`, which stays its owner's to close."""
        self._runner = runner
        self.last: RunResult | None = None

    def prepare(self, model: Model, pools: Sequence[bytes]) -> PreparedRun:
        """See `Runner`."""
        return _ObservedRun(self, self._runner.prepare(model, pools))

    def close(self) -> None:
        """Nothing is held."""


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
    """The executor that a driver would load by `name`.

    Raises:
        InvalidArgument: it is unknown; the message lists those there are.
    """
    try:
        return make_executor(name)
    except DeviceUnavailable as error:
        raise InvalidArgument(str(error)) from error


#: `--via` word to runner; each takes the executor's name.
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
