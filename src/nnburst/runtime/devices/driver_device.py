"""Executes on a device behind a driver process, which is connected again after the driver has died."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, cast

import numpy as np

from nnburst.client.arguments import Array, ExecutionResult, Parameter, seconds_until, wait_left
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.recovering import RecoveringBurst
from nnburst.client.compilation_cache import CachedCompilation
from nnburst.client.device import Device as ClientDevice
from nnburst.client.device import prepare_by, recovering_device
from nnburst.client.execution.aidl_burst import rounded
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.fenced_execution import FencedExecution
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.hal import execute_fenced
from nnburst.client.memory import Memory as Pool
from nnburst.client.prepared_model import (
    PreparedModel,
    open_burst_of_plan,
    session_bursts,
    without_own_bursts,
)
from nnburst.client.session.own_bursts import BurstUser, OwnBursts
from nnburst.client.session.recovery import died_ns, reach, revive
from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, Priority, ResultCode
from nnburst.hal.errors import (
    Closed,
    DeadObject,
    GeneralFailure,
    MissedDeadline,
    NnburstError,
)
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.types import Capabilities, NumberOfCacheFiles, OutputShape
from nnburst.hal.utils import Closing
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.devices.device import CacheRequest, Use
from nnburst.runtime.planning.plan import Direction

B = TypeVar("B")

#: Timeout in seconds of a call or run that has no other limit: every wait has an end.
PATIENCE: Final = 600.0


class DriverPart:
    """A model or step that a driver has prepared. Thread-safe; only `revive` prepares it again.

    Attributes:
        prepared: the client's prepared model, which can be prepared again.
        takes_fences: whether an execution can wait for fences: the driver's level has them, and the
            shapes of all outputs are known.
    """

    def __init__(self, prepared: PreparedModel, *, has_fences: bool = True) -> None:
        """Own `prepared`."""
        self.prepared: Final = prepared
        self.takes_fences: Final = has_fences and all(p.known for p in prepared.outputs)

    @property
    def died_ns(self) -> int | None:
        """When the driver's end was noticed, on CLOCK_MONOTONIC; None while the driver is there."""
        return died_ns(self.prepared)

    def revive(self) -> None:
        """Connect and prepare again if the driver has died.

        Raises:
            NnburstError: the driver does not come back.
        """
        revive(self.prepared)

    def execute(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
    ) -> Outcome:
        """Execute over the socket; arguments in pools are used in place, others are copied."""
        try:
            current = self.prepared
            arrays = self._arrays(inputs, outputs)
            left = seconds_left(options.deadline_ns)
            if options.loop_timeout_ns == DEFAULT_LOOP_TIMEOUT_NS:
                result = current.execute(
                    *arrays, measure=options.measure, timeout=left, attributes=options.attributes
                )
            else:
                pending = current.execute_async(
                    *arrays,
                    measure=options.measure,
                    timeout=left,
                    loop_timeout_ns=options.loop_timeout_ns,
                    attributes=options.attributes,
                )
                result = pending.result(seconds_left(options.deadline_ns))
        except NnburstError as error:
            return Outcome.of(error)
        return self.outcome(result, outputs)

    def execute_fenced(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        options: Options,
        wait_for: Sequence[SyncFence],
        duration: float | None,
    ) -> FencedStep:
        """Have the driver execute after fences have signalled; arguments lie in pools or in its buffers.

        Args:
            inputs: inputs, which are read after the fences have signalled.
            outputs: outputs, which are written after that.
            options: settings of the execution.
            wait_for: the fences; they stay the caller's, who may close them.
            duration: seconds that the execution may take from the last fence on; None for no limit.

        Raises:
            NnburstError: the driver refuses, or is dead.
        """
        fenced = execute_fenced(
            self.prepared,
            *self._arrays(inputs, outputs),
            wait_for=wait_for,
            duration=duration,
            timeout=seconds_left(options.deadline_ns),
            measure=options.measure,
            attributes=options.attributes,
        )
        return FencedStep(self, fenced, outputs)

    def _arrays(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument]
    ) -> tuple[list[Array | Buffer | None], list[Array | Buffer | None]]:
        prepared = self.prepared
        return (
            [_input(p, a) for p, a in zip(prepared.inputs, inputs, strict=True)],
            [_output(p, a) for p, a in zip(prepared.outputs, outputs, strict=True)],
        )

    def outcome(self, result: ExecutionResult, outputs: Sequence[Argument]) -> Outcome:
        """The outcome of an execution; an output is too small even if it fits into the rounded-up memory."""
        shapes = []
        for parameter, argument, shape in zip(
            self.prepared.outputs, outputs, result.output_shapes, strict=True
        ):
            needed = parameter.dtype.itemsize * math.prod(shape.dimensions)
            fits = argument.bytes is None or needed <= argument.bytes.size
            shapes.append(OutputShape(shape.dimensions, fits))
        enough = all(shape.is_sufficient for shape in shapes)
        code = ResultCode.NO_ERROR if enough else ResultCode.OUTPUT_INSUFFICIENT_SIZE
        return Outcome(code, tuple(shapes), result.timing)

    @property
    def session_bursts(self) -> OwnBursts:
        """The bursts that models open by themselves in the driver's session."""
        return session_bursts(self.prepared)

    def open_burst(self, *, driver_spins: bool = True) -> DriverBurst:
        """Open a burst on the part; see `Burst.open`."""
        return DriverBurst(self, open_burst_of_plan(self.prepared, driver_spins=driver_spins))

    def close(self) -> None:
        """Release it."""
        self.prepared.close()


