"""Measures how late calls of the framework return while drivers are killed, stopped and slow.

    cd tests && python -m faults.overrun --faults 200 [--roads bound,socket] [--busy 2]

For every road × fault × timeout: the milliseconds from its timeout until a call returns or raises. For
comparison there is a bare timed wait in the same process, before the fault ("quiet") and between the same
calls; and the same figures without the time for which a thread was ready and had no core: the calling thread,
and the one of the others that waited longest (`/proc/self/task/*/schedstat`), since it may have held the
interpreter's lock. On a quiet machine this time is 0. Calls during which a hypervisor took time away (`steal`
of `/proc/stat`) are counted separately.

Some hypervisors stop a core without counting it. So a process of real-time priority on each core sleeps for a
millisecond, again and again: while it is late, nothing else can run there either, and such pauses are
subtracted, too. Without the right to that priority they are not told apart, and a line on stderr says so.

The interpreter's collector of garbage looks at all objects of this process now and then, for 20 to 75 ms. As
the page about real-time loops advises, what exists before a fault is frozen: also what the other roads, which
share this process, made since the fault before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np

import nnburst
from nnburst import ModelBuilder, OperandType, OperationType
from nnburst.capi import installed
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError, error_for_code
from nnburst.runtime import Compilation, Execution, Manager
from nnburst.runtime.devices.driver_device import DriverDevice

FAULTS: Final = ("kill", "stop", "slow")
#: Milliseconds.
TIMEOUTS: Final = (2, 4, 20, 200)
#: Seconds: of a call that must succeed; after which one hangs; that a fault is looked at for, at most.
PATIENCE: Final = 60.0
HANG: Final = 5.0
LOOK, LONGEST_LOOK = 0.6, 4.0
#: What a call may end with instead of a result.
TYPED: Final = (
    ResultCode.MISSED_DEADLINE_TRANSIENT,
    ResultCode.MISSED_DEADLINE_PERSISTENT,
    ResultCode.DEAD_OBJECT,
)
EXECUTOR: Final = "nnburst.testing.faults.executors:Delayed"

Array = np.ndarray[Any, np.dtype[np.float32]]


class Stall(NamedTuple):
    """A wait of a millisecond in an event loop.

    Attributes:
        until: moment of its end (CLOCK_MONOTONIC, in seconds).
        late: milliseconds that it took too long.
        waited: milliseconds for which the loop's thread was ready to run and had no core.
    """

    until: float
    late: float
    waited: float


class Road(Protocol):
    """One way to execute.

    Attributes:
        name: name in the table.
        victims: names of the devices that it needs.
        x: the input; its first element is the number of milliseconds that drivers sleep.
        stalls: for which time its event loop was blocked, if it has one.
    """

    name: str
    victims: Sequence[str]
    x: Array
    stalls: list[Stall]

    def call(self, timeout: float) -> Array:
        """Execute once."""

    def expected(self) -> Array:
        """The result of `x`."""

    def settle(self) -> None:
        """Wait until another call may be made."""

    def close(self) -> None:
        """Close the road."""


class PlanRoad:
    """A compiled model over two drivers: (x + x) * x."""

    def __init__(self, manager: Manager, way: str, *, explicit: bool) -> None:
        self.name = f"plan {way}, {'explicit' if explicit else 'default'}"
        self.victims = ("first", "second")
        devices = self.victims if explicit else None
        self._compiled = nnburst.compile(chain(), devices, manager=manager)
        self._burst = self._compiled.open_burst()
        self._request = self._burst.bind()
        self._way = getattr(self, f"_{way}")
        self._loop = asyncio.new_event_loop()
        self.stalls: list[Stall] = []
        self.x = np.zeros((1, 3), np.float32)

    def expected(self) -> Array:
        return (self.x + self.x) * self.x

    def call(self, timeout: float) -> Array:
        found: Array = self._way(timeout).outputs[0]
        return found

    def _bound(self, timeout: float) -> Any:
        self._request.inputs[0][...] = self.x
        return self._request.run(timeout)

    def _arrays(self, timeout: float) -> Any:
        return self._burst.execute([self.x], timeout=timeout)

    def _socket(self, timeout: float) -> Any:
        return self._compiled.execute([self.x], timeout=timeout)

    def _submit(self, timeout: float) -> Any:
        self._request.inputs[0][...] = self.x
        began = time.monotonic()
        pending = self._request.submit(timeout)
        return pending.result(max(timeout - (time.monotonic() - began), 1e-9))

    def settle(self) -> None:
        until = time.monotonic() + HANG
        while self._request.in_flight:
            assert time.monotonic() < until, "a submission that was given up stays under way"
            time.sleep(0.0002)

    def _await(self, timeout: float) -> Any:
        return self._loop.run_until_complete(self._await_beside_a_clock(timeout))

    async def _await_beside_a_clock(self, timeout: float) -> Any:  # noqa: ASYNC109
        clock = asyncio.ensure_future(self._tick())
        try:
            return await self._compiled.execute_async([self.x], timeout=timeout)
        finally:
            clock.cancel()

    async def _tick(self) -> None:
        """Note for how long the loop is blocked, beside a wait of a millisecond."""
        thread = str(threading.get_native_id())
        while True:
            without, before = _seconds_without_core_of(thread), time.monotonic()
            await asyncio.sleep(0.001)
            now = time.monotonic()
            waited = _seconds_without_core_of(thread) - without
            self.stalls.append(Stall(now, (now - before - 0.001) * 1e3, waited * 1e3))

    def close(self) -> None:
        self._loop.close()
        self._burst.close()
        self._compiled.close()


class ObjectRoad:
    """NNAPI's objects over one listed driver, for which NNAPI allows a timeout: x + x."""

    def __init__(self, manager: Manager, way: str) -> None:
        self.name = f"runtime {way}"
        self.victims = ("first",)
        self._compilation = Compilation(addition(), [manager.device("first")], manager=manager)
        self._compilation.finish()
        self._burst = self._compilation.burst()
        self._way = way
        self._executions: dict[float, Execution] = {}
        self.stalls: list[Stall] = []
        self.x, self._y = (np.zeros((1, 3), np.float32) for _ in range(2))

    def expected(self) -> Array:
        return self.x + self.x

    def settle(self) -> None:
        return

    def call(self, timeout: float) -> Array:
        execution = self._executions.get(timeout)
        if execution is None:
            execution = self._executions[timeout] = self._compilation.execution()
            execution.reusable, execution.timeout = True, timeout
            execution.set_input(0, self.x)
            execution.set_output(0, self._y)
        if self._way == "compute":
            execution.compute()
        elif self._way == "burst":
            execution.burst_compute(self._burst)
        else:
            (execution.start() if self._way == "start" else execution.start_after([])).wait()
        return self._y

    def close(self) -> None:
        for execution in self._executions.values():
            execution.close()
        self._burst.close()
        self._compilation.close()


