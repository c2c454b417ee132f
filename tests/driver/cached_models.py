"""Models whose compilations are cached, and their files as a client opens them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from nnburst.driver.executors import find_executor
from nnburst.driver.model.device import Device
from nnburst.driver.model.pools import Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import PrepareOptions
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import (
    ExecutionPreference,
    OperandLifeTime,
    OperandType,
    OperationType,
    Priority,
)
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Request, RequestArgument

F32, I32, F16 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_INT32, OperandType.TENSOR_FLOAT16
TOKEN = bytes(range(32))
COUNT = 64

needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"
)
EXECUTORS = [
    pytest.param("null", id="null"),
    pytest.param("reference", id="reference"),
    pytest.param("litert", id="litert", marks=needs_litert),
]
COMPUTING = EXECUTORS[1:]


def device(name: str) -> Device:
    """A device as in another process of the same version."""
    return Device(name, find_executor(name)())


def scaling(factor: float = 3.0) -> Model:
    """x · weights + 1: a constant of each kind of size."""
    builder = ModelBuilder()
    x, y = builder.input(F32, (COUNT,)), builder.output(F32, (COUNT,))
    weights = builder.constant(F32, np.arange(COUNT) * factor)
    between, none = builder.temporary(F32, (COUNT,)), builder.scalar(0)
    builder.operation(OperationType.MUL, [x, weights, none], [between])
    builder.operation(OperationType.ADD, [between, builder.constant(F32, np.ones(1)), none], [y])
    return builder.build()


def largest(factor: float = 2.0) -> Model:
    """The two largest of x · factor, times factor: the litert executor runs it in three parts."""
    builder = ModelBuilder()
    x, y = builder.input(F32, (COUNT,)), builder.output(F32, (2,))
    scaled, values = builder.temporary(F32, (COUNT,)), builder.temporary(F32, (2,))
    indices, none = builder.output(I32, (2,)), builder.scalar(0)
    by = builder.constant(F32, np.full(COUNT, factor))
    builder.operation(OperationType.MUL, [x, by, none], [scaled])
    builder.operation(OperationType.TOPK_V2, [scaled, builder.scalar(2)], [values, indices])
    two = builder.constant(F32, np.full(2, factor))
    builder.operation(OperationType.MUL, [values, two, none], [y])
    return builder.build()


def half_precision() -> Model:
    """x + x in float16, which only the reference executor has."""
    builder = ModelBuilder()
    x, y = builder.input(F16, (COUNT,)), builder.output(F16, (COUNT,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def pooled(factor: float = 3.0) -> tuple[Model, list[Pool]]:
    """`scaling` with its constants in a pool."""
    model = scaling(factor)
    values = np.frombuffer(model.operand_values, np.uint8)
    memory = SharedMemory.create(len(values))
    memory.map(writable=True)[: len(values)] = values
    operands = tuple(
        replace(operand, lifetime=OperandLifeTime.CONSTANT_REFERENCE)
        if operand.lifetime == OperandLifeTime.CONSTANT_COPY
        else operand
        for operand in model.main.operands
    )
    main = replace(model.main, operands=operands)
    pools = (MemoryPool(memory.size),)
    return replace(model, main=main, operand_values=b"", pools=pools), [Pool(memory)]


def prepare(of: Device, model: Model, pools: Sequence[Pool] = ()) -> PreparedModel:
    return of.prepare(
        model, pools, PrepareOptions(ExecutionPreference.SUSTAINED_SPEED, Priority.LOW)
    )


def run(prepared: PreparedModel, seed: int = 5) -> list[bytes]:
    """Outputs for an input that `seed` makes."""
    rng, main = np.random.default_rng(seed), prepared.model.main
    operands = [main.operands[i] for i in (*main.input_indexes, *main.output_indexes)]
    sizes = [_size(operand.type, operand.dimensions) for operand in operands]
    starts = [64 * n + sum(sizes[:n]) // 64 * 64 for n in range(len(sizes))]
    memory = SharedMemory.create(starts[-1] + sizes[-1])
    pool = Pool(memory)
    count = len(main.input_indexes)
    for start, operand in zip(starts[:count], operands[:count], strict=True):
        dtype = np.dtype(np.float16 if operand.type == F16 else np.float32)
        values = rng.standard_normal(operand.dimensions).astype(dtype).view(np.uint8)
        np.frombuffer(pool.writable, np.uint8)[start : start + values.size] = values
    arguments = [
        RequestArgument(location=DataLocation(0, start, size))
        for start, size in zip(starts, sizes, strict=True)
    ]
    request = Request(
        tuple(arguments[:count]), tuple(arguments[count:]), (MemoryPool(memory.size),)
    )
    prepared.execute_synchronously(request, [pool])
    found = [bytes(pool.readable[s : s + n]) for s, n in zip(starts, sizes, strict=True)][count:]
    pool.close()
    return found


def _size(kind: int, dimensions: Sequence[int]) -> int:
    return int(np.prod(dimensions)) * (2 if kind == F16 else 4)


class Files:
    """Cache files of one entry, opened as a client opens them."""

    def __init__(self, folder: Path, of: Device, name: str = "entry") -> None:
        model, data = of.compilation_cache.files_needed
        self.model = [folder / f"{name}-model{n}" for n in range(model)]
        self.data = [folder / f"{name}-data{n}" for n in range(data)]

    @contextmanager
    def opened(self, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[tuple[list[int], list[int]]]:
        with ExitStack() as stack:

            def descriptor(path: Path) -> int:
                fd = os.open(path, flags, 0o600)
                stack.callback(os.close, fd)
                return fd

            yield [descriptor(p) for p in self.model], [descriptor(p) for p in self.data]

    def save(self, of: Device, prepared: PreparedModel, token: bytes = TOKEN) -> bool:
        with self.opened() as (model, data):
            return of.compilation_cache.save(prepared, token, model, data)

    def load(self, of: Device, token: bytes = TOKEN) -> PreparedModel:
        with self.opened(os.O_RDWR) as (model, data):
            return of.compilation_cache.load(token, model, data)


def refuses(executor: str, files: Files, token: bytes = TOKEN) -> None:
    with pytest.raises(GeneralFailure):
        files.load(device(executor), token)