def open_own_burst(
    parts: Iterable[object], open_burst: Callable[[], B], user: BurstUser
) -> tuple[B, bool]:
    """Open a burst that no program has asked for, if the session of each driver of the plan allows one more.

    Args:
        parts: the parts of the plan.
        open_burst: opens the burst; see `OwnBursts.open`.
        user: the user of the burst; see `OwnBursts.open`.

    Returns:
        The burst, and whether any part belongs to a driver.

    Raises:
        ResourceExhausted: a session has too many bursts, or models of several priorities.
        NnburstError: the burst cannot be opened.
    """
    drivers = [part for part in parts if isinstance(part, DriverPart)]
    for part in drivers:
        open_burst = partial(part.session_bursts.open, open_burst, user)
    return open_burst(), bool(drivers)


class FencedStep(Closing):
    """An execution of a part that begins after fences have signalled.

    Attributes:
        fence: signals the end of the execution; closed with this object.
    """

    def __init__(
        self, part: DriverPart, fenced: FencedExecution, outputs: Sequence[Argument]
    ) -> None:
        """Own `fenced`."""
        self._part: Final = part
        self._fenced: Final = fenced
        self._outputs: Final = outputs
        self.fence: Final = fenced.fence

    def outcome(self, seconds: float) -> Outcome:
        """Wait for the outcome; MISSED_DEADLINE_TRANSIENT if it does not come within `seconds`."""
        try:
            result = self._fenced.result(max(seconds, 0.001))
            fenced = rounded(self._fenced.info().fenced)
        except NnburstError as error:
            return Outcome.of(error)
        return replace(self._part.outcome(result, self._outputs), fenced_timing=fenced)

    def close(self) -> None:
        """Discard the result; an execution under way goes on."""
        self._fenced.close()