class CRoad:
    """The C interface over one listed driver: a + 1."""

    def __init__(self, manager: Manager, way: str) -> None:
        from capi.interface import Addition, CInterface

        self.name = f"C {way}"
        self.victims = ("first",)
        del manager  # that of the process
        self._c = CInterface()
        self._addition = Addition(self._c, explicit=True, devices=1)
        self._way = way
        self._executions: dict[float, int] = {}
        self.stalls: list[Stall] = []
        self.x = np.zeros((16,), np.float32)

    def expected(self) -> Array:
        return self.x + 1

    def settle(self) -> None:
        return

    def call(self, timeout: float) -> Array:
        addition = self._addition
        execution = self._executions.get(timeout)
        if execution is None:
            execution = self._executions[timeout] = self._c.make(
                "Execution_create", addition.compilation
            )
            self._c.call("Execution_setReusable", execution, ctypes.c_bool(True))
            self._c.call("Execution_setTimeout", execution, ctypes.c_uint64(int(timeout * 1e9)))
            addition.set_arguments(execution)
        addition.a[:], addition.b[:] = self.x, 1
        args = [execution, addition.burst] if self._way == "burstCompute" else [execution]
        code = self._c.code(f"Execution_{self._way}", *args)
        if code:
            raise error_for_code(ResultCode(code), "from C")
        found: Array = addition.y
        return found

    def close(self) -> None:
        for execution in self._executions.values():
            self._c.free("Execution", execution)
        self._addition.close()


