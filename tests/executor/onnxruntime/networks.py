"""Small models of core operations for tests of the `onnxruntime` executor, and runs of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from nnburst.client.prepared_model import PreparedModel
from nnburst.executor.base import Argument, Executor
from nnburst.executor.onnxruntime.network import lower
from nnburst.formats.onnx_model import read_model
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import DTYPES, Model
from nnburst.hal.model_builder import ModelBuilder

F32 = OperandType.TENSOR_FLOAT32
I32 = OperandType.TENSOR_INT32
Array = np.ndarray[Any, Any]


class Chain:
    """A model that is written operation after operation; each reads what the one before has made."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.builder = ModelBuilder()
        self._random = np.random.default_rng(seed)
        self.now, self.shape = self.builder.input(F32, tuple(shape)), tuple(shape)

    def weights(self, *shape: int) -> int:
        return self.builder.constant(F32, self._random.standard_normal(shape).astype(np.float32))

    def integers(self, *numbers: int) -> int:
        return self.builder.constant(I32, np.array(numbers, np.int32))

    def then(
        self, kind: OperationType, shape: Sequence[int], *more: int, last: bool = False
    ) -> int:
        """An operation that reads the last result and `more`; its result."""
        make = self.builder.output if last else self.builder.temporary
        made = make(F32, tuple(shape))
        self.builder.operation(kind, [self.now, *more], [made])
        self.now, self.shape = made, tuple(shape)
        return made

    def convolution(self, channels: int, activation: int = 1, *, last: bool = False) -> int:
        """A convolution of 3 x 3 as NNAPI has it: NHWC, implicit padding SAME, RELU unless given."""
        n, h, w, depth = self.shape
        one, fused = self.builder.scalar(1), self.builder.scalar(activation)
        operands = [self.weights(channels, 3, 3, depth), self.weights(channels), one, one, one]
        kind = OperationType.CONV_2D
        return self.then(kind, (n, h, w, channels), *operands, fused, last=last)

    def transpose(self, *order: int, last: bool = False) -> int:
        shape = [self.shape[axis] for axis in order]
        return self.then(OperationType.TRANSPOSE, shape, self.integers(*order), last=last)

    def reshape(self, *shape: int, last: bool = False) -> int:
        return self.then(OperationType.RESHAPE, shape, self.integers(*shape), last=last)

    def build(self) -> Model:
        return self.builder.build()


def network() -> Model:
    """Two convolutions of 3 x 3, from 3 channels to 8 and 8."""
    chain = Chain((1, 8, 8, 3))
    chain.convolution(8)
    chain.convolution(8, last=True)
    return chain.build()


def image(seed: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """An input of `network`."""
    return np.random.default_rng(seed).standard_normal((1, 8, 8, 3)).astype(np.float32)


def long_chain(count: int) -> Model:
    """Products with the identity, one after the other."""
    builder = ModelBuilder()
    now = builder.input(F32, (256, 256))
    weights = builder.constant(F32, np.eye(256, dtype=np.float32))
    bias = builder.constant(F32, np.zeros(256, np.float32))
    for at in range(count):
        made = (builder.output if at == count - 1 else builder.temporary)(F32, (256, 256))
        operands = [now, weights, bias, builder.scalar(0)]
        builder.operation(OperationType.FULLY_CONNECTED, operands, [made])
        now = made
    return builder.build()


def operators(model: Model) -> Counter[str]:
    """Names and number of the operators that a model is lowered to."""
    written = lower(model, [])
    assert written is not None
    return Counter(node.op_type for node in read_model(written.content).graph.nodes)


def optimised(model: Model, path: Path) -> Counter[str]:
    """The operators that the engine makes of a lowered model, in this process; its own have a domain."""
    ort, written = import_module("onnxruntime"), lower(model, [], whole=True, normalizes=True)
    assert written is not None
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3  # a graph for this processor alone is what is asked for
    ort.InferenceSession(written.content, options, ["CPUExecutionProvider"])
    return Counter(f"{n.domain}:{n.op_type}" for n in import_module("onnx").load(path).graph.node)


def computed(executor: Executor, model: Model, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of one run."""
    main = model.main
    given = [Argument(np.ascontiguousarray(x).reshape(-1).view(np.uint8), x.shape) for x in inputs]
    metas = [main.operands[index] for index in main.output_indexes]
    results = [np.zeros(o.dimensions, DTYPES[OperandType(o.type)]) for o in metas]
    rooms = [Argument(y.reshape(-1).view(np.uint8), y.shape) for y in results]
    prepared = executor.prepare(model, [])
    execution = prepared.bind(given, rooms)
    outcome = execution.run()
    assert outcome.status is ErrorStatus.NONE, outcome.message
    execution.close()
    prepared.close()
    return results


def run_two_bursts_at_once(
    prepared: PreparedModel, given: Sequence[Array], expected: Sequence[bytes], rounds: int
) -> tuple[list[int], list[int]]:
    """Run a burst on a thread for each input; rounds with a wrong result, and inputs that were finished."""
    wrong: list[int] = []
    whole: list[int] = []

    def work(number: int) -> None:
        with prepared.open_burst() as burst:
            bound = burst.bind()
            bound.inputs[0][...] = given[number]
            for at in range(rounds):
                bound.outputs[0][...] = 0
                bound.run(timeout=10)
                if bound.outputs[0].tobytes() != expected[number]:
                    wrong.append(at)
            whole.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return wrong, sorted(whole)
