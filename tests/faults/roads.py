"""Defines roads: typical uses of nnburst from start to end, in which tests make calls fail or interrupt.

Each road is a generator: it makes its objects, yields a function that runs the road, and closes the objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

import nnburst
import nnburst.hal
from capi.interface import Addition, CInterface
from faults.serving_road import Client, Notes, NotTyped, front
from nnburst import fmq
from nnburst.client.hal import execute_fenced
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import error_for_code
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.devices.manager import Manager
from nnburst.testing.faults.activities import check_sum, sum_model, summands

T = TypeVar("T")


class Kept:
    """Keeps the objects of a road, to close them again after an interrupted end."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def __call__(self, made: T) -> T:
        self._made.append(made)
        return made

    def close(self) -> None:
        while self._made:
            self._made.pop().close()


Road = Callable[[Kept], None]


def _computes(burst: nnburst.Burst) -> None:
    check_sum(burst.execute(summands(3), timeout=20).outputs[0], 3)


def launching() -> Iterator[Road]:
    """A driver from launch to close."""

    def road(keep: Kept) -> None:
        with (
            keep(nnburst.launch("reference")) as device,
            keep(device.prepare(sum_model())) as prepared,
            keep(prepared.open_burst()) as burst,
        ):
            _computes(burst)

    yield road


def preparing() -> Iterator[Road]:
    """A model that is prepared and executed in every way, on a running driver."""
    with nnburst.launch("reference") as device:

        def road(keep: Kept) -> None:
            with keep(device.prepare(sum_model())) as prepared:
                check_sum(prepared.execute(summands(1)).outputs[0], 1)
                check_sum(prepared.execute_async(summands(2)).result(20).outputs[0], 2)
                with keep(prepared.open_burst()) as burst:
                    _computes(burst)

        yield road


def submitting() -> Iterator[Road]:
    """Requests of an open burst, two of them at a time."""
    with (
        nnburst.launch("reference") as device,
        device.prepare(sum_model()) as prepared,
        prepared.open_burst(max_in_flight=2) as burst,
    ):
        bound = [burst.bind(), burst.bind()]
        for number, request in enumerate(bound):
            for array, value in zip(request.inputs, summands(number), strict=True):
                array[...] = value

        def road(keep: Kept) -> None:
            for number, request in enumerate(
                bound
            ):  # what an interruption has left under way ends first
                check_sum(request.run(20).outputs[0], number)
            pending = [request.submit() for request in bound]
            for number, one in enumerate(pending):
                check_sum(one.result(20).outputs[0], number)

        yield road


def awaiting() -> Iterator[Road]:
    """A burst that is awaited, in a new event loop each time."""
    with (
        nnburst.launch("reference") as device,
        device.prepare(sum_model()) as prepared,
    ):

        async def run(keep: Kept) -> None:
            with keep(prepared.open_burst()) as burst:
                bound = burst.bind()
                for array, value in zip(bound.inputs, summands(4), strict=True):
                    array[...] = value
                check_sum((await bound.run_async()).outputs[0], 4)

        loop = asyncio.new_event_loop()  # its descriptors are Python's
        try:
            yield lambda keep: loop.run_until_complete(run(keep))
        finally:
            loop.close()


def planning() -> Iterator[Road]:
    """A model that the framework places on a device."""
    driver = DriverDevice(lambda: nnburst.launch("reference"), name="driver")
    with Manager([driver]) as manager:

        def road(keep: Kept) -> None:
            with keep(nnburst.compile(sum_model(), manager=manager, timeout=20)) as compiled:
                check_sum(compiled.execute(summands(5)).outputs[0], 5)
                with keep(compiled.open_burst()) as burst:
                    _computes(burst)

        yield road


def fencing() -> Iterator[Road]:
    """An execution that waits for a fence, and one that returns a fence."""
    with nnburst.launch("reference") as device, device.prepare(sum_model()) as prepared:

        def road(keep: Kept) -> None:
            fence, signaller = map(keep, nnburst.hal.SyncFence.create())
            with fence, contextlib.closing(signaller):
                signaller.signal()
                with keep(execute_fenced(prepared, summands(6), wait_for=[fence])) as fenced:
                    check_sum(fenced.result(20).outputs[0], 6)

        yield road