class DriverBurst:
    """A burst on a part. One execution at a time."""

    def __init__(self, part: DriverPart, burst: RecoveringBurst) -> None:
        """Own `burst`."""
        self._part: Final = part
        self._burst: Final = burst

    @property
    def died_ns(self) -> int | None:
        """When the driver's end was noticed, on CLOCK_MONOTONIC; None while the driver is there."""
        return died_ns(self._burst)

    def revive(self) -> None:
        """Connect, prepare and open again if the driver has died.

        Raises:
            NnburstError: the driver does not come back.
        """
        revive(self._burst)

    def execute(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
    ) -> Outcome:
        """Execute over the burst; with a loop timeout or attributes, over the socket, which carries them."""
        if options.attributes or options.loop_timeout_ns != DEFAULT_LOOP_TIMEOUT_NS:
            return self._part.execute(inputs, outputs, options)
        try:
            arrays = self._part._arrays(inputs, outputs)
            result = self._burst.ring.execute(
                *arrays, measure=options.measure, timeout=seconds_left(options.deadline_ns)
            )
        except NnburstError as error:
            return Outcome.of(error)
        return self._part.outcome(result, outputs)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> RingRequest:
        """Bind arguments in pools to the present burst; the caller calls `revive` before.

        Raises:
            Closed: the device is closed.
            NnburstError: an argument does not fit or lies in no pool, or the driver is dead.
        """
        ins, outs = self._part._arrays(inputs, outputs)
        burst = self._burst.ring
        if not burst.is_alive:
            if self._burst._recovery.is_closed:
                raise Closed("burst: its device is closed")
            raise DeadObject("burst: its driver has died, and the next computation opens it again")
        return burst.bind(cast("list[Array | None]", ins), cast("list[Array | None]", outs))

    def holds(self, request: RingRequest) -> bool:
        """Whether a request is bound to the present burst and can be run."""
        burst = self._burst.ring
        return burst.is_alive and not request.closed and burst._has(request)

    def has_replaced(self, request: RingRequest) -> bool:
        """Whether the burst that a request is bound to has died and was replaced by another one."""
        burst = self._burst.ring
        return burst.is_alive and not burst._has(request)

    @property
    def has_known_outputs(self) -> bool:
        """Whether the model declares all shapes of the outputs."""
        return all(parameter.known for parameter in self._part.prepared.outputs)

    def outcome(self, result: ExecutionResult, outputs: Sequence[Argument]) -> Outcome:
        """The outcome of a run of a bound request."""
        return self._part.outcome(result, outputs)

    def close(self) -> None:
        """Close it."""
        self._burst.close()


def _input(parameter: Parameter, argument: Argument) -> Array | Buffer | None:
    if argument.buffer is not None or argument.bytes is None:
        return argument.buffer
    dimensions = () if parameter.scalar else argument.dimensions
    length = parameter.dtype.itemsize * math.prod(dimensions)
    if length > argument.bytes.size or 0 in dimensions:
        raise GeneralFailure(
            f"{parameter.name}: dimensions {list(dimensions)} do not fit {argument.bytes.size} bytes"
        )
    found: Array = argument.bytes[:length].view(parameter.dtype).reshape(dimensions)
    return found


def _output(parameter: Parameter, argument: Argument) -> Array | Buffer | None:
    """The array of an output; for a shape that is open or may differ a vector over all of its bytes."""
    if argument.buffer is not None:
        return argument.buffer
    if argument.bytes is None:
        raise GeneralFailure(f"{parameter.name}: it is omitted, which no driver takes")
    if parameter.known and not (parameter.may_differ and argument.bytes.size > parameter.size):
        found: Array = argument.bytes[: parameter.size].view(parameter.dtype)
        return found.reshape(parameter.dimensions)
    count = argument.bytes.size // parameter.dtype.itemsize
    if not count:
        return np.empty(1, parameter.dtype)  # no element fits: any result is too large
    room: Array = argument.bytes[: count * parameter.dtype.itemsize].view(parameter.dtype)
    return room


def seconds_left(deadline_ns: int | None) -> float:
    """Seconds until a deadline on CLOCK_BOOTTIME.

    Raises:
        MissedDeadline: the deadline has passed.
    """
    if deadline_ns is None:
        return PATIENCE
    left = seconds_until(deadline_ns)
    if left <= 0:
        raise MissedDeadline("the deadline has passed before the driver was called")
    return left


# -- driver device ---------------------------------------------------------------------------------