def chain() -> nnburst.Model:
    """(x + x) * x: a step of each of the two drivers."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, 3))
    s = builder.temporary(OperandType.TENSOR_FLOAT32, (1, 3))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, 3))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [s])
    builder.operation(OperationType.MUL, [s, x, builder.scalar(0)], [y])
    return builder.build()


def addition() -> Any:
    """x + x, as NNAPI's objects have it."""
    from runtime.building import Built

    built = Built()
    x, y = built.tensor(1, 3), built.tensor(1, 3)
    built.add(x, x, y)
    return built.finish([x], [y])


def roads(manager: Manager) -> list[Callable[[], Road]]:
    """Functions that open each road; those of C need its library and the process's own manager."""
    ways = ("bound", "arrays", "socket", "submit", "await")
    made: list[Callable[[], Road]] = [
        lambda way=way, explicit=explicit: PlanRoad(manager, way, explicit=explicit)  # type: ignore[misc]
        for way in ways
        for explicit in (False, True)
    ]
    made += [
        lambda way=way: ObjectRoad(manager, way)  # type: ignore[misc]
        for way in ("compute", "burst", "start", "fenced")
    ]
    if installed.LIBRARY.is_file():
        made += [lambda way=way: CRoad(manager, way) for way in ("compute", "burstCompute")]  # type: ignore[misc]
    return made


# -- faults ----------------------------------------------------------------------------------------

#: Takes "PID SIGNAL SECONDS" lines, and answers each with the moment (CLOCK_MONOTONIC) of its signal.
_STRIKER: Final = """
import os, sys, time
for line in sys.stdin:
    pid, number, seconds = line.split()
    time.sleep(float(seconds))
    print(time.monotonic(), flush=True)
    os.kill(int(pid), int(number))
"""


class Striker:
    """A process that sends signals, so that no thread of this one wakes for it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _STRIKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def strike(self, pid: int, number: int, seconds: float) -> None:
        """Send a signal after `seconds`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid} {int(number)} {seconds}\n")
        self._process.stdin.flush()

    def has_struck(self, patience: float = 0) -> bool:
        """Whether the signal was sent; reads the report of it."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], patience)
        return bool(readable) and bool(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(HANG)
        self._process.stdout.close()


#: Sleeps for a millisecond on one core, ahead of all others, and prints from when until when it was late.
_HEARTBEAT: Final = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("ready", flush=True)
due = time.monotonic() + 0.001
while os.getppid() == int(sys.argv[2]):
    time.sleep(max(due - time.monotonic(), 0))
    now = time.monotonic()
    if now - due > 0.001:
        print(due, now, flush=True)
    due = now + 0.001
"""


class Heartbeats:
    """A process on each core that notices when the core stands still."""

    #: Seconds until a pause that has ended is reported.
    _REPORTED = 0.005

    def __init__(self) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-S", "-c", _HEARTBEAT, str(core), str(os.getpid())],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for core in sorted(os.sched_getaffinity(0))
        ]
        self._pauses: list[list[tuple[float, float]]] = []
        self._unread: list[bytes] = []
        self.are_heard = True
        for process in self._processes:
            assert process.stdout is not None
            self.are_heard &= process.stdout.readline() == b"ready\n"
            os.set_blocking(process.stdout.fileno(), False)
            self._pauses.append([])
            self._unread.append(b"")

    def paused(self, since: float, until: float) -> float:
        """The milliseconds of this time for which a core stood still: of the one that did so longest."""
        time.sleep(self._REPORTED)
        self._read()
        return 1e3 * max(
            sum(max(min(end, until) - max(begin, since), 0.0) for begin, end in pauses)
            for pauses in self._pauses
        )

    def _read(self) -> None:
        for number, process in enumerate(self._processes):
            assert process.stdout is not None
            with contextlib.suppress(BlockingIOError):
                self._unread[number] += os.read(process.stdout.fileno(), 1 << 16)
            *lines, self._unread[number] = self._unread[number].split(b"\n")
            for line in lines:
                begin, end = line.split()
                self._pauses[number].append((float(begin), float(end)))

    def close(self) -> None:
        for process in self._processes:
            assert process.stdout is not None
            process.kill()
            process.wait(HANG)
            process.stdout.close()


