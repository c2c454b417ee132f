"""The nnburst cases: drivers on the other core, bursts on small models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from nnburst.bench.contestants import Contestant, Looped
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.burst import Burst
from nnburst.client.device import Device
from nnburst.client.launch import launch
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

#: float32 elements of the large input: 150 KB, as a camera or spectrogram gives.
LARGE = 150 * 256
_TURNS = 32
#: float32 elements of 256 bytes.
SMALL = 64


def adding_model(inputs: int, outputs: int, elements: int = 4) -> Model:
    """A model with so many inputs and outputs; the null executor ignores its operations."""
    builder = ModelBuilder()
    given = [builder.input(OperandType.TENSOR_FLOAT32, (1, elements)) for _ in range(inputs)]
    none = builder.scalar(0)
    for index in range(outputs):
        pair = [given[index % inputs], given[(index + 1) % inputs], none]
        target = builder.output(OperandType.TENSOR_FLOAT32, (1, elements))
        builder.operation(OperationType.ADD, pair, [target])
    return builder.build()


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Keep the calling thread on one core."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def null_driver(core: int, *, polling_window_us: int | None = None) -> Iterator[Device]:
    """A driver with the null executor on one core."""
    environment = dict(os.environ)
    if polling_window_us is not None:
        environment["NNBURST_BURST_SERVER_POLLING_WINDOW"] = str(polling_window_us)
    with launch("null", cpus={core}, env=environment) as device:
        yield device


def open_bound(
    stack: ExitStack, device: Device, model: Model, spin_window: float | None = None
) -> tuple[Burst, BoundRequest]:
    """A burst and a bound request that live as long as `stack`."""
    prepared = stack.enter_context(device.prepare(model))
    burst = stack.enter_context(prepared.open_burst(spin_window=spin_window))
    return burst, burst.bind()


def burst_cases(stack: ExitStack, device: Device) -> Sequence[Contestant]:
    """`bound.run()` on one and on many operands, on arrays, and with a large tensor."""
    _, one = open_bound(stack, device, adding_model(1, 1))
    _, many = open_bound(stack, device, adding_model(8, 4))
    burst, _ = open_bound(stack, device, adding_model(1, 1, SMALL))
    pools, placed = open_bound(stack, device, adding_model(1, 1, SMALL))
    array = np.ones((1, SMALL), np.float32)
    pooled = [placed.inputs[0]]
    result = [placed.outputs[0]]
    function = burst.function()
    return [
        Looped("null_1in1out", one.run),
        Looped("null_8in4out", many.run),
        Looped("execute_arrays", lambda: burst.execute([array])),
        Looped("execute_pooled_arrays", lambda: pools.execute(pooled, result)),
        Looped("burst_function", lambda: function(array)),
        *_large_cases(stack, device),
    ]


def _large_cases(stack: ExitStack, device: Device) -> Sequence[Contestant]:
    """150 KB written in place for every run: into one slot, and into 32 in turn."""
    prepared = stack.enter_context(device.prepare(adding_model(1, 1, LARGE)))
    burst = stack.enter_context(prepared.open_burst())
    source = np.ones((1, LARGE), np.float32)
    bounds = [burst.bind() for _ in range(_TURNS)]
    untouched = bounds[0]

    def one_slot() -> None:
        bounds[0].inputs[0][...] = source
        bounds[0].run()

    position = 0

    def in_turn() -> None:
        nonlocal position
        position = (position + 1) % _TURNS
        bound = bounds[position]
        bound.inputs[0][...] = source
        bound.run()

    return [
        Looped("null_150KB_not_rewritten", untouched.run),
        Looped("null_150KB_one_slot", one_slot),
        Looped("null_150KB_32_in_turn", in_turn),
    ]
