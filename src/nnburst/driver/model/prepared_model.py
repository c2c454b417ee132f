"""Binds requests to memory and runs them: the prepared model (IPreparedModel) of the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from nnburst.control.channel import MAX_FDS, MAX_MODELS
from nnburst.control.messages import Executed
from nnburst.driver.counters import ModelCounters
from nnburst.driver.model.buffers import DeviceBuffer
from nnburst.driver.model.execution import (
    BufferArgument,
    BufferedExecution,
    LatencyEstimate,
    bind_arguments,
    execute_bound,
    invalidate,
)
from nnburst.driver.model.pools import BufferPool, Pool, RequestPool
from nnburst.executor.base import Argument, Cached, CachingPrepared, Execution, Prepared
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import SCALARS, Model
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.validation import RequestValidator


@runtime_checkable
class RequestBinder(Protocol):
    """A prepared model of another process, which binds requests and receives their memory as descriptors."""

    def bind_request(
        self, request: Request, pools: Sequence[Pool], attributes: Sequence[ExtensionAttribute]
    ) -> Execution:
        """Bind a request that has passed validation.

        Args:
            request: a request whose arguments lie in `pools`.
            pools: open during this call only.
            attributes: the attributes of its executions.

        Raises:
            NnburstError: the request cannot be executed; `.status` is the reason.
        """


class PreparedModel:
    """A prepared model of the driver (IPreparedModel). Several threads may bind and execute at once.

    Attributes:
        model: the validated model.
        preference: the preference that the client prepared it with.
        shapes_vary: whether an output's shape is unknown before an execution, so that results must report it
            (device:§5.1).
        priority: its priority among the client's models.
        latency: the latency of its executions over the socket.
        counters: the counters of its executions.
        is_kept: whether it stays prepared after its last handle was released.
    """

    per_client: ClassVar = MAX_MODELS

    def __init__(
        self,
        model: Model,
        prepared: Prepared,
        preference: ExecutionPreference,
        priority: Priority = Priority.MEDIUM,
    ) -> None:
        """Own `prepared` from here on.

        Args:
            model: the validated model.
            prepared: the model as the executor has prepared it.
            preference: the preference that the client prepared it with.
            priority: its priority among the client's models.
        """
        self.model = model
        self.preference = preference
        self.priority = priority
        self.latency = LatencyEstimate()
        self.counters = ModelCounters()
        self.is_kept = False
        self._prepared = prepared
        self._binder = prepared if isinstance(prepared, RequestBinder) else None
        self._validator = RequestValidator(model)
        self._strict_validator = RequestValidator(model, allow_unspecified_output=False)
        outputs = [model.main.operands[i] for i in model.main.output_indexes]
        self.shapes_vary = any(
            0 in output.dimensions or not (output.dimensions or output.type in SCALARS)
            for output in outputs
        )

    def bind(
        self,
        request: Request,
        pools: Sequence[RequestPool],
        *,
        allow_unspecified_output: bool = True,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> Execution:
        """Validate a request and bind it to its memory; `run_in_time` runs it.

        After a failure, its output buffers are uninitialised (device:§6).

        Args:
            request: hostile until validated here.
            pools: the request's pools, in order; their sizes are used, not those in the request.
            allow_unspecified_output: whether an output may have unknown dimensions (validation:R10).
            attributes: the attributes of its executions, for the executor.

        Raises:
            InvalidArgument: the request breaks one of validation:R1 to R15, or uses a buffer
                in a role that it was not allocated for, or twice.
            GeneralFailure: a pool cannot be mapped.
            NnburstError: the executor refuses it.
        """
        try:
            validator = self._validator if allow_unspecified_output else self._strict_validator
            merged = validator.validate(request, [pool.size for pool in pools])
            if self._binder is not None and (memory := _without_tokens(pools)) is not None:
                return self._binder.bind_request(request, memory, attributes)
            inputs = [
                _argument(argument, dimensions, pools, writable=False)
                for argument, dimensions in zip(request.inputs, merged.inputs, strict=True)
            ]
            outputs = [
                _argument(argument, dimensions, pools, writable=True)
                for argument, dimensions in zip(request.outputs, merged.outputs, strict=True)
            ]
            plain = _without_buffers(inputs), _without_buffers(outputs)
            if plain[0] is not None and plain[1] is not None:
                return bind_arguments(self._prepared, plain[0], plain[1], attributes)
            return BufferedExecution(self, self._prepared, inputs, outputs, attributes)
        except BaseException:
            invalidate(_written_buffers(request, pools))
            raise

    def is_specified(self, request: Request, pools: Sequence[RequestPool]) -> bool:
        """Whether a valid request leaves no dimension of an output open (validation:R10)."""
        try:
            self._strict_validator.validate(request, [pool.size for pool in pools])
        except InvalidArgument:
            return False
        return True

    def execute_synchronously(
        self,
        request: Request,
        pools: Sequence[RequestPool],
        *,
        measure: bool = False,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> Executed:
        """Bind and run once (NNAPI: executeSynchronously_1_3).

        Args:
            request: hostile until validated here.
            pools: the request's pools, in order.
            measure: whether to report the execution's timing.
            deadline_ns: time on CLOCK_BOOTTIME.
            loop_timeout_ns: limit of a WHILE, cut to MAX_LOOP_TIMEOUT_NS.
            attributes: as for `bind`.

        Raises:
            NnburstError: with the status for the client (device:E2 to E8).
        """
        called = time.perf_counter_ns()
        with self.counters.execution(measure=measure) as counted:
            execution = self.bind(request, pools, attributes=attributes)
            try:
                return execute_bound(
                    execution, counted, called if measure else None, deadline_ns, loop_timeout_ns
                )
            finally:
                execution.close()

    @property
    def executor_prepared(self) -> Prepared:
        """The model as the executor prepared it."""
        return self._prepared

    def to_cache(self) -> Cached | None:
        """The parts from which the executor can prepare it again; None if it cannot be cached."""
        prepared = self._prepared
        return prepared.to_cache() if isinstance(prepared, CachingPrepared) else None

    @property
    def num_threads(self) -> int:
        """Threads that an execution uses, the calling one included."""
        return self._prepared.num_threads

    def close(self) -> None:
        """Free the executor's model, unless `is_kept`. No execution may be under way."""
        if not self.is_kept:
            self._prepared.close()


