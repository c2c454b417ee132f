"""Compiles a model for the devices of this machine, and shows the plan.

compiled = nnburst.compile("network.tflite")
print(compiled.plan)
y = compiled.execute([x]).outputs[0]
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import numpy as np

from nnburst.client.arguments import Array, ExecutionResult, Parameter, parameters
from nnburst.client.burst.beside_loop import call_on_a_thread
from nnburst.client.burst.interface import Burst, Recover, State, check_recover
from nnburst.client.burst.resident import ResidentBurst, refuse_states
from nnburst.client.burst.states import StatefulBurst
from nnburst.client.compilation_cache import model_token
from nnburst.client.memory import Memory as Pool
from nnburst.client.memory import share
from nnburst.client.session.own_bursts import ThreadBursts
from nnburst.client.staging import CarriesPools, bare_model, check_pools
from nnburst.hal.enums import NDK_PRIORITIES, ExecutionPreference, Priority
from nnburst.hal.errors import (
    BurstBusy,
    DeviceUnavailable,
    InvalidArgument,
    MissedDeadline,
    ResourceExhausted,
)
from nnburst.hal.extensions import Extension
from nnburst.hal.model import Model as HalModel
from nnburst.hal.utils import (
    DaemonThread,
    OneTimeEvent,
    check_integer,
    check_path,
    warn_of_reference,
)
from nnburst.hal.validation.values import validate_priority
from nnburst.hal.whole_graph import GRAPH_ENGINES, NAMES, has_slots
from nnburst.runtime.array_execution import CallTime, execute_arrays
from nnburst.runtime.compiled_burst import CompiledBurst
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.driver_device import open_own_burst
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.measured_placement import Measuring, PlacementReport
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.memory import Memory, filled_pool
from nnburst.runtime.objects.model import Model
from nnburst.runtime.planning.drawing import plan_dot, plan_mermaid, plan_table
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.plan import CompoundPlan, GotoStep, Plan, Step
from nnburst.runtime.records import ExecutionMode
from nnburst.runtime.runtime_object import RuntimeObject


class PlanView:
    """A plan with the model that it is for. Immutable, thread-safe; `str` of it is a table."""

    def __init__(
        self,
        plan: Plan,
        source: FinishedModel,
        estimated: Mapping[int, float | str],
        measured: Mapping[int, float],
    ) -> None:
        """Show a plan.

        Args:
            plan: the plan.
            source: the model that it was made for.
            estimated: expected durations of steps: seconds, or a text, by the step's index.
            measured: seconds of each step's latest execution, by the step's index.
        """
        self._plan: Final = plan
        self._source: Final = source
        self._estimated: Final = dict(estimated)
        self._measured: Final = dict(measured)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that execute, in order of their first step."""
        plan = self._plan
        steps = plan.execution_steps if isinstance(plan, CompoundPlan) else (plan,)
        return tuple(dict.fromkeys(plan.devices[step.device] for step in steps))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The plan's steps without its jumps; empty if one device has the whole model."""
        if not isinstance(self._plan, CompoundPlan):
            return ()
        return tuple(step for step in self._plan.steps if not isinstance(step, GotoStep))

    def __repr__(self) -> str:
        steps = len(self.steps) or 1
        return f"<nnburst.PlanView: {steps} {'steps' if steps > 1 else 'step'} on {', '.join(self.devices)}>"

    def __str__(self) -> str:
        """A table of the steps: device, values, bytes across and times, and below each step its operations.

        The estimated time is measured if the model was placed by measurement; else it is the fraction of the
        CPU's time that the device reports.
        """
        return plan_table(
            self._plan, self._source, estimated=self._estimated, measured=self._measured
        )

    def dot(self) -> str:
        """The plan as a graph in the DOT language."""
        return plan_dot(self._plan, self._source)

    def mermaid(self) -> str:
        """The plan as a mermaid flowchart."""
        return plan_mermaid(self._plan, self._source)


