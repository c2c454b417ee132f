"""Executes one version of a served model for many requests at once, and watches its worker."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np

from nnburst.client.arguments import ExecutionResult, Parameter
from nnburst.client.burst.interface import BoundRequest, Burst
from nnburst.client.burst.resident import ResidentBurst
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.recovery import InvalidDevice, revive
from nnburst.control.counts import model_id
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import (
    DeadObject,
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
    StateLost,
)
from nnburst.hal.utils import Closing, start_thread
from nnburst.hal.whole_graph import has_slots
from nnburst.importer.imported_model import ImportedModel, unused_name
from nnburst.importer.load import load_named
from nnburst.importer.named_sources import NamedSource
from nnburst.serving.options import Options
from nnburst.serving.queue import Batching, Clock, Job, RequestQueue
from nnburst.serving.sequences import PoolState, Sequences, SequenceWord, SlotState, State
from nnburst.serving.statistics import Durations, Statistics
from nnburst.serving.tensors import Array, Tensor, Value, data_type, value_of
from nnburst.serving.workers import Worker

logger = logging.getLogger(__name__)

#: Limit of the bytes of waiting requests of a model, as a number of the longest messages.
_MESSAGES: Final = 16
#: Least nanoseconds between two checks of a worker.
_LOOK_NS: Final = 100_000_000
#: Seconds between attempts to reach a driver that is not there.
_PAUSE: Final = 0.2


def failure_of(error: Exception, what: str) -> NnburstError:
    """The error to answer with: `error` itself, or for a defect, which is logged, that the server failed.

    Args:
        error: the error of a call.
        what: what has failed, for the log.
    """
    if isinstance(error, NnburstError):
        return error
    logger.error("%s failed for a reason that is not its caller's", what, exc_info=error)
    return GeneralFailure(f"the server failed: {type(error).__name__}: {error}")


class Inference(Job):
    """A request for one execution, whose tensors have been read.

    Attributes:
        arrays: the inputs.
        wanted: indexes of the wanted outputs.
        sequence: the sequence whose state is used; None for networks without states.
        queue_ns: nanoseconds until a lane was free.
        inference_ns: nanoseconds of the execution.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        wanted: Sequence[int],
        sequence: SequenceWord | None,
        deadline_ns: int,
        priority: int,
    ) -> None:
        """Note the arrival of a request; see `Job`."""
        super().__init__(
            deadline_ns,
            priority=priority,
            key=sequence.key if sequence is not None else None,
            size=sum(array.nbytes for array in arrays),
        )
        self.arrays, self.wanted, self.sequence = arrays, wanted, sequence
        self.queue_ns = self.inference_ns = 0
        self._came_ns = time.monotonic_ns()

    def run(self, lane: Lane) -> None:
        """Execute, and answer unless the request was answered meanwhile."""
        if self.settled and self.sequence is None:
            return  # it was given up while it waited for others of its batch
        began_ns = time.monotonic_ns()
        self.queue_ns = began_ns - self._came_ns
        try:
            values = lane.execute(self)
        except Exception as error:
            self.refuse(failure_of(error, "an execution"))
            return
        self.inference_ns = time.monotonic_ns() - began_ns
        if values is not None:
            self.succeed(values)

    def run_with(self, others: list[Inference], lane: Lane) -> None:
        """Execute together; if that fails, one by one, so that no request fails because of another one."""
        began_ns = time.monotonic_ns()
        together = [each for each in (self, *others) if not each.settled]
        if not together:
            return
        try:
            found = lane.execute_joined(together)
        except Exception as error:
            if isinstance(error, NnburstError):
                logger.info("a batch of %d is executed one by one: %s", len(together), error)
            else:
                logger.exception("a batch of %d is executed one by one", len(together))
            for each in together:
                if not each.settled:
                    each.run(lane)
            return
        took_ns = time.monotonic_ns() - began_ns
        for each, values in zip(together, found, strict=True):
            each.queue_ns, each.inference_ns = began_ns - each._came_ns, took_ns
            if each.settle():
                each.succeed(values)

    @abstractmethod
    def succeed(self, values: dict[int, Value]) -> None:
        """Answer with outputs by index; `settle` was called before. Raises nothing."""


