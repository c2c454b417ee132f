"""Any order of opening, using, closing and dying, against `life_cycle.py`'s model of what should be there.

There are few runs by default; `NNBURST_LIVES=2000` makes many.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import nnburst
from client.burst_helpers import held_by
from client.life_cycle import (
    Bound,
    Driver,
    Kept,
    OpenBurst,
    Outcome,
    Pool,
    Repeated,
    Served,
    Thing,
    attempt,
    sum_model,
)
from nnburst import BurstBusy, Device, GeneralFailure
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.hal import SyncFence, environment
from nnburst.testing.faults.footprint import footprint, settle

#: Seconds for what ends by itself, on however busy a machine.
LONG = 600.0
#: Bytes of a pool: a view that is kept, and both inputs and the output of more requests than there will be.
POOL = 16 + 100 * 48


def four(number: int) -> np.ndarray:
    """An array in no pool."""
    return np.full(4, number, np.float32)


def one(kind: str) -> Any:
    """Draws one of the machine's objects of a kind."""
    return st.runner().flatmap(lambda machine: st.sampled_from(machine.there(kind)))


def step(of: str, **others: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule that takes one of the machine's objects."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        there = precondition(lambda self: bool(self.there(of)))
        decorated: Callable[..., None] = there(rule(of=one(of), **others)(function))
        return decorated

    return decorate


def warm_up(device: Device) -> None:
    """Use a driver once, since its first use starts things that stay, such as the thread for fences."""
    fence, signaller = SyncFence.create()
    with device.prepare(sum_model()) as prepared, fence:
        launched = execute_fenced(prepared, [four(1), four(1)], wait_for=[fence], timeout=LONG)
        signaller.signal()
        signaller.close()
        launched.result(LONG)
        launched.close()


class LifeCycle(RuleBasedStateMachine):
    """Launched and connected drivers of this process, with all objects that depend on them."""

    served: ClassVar[Served]

    def __init__(self) -> None:
        super().__init__()
        gc.collect()
        self.baseline = footprint(os.getpid())
        self.kinds: defaultdict[str, list[Any]] = defaultdict(list)
        self.numbers = itertools.count(1)

    def keep(self, kind: str, thing: Thing) -> None:
        """Use the object from now on, if it was made."""
        if thing.real is not None:
            self.kinds[kind].append(thing)

    def there(self, kind: str) -> list[Any]:
        """The objects of a kind."""
        return [thing for thing in self.kinds[kind] if thing.real is not None]

    # --- drivers ---

    @initialize(launched=st.sampled_from([False, False, True]))
    def begin(self, launched: bool) -> None:
        """Two drivers with one of everything; lives are too short for all that to come about by chance."""
        for own in (launched, False):
            self.open_driver(own)
            device = self.kinds["devices"][-1]
            self.prepare(of=device)
            self.allocate(of=device)
            model, pool = self.kinds["models"][-1], self.kinds["pools"][-1]
            self.allocate_buffer(of=model)
            self.create_reusable(of=model)
            self.open_aidl_burst(of=model)
            self.open_burst(of=model, limit=2)
            burst = self.kinds["bursts"][-1]
            self.bind(of=burst, pool=None)
            self.bind(of=burst, pool=pool)

    @rule(launched=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: len(self.kinds["devices"]) < 4)
    def another_driver(self, launched: bool) -> None:
        self.open_driver(launched)

    def open_driver(self, launched: bool) -> None:
        device = nnburst.launch("reference") if launched else nnburst.connect(self.served.path)
        driver = Driver(device)
        self.keep("devices", driver)
        warm_up(device)
        driver.held = held_by(device)

    @step(of="devices")
    def kill(self, of: Driver) -> None:
        if of.closed or of.dead:
            return
        noticed = threading.Event()
        of.real.on_death(noticed.set)
        os.kill(of.real.pid, signal.SIGKILL)
        assert noticed.wait(LONG)
        of.dead = True

    # --- models ---

    @step(of="devices")
    def prepare(self, of: Driver) -> None:
        self.keep("models", Thing(attempt(lambda: of.real.prepare(sum_model()), of), (of,)))

    @step(of="devices")
    def prepare_async(self, of: Driver) -> None:
        made = attempt(lambda: of.real.prepare_async(sum_model()), of)
        self.keep("preparations", Outcome(made, (of,)))

    @step(of="preparations")
    def fetch_preparation(self, of: Outcome) -> None:
        if of.real is None:
            return
        pending, of.real = of.real, None
        made = attempt(lambda: pending.result(LONG), *of.hangs_on, may_work=True)
        # What was cut off may have got through; what there is to draw from must not depend on that.
        if not (of.is_closed or of.is_dead):
            self.keep("models", Thing(made, of.hangs_on))
        elif made is not None:
            made.close()

    # --- memory ---

    @step(of="devices")
    def allocate(self, of: Driver) -> None:
        # A pool is the client's memory: a dead driver changes nothing.
        memory = attempt(lambda: of.real.allocate(POOL), of, may_work=of.is_dead)
        assert (memory is None) == of.is_closed
        if memory is None:
            return
        kept = memory.array(np.float32, (4,))
        self.keep("pools", Pool(memory, home=of, kept=kept))

    @step(of="pools")
    def write(self, of: Pool) -> None:
        """A view can be used as long as there is one."""
        of.number = next(self.numbers)
        of.kept[...] = of.number

    @invariant()
    def views_are_as_they_were_left(self) -> None:
        for pool in self.kinds["pools"]:
            assert pool.kept.tolist() == [pool.number] * 4

    @step(of="models")
    def allocate_buffer(self, of: Thing) -> None:
        use = [(of.real, 0)]
        made = attempt(lambda: of.device.real.allocate_buffer(use, use), of)
        self.keep("buffers", Kept(made, of.hangs_on, model=of))

    @step(of="buffers")
    def fill_buffer(self, of: Kept) -> None:
        number = next(self.numbers)

        def fill() -> bool:
            of.real.copy_from(four(number))
            return True

        of.number = number if attempt(fill, of) else None

    @step(of="buffers")
    def read_buffer(self, of: Kept) -> None:
        refused = GeneralFailure if of.number is None else None
        found = attempt(of.real.copy_to, of, refused=refused)
        if found is not None:
            assert found.tolist() == [of.number] * 4

    @step(of="buffers")
    def execute_into_buffer(self, of: Kept) -> None:
        assert of.model is not None
        number = next(self.numbers)
        model = of.model.real
        done = attempt(lambda: model.execute([four(number)] * 2, [of.real]), of, of.model)
        of.number = of.number if done is None else 2 * number

    @step(of="buffers")
    def execute_from_buffer(self, of: Kept) -> None:
        assert of.model is not None
        refused = GeneralFailure if of.number is None else None
        self.check(
            lambda: of.model.real.execute([of.real, four(1)]),  # type: ignore[union-attr]
            (of.number or 0) + 1,
            of,
            of.model,
            refused=refused,
        )

    # --- executions over the socket ---

    @step(of="models", view=st.none() | one("pools"))
    def execute(self, of: Thing, view: Pool | None) -> None:
        self.execute_somehow(of, view)

    @step(of="models", number=st.integers(1, 1000))
    def execute_async(self, of: Thing, number: int) -> None:
        made = attempt(lambda: of.real.execute_async([four(number)] * 2, timeout=LONG), of)
        self.keep("executions", Outcome(made, of.hangs_on, value=2 * number))

    @step(of="executions")
    def fetch_execution(self, of: Outcome) -> None:
        self.fetch(of)

    @step(of="models", number=st.integers(1, 1000), waits=st.booleans())
    def execute_fenced(self, of: Thing, number: int, waits: bool) -> None:
        fence, signaller = SyncFence.create()
        with fence:
            wait_for = [fence] if waits else []
            if not waits:
                signaller.close()
            made = attempt(
                lambda: execute_fenced(
                    of.real, [four(number)] * 2, wait_for=wait_for, timeout=LONG
                ),
                of,
            )
        if made is None:
            signaller.close()
        self.keep(
            "fenced",
            Outcome(made, of.hangs_on, value=2 * number, signaller=signaller if waits else None),
        )

    @step(of="fenced")
    def signal(self, of: Outcome) -> None:
        if of.signaller is not None:
            of.signaller.signal()
            of.signaller.close()
            of.signaller = None

    @step(of="fenced")
    def fetch_fenced(self, of: Outcome) -> None:
        if of.signaller is None or of.is_closed or of.is_dead:
            self.fetch(of)
        elif of.real is not None:
            assert not of.real.done()

    @step(of="models")
    def create_reusable(self, of: Thing) -> None:
        array = four(0)
        made = attempt(lambda: create_reusable_execution(of.real, [array, array]), of)
        self.keep("reusables", Repeated(made, of.hangs_on, array=array))

    @step(of="reusables", with_fence=st.booleans())
    def run_reusable(self, of: Repeated, with_fence: bool) -> None:
        number = next(self.numbers)
        of.array[...] = number

        def run() -> Any:
            if not with_fence:
                return of.real.run(LONG)
            with of.real.run_fenced(timeout=LONG) as launched:
                return launched.result(LONG)

        self.check(run, 2 * number, of)

    @step(of="models")
    def open_aidl_burst(self, of: Thing) -> None:
        self.keep("aidl_bursts", Thing(attempt(lambda: open_aidl_burst(of.real), of), of.hangs_on))

    @step(of="aidl_bursts", view=st.none() | one("pools"))
    def execute_aidl_burst(self, of: Thing, view: Pool | None) -> None:
        self.execute_somehow(of, view)

    @step(of="aidl_bursts", pool=one("pools"))
    def release_memory_resource(self, of: Thing, pool: Pool) -> None:
        # Of a pool that it has never seen, or that was closed, there is nothing to send to the driver.
        attempt(lambda: of.real.release_memory_resource(pool.real), of, may_work=not of.closed)

    # --- bursts over shared memory ---

    @step(of="models", limit=st.integers(1, 2))
    def open_burst(self, of: Thing, limit: int) -> None:
        made = attempt(lambda: of.real.open_burst(max_in_flight=limit), of)
        self.keep("bursts", OpenBurst(made, of.hangs_on, limit=limit))

    @step(of="bursts", view=st.none() | one("pools"))
    def execute_burst(self, of: OpenBurst, view: Pool | None) -> None:
        if self.execute_somehow(of, view):
            of.out.clear()  # it waits for all that were submitted before it

    @step(of="bursts", pool=st.none() | one("pools"))
    def bind(self, of: OpenBurst, pool: Pool | None) -> None:
        # Nothing is sent before the first run, so a dead driver changes nothing.
        if pool is None:
            made = attempt(of.real.bind, of, may_work=of.is_dead)
        else:
            made = attempt(
                lambda: self.bind_in(of, pool),
                of,
                pool,
                may_work=of.is_dead and not pool.closed,
            )
        needs = (of,) if pool is None else (of, pool)
        assert made is None or not any(thing.is_closed for thing in needs)
        if made is not None:
            made.inputs[0][...], made.inputs[1][...] = 0, 1
        self.keep("requests", Bound(made, needs, burst=of))

    @staticmethod
    def bind_in(burst: OpenBurst, pool: Pool) -> Any:
        pool.requests += 1
        places = range(48 * pool.requests - 32, 48 * pool.requests + 16, 16)
        a, b, c = (pool.real.array(np.float32, (4,), offset) for offset in places)
        return burst.real.bind([a, b], [c])

    @step(of="requests")
    def run(self, of: Bound) -> None:
        burst = of.burst
        assert burst is not None
        is_out = [outcome.bound is of for outcome in burst.out]
        if not any(is_out):
            self.write_inputs(of)
        # Room is made first, so a request that is out is free again if it was the oldest of too many.
        stays = is_out[max(len(is_out) - burst.limit + 1, 0) :]
        refused = BurstBusy if any(stays) else None
        of.runs += 1
        if self.check(lambda: of.real.run(LONG), of.number + 1, of, refused=refused):
            burst.out.clear()
        else:
            burst.out = burst.out[max(len(is_out) - burst.limit + 1, 0) :]

    @step(of="requests")
    def submit(self, of: Bound) -> None:
        burst = of.burst
        assert burst is not None
        full = len(burst.out) >= burst.limit
        is_out = any(outcome.bound is of for outcome in burst.out)
        if not is_out:
            self.write_inputs(of)
        made = attempt(of.real.submit, of, refused=BurstBusy if full or is_out else None)
        if made is None:
            return
        of.runs += 1
        outcome = Outcome(made, (burst,), value=of.number + 1, bound=of, run=of.runs)
        burst.out.append(outcome)
        self.keep("submitted", outcome)

    @step(of="submitted")
    def fetch_submitted(self, of: Outcome) -> None:
        """Fetch a submitted request, even if one of its pools was closed in the meantime."""
        assert of.bound is not None
        burst = of.bound.burst
        assert burst is not None
        if of in burst.out:
            burst.collect(burst.out.index(of) + 1)
        # The memory is that of the request, whose later runs write to it, too.
        self.fetch(of, looks=of.run == of.bound.runs)

    def write_inputs(self, bound: Bound) -> None:
        """Write inputs of a bound request, whose memory exists whatever is closed or dead."""
        bound.number = next(self.numbers)
        bound.real.inputs[0][...] = bound.number

    # --- ends ---

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        things = [t for kind in list(self.kinds) for t in self.there(kind) if not t.closed]
        closable = [t for t in things if hasattr(t.real, "close")]
        if closable:
            thing = data.draw(st.sampled_from(closable))
            thing.real.close()
            thing.closed = True

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """Drop the last reference to an object that was not closed."""
        kinds = ("buffers", "bursts", "requests", "submitted", "aidl_bursts", "reusables")
        kinds += ("executions", "preparations", "fenced")
        things = [thing for kind in kinds for thing in self.there(kind)]
        if things:
            self.drop(data.draw(st.sampled_from(things)), close=False)

    def execute_somehow(self, of: Thing, view: Pool | None) -> bool:
        """On arrays in no pool, or on a view, whose pool may have been closed: then it is like any array."""
        if view is None:
            number = next(self.numbers)
            return self.check(lambda: of.real.execute([four(number)] * 2), 2 * number, of)
        return self.check(lambda: of.real.execute([view.kept, view.kept]), 2 * view.number, of)

    @staticmethod
    def check(work: Callable[[], Any], value: int, *things: Any, **expected: Any) -> bool:
        """Execute; whether it worked, and then rightly."""
        result = attempt(work, *things, **expected)
        if result is not None:
            assert result.outputs[0].tolist() == [value] * 4
        return result is not None

    @staticmethod
    def fetch(of: Outcome, *, looks: bool = True) -> None:
        """Work under way is done, or was cut off by an event since then; once done it stays so."""
        if of.real is None:
            return
        needs = () if of.fetched else (*of.hangs_on, of)
        result = attempt(lambda: of.real.result(LONG), *needs, may_work=True)
        of.fetched = result is not None
        if result is not None and looks:
            assert result.outputs[0].tolist() == [of.value] * 4

    def teardown(self) -> None:
        """Check that a client without open objects holds no resources, here and in every driver."""
        drivers = self.kinds.pop("devices", [])
        for thing in itertools.chain(*self.kinds.values()):
            self.drop(thing)
        gc.collect()  # a burst and its submitted requests refer to each other
        for driver in drivers:
            fails = sys.exc_info()[0] is not None
            if driver.held is not None and not (driver.closed or driver.dead or fails):
                warm_up(driver.real)  # what was dropped is sent with the next call
                settle(driver.real.pid, driver.held)
            self.drop(driver)
        self.kinds.clear()
        gc.collect()
        if sys.exc_info()[0] is None:  # else the trace of what has failed holds much
            settle(os.getpid(), self.baseline)
            settle(self.served.supervisor.pid, self.served.baseline)

    @staticmethod
    def drop(thing: Any, *, close: bool = True) -> None:
        """Drop all references to an object's parts."""
        if getattr(thing, "signaller", None) is not None:
            thing.signaller.signal()
            thing.signaller.close()
        if close and hasattr(thing.real, "close"):
            thing.real.close()
        for name in ("real", "kept", "array", "signaller"):
            if hasattr(thing, name):
                setattr(thing, name, None)


@pytest.fixture(scope="module", autouse=True)
def served() -> Iterator[None]:
    """A driver to connect to."""
    LifeCycle.served = Served()
    yield
    LifeCycle.served.close()


TestLifeCycle = LifeCycle.TestCase
TestLifeCycle.settings = settings(
    max_examples=environment.LIVES.read(),
    stateful_step_count=80,
    report_multiple_bugs=False,
    deadline=None,
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # shrinking would take hundreds of drivers
    suppress_health_check=[HealthCheck.too_slow],
)