class CompiledModel(RuntimeObject):
    """A model that is placed and prepared; made by `nnburst.compile`. Thread-safe.

    A context manager that closes itself.

    Attributes:
        compilation: the compilation behind it, for all of NNAPI's calls.
        inputs: what each input must look like.
        outputs: what each output must look like.
    """

    _instead = "pickle the model and compile it in the other process"

    def __init__(self, compilation: Compilation, *, bursts: bool = True) -> None:
        """Own a finished compilation; `bursts` as for `compile`."""
        super().__init__()
        self.compilation: Final = compilation
        self._own_bursts: Final[ThreadBursts[CompiledBurst]] = ThreadBursts(
            partial(_open_own_burst, weakref.ref(self))
        )
        self._thread: Final = self._own_bursts.local
        if not bursts:
            self._own_bursts.close()
        model = compilation.model._built_model.model
        known: Sequence[Extension] = [
            extension for device in compilation.devices for extension in device.extensions
        ]
        takes, gives = parameters(model, lambda: known)
        self.inputs: Final[list[Parameter]] = takes
        self.outputs: Final[list[Parameter]] = gives
        self._has_slots: Final = has_slots(model)

    @property
    def plan(self) -> PlanView:
        """Which device runs what; it prints as a table and draws as a graph.

        Raises:
            Closed: this is closed.
        """
        executable = self.compilation._finished_executable
        source = self.compilation.model._finished_model
        return PlanView(executable.plan, source, self.compilation._estimates(), executable.measured)

    @property
    def placement_report(self) -> PlacementReport | None:
        """The findings of placement by measurement; None if the model was placed by devices' reports."""
        return self.compilation.placement_report

    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
    ) -> ExecutionResult:
        """Execute once on numpy arrays.

        When a thread calls this for the second time, bursts for this thread are opened in the background;
        its calls then cost about as much as `Burst.execute`. Bursts that are idle for some seconds are
        closed.

        Arrays in pools are used without a copy. Inputs must not change until this returns.

        Args:
            inputs: an array for each input; None omits an optional input.
            outputs: arrays to write to, or None for a new one. If the model leaves an output's shape
                open, the given array must have room for it, and the result is a view of its beginning.
            measure: whether to time the execution; only plans of one step are timed.
            timeout: seconds that the execution may take.

        Returns:
            Outputs (the given arrays, or new ones), shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was executed.
            OutputInsufficientSize: a given array is too small; `output_shapes` has what is needed.
            MissedDeadline: the execution took longer than `timeout`.
            DeadObject: a driver of an explicit list has died; the next call prepares again.
            NnburstError: the error of a device of an explicit list.
            Closed: this is closed.
        """
        mine = self._thread.mine
        burst = mine.burst
        if burst is not None:
            mine.is_used = True
            try:
                return burst.execute(inputs, outputs, measure=measure, timeout=timeout)
            except BurstBusy:
                pass  # a signal handler called this in the middle of another call
        call = CallTime.of(timeout)
        self._check_open()
        self._own_bursts.is_opening(mine)
        executable = self.compilation._finished_executable
        executable.revive(call.deadline_ns, call.began_ns)
        result = execute_arrays(
            executable, self.inputs, self.outputs, inputs, outputs, call, measure=measure
        )
        mine.calls += 1
        return result

    async def execute_async(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `execute`
    ) -> ExecutionResult:
        """Run `execute` on another thread while the event loop goes on; arguments and errors are the same.

        Cancelling the task does not stop the execution.

        Raises:
            ResourceExhausted: the process may have no more threads.
        """
        call = partial(self.execute, inputs, outputs, measure=measure, timeout=timeout)
        return await call_on_a_thread(call)

    def open_burst(
        self,
        *,
        max_in_flight: int = 1,
        states: Sequence[State] = (),
        recover: Recover | None = None,
    ) -> Burst:
        """Open a burst on each step whose device has any: executions over shared memory.

        Args:
            max_in_flight: requests that may run at once (`BoundRequest.submit`), each in a different step.
            states: as for `PreparedModel.open_burst`.
            recover: behaviour of a run while a dead driver is being replaced. True or "wait": the run waits
                for the new driver until its timeout. "raise": the run does not wait; the CPU computes
                instead, or, with an explicit list of devices, the run raises DeadObject. None: as given
                to `compile`. False is refused, since drivers of a plan are always replaced.

        Raises:
            InvalidArgument: `max_in_flight` is not 1 to 1,024, `recover` has another value, or a state is
                not an input and an output of the model, or is listed twice.
            Closed: this is closed.
        """
        self._check_open()
        max_in_flight = check_integer("max_in_flight", max_in_flight, 1, 1024)
        if recover is False:
            raise InvalidArgument(
                "recover: False, but the drivers of a compiled model are always made again;"
                " expected True, 'wait' or 'raise'"
            )
        if self._has_slots:
            refuse_states(states)
        waits = None if recover is None else check_recover(recover)
        executable = self.compilation._finished_executable
        burst = CompiledBurst(executable, self.inputs, self.outputs, max_in_flight, waits=waits)
        if self._has_slots:
            return ResidentBurst.over(burst, burst._order)
        return StatefulBurst.over(burst, states)

    def close(self) -> None:
        """Release the model: it can no longer execute or open bursts.

        Open bursts still work, and keep the parts that they need until they are closed. Twice is fine.
        """
        super().close()

    def _release(self) -> None:
        self._own_bursts.close()
        self.compilation.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<nnburst.CompiledModel: {len(self.inputs)} inputs, {len(self.outputs)} outputs, {state}>"


