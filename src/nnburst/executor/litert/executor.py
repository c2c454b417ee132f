"""The `litert` executor as a driver loads it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence

from nnburst.executor.litert import native
from nnburst.executor.litert.engines import Engine, EngineBinding, Engines
from nnburst.executor.litert.graph import UnsupportedByEngine
from nnburst.executor.litert.interpreter import InterpreterEngine
from nnburst.executor.litert.network import Network, lower, supported
from nnburst.executor.protocol import Argument, Bytes, NativeCall, Outcome
from nnburst.executor.reference.arena import byte_size
from nnburst.executor.reference.tensor import TensorType
from nnburst.hal.enums import ErrorStatus, ExecutionPreference, Priority
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.operand_types import DTYPES
from nnburst.hal.timing import OutputShape

log = logging.getLogger("nnburst.executor")


class LiteRtExecution:
    """A request bound to an engine. One thread runs it at a time."""

    def __init__(
        self, binding: EngineBinding, shapes: tuple[OutputShape, ...], give_back: Callable[[], None]
    ) -> None:
        """Own `binding`; call `give_back` when it is closed."""
        self._binding: EngineBinding | None = binding
        self._give_back = give_back
        enough = all(shape.is_sufficient for shape in shapes)
        self._outcome = Outcome(
            ErrorStatus.NONE if enough else ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
            shapes,
            "" if enough else "an output buffer is too small for what is computed",
        )

    @property
    def native(self) -> NativeCall | None:
        """The C function that runs it; None where only Python can."""
        if self._binding is None or self._outcome.status != ErrorStatus.NONE:
            return None
        return self._binding.native

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002 - no loops are lowered
    ) -> Outcome:
        """Execute once; see `nnburst.executor.protocol.Execution`."""
        if self._binding is None:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        if deadline_ns is not None and time.clock_gettime_ns(time.CLOCK_BOOTTIME) > deadline_ns:
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        failure = self._binding.run()
        if failure:
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"LiteRT: {failure}")
        return self._outcome

    def close(self) -> None:
        """Let go of the engine and of the request's memory."""
        binding, self._binding = self._binding, None
        if binding is not None:
            binding.close()
            self._give_back()


class LiteRtPrepared:
    """A compiled model. `bind` may be called from several threads at once."""

    def __init__(self, network: Network, threads: int) -> None:
        """Compile it once, by the native route where that works."""
        kind: Callable[[Network, int], Engine] = (
            native.NativeEngine if native.available() else InterpreterEngine
        )
        self._network = network
        self._engines = Engines(lambda: kind(network, threads))

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> LiteRtExecution:
        """Bind memory; see `nnburst.executor.protocol.Prepared`."""
        network = self._network
        if len(inputs) != len(network.inputs) or len(outputs) != len(network.outputs):
            raise InvalidArgument(
                f"R1: {len(inputs)} inputs and {len(outputs)} outputs given, the model has"
                f" {len(network.inputs)} and {len(network.outputs)}"
            )
        given = [_input(a, t) for a, t in zip(inputs, network.inputs, strict=True)]
        taken = [_output(a, t) for a, t in zip(outputs, network.outputs, strict=True)]
        shapes = tuple(
            OutputShape(meta.dimensions, room is not None)
            for room, meta in zip(taken, network.outputs, strict=True)
        )
        binding, give_back = self._engines.bind(given, taken)
        return LiteRtExecution(binding, shapes, give_back)

    def close(self) -> None:
        """Free the engines."""
        self._engines.close()


class LiteRtExecutor:
    """Float32, integer and quantised models by LiteRT on the CPU. Thread-safe.

    An operation is supported where it can be lowered with these operands: extents known when the model
    is prepared, parameters that steer it constant and not in pools. IF, WHILE, recurrent operations and
    those around regions of interest are not.

    DEVIATES: a model that is running cannot be stopped at its deadline.
    """

    def __init__(self) -> None:
        """Threads of each engine: NNBURST_LITERT_THREADS, 1 by default."""
        self._threads = max(1, int(os.environ.get("NNBURST_LITERT_THREADS", "1")))

    @property
    def name(self) -> str:
        """`litert`."""
        return "litert"

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False for any doubt."""
        return supported(model)

    def prepare(
        self,
        model: Model,
        pools: Sequence[Bytes],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,  # noqa: ARG002
        priority: Priority = Priority.MEDIUM,  # noqa: ARG002
    ) -> LiteRtPrepared:
        """Prepare a validated model; see `nnburst.executor.protocol.Executor`.

        Preference and priority make no difference: the engine has one way to compute.

        Raises:
            InvalidArgument: an operation is not supported.
            GeneralFailure: the engine refuses the model.
        """
        try:
            network = lower(model, pools)
        except UnsupportedByEngine as error:
            raise InvalidArgument(f"P8: LiteRT does not support {error}") from error
        return LiteRtPrepared(network, self._threads)


def _input(argument: Argument, meta: TensorType) -> Bytes:
    if argument.buffer is None:
        raise GeneralFailure("an input of the model is omitted")
    if argument.dimensions != meta.dimensions:
        raise InvalidArgument(f"an input has extents {argument.dimensions}, not {meta.dimensions}")
    size = byte_size(meta.dimensions, DTYPES[meta.type])
    if argument.buffer.size < size:
        raise InvalidArgument(f"R11: an input of {size} bytes has only {argument.buffer.size}")
    return argument.buffer[:size]


def _output(argument: Argument, meta: TensorType) -> Bytes | None:
    """Room for an output; None where there is too little."""
    if len(argument.dimensions) == len(meta.dimensions) and any(
        want not in (0, have)
        for want, have in zip(argument.dimensions, meta.dimensions, strict=True)
    ):
        raise GeneralFailure(f"an output is {meta.dimensions}, not {argument.dimensions}")
    size = byte_size(meta.dimensions, DTYPES[meta.type])
    if argument.buffer is None or argument.buffer.size < size:
        return None
    return argument.buffer[:size]