class Lane(Protocol):
    """Executes one request at a time."""

    def execute(self, request: Inference) -> dict[int, Value] | None:
        """Execute and settle `request`; return the wanted outputs, or None if it was answered meanwhile.

        Raises:
            NnburstError: the execution failed; `request` is not settled.
        """

    def execute_joined(self, requests: Sequence[Inference]) -> list[dict[int, Value]]:
        """Execute requests of the same form together, and settle none; return the wanted outputs of each.

        Raises:
            NnburstError: the execution failed.
        """


class Network(Closing):
    """A version of a model that is served under a name. Thread-safe.

    Attributes:
        name: name in requests.
        version: version in requests.
        worker: worker that executes it; released by `Models` after `close`.
        inputs: the inputs that requests have, without states.
        outputs: the outputs that requests have, without states.
        statistics: statistics of the requests.
        failure: reason why it is not served; empty while it is served or being prepared.
        queue: queue of the requests.
        max_message: greatest number of bytes of the outputs in an answer.
        on_change: called when `is_ready` may have changed.
    """

    def __init__(
        self,
        source: NamedSource,
        options: Options,
        worker: Worker,
        clock: Clock,
        statistics: Statistics,
    ) -> None:
        """Keep the arguments; nothing is read before `prepare`.

        Args:
            source: name and version in requests, and the file or object to read.
            options: the limits.
            worker: worker that executes it.
            clock: clock that must call `look`.
            statistics: statistics that count the requests.
        """
        self.name, self.version = source.name, source.version
        self.statistics = statistics
        self.failure = ""
        self.queue: RequestQueue[Lane] = RequestQueue(
            source.name,
            options.max_queue,
            _MESSAGES * options.max_message,
            clock,
            Batching(options.max_batch, options.max_delay_us / 1e6),
        )
        self.on_change: Callable[[], None] = lambda: None
        self.inputs: Sequence[Tensor] = ()
        self.outputs: Sequence[Tensor] = ()
        self.watchdog = options.watchdog
        self.max_message = options.max_message
        self._source = source
        self._max_batch = options.max_batch
        self._model: ImportedModel | None = None
        self._model_id = 0
        #: Whether the model's states stay in the driver.
        self._has_slots = False
        self._lane_count = options.lanes
        self._sequences = Sequences(self._begin_sequence, options.max_sequences)
        self.worker = worker
        self._prepared: PreparedModel | None = None
        self._bursts: list[Burst] = []
        #: Number of admitted requests without an answer, and whether no more are admitted.
        self._users = 0
        self._retired = False
        self._unused = threading.Condition()
        #: Reason why a served version is not ready: its worker is dead, stopped or hangs.
        self._ailment = ""
        self._stopped_ns = self._looked_ns = 0
        self._recovery: threading.Thread | None = None
        self._closed = False

    @property
    def is_served(self) -> bool:
        """Whether requests are admitted."""
        return self._prepared is not None and not self.failure

    @property
    def is_ready(self) -> bool:
        """Whether requests can be executed, as far as is known."""
        return self.is_served and not self._ailment

    @property
    def max_batch(self) -> int:
        """Greatest number of rows of a batch; 0 if the model has no batches."""
        tensors = (*self.inputs, *self.outputs)
        joins = self._max_batch > 1 and not self.has_state and self._has_rows and bool(tensors)
        shapes = (each.shape or () for each in tensors)
        return self._max_batch if joins and all(each[:1] == (-1,) for each in shapes) else 0

    @property
    def _has_rows(self) -> bool:
        """Whether the first dimension counts the same in all tensors, as far as is known."""
        model = self._model
        return model is not None and not (model.output_shapes and not model.row_dimension)

    def form(self, arrays: Sequence[Array]) -> tuple[Hashable, int]:
        """The form that requests of a batch share (None if this one runs alone), and the number of rows."""
        rows = {array.shape[0] for array in arrays} if self.max_batch else set()
        if len(rows) != 1:
            return None, 1
        return tuple(array.shape[1:] for array in arrays), rows.pop()

    @property
    def ailment(self) -> str:
        """Reason why a served version is not ready; empty if it is ready."""
        return self._ailment

    @property
    def model_id(self) -> int:
        """The number under which the driver counts the executions; 0 before the model was read."""
        if self._model_id == 0 and self._model is not None:
            self._model_id = model_id(self._model.model)
        return self._model_id

    @property
    def has_state(self) -> bool:
        """Whether requests must belong to a sequence."""
        model = self._model
        return model is not None and bool(model.states or self._has_slots)

    @property
    def sequences(self) -> int:
        """The number of present sequences."""
        return len(self._sequences)

    @property
    def recoveries(self) -> int:
        """Number of times that the model was prepared again because its driver had died."""
        return self._prepared.recoveries if self._prepared is not None else 0

    def prepare(self) -> None:
        """Read and prepare the model and open the lanes.

        Raises:
            NnburstError: the model cannot be read or has tensors without a KServe type, or the driver
                refuses it or is not there.
        """
        if self._model is None:
            self._model = load_named(self._source)
            self._has_slots = has_slots(self._model.model)
        prepared = self.worker.device.prepare(self._model)
        states = self._model.states
        hidden = [state.input_index for state in states]
        if self._has_slots:
            hidden.append(len(prepared.inputs) - 1)  # the slot's number
        self.inputs = _tensors(prepared.inputs, self._model, "input", hidden)
        self.outputs = _tensors(
            prepared.outputs, self._model, "output", [state.output_index for state in states]
        )
        lanes: list[Lane]
        if states:
            lanes = [_SequenceLane(self, self._sequences) for _ in range(self._lane_count)]
        else:
            # A spinning client thread would take the core from other threads of this process.
            self._bursts = [prepared.open_burst(spin_window=0) for _ in range(self._lane_count)]
            lanes = [
                _SequenceLane(self, self._sequences, burst)
                if isinstance(burst, ResidentBurst)
                else _Lane(self, burst)
                for burst in self._bursts
            ]
        self.queue.open(lanes)
        self._prepared = prepared
        self.on_change()

    def check_served(self) -> None:
        """Refuse requests while the model is not prepared.

        Raises:
            DeviceUnavailable: the model is not prepared; the message has the reason.
        """
        if not self.is_served:
            raise DeviceUnavailable(
                f"model {self.name!r} is not ready: {self.failure or 'preparing'}"
            )

    def admit(self) -> bool:
        """Count a new request, which `answered` or `refused` ends; False if no more are admitted."""
        with self._unused:
            if self._retired:
                return False
            self._users += 1
        self.statistics.begin()
        return True

    def answered(self, durations: Durations, rows: int) -> None:
        """Count an admitted request that was answered, with its number of rows."""
        self.statistics.succeed(durations, rows)
        self._leave()

    def refused(self, status: str, nanoseconds: int) -> None:
        """Count an admitted request that has failed with gRPC's `status`."""
        self.statistics.fail(status, nanoseconds)
        self._leave()

    def admit_no_more(self) -> None:
        """Admit no more requests; those that were admitted are executed."""
        with self._unused:
            self._retired = True

    def wait_until_unused(self, seconds: float) -> bool:
        """Wait until every admitted request is answered and nothing is executed; False after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._unused:
            unused = self._unused.wait_for(lambda: not self._users, seconds)
        return unused and self.queue.wait_until_idle(max(0.0, deadline - time.monotonic()))

    def fail(self, reason: str) -> None:
        """Stop serving this version, for `reason`."""
        self.failure = reason
        self.on_change()

    def look(self, now_ns: int) -> float:
        """Refuse requests that are too late, and check the worker; return the time of the next deadline."""
        if self.is_served and now_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now_ns
            self._look_at_worker(now_ns)
        return self.queue.look(now_ns)

    def replace_worker(self, ailment: str) -> None:
        """Kill a worker that hangs; another one replaces it."""
        logger.warning("model %s: %s, the worker is replaced", self.name, ailment)
        self._ail(ailment)
        self.worker.kill()

    def gave_result(self) -> None:
        """Note that the worker has just executed, so that it does not count as stopped."""
        self._stopped_ns = 0

    def explain(self, error: GeneralFailure, arrays: Sequence[Array]) -> NnburstError:
        """Find the reason why a request with its own shapes failed; results of bursts have only a status.

        The driver is asked once more, over its socket, whose answers have a reason. One that begins with an
        operation's name is a rule of it that these shapes break.
        """
        if self._prepared is None:
            return error
        try:
            self._prepared.execute(arrays, timeout=self.watchdog)
        except GeneralFailure as again:
            if str(again).partition(":")[0] in OperationType.__members__:
                shapes = [list(array.shape) for array in arrays]
                return InvalidArgument(f"inputs of shapes {shapes}: {again}")
            return again
        except NnburstError as again:
            return again
        return error

    def close(self) -> None:
        """Release everything but the worker."""
        self._closed = True
        self.queue.close()
        self._sequences.close()
        bursts, self._bursts = self._bursts, []
        prepared, self._prepared, self._model = self._prepared, None, None
        for burst in bursts:
            burst.close()
        if prepared is not None:
            prepared.close()

    def _leave(self) -> None:
        with self._unused:
            self._users -= 1
            if self._retired and not self._users:
                self._unused.notify_all()

    def _look_at_worker(self, now_ns: int) -> None:
        stopped_ns = self._stopped_ns  # read once, since any thread may change it
        if self._recovery is not None and self._recovery.is_alive():
            return
        if not self.worker.is_alive:
            self._ail("its worker has died and is replaced")
            self._recovery = threading.Thread(target=self._recover, name="recovery", daemon=True)
            start_thread(self._recovery)
        elif not self.worker.is_stopped:
            self._stopped_ns = 0
            self._ail("")
        elif not stopped_ns:
            self._stopped_ns = now_ns
            self._ail("its worker is stopped")
        elif now_ns - stopped_ns >= self.watchdog * 1e9:
            self._stopped_ns = 0
            self.replace_worker(f"its worker was stopped for {self.watchdog:g} s")

    def _recover(self) -> None:
        while not self._closed and self._prepared is not None:
            try:
                revive(self._prepared)
            except InvalidDevice as error:
                self.fail(str(error))
                return
            except NnburstError as error:
                logger.warning("model %s is prepared again: %s", self.name, error)
                time.sleep(_PAUSE)
            else:
                self._ail("")
                return

    def _ail(self, ailment: str) -> None:
        changed, self._ailment = ailment != self._ailment, ailment
        if changed:
            self.on_change()

    def _begin_sequence(self) -> State:
        if self._prepared is None or self._model is None:
            raise DeviceUnavailable(f"model {self.name!r} is not ready")
        if self._bursts and isinstance(first := self._bursts[0], ResidentBurst):
            return SlotState(first.slot())
        return PoolState(
            self._prepared.open_burst(spin_window=0, states=self._model.states, recover=False)
        )


@contextmanager
def _watched(network: Network) -> Iterator[float]:
    """Seconds that an execution may take before its worker is replaced."""
    try:
        yield network.watchdog
    except MissedDeadline:
        network.replace_worker(f"an execution took longer than {network.watchdog:g} s (--watchdog)")
        raise DeadObject(
            f"model {network.name!r}: no result came for {network.watchdog:g} s; its worker is replaced"
        ) from None
    else:
        network.gave_result()


class _Lane:
    """A lane with a burst, and a bound request if all shapes are known. One thread at a time."""

    def __init__(self, network: Network, burst: Burst) -> None:
        known = all(parameter.known for parameter in (*burst.inputs, *burst.outputs))
        self._network = network
        self._burst = burst
        self._bound: BoundRequest | None = burst.bind() if known else None

    def execute(self, request: Inference) -> dict[int, Value] | None:
        """See `Lane`."""
        self._network.statistics.execute()
        # The request's deadline does not limit the execution: an engine goes on after it, and so does the
        # lane.
        with _watched(self._network) as seconds:
            result = self._run_bound(request, seconds)
            if result is None:
                try:
                    result = self._burst.execute(request.arrays, timeout=seconds, copy=False)
                except GeneralFailure as error:
                    raise self._network.explain(error, request.arrays) from None
        if not request.settle():
            return None
        return {index: value_of(result.outputs[index]) for index in request.wanted}

    def _run_bound(self, request: Inference, seconds: float) -> ExecutionResult | None:
        """Run the bound request; None without one, or if an output is larger than the file declares."""
        if self._bound is None:
            return None
        for view, array in zip(self._bound.inputs, request.arrays, strict=True):
            if view is not None:
                view[...] = array
        try:
            return self._bound.run(seconds)
        except OutputInsufficientSize:
            self._bound = None
            return None

    def execute_joined(self, requests: Sequence[Inference]) -> list[dict[int, Value]]:
        """See `Lane`."""
        self._network.statistics.execute()
        columns = zip(*(request.arrays for request in requests), strict=True)
        arrays = [np.concatenate(column) for column in columns]
        with _watched(self._network) as seconds:
            outputs = self._burst.execute(arrays, timeout=seconds, copy=False).outputs
        for output in outputs:
            if output.shape[:1] != arrays[0].shape[:1]:
                raise GeneralFailure(
                    f"an output has shape {list(output.shape)} for a batch of {len(arrays[0])}"
                )
        found, begin = [], 0
        for request in requests:
            end = begin + request.rows
            found.append({index: value_of(outputs[index][begin:end]) for index in request.wanted})
            begin = end
        return found


class _SequenceLane:
    """A lane that executes on the state of a request's sequence. One thread at a time."""

    def __init__(
        self, network: Network, sequences: Sequences, burst: ResidentBurst | None = None
    ) -> None:
        self._network = network
        self._sequences = sequences
        self._burst = burst

    def execute(self, request: Inference) -> dict[int, Value] | None:
        """See `Lane`; if the request was answered meanwhile, its state is restored, or else ended.

        A request that ends its sequence does so even if it fails: its caller comes back no more. One that
        loses the state ends it, too.
        """
        self._network.statistics.execute()
        word = request.sequence
        if word is None:
            raise InvalidArgument(
                f"model {self._network.name!r} has a state: sequence_id is needed"
            )
        left = max(0.0, (request.deadline_ns - time.monotonic_ns()) / 1e9)
        sequence = self._sequences.take(word.key, starts=word.starts, timeout=left)
        ends = word.ends
        try:
            if request.settled:
                return None  # while it waited for the request before
            with _watched(self._network) as seconds:
                outputs = sequence.state.execute(request.arrays, seconds, self._burst)
            values = {index: value_of(outputs[index]) for index in request.wanted}
        except NnburstError as error:
            ends = ends or isinstance(error, DeadObject) or sequence.state.is_lost
            if isinstance(error, StateLost):  # callers of a service have no `reset`
                raise DeadObject(
                    f"sequence {word.key}: its state is lost with its worker; begin anew with sequence_start"
                ) from None
            raise
        else:
            if request.settle():
                return values
            ends = ends or not sequence.state.take_back()
            return None
        finally:
            try:
                if ends:
                    self._sequences.close_sequence(word.key, sequence)
            finally:
                sequence.lock.release()

    def execute_joined(self, requests: Sequence[Inference]) -> list[dict[int, Value]]:
        """See `Lane`; never called, since each sequence has its own state."""
        raise GeneralFailure(f"{len(requests)} requests of sequences cannot be joined")


def _tensors(
    parameters: Sequence[Parameter],
    model: ImportedModel,
    kind: str,
    states: Sequence[int],
) -> list[Tensor]:
    names = list(model.input_names if kind == "input" else model.output_names)
    own = {name for name in names if name and names.count(name) == 1}
    main = model.model.main
    operands = main.input_indexes if kind == "input" else main.output_indexes
    declared = model.output_shapes if kind == "output" else ()
    found = []
    for index, parameter in enumerate(parameters):
        if index in states:
            continue
        dimensions = parameter.dimensions or (declared[index] if declared else ())
        name = names[index] if index < len(names) and names[index] in own else ""
        operand = main.operands[operands[index]]
        found.append(
            Tensor(
                name or unused_name(f"{kind}_{index}", own),
                data_type(parameter.dtype, parameter.element),
                tuple(e or -1 for e in dimensions) if dimensions or parameter.scalar else None,
                0.0 if math.isclose(operand.scale, 0) else operand.scale,
                operand.zero_point,
            )
        )
    return found