def _open_own_burst(
    reference: weakref.ref[CompiledModel], keep: Callable[[CompiledBurst], None]
) -> None:
    """Open a burst for one thread's calls, unless the model was deleted or closed.

    Raises:
        NnburstError: the burst cannot be opened, a driver's session allows no more, or it would not help
            the plan.
    """
    model = reference()
    if model is None or model.closed:
        return
    executable = model.compilation._finished_executable
    takes, gives, users = model.inputs, model.outputs, model._own_bursts

    def open_burst() -> CompiledBurst:
        burst = CompiledBurst(executable, takes, gives, mode=ExecutionMode.SYNC, keeps_parts=False)
        keep(burst)
        return burst

    burst, on_drivers = open_own_burst(executable.parts, open_burst, users)
    if not on_drivers and not burst.can_bind:
        users.close()
        raise ResourceExhausted("no step of the plan goes over a burst, and it cannot be bound")


def compile(  # noqa: A001 - NNAPI's word
    model: HalModel | CarriesPools | str | os.PathLike[str],
    devices: Sequence[str | Device] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    as_graph: bool | None = None,
    pools: Sequence[Pool] = (),
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
    priority: Priority = Priority.MEDIUM,
    cache_dir: str | os.PathLike[str] | None = None,
    token: bytes | None = None,
    timeout: float = 60.0,
    placement: Literal["measured", "declared"] = "measured",
    measuring: Measuring | None = None,
    manager: Manager | None = None,
    fallback: bool = True,
    recover: Literal["wait", "raise"] = "wait",
    bursts: bool = True,
) -> CompiledModel:
    """Place a model on devices and have its parts prepared.

    Args:
        model: the path of a .tflite or .onnx file, what `nnburst.load` returns, or a model.
        devices: the devices to use, by name or as objects of the manager (`Manager.devices`), not as
            `nnburst.Device`; then there is no fallback. By default every
            running driver of this user, the installed engines, and the CPU, which also computes what
            another device fails to compute.
        shapes: dimensions of inputs that a file leaves open, by name; see `nnburst.load`.
        as_graph: whether a file becomes a single operation instead of NNAPI's operations; see
            `nnburst.load`. By default this depends on the file, and a single operation is logged.
        pools: the pools that the constants of a bare model lie in, in the model's order; they may be closed
            as soon as this returns.
        preference: the goal to optimise for.
        priority: priority among the models of this program.
        cache_dir: directory for the cache files of devices that cache; created (mode 0700) if it is missing.
        token: 32 bytes that identify the model in `cache_dir`; by default a hash of its content.
        timeout: seconds that reading a file, looking for devices, placing and preparing may take.
        placement: "measured" takes the fastest of the installed engines that report similar speed: each is
            timed on the whole model, once on a machine, within 10 s and half of `timeout`. It does as
            "declared" if `devices` are given, other drivers run, or LOW_POWER is preferred.
            "declared" places by the costs that devices report.
        measuring: options for "measured": the seconds that it may take, a function for progress, and the
            directory for its figures. With them operations and steps are timed on all devices, too, and
            the plan of least latency is taken. `CompiledModel.placement_report` has the findings.
        manager: the manager whose devices are used; the manager of this process unless given.
        fallback: whether the CPU takes over a step that a device does not prepare, or that fails before the
            deadline. It never takes over from devices that are listed.
        recover: what a call does if a driver has died, which is started again in the background. "wait":
            wait for the new driver until the call's timeout; mostly it is there before the CPU would have
            computed. "raise": raise DeadObject at once, or with a fallback let the CPU compute at once.
        bursts: whether `CompiledModel.execute` uses bursts from a thread's second call on; otherwise it
            always uses the socket.

    Returns:
        The compiled model, which the caller closes.

    Raises:
        InvalidArgument: the file cannot be imported, the model is not valid, a device is unknown, no device
            can run an operation, or another argument is not valid.
        MissedDeadline: compiling took longer than `timeout`.
        Closed: `manager` is closed.
        BadState: this is a forked child, and `manager` is its parent's.
        NnburstError: the error of a device of an explicit list.
        OSError: the file cannot be read, or `cache_dir` cannot be made.
    """
    call = CallTime.of(timeout)
    if recover not in ("wait", "raise"):
        raise InvalidArgument(f"recover: {recover!r}, expected 'wait' or 'raise'")
    is_file = isinstance(model, str | os.PathLike)
    if not is_file and (shapes is not None or as_graph is not None):
        raise InvalidArgument("shapes, as_graph: given, but the model is not the path of a file")

    def compiled() -> CompiledModel:
        network = _network(model, shapes, as_graph)
        known = _manager(manager)
        chosen = _devices(known, devices, network)
        folder = None if cache_dir is None else check_path("cache_dir", cache_dir)
        compilation = Compilation(_framework_model(network, pools), chosen, manager=known)
        compilation.preference = preference
        compilation.priority = NDK_PRIORITIES[validate_priority(priority)]
        if folder is not None:
            _cache(compilation, folder, token)
        _place(compilation, placement, measuring, tries_engines=chosen is None)
        compilation._behave(may_fall_back=bool(fallback), waits_for_drivers=recover == "wait")
        _finish(compilation, call)
        made = CompiledModel(compilation, bursts=bursts)
        if CPU_NAME in made.plan.devices:
            warn_of_reference(network)
        return made

    try:
        return _Compiling(compiled).wait(call)
    except MissedDeadline as error:
        raise MissedDeadline(f"timeout: {timeout:g} s: {error}", status=error.status) from error