# -- measuring -------------------------------------------------------------------------------------

#: Milliseconds from which on a late call or a stall may be due to a core that stood still.
SUSPECT: Final = 1.0


@dataclass
class Late:
    """Overruns in ms, with the part for which a thread had no core or a core stood still; those with stolen
    time apart."""

    overruns: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    stolen: list[float] = field(default_factory=list)

    def add(self, overrun: float, waited: float, stolen: bool) -> None:
        """Add an overrun."""
        if stolen:
            self.stolen.append(overrun)
        else:
            self.overruns.append(overrun)
            self.waited.append(waited)

    def __iadd__(self, other: Late) -> Self:
        self.overruns += other.overruns
        self.waited += other.waited
        self.stolen += other.stolen
        return self

    @property
    def own(self) -> list[float]:
        """The overruns without these parts."""
        return [max(o - w, 0.0) for o, w in zip(self.overruns, self.waited, strict=True)]

    @property
    def figures(self) -> str:
        """Median, 99th percentile and longest; the same of `own`."""
        if not self.overruns:
            return "-"
        parts = [
            "{:7.2f} {:8.2f} {:8.2f}".format(*np.percentile(values, [50, 99]), max(values))
            for values in (self.overruns, self.own)
        ]
        return f"{parts[0]} |{parts[1]}"


@dataclass
class Row:
    """The measurements on one road under one fault."""

    calls: Late = field(default_factory=Late)
    bare_quiet: Late = field(default_factory=Late)
    bare: Late = field(default_factory=Late)
    stalls: Late = field(default_factory=Late)
    results: int = 0
    missed: int = 0
    dead: int = 0

    @property
    def hung(self) -> int:
        """Calls that ended, but seconds after their timeouts."""
        return sum(late > HANG * 1e3 for late in (*self.calls.overruns, *self.calls.stolen))


class Clock:
    """Measures by how much calls exceed their timeouts."""

    def __init__(self) -> None:
        self._stat = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._heartbeats = Heartbeats()

    @property
    def notices_pauses(self) -> bool:
        """Whether cores that stand still are noticed."""
        return self._heartbeats.are_heard

    def time(self, work: Callable[[float], Any], timeout: float, late: Late) -> Any:
        """Call `work` and note its overrun; its result, or the nnburst error that it raised."""
        stolen, without = self._steal(), _seconds_without_core()
        began = time.monotonic()
        try:
            result = work(timeout)
        except NnburstError as error:
            result = error
        ended = time.monotonic()
        overrun = max(ended - began - timeout, 0.0) * 1e3
        own, other = _longest_without_core(without)
        is_stolen = self._steal() > stolen
        late.add(overrun, self._excused(overrun, (own + other) * 1e3, began, ended), is_stolen)
        return result

    def note(self, stall: Stall, late: Late) -> None:
        """Note a stall of an event loop."""
        began = stall.until - stall.late * 1e-3
        late.add(stall.late, self._excused(stall.late, stall.waited, began, stall.until), False)

    def _excused(self, overrun: float, waited: float, began: float, ended: float) -> float:
        """The milliseconds for which a thread had no core, or a core stood still, whichever is more."""
        if overrun - waited < SUSPECT or not self._heartbeats.are_heard:
            return waited
        return max(waited, self._heartbeats.paused(began, ended))

    def _steal(self) -> int:
        return int(os.pread(self._stat, 200, 0).split()[8])

    def close(self) -> None:
        os.close(self._stat)
        self._heartbeats.close()


