"""Another writer changes the request's memory while operations run: nothing breaks.

Whatever the bytes are at any moment, an execution ends as NONE or as a failure that an operation
raised itself, and no byte beside an output changes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from nnburst.executor.protocol import Argument, Outcome
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.testing.random_graphs.as_vector import as_vector
from nnburst.testing.random_graphs.builder import SIZES, GraphBuilder
from nnburst.testing.random_graphs.generate import draw
from nnburst.testing.random_graphs.templates import TEMPLATES
from nnburst.testing.vectors import Vector, build

_SIZE = 1 << 14
_CANARY = 0xA5


@contextmanager
def scribbled() -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Memory into which another thread writes all the time: noise, and small integers."""
    memory = np.zeros(_SIZE, np.uint8)
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, _SIZE, np.uint8) for _ in range(2)]
    small = [rng.integers(-2, 4, _SIZE // 4, np.int32).view(np.uint8) for _ in range(4)]
    stop = threading.Event()

    def scribble() -> None:
        while not stop.is_set():
            for pattern in noise + small:
                memory[...] = pattern

    thread = threading.Thread(target=scribble)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield memory
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


def all_inputs(operation: OperationType, seed: int) -> Vector:
    """The operation with every operand a model input."""
    kind = TEMPLATES[operation].kinds[seed % len(TEMPLATES[operation].kinds)]
    builder = GraphBuilder(np.random.default_rng([operation, seed]), SIZES["single"])
    while not draw(builder, operation, kind):
        pass
    graph = builder.finish("hostile", "single")
    return as_vector(
        replace(graph, operands=tuple(replace(o, source="input") for o in graph.operands))
    )


def bind_and_run(vector: Vector, memory: np.ndarray) -> Iterator[Outcome]:
    place = 0
    inputs = []
    for operand in vector.inputs:
        size = len(vector.bytes_of(operand) or b"")
        inputs.append(Argument(memory[place : place + size], operand.dimensions))
        place += -(-size // 64) * 64
    rooms = [len(vector.bytes_of(o) or b"") for o in vector.outputs]
    buffers = [np.full(room + 128, _CANARY, np.uint8) for room in rooms]
    outputs = [
        Argument(buffer[64:-64], o.dimensions)
        for buffer, o in zip(buffers, vector.outputs, strict=True)
    ]
    prepared = ReferenceExecutor().prepare(build(vector).model, [])
    try:
        execution = prepared.bind(inputs, outputs)
    except NnburstError as error:
        yield Outcome(error.status, (), str(error))
        return
    for _ in range(4):
        yield execution.run()
    for buffer in buffers:
        assert (buffer[:64] == _CANARY).all()
        assert (buffer[-64:] == _CANARY).all()


def test_memory_that_changes_all_the_time_breaks_no_operation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = set()
    with scribbled() as memory:
        for operation in TEMPLATES:
            for seed in range(2):
                for outcome in bind_and_run(all_inputs(operation, seed), memory):
                    ended.add(outcome.status)
                    assert caplog.records == [], (operation.name, outcome.message)
    failures = {ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT}
    assert ErrorStatus.NONE in ended
    assert ended & failures
    assert ended <= {ErrorStatus.NONE, *failures}