def _network(
    model: HalModel | CarriesPools | str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None,
    as_graph: bool | None,
) -> HalModel | CarriesPools:
    """The model itself, or what is read from the file that it names."""
    if not isinstance(model, str | os.PathLike):
        return model
    from nnburst.importer.load import load  # few programs need it

    return load(check_path("model", model), shapes=shapes, as_graph=as_graph)


def _manager(given: Manager | None) -> Manager:
    """The manager to use: that of this process unless one is given."""
    if given is None:
        return Manager.of_process()
    if not isinstance(given, Manager):
        raise InvalidArgument(f"manager is of type {type(given).__name__}, expected a Manager")
    return given


def _devices(
    manager: Manager, given: Sequence[str | Device] | None, model: HalModel | CarriesPools
) -> list[Device] | None:
    """The devices to use, without a fallback; None for those that the manager chooses."""
    if given is None:
        return _graph_devices(manager, model)
    if isinstance(given, str):
        raise InvalidArgument(f"devices: {given!r}, expected a list of devices: [{given!r}]")
    return [_device(manager, device) for device in given]


def _graph_devices(manager: Manager, model: HalModel | CarriesPools) -> list[Device] | None:
    """A list of the device for a model that is a whole file; None for any other model.

    Raises:
        DeviceUnavailable: no device runs it.
    """
    used = [each.name for each in bare_model(model).extension_name_to_prefix if each.name in NAMES]
    if not used:
        return None
    device = manager._graph_device(used[0])
    if device is not None:
        return [device]
    refusal = getattr(model, "refusal", "")
    why = f"; its operations cannot be used: {refusal}" if refusal else ""
    engine = GRAPH_ENGINES[used[0]]
    raise DeviceUnavailable(
        f"the model is a whole graph, which no device here runs: pip install 'nnburst[{engine}]'{why}"
    )


