"""Another writer changes the request's memory while operations run: nothing breaks.

Every operation, above all those with an operand that steers (`Role.CONTROL`, `Role.INDEX`), runs with all its
operands as inputs of the request, in memory that a second thread rewrites all the time without holding the
interpreter lock.
Each input and output lies against a page that cannot be touched, so a byte read or written beside it ends the
process. Whatever the bytes are at any moment, an execution ends as NONE or as a failure that an operation
raised itself.

NNBURST_RUNS says how often each operation runs: a few times unless given, 100000 in a campaign.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.base import Argument
from nnburst.executor.graph.operation import REGISTRY
from nnburst.executor.reference.executor import ReferenceExecutor, ReferencePrepared
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.signature import Role
from nnburst.testing.conformance.vectors import Vector, VectorGraph, VectorOperand, build, read
from nnburst.testing.models.random_graphs.builder import SIZES, TEMPLATES, GraphBuilder
from nnburst.testing.models.random_graphs.graphs import as_vector, draw

Bytes = npt.NDArray[np.uint8]

RUNS: Final = environment.RUNS.read()
RUNS_PER_BINDING: Final = 8
#: A case of each operation that random graphs do not draw.
VECTORS: Final = {
    OperationType.BOX_WITH_NMS_LIMIT: "V1_2/box_with_nms_limit_hard",
    OperationType.DETECTION_POSTPROCESSING: "V1_2/detection_postprocess",
    OperationType.GENERATE_PROPOSALS: "V1_3/generate_proposals_quant8_signed",
    OperationType.HEATMAP_MAX_KEYPOINT: "V1_2/heatmap_max_keypoint",
    OperationType.LSH_PROJECTION: "V1_0/lsh_projection",
    OperationType.LSTM: "V1_0/lstm",
    OperationType.QUANTIZED_LSTM: "V1_2/quantized_lstm",
    OperationType.RANDOM_MULTINOMIAL: "V1_2/random_multinomial",
}
_ENDINGS: Final = {
    ErrorStatus.NONE,
    ErrorStatus.GENERAL_FAILURE,
    ErrorStatus.INVALID_ARGUMENT,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
}
_CANARY: Final = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)


def steers(operation: OperationType) -> bool:
    forms = REGISTRY[operation].signature.forms
    return any(slot.role is not Role.DATA for form in forms for slot in form.inputs)


STEERED: Final = [operation for operation in REGISTRY if steers(operation)]
CONTROL_FLOW: Final = {
    OperationType.IF,
    OperationType.WHILE,
}  # their subgraphs' operations are here


class Fence:
    """`size` bytes between two pages that must not be touched, right against one of them."""

    def __init__(self, size: int, *, at_end: bool) -> None:
        page = mmap.PAGESIZE
        room = -(-max(size, 1) // page) * page
        self._map = mmap.mmap(-1, room + 2 * page)
        whole: Bytes = np.frombuffer(self._map, np.uint8)
        address = whole.ctypes.data
        for start in (address, address + page + room):
            if _libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        inside = whole[page : page + room]
        inside[:] = _CANARY
        self.bytes = inside[room - size :] if at_end else inside[:size]
        self._beside = inside[: room - size] if at_end else inside[size:]

    def check(self) -> None:
        """No byte of the same page beside them was written."""
        assert (self._beside == _CANARY).all()


@contextmanager
def rewritten(places: list[Bytes], values: list[bytes]) -> Iterator[None]:
    """Have another thread write noise, small integers and the right values into `places`, in turn."""
    rng = np.random.default_rng(0)
    patterns: list[list[bytes]] = []
    for value in values:
        size, words = len(value), -(-len(value) // 4)
        small = [rng.integers(-2, 4, words, np.int32).tobytes()[:size] for _ in range(3)]
        near = np.frombuffer(value, np.uint8) ^ (rng.random(size) < 0.05).astype(np.uint8)
        patterns.append(
            [value, rng.integers(0, 256, size, np.uint8).tobytes(), *small, near.tobytes(), value]
        )
    fd = os.memfd_create("patterns")
    offsets = []
    for group in patterns:
        offsets.append([os.lseek(fd, 0, os.SEEK_END)])
        for pattern in group:
            os.write(fd, pattern)
            offsets[-1].append(os.lseek(fd, 0, os.SEEK_END))
    stop = threading.Event()

    def write() -> None:
        chance = np.random.default_rng(1)
        while not stop.is_set():
            for place, starts in zip(places, offsets, strict=True):
                # The kernel copies while this thread does not hold the interpreter lock.
                os.preadv(fd, [place], starts[int(chance.integers(len(starts) - 1))])

    thread = threading.Thread(target=write)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
        os.close(fd)


def all_inputs(operation: OperationType, seed: int, shared: Path | None) -> Vector:
    """A case of the operation with every operand an input of the request."""
    if operation in TEMPLATES:
        kind = TEMPLATES[operation].kinds[seed % len(TEMPLATES[operation].kinds)]
        builder = GraphBuilder(np.random.default_rng([operation, seed]), SIZES["single"])
        while not draw(builder, operation, kind):
            pass
        graph = builder.finish("hostile", "single")
        return as_vector(
            replace(graph, operands=tuple(replace(o, source="input") for o in graph.operands))
        )
    assert shared is not None
    vectors = [
        vector
        for vector in read(shared / "vectors" / f"{VECTORS[operation]}.json.gz")
        if not vector.expect_failure and len(vector.main.operations) == 1
    ]
    return constants_as_inputs(vectors[seed % len(vectors)])


def constants_as_inputs(vector: Vector) -> Vector:
    def as_input(operand: VectorOperand) -> VectorOperand:
        if operand.lifetime.startswith("CONSTANT"):
            return msgspec.structs.replace(operand, lifetime="SUBGRAPH_INPUT")
        return operand

    operands = tuple(as_input(o) for o in vector.main.operands)
    inputs = tuple(i for i, o in enumerate(operands) if o.lifetime == "SUBGRAPH_INPUT")
    main: VectorGraph = msgspec.structs.replace(vector.main, operands=operands, inputs=inputs)
    return msgspec.structs.replace(vector, main=main)


def run(vector: Vector, prepared: ReferencePrepared, runs: int, *, at_end: bool) -> Iterator[Any]:
    """Bind and run over rewritten memory: the status and message of each attempt."""
    values = [vector.bytes_of(operand) or b"" for operand in vector.inputs]
    given = [Fence(len(value), at_end=at_end) for value in values]
    taken = [Fence(len(vector.bytes_of(o) or b""), at_end=at_end) for o in vector.outputs]
    inputs = [
        Argument(fence.bytes if value else None, operand.dimensions)
        for fence, value, operand in zip(given, values, vector.inputs, strict=True)
    ]
    outputs = [
        Argument(fence.bytes, operand.dimensions)
        for fence, operand in zip(taken, vector.outputs, strict=True)
    ]
    used = [(fence.bytes, value) for fence, value in zip(given, values, strict=True) if value]
    for place, value in used:
        place[:] = np.frombuffer(value, np.uint8)
    with rewritten([place for place, _ in used], [value for _, value in used]):
        for _ in range(0, runs, RUNS_PER_BINDING):
            try:
                execution = prepared.bind(inputs, outputs)
            except NnburstError as error:
                yield error.status, str(error)
                continue
            for _ in range(RUNS_PER_BINDING):
                outcome = execution.run()
                yield outcome.status, outcome.message
    for fence in (*given, *taken):
        fence.check()


@pytest.mark.counted
@pytest.mark.parametrize(
    "operation",
    [
        *(pytest.param(operation, id=operation.name) for operation in TEMPLATES),
        *(
            pytest.param(operation, id=operation.name, marks=pytest.mark.shared)
            for operation in VECTORS
        ),
    ],
)
def test_memory_that_changes_all_the_time_breaks_no_operation(
    operation: OperationType, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    shared = None if operation in TEMPLATES else request.getfixturevalue("shared_dir")
    cases = 2
    for seed in range(cases):
        vector = all_inputs(operation, seed, shared)
        prepared = ReferenceExecutor().prepare(build(vector).model, [])
        for status, message in run(vector, prepared, RUNS // cases, at_end=seed % 2 == 0):
            assert status in _ENDINGS, message
            assert caplog.records == [], message


def test_every_operation_that_is_steered_is_among_them() -> None:
    assert set(STEERED) - CONTROL_FLOW <= {*TEMPLATES, *VECTORS}


def test_right_values_are_among_those_that_are_written() -> None:
    vector = all_inputs(OperationType.GATHER, 0, None)
    prepared = ReferenceExecutor().prepare(build(vector).model, [])
    ended = {status for status, _ in run(vector, prepared, 4000, at_end=True)}
    assert ErrorStatus.NONE in ended
    assert ended & {ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT}