class _KeptInterface(CInterface):
    """The C interface with exceptions for error codes; its objects are kept, and freed at the end."""

    class _Handle:
        def __init__(self, c: CInterface, kind: str, handle: int) -> None:
            self._c, self._kind, self._handle = c, kind, handle

        def close(self) -> None:
            self._c.free(self._kind, self._handle)  # one that has ended is refused

    def __init__(self, keep: Kept) -> None:
        super().__init__()
        self._keep = keep

    def call(self, name: str, *args: Any) -> None:
        check_code(name, self.code(name, *args))

    def make(self, name: str, *args: Any) -> int:
        handle = super().make(name, *args)
        if not name.startswith("_"):  # a device's is the process's
            kind = "Event" if "startCompute" in name else name.partition("_")[0]
            self._keep(self._Handle(self, kind, handle))
        return handle


def check_code(name: str, code: int) -> None:
    """Raise the error that a code of the C interface stands for."""
    if code:
        raise error_for_code(ResultCode(code), name)


class _Faults(logging.Handler):
    """Records errors without a code in the C interface, which logs them and returns OP_FAILED."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.found.append(record.exc_info[1])

    def check(self) -> None:
        """Raise the latest one; the others go."""
        found, self.found = self.found, []
        if found:
            raise found[-1] from None


def calling_c() -> Iterator[Road]:
    """The C interface: every way to compute, from model to free."""
    driver = DriverDevice(lambda: nnburst.launch("reference"), name="driver")
    faults = _Faults()
    logging.getLogger("nnburst.capi").addHandler(faults)
    with Manager([driver]) as manager:
        Manager._one = manager

        def road(keep: Kept) -> None:
            faults.check()  # of frees behind a run that was interrupted
            c = _KeptInterface(keep)
            try:
                addition = Addition(c, explicit=True)
                for number, way in enumerate(("burstCompute", "compute") * 2):
                    check_code(way, addition.compute(number, way))
                for number in range(3):  # the library keeps such executions without Python
                    check_code("burstCompute", addition.compute_once(number))
                event = c.make("Execution_startCompute", addition.execution)
                c.call("Event_wait", event)
                keep.close()
            except nnburst.NnburstError:
                faults.check()
                raise
            faults.check()  # frees have no code

        yield road
    Manager._one = None


def serving() -> Iterator[Road]:
    """Inferences by a running front, by both of its protocols."""
    notes = Notes()
    logging.getLogger("nnburst").addHandler(notes)
    with front() as addresses, contextlib.closing(Client()) as client:

        def road(_keep: Kept) -> None:
            client.ask_until_right(addresses)
            if notes.found:
                raise NotTyped(notes.found.pop())

        yield road


def reloading() -> Iterator[Road]:
    """A model that a running front unloads, loads again and executes, by both of its protocols."""
    notes = Notes()
    logging.getLogger("nnburst").addHandler(notes)
    with front() as addresses, contextlib.closing(Client()) as client:

        def road(_keep: Kept) -> None:
            client.ask_until_right(addresses, "unload", "load")
            if notes.found:
                raise NotTyped(notes.found.pop())

        yield road


def queueing() -> Iterator[Road]:
    """A message queue with both ends in this process."""

    def road(keep: Kept) -> None:
        with keep(fmq.MessageQueue.create(np.uint8, 16)) as queue:
            assert queue.write(np.array([7], np.uint8), timeout=5)
            assert queue.read(1, timeout=5) == [7]

    yield road


ROADS = {
    "launch": launching,
    "prepare": preparing,
    "submit": submitting,
    "await": awaiting,
    "plan": planning,
    "fence": fencing,
    "c": calling_c,
    "serve": serving,
    "front": reloading,
    "queue": queueing,
}
#: Roads whose calls are on the main thread, where signal handlers run.
INTERRUPTIBLE = [road for road in ROADS if road not in ("serve", "front")]