def _argument(
    argument: RequestArgument,
    dimensions: tuple[int, ...],
    pools: Sequence[RequestPool],
    *,
    writable: bool,
) -> Argument | BufferArgument:
    if argument.has_no_value:
        return Argument(None, dimensions)
    location = argument.location
    pool = pools[location.pool_index]
    if isinstance(pool, BufferPool):
        return BufferArgument(pool.buffer, dimensions)
    view = pool.writable if writable else pool.readable
    return Argument(view[location.offset : location.offset + location.length], dimensions)


def _without_buffers(arguments: Sequence[Argument | BufferArgument]) -> list[Argument] | None:
    """Return the arguments if none of them is a buffer; else None."""
    plain = [argument for argument in arguments if isinstance(argument, Argument)]
    return plain if len(plain) == len(arguments) else None


def _without_tokens(pools: Sequence[RequestPool]) -> list[Pool] | None:
    """Return the pools if all are memory, and their descriptors fit into one message; else None."""
    memory = [pool for pool in pools if isinstance(pool, Pool)]
    return memory if len(memory) == len(pools) <= MAX_FDS else None


def _written_buffers(request: Request, pools: Sequence[RequestPool]) -> Iterator[DeviceBuffer]:
    """The output buffers of a request, which may be invalid."""
    for output in request.outputs:
        index = output.location.pool_index
        pool = pools[index] if not output.has_no_value and 0 <= index < len(pools) else None
        if isinstance(pool, BufferPool):
            yield pool.buffer
