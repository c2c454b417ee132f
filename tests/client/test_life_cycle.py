"""Any order of opening, using, closing and dying, against a dictionary of what should be there."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, precondition, rule

import nnburst
from nnburst import Burst, Closed, DeadObject, Memory, NnburstError
from nnburst.client.bound_request import BoundRequest
from nnburst.client.device import Device
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model

F32 = OperandType.TENSOR_FLOAT32


def sum_model() -> Model:
    """a + b over four floats."""
    builder = nnburst.ModelBuilder()
    a, b, c = builder.input(F32, (4,)), builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    return builder.build()


@dataclass
class Expected:
    """What the model of the world knows about an object: whether it was closed, and what it hangs on."""

    parents: tuple[Expected, ...] = ()
    closed: bool = False
    dead: bool = False
    #: Whether it goes on when what it was made from is closed (a burst outlives its prepared model).
    survives: frozenset[int] = field(default_factory=frozenset)

    @property
    def usable(self) -> bool:
        return not self.closed and not self.is_dead and all(self._carries(p) for p in self.parents)

    @property
    def is_dead(self) -> bool:
        return self.dead or any(p.is_dead for p in self.parents)

    def _carries(self, parent: Expected) -> bool:
        if id(parent) in self.survives:
            return all(parent._carries(p) for p in parent.parents)
        return not parent.closed and all(parent._carries(p) for p in parent.parents)


class LifeCycle(RuleBasedStateMachine):
    """Drivers of this process, and everything that hangs on them."""

    devices = Bundle("devices")
    models = Bundle("models")
    bursts = Bundle("bursts")
    pools = Bundle("pools")
    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self._open: list[Any] = []
        self._numbers = iter(range(1, 10**6))

    @initialize(target=devices)
    def first_launch(self) -> tuple[Device, Expected]:
        return self.launch()

    @rule(target=devices)
    @precondition(lambda self: len(self._open) < 3)
    def launch_another(self) -> tuple[Device, Expected]:
        return self.launch()

    def launch(self) -> tuple[Device, Expected]:
        device = nnburst.launch("reference")
        self._open.append(device)
        return device, Expected()

    @rule(target=models, of=devices)
    def prepare(self, of: tuple[Device, Expected]) -> tuple[PreparedModel | None, Expected]:
        device, expected = of
        made = self._attempt(expected, lambda: device.prepare(sum_model()))
        return made, Expected((expected,), closed=made is None)

    @rule(target=pools, of=devices)
    def allocate(self, of: tuple[Device, Expected]) -> tuple[Memory | None, Expected]:
        device, expected = of
        if expected.closed:
            made = self._attempt(expected, lambda: device.allocate(64))
        else:  # a pool is the client's memory: a dead driver changes nothing
            made = device.allocate(64)
        return made, Expected(closed=made is None)

    @rule(target=bursts, of=models)
    def open_burst(
        self, of: tuple[PreparedModel | None, Expected]
    ) -> tuple[Burst | None, Expected]:
        prepared, expected = of
        made = None
        if prepared is not None:
            made = self._attempt(expected, prepared.open_burst)
        return made, Expected((expected,), closed=made is None, survives=frozenset({id(expected)}))

    @rule(target=requests, of=bursts, pool=st.none() | pools)
    def bind(
        self, of: tuple[Burst | None, Expected], pool: tuple[Memory | None, Expected] | None
    ) -> tuple[BoundRequest | None, Expected]:
        burst, expected = of
        memory, lies_in = pool or (None, Expected())
        if burst is None or not expected.usable:
            return None, Expected(
                closed=True
            )  # arrays that are there can be bound without a driver
        if memory is None:
            made = self._attempt(expected, burst.bind)
            return made, Expected((expected,), closed=made is None)
        if memory.device is not burst.device or lies_in.closed:
            return None, Expected(closed=True)
        a, b, c = (memory.array(np.float32, (4,), offset) for offset in (0, 16, 32))
        made = self._attempt(expected, lambda: burst.bind([a, b], [c]))
        return made, Expected((expected, lies_in), closed=made is None)

    @rule(of=requests)
    def run(self, of: tuple[BoundRequest | None, Expected]) -> None:
        bound, expected = of
        if bound is None:
            return
        number = next(self._numbers)
        bound.inputs[0][...], bound.inputs[1][...] = number, 1
        result = self._attempt(expected, lambda: bound.run(30))
        if result is not None:
            assert result.outputs[0].tolist() == [number + 1] * 4

    @rule(of=models)
    def execute(self, of: tuple[PreparedModel | None, Expected]) -> None:
        prepared, expected = of
        if prepared is None:
            return
        number = next(self._numbers)
        x = np.full(4, number, np.float32)
        result = self._attempt(expected, lambda: prepared.execute([x, x]))
        if result is not None:
            assert result.outputs[0].tolist() == [2 * number] * 4

    @rule(of=st.one_of(devices, models, bursts, pools))
    def close(self, of: tuple[Any, Expected]) -> None:
        thing, expected = of
        if thing is not None:
            thing.close()
            expected.closed = True

    @rule(of=devices)
    def kill(self, of: tuple[Device, Expected]) -> None:
        device, expected = of
        if expected.closed or expected.dead:
            return
        noticed = threading.Event()
        device.on_death(noticed.set)
        os.kill(device.pid, signal.SIGKILL)
        assert noticed.wait(30)
        expected.dead = True

    def teardown(self) -> None:
        for device in self._open:
            device.close()
        self._open.clear()
        gc.collect()

    @staticmethod
    def _attempt(expected: Expected, work: Callable[[], Any]) -> Any:
        """What `work` gives; where it must fail, that it fails as it should."""
        if expected.usable:
            return work()
        try:
            work()
        except Closed:
            return None
        except DeadObject:
            if expected.is_dead:
                return None
            raise
        except NnburstError as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error
        else:
            raise AssertionError("it works on what is closed or dead")


TestLifeCycle = LifeCycle.TestCase
TestLifeCycle.settings = settings(
    max_examples=int(os.environ.get("NNBURST_LIVES", "8")),
    stateful_step_count=30,
    deadline=None,
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # shrinking would start hundreds of drivers
    suppress_health_check=[HealthCheck.too_slow],
)