def _seconds_without_core_of(thread: str) -> float:
    """The seconds for which a thread of this process was ready to run and had no core."""
    text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
    return int(text.split()[1]) * 1e-9


def _seconds_without_core() -> dict[str, float]:
    """The seconds for which each thread of this process was ready to run and had no core."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            found[thread] = _seconds_without_core_of(thread)
    return found


def _longest_without_core(before: dict[str, float]) -> tuple[float, float]:
    """These seconds since `before`: of this thread, and the most of any other."""
    now, me = _seconds_without_core(), str(threading.get_native_id())
    gone = {thread: seconds - before.get(thread, 0.0) for thread, seconds in now.items()}
    own = gone.pop(me)
    return own, max(gone.values(), default=0.0)


_never: Final = threading.Lock()
_never.acquire()


def bare_wait(timeout: float) -> None:
    """The shortest timed wait that releases the interpreter's lock."""
    _never.acquire(timeout=timeout)


class Trial:
    """One fault on one road."""

    def __init__(self, road: Road, manager: Manager, striker: Striker, clock: Clock) -> None:
        self._road, self._manager, self._striker, self._clock = road, manager, striker, clock
        self._number = 0

    def settle(self) -> None:
        """Call until three calls in a row give the right result."""
        until, right = time.monotonic() + PATIENCE, 0
        while right < 3:
            assert time.monotonic() < until, f"{self._road.name}: no result within {PATIENCE} s"
            try:
                self._next(0)
                self._check(self._road.call(PATIENCE))
                right += 1
            except NnburstError as error:
                if error.code not in TYPED:
                    raise
                right = 0

    def run(self, fault: str, timeout: float, chance: random.Random, row: Row) -> None:
        """Settle, inject the fault, and measure calls."""
        self.settle()
        self._clock.time(bare_wait, timeout, row.bare_quiet)
        pid = 0
        if fault != "slow":
            device = self._manager.device(chance.choice(list(self._road.victims)))
            assert isinstance(device, DriverDevice)
            pid = device.pid
            number = signal.SIGKILL if fault == "kill" else signal.SIGSTOP
            self._striker.strike(pid, number, chance.uniform(0, min(2 * timeout, 0.05)))
        struck = time.monotonic()
        has_struck, calls = fault == "slow", 0
        try:
            while True:
                slow = chance.uniform(0.3, 3) * timeout * 1e3 if fault == "slow" else 0
                self._next(slow)
                has_result = self._call(timeout, row)
                calls += 1
                if not has_struck:
                    has_struck = self._striker.has_struck()
                    struck = time.monotonic()
                    continue
                looked = time.monotonic() - struck
                if (
                    looked > LONGEST_LOOK
                    or (looked > LOOK and calls > 3 and has_result)
                    or (looked > LOOK and calls > 3 and fault != "kill")
                ):
                    break
                self._clock.time(bare_wait, min(timeout, 0.004), row.bare)
        finally:
            if not has_struck:
                self._striker.has_struck(HANG)
            if fault == "stop":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self._next(0)
        for stall in self._road.stalls:
            self._clock.note(stall, row.stalls)
        self._road.stalls.clear()

    def _next(self, slow_ms: float) -> None:
        """Change the input, so that another call's result is not mistaken for this one's."""
        self._road.settle()
        self._number = self._number % 1000 + 1
        self._road.x[..., 1:] = self._number
        self._road.x.flat[0] = slow_ms

    def _call(self, timeout: float, row: Row) -> bool:
        found = self._clock.time(self._road.call, timeout, row.calls)
        if isinstance(found, NnburstError):
            assert found.code in TYPED, f"{self._road.name}: {found!r}"
            row.dead += found.code == ResultCode.DEAD_OBJECT
            row.missed += found.code != ResultCode.DEAD_OBJECT
            return False
        self._check(found)
        row.results += 1
        return True

    def _check(self, found: Array) -> None:
        expected = self._road.expected()
        assert np.array_equal(found, expected), f"{self._road.name}: {found}, expected {expected}"


