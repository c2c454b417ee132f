"""Takes the arguments of a compiled model, and computes it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, NoReturn

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.session.gate import entries
from nnburst.hal.enums import DurationCode, ResultCode
from nnburst.hal.errors import (
    BadState,
    BurstBusy,
    InvalidArgument,
    NnburstError,
    UnexpectedNull,
    error_for_code,
)
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.types import OutputShape
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.execution.bound_plan import BoundPlan, Bursts
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.execution.fences import FenceChain
from nnburst.runtime.objects.arguments import (
    ArgumentInfo,
    ArgumentList,
    checked,
    input_arguments,
    output_arguments,
)
from nnburst.runtime.objects.burst import Bindings, Burst
from nnburst.runtime.objects.event import INTERRUPTED, Event, outcome_of
from nnburst.runtime.objects.execution_settings import (
    ExecutionSettings,
    State,
    measured_nanoseconds,
    nanoseconds,
)
from nnburst.runtime.objects.fenced import FencedComputation, check_dependencies, fences_of
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.operands import OperandDescription, Readable
from nnburst.runtime.planning.plan import Direction
from nnburst.runtime.records import ExecutionMode

logger = logging.getLogger("nnburst.runtime")


class Execution(ExecutionSettings):
    """One set of arguments and the computations with them (NNAPI: ANeuralNetworksExecution).

    Made by `Compilation.execution`.

    Not thread-safe while its arguments are set. It computes once, or again and again if it is `reusable`, but
    never twice at a time; different executions of one compilation compute at once on any threads.

    NNAPI: RT:E1 to E10, ExecutionBuilder.cpp.
    """

    def __init__(self, executable: Executable) -> None:
        """Use `Compilation.execution`."""
        super().__init__(executable)
        self._inputs: Final = ArgumentList(executable, Direction.INPUT, self._check_preparation)
        self._outputs: Final = ArgumentList(executable, Direction.OUTPUT, self._check_preparation)
        self._lock = threading.RLock()  # a signal handler may call while its thread is in here
        self._mode, self._began_ns = ExecutionMode.SYNC, 0
        self._entry = 0  # identifies the call that has begun the computation under way
        self._outcome = Outcome()
        self._shapes: list[tuple[int, ...]] = []
        self._sufficient: list[bool] = []
        self._bindings: Final = Bindings(executable)

    def _summary(self) -> str:
        return self._state.value

    # -- arguments -------------------------------------------------------------------------------------------

    def set_input(
        self,
        index: int,
        data: Readable | None,
        type: OperandDescription | None = None,  # noqa: A002 - NNAPI's word
        length: int | None = None,
    ) -> None:
        """Set an input; None omits it.

        Args:
            index: index of the input.
            data: anything with a contiguous buffer; kept alive, and read in place by each computation.
            type: the operand with the dimensions that the model leaves open; None for the model's.
            length: number of bytes from a caller in C; only checked if `data` is None.

        Raises:
            UnexpectedNull: `data` is None although `length` is not 0.
            BadState: a computation has started, or the input is set.
            InvalidArgument: RT:E2: the index, the type, or the size of `data` is not valid; BAD_DATA.
        """
        self._inputs.set_pointer(index, data, type, length, padding=self._padding)

    def set_output(
        self,
        index: int,
        data: Readable | None,
        type: OperandDescription | None = None,  # noqa: A002
        length: int | None = None,
    ) -> None:
        """Set an output; see `set_input`, but `data` is written."""
        self._outputs.set_pointer(index, data, type, length, padding=self._padding)

    def set_input_from_memory(
        self,
        index: int,
        memory: Memory,
        offset: int = 0,
        length: int = 0,
        type: OperandDescription | None = None,  # noqa: A002
    ) -> None:
        """Set an input that lies in a memory object.

        Args:
            index: index of the input.
            memory: the memory, which is kept alive.
            offset: offset of the input's first byte.
            length: number of bytes; it and `offset` are 0 for memory from `MemoryDesc.create_memory`.
            type: the operand with the dimensions that the model leaves open; None for the model's.

        Raises:
            UnexpectedNull: `memory` is None.
            BadState: a computation has started, or the input is set.
            InvalidArgument: RT:E3: index, type or range is not valid, or the memory lacks the role; BAD_DATA.
        """
        self._inputs.set_memory(index, memory, offset, length, type, padding=self._padding)

    def set_output_from_memory(
        self,
        index: int,
        memory: Memory,
        offset: int = 0,
        length: int = 0,
        type: OperandDescription | None = None,  # noqa: A002
    ) -> None:
        """Set an output that lies in a memory object; see `set_input_from_memory`."""
        self._outputs.set_memory(index, memory, offset, length, type, padding=self._padding)

    @property
    def _has_arguments(self) -> bool:
        """Whether an argument was set, even without success."""
        return self._inputs.were_set or self._outputs.were_set

    # -- computing -------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """Compute, and wait for the end.

        Raises:
            BadState: the execution is computing, or has computed and is not reusable.
            InvalidArgument: an argument is not set; BAD_DATA, and the execution is completed.
            NnburstError: the computation failed.
        """
        began_ns = time.monotonic_ns()
        own = self._own_burst() if self._reusable else None
        bound = None if own is None else self._bound_to(own)
        if own is not None and bound is not None:
            self._compute_bound(bound, own, began_ns)
            return
        self._compute_alone(ExecutionMode.SYNC, began_ns)

    def _compute_alone(self, mode: ExecutionMode, began_ns: int) -> None:
        """Compute without a burst, and wait for the end; errors are those of `compute`."""
        me = next(entries)
        try:
            self._begin(mode, began_ns, me)
            self._compute().succeeded()
        finally:
            self._abandon(me)

    def burst_compute(self, burst: Burst) -> None:
        """Compute over a burst of the same compilation.

        Raises:
            UnexpectedNull: `burst` is None.
            InvalidArgument: the burst belongs to another compilation; BAD_DATA.
            BadState: the burst is busy, and otherwise as for `compute`.
            NnburstError: as for `compute`.
        """
        began_ns = time.monotonic_ns()
        if burst is None:
            raise UnexpectedNull("burst: it is None")
        self._check_open()
        if burst._executable is not self._executable:
            raise InvalidArgument("burst: it belongs to another compilation")
        bound = self._bound_to(burst) if self._reusable else None
        if bound is not None:
            self._compute_bound(bound, burst, began_ns)
            return
        me = next(entries)
        try:
            with burst._alone() as controllers:
                self._begin(ExecutionMode.BURST, began_ns, me)
                self._compute(controllers).succeeded()
        finally:
            self._abandon(me)

    def _bound_to(self, burst: Burst) -> BoundPlan | None:
        """The arguments bound to the steps of a burst, so that one C call computes.

        None before the first successful computation, and if only Python can compute: if the execution is
        measured, has a loop timeout, or arguments in buffers or staged memory, or the plan cannot be bound.
        """
        burst._check_open()
        arguments = self._repeated_arguments
        if arguments is None:
            return None
        return self._bindings.bound_to(burst, arguments, self.timeout)

    def _own_burst(self) -> Burst | None:
        """The burst for computations without a given one; None before the arguments can be bound.

        An execution with a timeout computes without a burst until this one is open.
        """
        if self._repeated_arguments is None:
            return None
        return self._bindings.own_burst(waits=self._timeout_ns is None)

    def _compute_bound(
        self,
        bound: BoundPlan,
        burst: Burst,
        began_ns: int,
        code: int | None = None,
        mode: ExecutionMode = ExecutionMode.BURST,
    ) -> None:
        """Compute by the steps bound to a burst, or finish a run of these steps that C has begun.

        Args:
            bound: from `bound_to`.
            burst: the burst that it is bound to.
            began_ns: when the computation began, on CLOCK_MONOTONIC; the timeout counts from then.
            code: status of the run from C; None to run now.
            mode: the mode to record.

        Raises:
            NnburstError: as for `compute`.
        """
        before, me = self._outcome, next(entries)
        try:
            try:
                self._begin(mode, began_ns, me)
            except BaseException:
                if code is not None:
                    bound.steps.abandon()
                raise
            infos = self._outputs.given
            options = Options(False, self._deadline_ns(), self._loop_timeout_ns)
            try:
                if code is None:
                    code = bound.run_until(self._timeout_ns, began_ns)
                outcome = self._executable.conclude(bound, code, options, burst.bursts)
                outcome = checked(outcome, infos)
            except BurstBusy:
                self._complete(before, infos)
                raise BadState("burst: another execution computes on it") from None
            except NnburstError as error:
                outcome = Outcome.of(error)
            except BaseException:
                bound.steps.abandon()
                raise
            self._bindings.close_stale(burst)
            self._recorded(self._complete(outcome, infos)).succeeded()
        finally:
            self._abandon(me)

    def _finish_bound(self, bound: BoundPlan, burst: Burst, code: int, mode: ExecutionMode) -> bool:
        """Finish a run of bound steps that C has begun.

        C may have run steps whose driver has died and was replaced for another execution on the burst. Then
        nothing was computed, and this call computes on the new driver.

        Args:
            bound: the plan that was run.
            burst: the burst that it is bound to.
            code: status of the run.
            mode: the call that began the run.

        Returns:
            True if the outputs are in the bound plan's arguments, False if they are in this execution's.

        Raises:
            NnburstError: as for `compute`.
        """
        if bound.is_replaced:
            bound.steps.abandon()
            if mode == ExecutionMode.BURST:
                self.burst_compute(burst)
            else:
                self._compute_alone(mode, time.monotonic_ns())
            return False
        self._compute_bound(bound, burst, time.monotonic_ns(), code, mode)
        return True

    def _has_computed(self) -> None:
        """Become completed: C has successfully computed with the arguments."""
        me = next(entries)
        try:
            self._begin(ExecutionMode.BURST, time.monotonic_ns(), me)
            self._complete(Outcome(), self._outputs.given)
        finally:
            self._abandon(me)

    @property
    def _repeated_arguments(self) -> tuple[list[Argument], list[Argument]] | None:
        """The inputs and outputs of the last computation if C may compute with them again; else None.

        C may do so for a reusable execution that has succeeded, is not measured, has neither attributes nor a
        loop timeout, and whose arguments lie in shared memory or at addresses.
        """
        infos = self._inputs.given, self._outputs.given
        if (
            not self._reusable
            or self._measure
            or self._attributes.added
            or self._state != State.COMPLETED
            or self._outcome.code != ResultCode.NO_ERROR
            or self._loop_timeout_ns != DEFAULT_LOOP_TIMEOUT_NS
            or not all(info.is_in_place for info in (*infos[0], *infos[1]))
        ):
            return None
        return (
            [info.as_argument() for info in infos[0]],
            [info.as_argument(is_output=True) for info in infos[1]],
        )

    def open_burst(self) -> Burst:
        """Open a new burst of the compilation, which the caller closes."""
        self._check_open()
        return Burst(self._executable)

    def start(self) -> Event:
        """Compute on a new thread.

        The memories of arguments must stay open until the event was waited for. If one is closed before, the
        computation gives its result, or `wait` raises BadState.

        Returns:
            The event to wait for, which reports the outcome.

        Raises:
            BadState, InvalidArgument: as for `compute`; then there is no event.
            NnburstError: no thread can be started, or a driver is dead; the execution is completed.
        """
        me = next(entries)
        try:
            self._begin(ExecutionMode.ASYNC, time.monotonic_ns(), me)
            if self._executable.interface.starts_inline:
                return Event(outcome=self._compute())
            return self._on_a_thread(self._ready())
        except BaseException as error:
            self._abandon(me, outcome_of(error), began=False)
            raise

    def _on_a_thread(self, options: Options) -> Event:
        """Compute on a thread, which completes this execution."""
        me = self._entry
        return Event(
            lambda: self._compute(options=options) if self._takes_over(me) else INTERRUPTED
        )

    def start_after(self, dependencies: Sequence[Event] = (), duration: float = 0.0) -> Event:
        """Compute once other computations are done (NNAPI: startComputeWithDependencies).

        If all arguments lie in shared memory or buffers, each step is given to its driver with the fence of
        the step before, and the event has the fence of the last step. Otherwise, and for steps on the CPU,
        this call waits for the fences and computes. The execution counts as computing until the event was
        waited for.

        Args:
            dependencies: events, also of other compilations. This call waits for events without a fence,
                whatever their outcome; fences are given to the device.
            duration: seconds that the computation may take after the dependencies; 0 for no limit. Needs one
                explicit device.

        Returns:
            The event to wait for, which reports the outcome; its fence can be a dependency in turn.

        Raises:
            UnexpectedNull: the list or an entry is None.
            BadState: as for `compute`.
            InvalidArgument: an argument is not set, an output is not fully specified, or there is a duration
                without one explicit device; BAD_DATA, and the execution is completed.
            NnburstError: the device refuses, no thread can be started, or a computation in this call failed.
        """
        check_dependencies(dependencies)
        limit = nanoseconds("duration", duration)
        me = next(entries)
        try:
            self._begin(ExecutionMode.ASYNC_WITH_DEPS, time.monotonic_ns(), me)
            if limit is not None and not self._executable.interface.is_one_explicit_device:
                self._fail(InvalidArgument("duration: needs a compilation for one explicit device"))
            if not all(output.is_fully_specified for output in self._outputs.given):
                self._fail(
                    InvalidArgument("outputs: the dimensions of each must be fully specified")
                )
            return self._start_behind(fences_of(dependencies), limit)
        except BaseException as error:
            self._abandon(me, outcome_of(error))
            raise

    def _start_behind(self, fences: Sequence[SyncFence], duration_ns: int | None) -> Event:
        """Begin with fences, or, if that is not possible, wait for them and compute."""
        chain = FenceChain(fences, None if duration_ns is None else duration_ns * 1e-9)
        fence = None
        try:
            event = self._start_in(chain)
            fence = event.fence
            return event
        finally:
            if fence is None:  # else the wait for it closes the chain
                chain.close()

    def _start_in(self, chain: FenceChain) -> Event:
        options = self._options(self._deadline_ns())
        inputs, outputs = self._inputs.given, self._outputs.given
        if FencedComputation.suits(self._executable, options) and all(
            info.is_fixed for info in (*inputs, *outputs)
        ):
            self._executable.revive(options.deadline_ns, self._began_ns)
            arguments = input_arguments(inputs), output_arguments(outputs)
            computation = FencedComputation(self._executable, arguments, options, chain)
            return self._start_fenced(computation, options.deadline_ns)
        before = chain.settle(options.deadline_ns)
        if before.code != ResultCode.NO_ERROR:
            self._fail(before.error)
        options = chain.limited(options)
        now_ns = time.monotonic_ns()  # so that drivers that died meanwhile are replaced
        self._executable.revive(options.deadline_ns, now_ns)
        if not self._executable.has_known_temporaries:
            return self._on_a_thread(options)
        return Event(outcome=self._compute(options=options).succeeded())

    def _start_fenced(self, computation: FencedComputation, deadline_ns: int | None) -> Event:
        """Begin a computation; the wait for its fence completes the execution, or this call without one."""
        begun = computation.begin()
        fence = computation.fence
        if fence is None:
            return Event(outcome=self._concluded(begun).succeeded())
        me = self._entry

        def abandon(outcome: Outcome) -> None:
            computation.abandon()
            self._abandon(me, outcome)

        return Event(
            lambda: self._concluded(computation.conclude()),
            fence=fence,
            deadline_ns=deadline_ns,
            abandon=abandon,
        )

    def _concluded(self, outcome: Outcome) -> Outcome:
        """Complete the execution with the outcome of a computation with fences; record and return it."""
        infos = self._outputs.given
        return self._recorded(self._complete(checked(outcome, infos), infos))

    def _begin(self, mode: ExecutionMode, began_ns: int, me: int) -> None:
        """Enter the state of computing, if all arguments are set (RT:E4); `began_ns` is on CLOCK_MONOTONIC.

        `me` is a new number that identifies this call; the caller calls `_abandon` after an exception.
        """
        self._check_open()
        with self._lock:
            if self._state == State.COMPUTATION:
                raise BadState("execution: it is computing")
            if self._state == State.COMPLETED and not self._reusable:
                raise BadState("execution: it has computed and is not reusable")
            self._mode, self._began_ns = mode, began_ns
            self._entry = me
            self._state = State.COMPUTATION
        for arguments in (self._inputs, self._outputs):
            if arguments.missing is not None:
                self._fail(InvalidArgument(f"{arguments.missing}: it is not set"))

    def _takes_over(self, me: int) -> bool:
        """Whether the call `me` began the computation under way; only the first query returns True."""
        with self._lock:
            found = self._state == State.COMPUTATION and self._entry == me
            if found:
                self._entry = 0
        return found

    def _abandon(self, me: int, outcome: Outcome = INTERRUPTED, *, began: bool = True) -> None:
        """Become completed if the computation of `me` is under way; outputs are lost if it `began`."""
        if self._takes_over(me):
            self._complete(outcome, self._outputs.given if began else [])

    def _fail(self, error: NnburstError) -> NoReturn:
        self._recorded(self._complete(Outcome.of(error), []))
        raise error

    def _ready(self, bursts: Bursts | None = None) -> Options:
        """Reconnect to drivers that died before the computation began; return options with the deadline."""
        deadline_ns = self._deadline_ns()
        self._executable.revive(deadline_ns, self._began_ns, bursts)
        return self._options(deadline_ns)

    def _options(self, deadline_ns: int | None) -> Options:
        return Options(self._measure, deadline_ns, self._loop_timeout_ns, self._attributes.added)

    def _compute(self, bursts: Bursts | None = None, options: Options | None = None) -> Outcome:
        """Compute; return errors as an outcome."""
        infos = self._outputs.given
        arguments: list[Argument] = []
        try:
            outcome = checked(
                self._execute(arguments, bursts, options or self._ready(bursts)), infos
            )
            if outcome.code == ResultCode.NO_ERROR:
                for info, argument in zip(infos, arguments, strict=True):
                    info.write_back(argument)
        except NnburstError as error:
            outcome = Outcome.of(error)
        except BaseException:
            self._complete(INTERRUPTED, infos)
            raise
        return self._recorded(self._complete(outcome, infos))

    def _recorded(self, outcome: Outcome) -> Outcome:
        """Record the outcome of a computation for the application (RT:T4), and return it."""
        took = time.monotonic_ns() - self._began_ns
        self._executable.least_ns = min(took, self._executable.least_ns)
        self._executable.recorder.executed(self._mode, outcome.code, took, outcome.timing)
        return outcome

    def _execute(self, outputs: list[Argument], bursts: Bursts | None, options: Options) -> Outcome:
        outputs += output_arguments(self._outputs.given)
        inputs = input_arguments(self._inputs.given)
        return self._executable.execute(inputs, outputs, options, bursts or ())

    def _deadline_ns(self) -> int | None:
        """The deadline of the computation that has begun, on CLOCK_BOOTTIME; None without a timeout."""
        if self._timeout_ns is None:
            return None
        left_ns = self._timeout_ns - (time.monotonic_ns() - self._began_ns)
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + left_ns

    def _complete(self, outcome: Outcome, outputs: Sequence[ArgumentInfo]) -> Outcome:
        """Store shapes and the states of memories, and become completed (RT:E10)."""
        done = outcome.code == ResultCode.NO_ERROR
        shapes = [info.operand.dimensions for info in outputs]
        sufficient = [True] * len(shapes)
        if outcome.output_shapes:
            shapes = [shape.dimensions for shape in outcome.output_shapes]
            sufficient = [shape.is_sufficient for shape in outcome.output_shapes]
        for info, dimensions in zip(outputs, shapes, strict=True):
            if info.memory is None:
                continue
            try:
                info.memory._written(dimensions if done else None)
            except NnburstError as error:
                outcome, done = Outcome.of(error), False
        with self._lock:
            self._outcome, self._shapes, self._sufficient = outcome, shapes, sufficient
            self._state = State.COMPLETED
        return outcome

    # -- results ---------------------------------------------------------------------------------------------

    @property
    def output_shapes(self) -> tuple[OutputShape, ...]:
        """Shapes of all outputs after a computation that succeeded or that had too little room.

        Raises:
            BadState: the execution has not completed, or the computation failed otherwise.
        """
        self._check_completed("output_shapes")
        if not self._outcome.has_result:
            raise BadState("output_shapes: the computation failed")
        return tuple(map(OutputShape, self._shapes, self._sufficient))

    def output_dimensions(self, index: int) -> tuple[int, ...]:
        """Dimensions of an output after a computation.

        Raises:
            BadState: the execution has not completed, or the computation failed otherwise.
            OutputInsufficientSize: the output was too small; `output_shapes[0]` has what it needs.
            InvalidArgument: there is no such output, or its rank is 0; BAD_DATA.
        """
        dimensions = self._output(index)
        if not dimensions:
            raise InvalidArgument(f"index: output {index} has no dimensions")
        self._check_sufficient(index)
        return dimensions

    def output_rank(self, index: int) -> int:
        """Rank of an output after a computation; 0 is allowed. Errors are those of `output_dimensions`."""
        dimensions = self._output(index)
        self._check_sufficient(index)
        return len(dimensions)

    def _output(self, index: int) -> tuple[int, ...]:
        self._check_completed("output")
        if not self._outcome.has_result:
            raise BadState(
                "output: the computation failed, so that nothing is known of its outputs"
            )
        if not 0 <= index < len(self._shapes):
            raise InvalidArgument(f"index: output {index} of {len(self._shapes)}")
        return self._shapes[index]

    def _check_sufficient(self, index: int) -> None:
        if not self._sufficient[index]:
            shape = OutputShape(self._shapes[index], False)
            raise error_for_code(
                ResultCode.OUTPUT_INSUFFICIENT_SIZE,
                f"output {index}: its room was too small",
                [shape],
            )

    def duration(self, code: DurationCode) -> int | None:
        """Nanoseconds that the computation took; None if the device does not measure them.

        Args:
            code: the kind of duration.

        Raises:
            InvalidArgument: the code is unknown; BAD_DATA.
            BadState: the execution has not completed, has failed, or was not measured.
        """
        try:
            code = DurationCode(code)
        except ValueError:
            raise InvalidArgument(f"code: {code}, expected 0 to 3") from None
        self._check_completed("duration")
        if self._outcome.code != ResultCode.NO_ERROR or not self._measure:
            raise BadState("duration: the computation failed, or was not measured")
        return measured_nanoseconds(self._outcome, code)

    def _check_completed(self, what: str) -> None:
        self._check_open()
        if self._state != State.COMPLETED:
            raise BadState(f"{what}: the execution is {self._state.value}")

    def close(self) -> None:
        """Free the resources. During a computation nothing is freed (RT:E9), and an error is logged."""
        if self._state == State.COMPUTATION and not self._closed:
            logger.error("an execution that computes cannot be closed: wait for it first")
            return
        super().close()

    def _release(self) -> None:
        self._bindings.close()
        self._inputs.clear()
        self._outputs.clear()


class NativeView:
    """An execution as the C interface uses it: its arguments and its bound steps.

    Attributes:
        executable: the compilation's executable.
        inputs: the input arguments.
        outputs: the output arguments.
    """

    def __init__(self, execution: Execution) -> None:
        """Make a view of an execution, which is kept alive."""
        self._execution: Final = execution
        self.executable: Final = execution._executable
        self.inputs: Final = execution._inputs
        self.outputs: Final = execution._outputs

    def bound_to(self, burst: Burst) -> BoundPlan | None:
        """The arguments bound to the steps of a burst; None if only Python can compute."""
        return self._execution._bound_to(burst)

    def own_burst(self) -> Burst | None:
        """The burst for computations without a given one; None before it is there."""
        return self._execution._own_burst()

    def finish_bound(
        self,
        bound: BoundPlan,
        burst: Burst,
        code: int,
        mode: ExecutionMode = ExecutionMode.BURST,
    ) -> bool:
        """Finish a run of bound steps that C has begun; see `Execution._finish_bound`."""
        return self._execution._finish_bound(bound, burst, code, mode)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is set but arguments and `reusable`."""
        return self._execution._is_plain

    def complete(self) -> None:
        """Become completed: C has successfully computed with the arguments."""
        self._execution._has_computed()