def _device(manager: Manager, device: str | Device) -> Device:
    if isinstance(device, str):
        return manager.device(device)
    if not manager._has(device):
        raise InvalidArgument(f"devices: {device!r} is not a device of this manager")
    return device


def _framework_model(model: HalModel | CarriesPools, pools: Sequence[Pool]) -> Model:
    bare = bare_model(model)
    if isinstance(model, HalModel):
        return Model.of(bare, [Memory._of_pool(share(pool)) for pool in check_pools(pools)])
    if pools:
        raise InvalidArgument(f"pools: {len(pools)} given, the model brings its own")
    carried = [filled_pool(np.ascontiguousarray(content).data) for content in model.pools]
    return Model.of(bare, [Memory._of_pool(pool) for pool in carried])


def _cache(compilation: Compilation, folder: str, token: bytes | None) -> None:
    """Have a compilation use cache files in a folder, which is made if it is missing.

    Args:
        compilation: the compilation.
        folder: the folder.
        token: 32 bytes that identify the model; None for a hash of its content.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    built = compilation.model._built_model
    if token is None:
        token = model_token(built.model, [memory.bytes for memory in built.memories])
    compilation.set_caching(folder, token)


def _place(
    compilation: Compilation, placement: str, measuring: Measuring | None, *, tries_engines: bool
) -> None:
    """Choose how a compilation is placed; "measured" times whole models if `tries_engines`."""
    if placement not in ("declared", "measured"):
        raise InvalidArgument(f"placement: {placement!r}, expected 'declared' or 'measured'")
    if placement == "declared" and measuring is not None:
        raise InvalidArgument("measuring: given, but placement is 'declared'")
    if measuring is not None:
        compilation.place_by_measurement(measuring)
    elif placement == "measured" and tries_engines:
        compilation._try_engines()


def _finish(compilation: Compilation, call: CallTime) -> None:
    """Finish a compilation within the time that is left; it owns the model's memories then."""
    compilation.limit(max(call.left, 1e-9))
    try:
        compilation.finish()
    except BaseException:
        compilation.close()
        raise
    compilation._finished_executable.own(compilation.model._built_model.memories)


class _Compiling:
    """Compiles on a thread, so that the caller can stop waiting for it."""

    def __init__(self, compiled: Callable[[], CompiledModel]) -> None:
        """Begin to call `compiled` on a new thread."""
        self._compiled: Final = compiled
        self._ended: Final = OneTimeEvent()
        self._lock: Final = threading.Lock()
        self._is_given_up = False
        self._made: CompiledModel | None = None
        self._error: BaseException | None = None
        DaemonThread(self._run)

    def _run(self) -> None:
        try:
            self._made = self._compiled()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._ended.set()
            is_given_up = self._is_given_up
        if is_given_up:
            self._close()

    def wait(self, call: CallTime) -> CompiledModel:
        """Wait until it has ended. After a timeout it goes on, and its result is closed.

        Raises:
            MissedDeadline: it has not ended in time.
            BaseException: the exception that ended it.
        """
        has_ended = False
        try:
            has_ended = self._ended.wait(max(call.left, 0.0))
        finally:  # after KeyboardInterrupt, too
            if not has_ended:
                self._abandon()
        if not has_ended:
            raise MissedDeadline("reading, placing and preparing have not ended")
        if self._made is None:
            error, self._error = self._error, None
            assert error is not None
            raise error
        return self._made

    def _abandon(self) -> None:
        with self._lock:
            self._is_given_up, has_ended = True, self._ended.is_set()
        if has_ended:
            self._close()

    def _close(self) -> None:
        if self._made is not None:
            self._made.close()