def campaign(
    manager: Manager,
    faults: int,
    chance: random.Random,
    wanted: Iterable[str] = (),
    kinds: Sequence[str] = FAULTS,
) -> dict[tuple[str, str], Row]:
    """Inject each fault `faults` times over all roads and timeouts; the figures by fault and road."""
    rows: dict[tuple[str, str], Row] = {}
    striker, clock = Striker(), Clock()
    if not clock.notices_pauses:
        print(
            "real-time priority is not permitted: pauses of cores are not told apart",
            file=sys.stderr,
        )
    opened: list[Road] = []
    wanted = tuple(wanted)
    try:
        for open_road in roads(manager):
            road = open_road()
            opened.append(road)
        chosen = [r for r in opened if not wanted or any(w in r.name for w in wanted)]
        for fault in kinds:
            pairs = [(road, t * 1e-3) for t in TIMEOUTS for road in chosen]
            chance.shuffle(pairs)
            for count in range(faults):
                road, timeout = pairs[count % len(pairs)]
                row = rows.setdefault((fault, road.name), Row())
                gc.collect()
                gc.freeze()
                Trial(road, manager, striker, clock).run(fault, timeout, chance, row)
                Trial(road, manager, striker, clock).settle()
    finally:
        gc.unfreeze()
        for road in opened:
            road.close()
        clock.close()
        striker.close()
    return rows


def table(rows: dict[tuple[str, str], Row]) -> Iterator[str]:
    """A line of figures for each fault and road, and one for each fault in all."""
    yield (
        f"{'ms beyond the timeout':<34} {'calls':>6} {'right':>6} {'missed':>6} {'dead':>5} {'hung':>4}"
        f"  {'p50':>7} {'p99':>8} {'max':>8} |{'less no core: p50':>7} {'p99':>5} {'max':>8}"
    )
    for fault in FAULTS:
        total, quiet, bare, stalls = Late(), Late(), Late(), Late()
        for (kind, name), row in rows.items():
            if kind != fault:
                continue
            total += row.calls
            quiet += row.bare_quiet
            bare += row.bare
            stalls += row.stalls
            count = len(row.calls.overruns) + len(row.calls.stolen)
            yield (
                f"{fault:<5} {name:<28} {count:>6} {row.results:>6} {row.missed:>6} {row.dead:>5}"
                f" {row.hung:>4}  {row.calls.figures}"
            )
        if total.overruns:
            for what, late in (
                ("stalls of the event loop", stalls),
                ("ALL", total),
                ("bare wait, quiet", quiet),
                ("bare wait, between", bare),
            ):
                stolen = f"; stolen {len(late.stolen)}" if late.stolen else ""
                yield f"{fault:<5} {what:<28} {len(late.overruns):>6} {'':>24}  {late.figures}{stolen}"


@contextlib.contextmanager
def two_drivers() -> Iterator[Manager]:
    """The manager of this process, over two drivers that do one operation each."""
    from runtime.half_drivers import two_halves

    before = Manager._one
    with two_halves(EXECUTOR) as manager:
        Manager._one = manager
        try:
            yield manager
        finally:
            Manager._one = before


def main() -> None:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--roads", default="", help="parts of their names, by commas")
    parser.add_argument("--kinds", default=",".join(FAULTS))
    parser.add_argument(
        "--busy", type=int, default=0, help="threads of Python that compute meanwhile"
    )
    options = parser.parse_args()
    logging.getLogger("nnburst").setLevel(logging.ERROR)
    for _ in range(options.busy):
        threading.Thread(target=_compute, daemon=True).start()
    wanted = [part for part in options.roads.split(",") if part]
    with two_drivers() as manager:
        rows = campaign(
            manager, options.faults, random.Random(options.seed), wanted, options.kinds.split(",")
        )
    for line in table(rows):
        print(line)


def _compute() -> None:
    while True:
        sum(range(1000))


if __name__ == "__main__":
    main()