class DriverDevice:
    """A driver as a device. Thread-safe. After its death the next call that needs it connects again.

    NNAPI: RT:D2, D6, DriverDevice in Manager.cpp.

    Attributes:
        name: the name under which the device is found.
        version_string: the driver's version; asked for once, like all that follows.
        type: kind of hardware.
        feature_level: the driver's level, or the runtime's if that is lower.
        extensions: the vendor extensions that the driver has.
        capabilities: the speed that the driver reports.
        cache_files: the numbers of files in which the driver caches a compilation.
    """

    is_cpu: Final = False

    def __init__(
        self,
        connect: Callable[[], ClientDevice],
        *,
        name: str | None = None,
        feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
    ) -> None:
        """Connect, and ask for all facts that are asked for once.

        Args:
            connect: makes a connection; called again after the driver has died.
            name: the device's name instead of the driver's own.
            feature_level: the runtime's feature level (RT:D6).

        Raises:
            NnburstError: the driver cannot be connected to, or its answers are not valid.
        """
        self._driver: Final = recovering_device(connect, "wait")
        try:
            current = self._driver
            self.name: Final = name or current.name
            self.version_string: Final = current.version_string
            self.type: Final[DeviceType] = current.type
            self.feature_level: Final = clamped(current.feature_level, feature_level)
            self.extensions: Final[tuple[Extension, ...]] = current.supported_extensions()
            self.capabilities: Capabilities = current.capabilities
            self.cache_files: Final[NumberOfCacheFiles] = current.number_of_cache_files_needed
        except BaseException:
            self._driver.close()
            raise

    @property
    def pid(self) -> int:
        """The process ID of the driver that is connected now."""
        return self._driver.pid

    def supports_extension(self, name: str) -> bool:
        """Whether the driver has an extension."""
        return any(extension.name == name for extension in self.extensions)

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:
        """For each operation of the main subgraph, whether the driver can run it."""
        return self._driver.supported_operations(model, pools=pools)

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        deadline_ns: int | None = None,
        cache: CacheRequest | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> DriverPart:
        """Have the driver prepare a model or a step.

        Raises:
            NnburstError: the driver refuses or fails.
        """
        options = {
            "preference": preference,
            "priority": priority,
            "num_threads": 0,
            "attributes": tuple(attributes),
        }

        def prepare(driver: ClientDevice) -> PreparedModel:
            seconds = seconds_left(deadline_ns)
            if cache is None:
                return driver.prepare(model, pools=pools, timeout=seconds, **options)  # type: ignore[arg-type]
            return CachedCompilation(
                driver, model, cache.directory, cache.token, pools, options, seconds, is_final=True
            ).prepare()

        part = DriverPart(
            # The plan opens bursts for all of its steps together.
            without_own_bursts(prepare_by(self._driver, prepare, waits=False)),
            has_fences=self.feature_level >= FeatureLevel.V1_3,
        )
        deadline_ns = None  # no deadline when prepared again
        return part

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer:
        """Allocate a buffer of the driver.

        Raises:
            GeneralFailure: the driver's feature level has no buffers (NNAPI: RTT:M1, Q1).
            NnburstError: the driver refuses or fails.
        """
        if self.feature_level < FeatureLevel.V1_3:
            raise GeneralFailure(
                f"device {self.name}: its feature level is {int(self.feature_level)}, memory of devices"
                f" needs {int(FeatureLevel.V1_3)}"
            )
        roles: dict[Direction, list[tuple[object, int]]] = {
            Direction.INPUT: [],
            Direction.OUTPUT: [],
        }
        for part, direction, index in uses:
            assert isinstance(part, DriverPart)
            roles[direction].append((part.prepared, index))
        return self._driver.allocate_buffer(
            roles[Direction.INPUT],  # type: ignore[arg-type]
            roles[Direction.OUTPUT],  # type: ignore[arg-type]
            dimensions=dimensions,
        )

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until the driver is there again (RT:D7).

        Raises:
            DeadObject: the driver is not there after `timeout` seconds.
            Closed: the device is closed, or this is a forked child.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                reach(self._driver, wait_left(deadline))
            except Closed:
                raise  # it never comes back
            except NnburstError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        """End the connection."""
        self._driver.close()

    def __repr__(self) -> str:
        return f"<nnburst.runtime driver device {self.name}>"


def clamped(level: FeatureLevel, runtime: FeatureLevel) -> FeatureLevel:
    """The device's level, limited to the runtime's (RT:D6)."""
    return min(level, runtime)
