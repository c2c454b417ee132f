"""Computes a plan whose parts are prepared, falls back to the CPU, and counts executions.

The CPU computes on copies of arguments that lie in buffers of drivers (RT:R14).
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

import numpy as np

from nnburst.client.execution.buffer import Buffer, parameter_of
from nnburst.hal import vlog
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import Closed, GeneralFailure, NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, UINT64_MAX
from nnburst.hal.model import Operand
from nnburst.hal.utils import Closing, failure_level, weakly
from nnburst.runtime.argument import (
    Argument,
    BurstController,
    Bytes,
    Mortal,
    Options,
    Outcome,
    PreparedPart,
)
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.devices.device import Device, Use
from nnburst.runtime.devices.driver_device import PATIENCE
from nnburst.runtime.execution.background import Background, Errand
from nnburst.runtime.execution.bound_plan import (
    BoundPlan,
    Bursts,
    bind_compound,
    bind_simple,
    bursts_to_bind,
    open_bursts,
)
from nnburst.runtime.execution.compound import CompoundComputation
from nnburst.runtime.execution.fences import Behind, FenceChain
from nnburst.runtime.execution.temporaries import CompoundMemory, Source, Temporaries
from nnburst.runtime.planning.plan import (
    Candidate,
    Direction,
    ExecutionStep,
    MemoryPreference,
    Plan,
    SimplePlan,
    StepRole,
    of_device,
    of_roles,
)
from nnburst.runtime.records import PlanRecorder
from nnburst.tracing.slices import Layer, Phase, trace


class ExecutionCounts:
    """Executions that gave a result. Thread-safe."""

    def __init__(self) -> None:
        """Count from 0."""
        # Reentrant: a signal handler may compute while its thread is in here.
        self._lock: Final = threading.RLock()
        self._by_device: Final[Counter[str]] = Counter()
        self._supported = 0
        self._on_drivers = 0

    def add(self, device: str) -> None:
        """Count an execution of a model or of a step by a device."""
        with self._lock:
            self._by_device[device] += 1

    def add_supported(self, *, on_drivers: bool) -> None:
        """Count an execution of a whole model that has an operation which drivers support.

        Args:
            on_drivers: whether a driver has executed a part of it.
        """
        with self._lock:
            self._supported += 1
            self._on_drivers += on_drivers

    def as_json(self) -> dict[str, object]:
        """All counts."""
        with self._lock:
            return {
                "by_device": dict(self._by_device),
                "supported_by_drivers": self._supported,
                "on_drivers": self._on_drivers,
            }


#: The counts of this process. Executions that C repeats without the framework are not counted.
EXECUTIONS: Final = ExecutionCounts()


# -- plain memory ----------------------------------------------------------------------------------


def on_plain_memory(
    part: PreparedPart, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
) -> Outcome:
    """Execute on copies of arguments in buffers: copy inputs out before, and outputs in afterwards.

    An output buffer of unknown size fails.
    """
    try:
        ins = [_copied_out(argument) for argument in inputs]
        outs = [_with_room(argument) for argument in outputs]
        outcome = part.execute(ins, outs, options)
        if outcome.code == ResultCode.NO_ERROR:
            for given, used in zip(outputs, outs, strict=True):
                if given.buffer is not None and used.bytes is not None:
                    _copy_in(given.buffer, used.bytes)
    except NnburstError as error:
        return Outcome.of(error)
    return outcome


def _copied_out(argument: Argument) -> Argument:
    if argument.buffer is None:
        return argument
    content: Bytes = np.ascontiguousarray(argument.buffer.copy_to()).reshape(-1).view(np.uint8)
    return Argument(content, argument.buffer.dimensions)


def _with_room(argument: Argument) -> Argument:
    if argument.buffer is None:
        return argument
    parameter = parameter_of(argument.buffer)
    if not parameter.known:
        raise GeneralFailure("output: its buffer was made without knowing its size")
    room = np.zeros(parameter.dtype.itemsize * math.prod(parameter.dimensions), np.uint8)
    return Argument(room, parameter.dimensions)


def _copy_in(buffer: Buffer, content: Bytes) -> None:
    parameter = parameter_of(buffer)
    buffer.copy_from(content.view(parameter.dtype).reshape(parameter.dimensions))


# -- executable ------------------------------------------------------------------------------------


logger = logging.getLogger("nnburst.runtime")


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs of a plan's executions.

    Attributes:
        inputs: operands of the model's inputs.
        outputs: operands of the model's outputs.
        is_one_explicit_device: whether the compilation lists exactly one device.
        starts_inline: whether `Execution.start` computes before it returns.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    is_one_explicit_device: bool
    starts_inline: bool = False


class Executable:
    """A plan and the parts that its devices have prepared. Thread-safe.

    Attributes:
        plan: the plan.
        interface: the inputs and outputs of executions.
        devices: the devices, by the plan's positions.
        parts: one part for a simple plan, else one for each execution step.
        allows_fallback: whether the CPU computes what a device fails to compute (RT:R15).
        is_explicit: whether the compilation lists its devices.
        recorder: records each computation after its end.
        least_ns: least nanoseconds of an execution of NNAPI's objects so far; very large before the first.
        rooms: bytes to offer for outputs of unknown size, by index, after they once did not fit.
        fell_back: whether the CPU has the whole model since planning failed (RT:P2).
        waits_for_drivers: whether a computation waits for a dead driver to be replaced, until its deadline;
            if not, the step fails at once.
    """

    def __init__(
        self,
        plan: Plan,
        interface: Interface,
        devices: Sequence[Device],
        parts: Sequence[PreparedPart],
        prepare_on_cpu: Callable[[ExecutionStep | None], PreparedPart] | None,
        *,
        source: Source,
        is_explicit: bool,
        recorder: PlanRecorder,
        fell_back: bool = False,
        drivers_support: bool = False,
        waits_for_drivers: bool = True,
    ) -> None:
        """Own the parts.

        Args:
            plan: a simple or compound plan.
            interface: the model's inputs and outputs.
            devices: the devices, by the plan's positions.
            parts: the parts, in the order of the execution steps.
            prepare_on_cpu: has the CPU prepare a step, or the whole model for None; None without fallback.
            source: the model that was placed.
            is_explicit: see the attributes.
            recorder: see the attributes.
            fell_back: see the attributes.
            drivers_support: whether a driver supports an operation of the model, for the counts.
            waits_for_drivers: see the attributes.
        """
        self.plan: Final = plan
        self.interface: Final = interface
        self.devices: Final = tuple(devices)
        self.parts: Final = tuple(parts)
        self.allows_fallback: Final = prepare_on_cpu is not None
        self.is_explicit: Final = is_explicit
        self.recorder: Final = recorder
        self.least_ns = UINT64_MAX
        self.rooms: Final[dict[int, int]] = {}
        self.fell_back: Final = fell_back
        self.waits_for_drivers: Final = waits_for_drivers
        self._drivers_support: Final = drivers_support
        self._prepare_on_cpu: Final = prepare_on_cpu
        self._measured: Final[dict[int, float]] = {}
        #: Parts that the CPU has prepared as a fallback: steps by number, the whole model by None.
        self._stand_ins: Final[dict[int | None, PreparedPart]] = {}
        self._owned: Sequence[Closing] = ()
        #: Ids of those that `hold` has admitted, changed in single steps. An unclosed one that is collected
        #: holds no more.
        self._users: Final[set[int]] = set()
        self._closed = False
        #: One thread replaces dead drivers; another one prepares fallbacks, which need not wait for that.
        self._recovery: Final = Background()
        self._preparing: Final = Background()
        self._compound: Final = (
            None if isinstance(plan, SimplePlan) else CompoundMemory(plan, source)
        )
        self._title: Final = (
            f"execute on {self.devices[plan.device].name}" if isinstance(plan, SimplePlan) else ""
        )
        # Reentrant: a signal handler may open or close a burst while its thread is in here.
        self._lock: Final = threading.RLock()

    def execute(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        bursts: Bursts | Sequence[BurstController | None] = (),
        temporaries: Temporaries | None = None,
        chain: FenceChain | None = None,
    ) -> Outcome:
        """Compute once, after `revive`; never raises for failures of devices or data.

        Args:
            inputs: an argument for each input of the model.
            outputs: an argument for each output of the model.
            options: settings of the computation.
            bursts: from `open_bursts`, or a substitute for the burst of each part; empty to execute without
                bursts.
            temporaries: temporaries of the caller; otherwise those of the bursts, or of the plan.
            chain: the chain in which the bursts begin steps; None if each step has ended when its burst
                returns.
        """
        lender = None
        if isinstance(bursts, Bursts):
            lender = bursts if self._goes_by(bursts, options) else None
            bursts = bursts.of_parts
        if isinstance(self.plan, SimplePlan):
            executor = (bursts[0] if bursts else None) or self.parts[0]
            began = time.perf_counter()
            device = self.devices[self.plan.device].name
            with trace(Layer.RUNTIME, Phase.EXECUTION, self._title):
                outcome = executor.execute(inputs, outputs, options)
            if chain is None:
                self._measured[0] = time.perf_counter() - began
            if vlog.on("execution"):
                vlog.write("execution", "%s: %s", self._title, outcome.code.name)
            on_cpu = self.devices[self.plan.device].is_cpu
            whole = self.allows_fallback and not on_cpu and not outcome.has_result
            if outcome.has_result:
                EXECUTIONS.add(device)
                self._count(on_drivers=not on_cpu)
        else:
            parts = _Parts(self, bursts, chain, options)
            outcome, whole = self._execute_steps(
                inputs, outputs, options, parts, temporaries, lender
            )
        if whole and chain is not None:
            chain.settle(options.deadline_ns)
            whole = chain.may_fall_back
        if outcome.code == ResultCode.DEAD_OBJECT:
            self._begin_recovery(bursts if chain is None else ())
        if not whole or options.is_over:
            return outcome
        logger.log(
            failure_level(),
            "the plan failed (%s: %s): the CPU computes the whole model",
            outcome.code.name,
            outcome.message,
        )
        return self.fall_back(inputs, outputs, options, outcome)

    def _goes_by(self, bursts: Bursts, options: Options) -> bool:
        """Whether all steps go over bursts, which keep computations in order; sockets do not."""
        return (
            self._compound is not None
            and self._compound.all_go_by_bursts
            and all(bursts.of_parts)
            and not options.attributes
            and options.loop_timeout_ns == DEFAULT_LOOP_TIMEOUT_NS
        )

    def revive(
        self,
        deadline_ns: int | None,
        began_ns: int,
        bursts: Bursts | None = None,
        *,
        waits: bool | None = None,
    ) -> None:
        """Reconnect to drivers that have died, on the background thread, before a computation.

        If a driver is not back when this returns, or has died since the computation began, its steps fail as
        DEAD_OBJECT.

        Args:
            deadline_ns: end of the wait, on CLOCK_BOOTTIME; None for no limit.
            began_ns: when the computation began, on CLOCK_MONOTONIC.
            bursts: the bursts that it is to compute on.
            waits: whether to wait; `waits_for_drivers` unless given.
        """
        if waits is None:
            waits = self.waits_for_drivers
        for died_ns, errand in self._begin_recovery(() if bursts is None else bursts.of_parts):
            if waits and died_ns <= began_ns:
                try:
                    errand.wait(deadline_ns)
                except NnburstError as error:
                    logger.info("a step has no driver, this computation goes on without: %s", error)

    def _executors(
        self, bursts: Sequence[BurstController | None]
    ) -> list[PreparedPart | BurstController]:
        """The burst or part that executes each step."""
        return [(bursts[n] if bursts else None) or part for n, part in enumerate(self.parts)]

    def _begin_recovery(self, bursts: Sequence[BurstController | None]) -> list[tuple[int, Errand]]:
        """Begin to reconnect to dead drivers; for each, when it died and the errand that reconnects."""
        begun = []
        for each in self._executors(bursts):
            died_ns = each.died_ns
            if died_ns is not None:
                try:
                    begun.append((died_ns, self._recover(each)))
                except NnburstError as error:
                    logger.log(
                        failure_level(),
                        "a driver is not started again, the next call tries: %s",
                        error,
                    )
        return begun

    def _recover(self, each: Mortal) -> Errand:
        return self._recovery.begin(id(each), "the driver has died and is made again", each.revive)

    def _execute_steps(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        parts: _Parts,
        lent: Temporaries | None,
        lender: Bursts | None,
    ) -> tuple[Outcome, bool]:
        """Run the steps; return the outcome, and whether the CPU is to compute the whole model instead."""
        assert self._compound is not None
        try:
            kept = lent if lender is None else lender.temporaries
            temporaries = kept or self._compound.take()
        except NnburstError as error:
            return Outcome.of(error), self.allows_fallback
        if lender is not None:
            lender.temporaries = temporaries
        computation = CompoundComputation(
            self._compound.plan,
            self._compound.models,
            temporaries,
            parts,
            options,
        )
        is_done = False
        try:
            found = computation.run(inputs, outputs, allow_fallback=self.allows_fallback)
            is_done = not computation.is_tainted
        finally:
            for device in computation.executed:
                EXECUTIONS.add(CPU_NAME if device < 0 else self.devices[device].name)
            if lender is not None:
                lender.check_temporaries()
            elif lent is None:
                self._compound.release(temporaries, usable=is_done)
            if is_done and parts.end_when_they_return:
                self._measured.update(computation.seconds)
        if found[0].has_result:
            self._count(on_drivers=any(device >= 0 for device in computation.executed))
        return found

    def _count(self, *, on_drivers: bool) -> None:
        """Count a computation of the whole model that gave a result."""
        if self._drivers_support:
            EXECUTIONS.add_supported(on_drivers=on_drivers)

    def begin(
        self, inputs: list[Argument], outputs: list[Argument], options: Options, chain: FenceChain
    ) -> Outcome:
        """Begin the steps of one computation behind a chain, which holds the temporaries until its end.

        Returns:
            A failure that is known already; else success, and the chain gives the outcome later.
        """
        temporaries = None
        if self._compound is not None:
            try:
                temporaries = self._compound.take()
            except NnburstError as error:
                return Outcome.of(error)
            chain.lend(partial(_release_temporaries, self._compound, temporaries))
        bursts = [Behind(part, chain) for part in self.parts]
        return self.execute(inputs, outputs, options, bursts, temporaries, chain)

    @property
    def has_known_temporaries(self) -> bool:
        """Whether the sizes of all values between steps are known."""
        return isinstance(self.plan, SimplePlan) or not self.plan.dynamic_temporaries

    def bind(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        bursts: Bursts,
        timeout: float = PATIENCE,
    ) -> BoundPlan | None:
        """Bind arguments to the bursts of all steps, which then run by one C call.

        Args:
            inputs: an argument for each input of the model.
            outputs: an argument for each output of the model.
            bursts: from `open_bursts`.
            timeout: seconds that each run may take.

        Returns:
            The bound plan; None if only `execute` can compute it: records are kept, a step has no burst, the
            plan has control flow or unknown shapes, or an argument lies in a buffer.

        Raises:
            NnburstError: an argument does not fit, or a driver cannot be reached.
        """
        if self.recorder.is_on:
            return None
        if self._compound is None:
            return bind_simple(inputs, outputs, bursts, timeout)
        return bind_compound(self._compound, inputs, outputs, bursts, timeout)

    def can_bind(self, bursts: Bursts) -> bool:
        """Whether `bind` can succeed with these bursts for some arguments."""
        plan = None if self._compound is None else self._compound.plan
        return bursts_to_bind(plan, bursts) is not None

    def run(self, bound: BoundPlan, options: Options, bursts: Bursts) -> Outcome:
        """Run a bound plan once; return its outcome and raise errors as `conclude` does."""
        return self.conclude(bound, bound.run(), options, bursts)

    def conclude(self, bound: BoundPlan, code: int, options: Options, bursts: Bursts) -> Outcome:
        """The outcome of a run of a bound plan that ended with `code`, as if `execute` had run it.

        Only the CPU repeats a failed step, if the compilation's mode allows that; then the later steps run.
        Outputs are copied into the application's memory.

        Raises:
            BurstBusy: another run is under way; this one has not begun.
            Closed: a burst or a pool was closed.
        """
        ended = bound.conclude(code)
        if ended is None:
            outcome = bound.outcome
        else:
            self._begin_recovery(bursts.of_parts)
            outcome = self.go_on(bound, [*ended, *bursts.of_parts[len(ended) :]], options)
        if outcome.code == ResultCode.NO_ERROR:
            bound.copy_out()
        return outcome

    def go_on(
        self, bound: BoundPlan, bursts: Sequence[BurstController | None], options: Options
    ) -> Outcome:
        """Execute a bound plan by `execute`; `bursts` may have substitutes for steps that have run."""
        return self.execute(*bound.arguments, options, bursts, bound.temporaries)

    @property
    def measured(self) -> dict[int, float]:
        """Seconds that each step took in its latest execution, by the step's index."""
        return dict(self._measured)

    def fall_back(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        failure: Outcome,
    ) -> Outcome:
        """Compute the whole model on the CPU, without a deadline unless the deadline is final (RT:R14).

        If the CPU cannot prepare the model (for example, for operations of extensions), return `failure`.
        """
        limits = Options(loop_timeout_ns=options.loop_timeout_ns)
        if options.is_final:
            limits = replace(limits, deadline_ns=options.deadline_ns, is_final=True)
        try:
            stand_in = self._stand_in(None, limits.deadline_ns)
        except NnburstError as error:
            if limits.is_over:
                return Outcome.of(error)
            logger.log(
                failure_level(), "the CPU cannot stand in, the first failure counts: %s", error
            )
            return failure
        with trace(Layer.RUNTIME, Phase.EXECUTION, "the whole model on the CPU"):
            outcome = on_plain_memory(stand_in, inputs, outputs, limits)
        if outcome.has_result:
            EXECUTIONS.add(CPU_NAME)
            self._count(on_drivers=False)
        return outcome

    def step_on_cpu(self, number: int, options: Options) -> PreparedPart:
        """The CPU's part for execution step `number`, prepared when it is first needed.

        Raises:
            MissedDeadline: the CPU is still preparing it, and the deadline is final.
            NnburstError: the CPU cannot prepare it.
        """
        return self._stand_in(number, options.deadline_ns if options.is_final else None)

    def _stand_in(self, number: int | None, deadline_ns: int | None) -> PreparedPart:
        """The CPU's part for a step, or for the whole model if None; a background thread prepares it."""
        part = self._stand_ins.get(number)
        if part is None:
            work = partial(self._prepare_stand_in, number)
            self._preparing.begin(number, "the CPU prepares the model", work).wait(deadline_ns)
            part = self._stand_ins[number]
        if part.died_ns is not None:  # the CPU device may be a driver
            self._recover(part).wait(deadline_ns)
        return part

    def _prepare_stand_in(self, number: int | None) -> None:
        if number in self._stand_ins:
            return
        assert self._prepare_on_cpu is not None
        step = None
        if number is not None:
            assert not isinstance(self.plan, SimplePlan)
            step = self.plan.execution_steps[number]
        part = self._prepare_on_cpu(step)
        with self._lock:
            if not self._is_released:
                self._stand_ins[number] = part
                return
        part.close()
        raise Closed("the compilation was closed while the CPU prepared the model")

    def open_bursts(self) -> Bursts:
        """Open a burst for each part; None for parts whose device has no bursts (RT:B1).

        Raises:
            Closed: another thread has closed this meanwhile.
        """
        return open_bursts(self.parts, lambda: self._is_released)

    def hold(self, user: object) -> None:
        """Keep the parts until `release`, even after `close`.

        Raises:
            Closed: this is closed.
        """
        with self._lock:
            if self._closed:
                raise Closed("the compilation is closed")
            self._users.add(id(user))
        weakref.finalize(user, weakly(self._lose), id(user)).atexit = False

    def release(self, user: object) -> None:
        """End what `hold` began. After `close`, this releases parts that no user holds. Twice is fine."""
        with self._lock:
            self._users.discard(id(user))
        self._release_unused()

    def _lose(self, user: int) -> None:
        """Note that a user was collected; it takes no lock and does not wait, as any thread may collect."""
        if user not in self._users:
            return  # it was closed before
        self._users.discard(user)
        if self._is_released:
            with contextlib.suppress(NnburstError):  # no thread can be started
                self._recovery.begin("release", "the parts are released", self._release_unused)

    def own(self, memories: Sequence[Closing]) -> None:
        """Close memories of the model together with the parts, which may be prepared again until then."""
        self._owned = memories

    def uses(self, direction: Direction, index: int) -> list[tuple[Device, Use]]:
        """The uses of the memory of an input or output, by device (RT:P20)."""
        plan = self.plan
        if isinstance(plan, SimplePlan):
            return [(self.devices[plan.device], (self.parts[0], direction, index))]
        return [self._use(role) for role in self._roles(direction, index)]

    def _use(self, role: StepRole) -> tuple[Device, Use]:
        assert not isinstance(self.plan, SimplePlan)
        steps = self.plan.execution_steps
        position = next(n for n, step in enumerate(steps) if step.index == role.step)
        device = self.devices[steps[position].device]
        return device, (self.parts[position], role.direction, role.position)

    def memory_preference(self, direction: Direction, index: int) -> MemoryPreference:
        """Alignment and padding that the devices of an argument prefer (RT:P19)."""
        if isinstance(self.plan, SimplePlan):
            return of_device(cast("Candidate", self.devices[self.plan.device]))
        likes = cast("Sequence[Candidate]", self.devices)  # in what a preference depends on
        return of_roles(self.plan, likes, self._roles(direction, index))

    def _roles(self, direction: Direction, index: int) -> Sequence[StepRole]:
        assert not isinstance(self.plan, SimplePlan)
        return (self.plan.input_roles if direction == Direction.INPUT else self.plan.output_roles)[
            index
        ]

    def close(self) -> None:
        """Release the parts and the memories that this owns, once no user holds them. Twice is fine."""
        with self._lock:
            self._closed = True
        self._release_unused()

    @property
    def _is_released(self) -> bool:
        """Whether this is closed and nothing holds the parts; then nothing ever holds them again."""
        return self._closed and not self._users

    def _release_unused(self) -> None:
        with self._lock:
            if not self._is_released:
                return
        for part in (*self.parts, *self._stand_ins.values()):
            part.close()
        for memory in self._owned:
            memory.close()
        if self._compound is not None:
            self._compound.close()


def _release_temporaries(memory: CompoundMemory, temporaries: Temporaries, usable: bool) -> None:
    memory.release(temporaries, usable=usable)


class _Parts:
    """The parts and bursts that one computation uses."""

    def __init__(
        self,
        executable: Executable,
        bursts: Sequence[BurstController | None],
        chain: FenceChain | None,
        options: Options,
    ) -> None:
        self._executable = executable
        self._bursts = bursts
        self._chain = chain
        self._options = options

    @property
    def end_when_they_return(self) -> bool:
        return self._chain is None

    def settle(self) -> None:
        if self._chain is not None:
            self._chain.settle(self._options.deadline_ns).succeeded()

    def part(self, step: int) -> PreparedPart:
        return self._executable.parts[step]

    def burst(self, step: int) -> BurstController | None:
        return self._bursts[step] if self._bursts else None

    def on_cpu(self, step: int) -> PreparedPart:
        return self._executable.step_on_cpu(step, self._options)

    def is_cpu(self, device: int) -> bool:
        return self._executable.devices[device].is_cpu

    def name(self, device: int) -> str:
        return self._executable.devices[device].name
