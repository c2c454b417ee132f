"""Measures one network on the reference executor and on LiteRT's reference kernels, in turns.

A .tflite file is imported; a vector file is translated to a .tflite file. Both sides run on the same random
input with one thread in this process; outputs are compared first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.bench.network.networks import absolute_differences
from nnburst.executor.base import Argument, Execution
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.model import DTYPES, Model
from nnburst.hal.regular_file import read_regular_file
from nnburst.hal.signature import type_name
from nnburst.importer.load import load
from nnburst.testing.conformance import vectors
from nnburst.testing.models.litert import interpreter, to_tflite

Array = npt.NDArray[Any]
#: Types of inputs that get random numbers.
_RANDOM: Final = frozenset(
    {kind for kind, dtype in DTYPES.items() if dtype.kind in "iu"} | {OperandType.TENSOR_FLOAT32}
)


class OperationTimes(NamedTuple):
    """The times of one network in milliseconds, for each round.

    Attributes:
        network: name of the file.
        numpy_ms: times of the reference executor.
        litert_ref_ms: times of LiteRT's BUILTIN_REF kernels.
        largest_difference: largest difference of the outputs, in steps or as floats.
    """

    network: str
    numpy_ms: list[float]
    litert_ref_ms: list[float]
    largest_difference: float

    @property
    def ratio(self) -> float:
        """Median over the rounds of numpy / LiteRT; numpy is faster if it is below 1."""
        rounds = zip(self.numpy_ms, self.litert_ref_ms, strict=True)
        return statistics.median(a / b for a, b in rounds)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        cases = {"numpy": self.numpy_ms, "litert_ref": self.litert_ref_ms}
        return {
            "network": self.network,
            "ratio": self.ratio,
            "largest_difference": self.largest_difference,
            "cases": [
                {
                    "name": name,
                    "median_ns": 1e6 * statistics.median(found),
                    "blocks_ns": [1e6 * each for each in found],
                }
                for name, found in cases.items()
            ],
        }


def compare(path: Path, rounds: int, repeats: int) -> OperationTimes:
    """Run one network on both sides, in turns.

    Args:
        path: a .tflite file, or a vector file with one network.
        rounds: turns of each side.
        repeats: runs in each turn.

    Raises:
        InvalidArgument: the network has not one input and one output, or cannot be written as a .tflite file.
        NnburstError: the network cannot be imported or executed.
        ImportError: ai-edge-litert is not installed (extra `litert`).
    """
    model, pools, content = _read(path)
    given = _random_input(path, model)
    ours, out = _bind(model, pools, given)
    content = content or _translated(path, model, pools)
    try:
        peer = interpreter(content)
    except (ValueError, RuntimeError) as error:
        raise GeneralFailure(f"{path}: LiteRT refuses the network: {error}") from None
    peer.set_tensor(peer.get_input_details()[0]["index"], given)
    ours()
    peer.invoke()
    expected = peer.get_tensor(peer.get_output_details()[0]["index"])
    numpy_ms, litert_ms = [], []
    for _ in range(rounds):
        numpy_ms.append(_milliseconds(ours, repeats))
        litert_ms.append(_milliseconds(peer.invoke, repeats))
    return OperationTimes(
        path.name,
        numpy_ms,
        litert_ms,
        float(absolute_differences(expected, out).max()),
    )


def _read(path: Path) -> tuple[Model, list[bytes], bytes]:
    """Read a network: as a Model with its pools, and a .tflite file's content."""
    if path.suffix == ".tflite":
        content = read_regular_file(path)
        imported = load(content)
        return imported.model, [pool.tobytes() for pool in imported.pools], content
    built = vectors.build(vectors.read(path)[0])
    pools = list(built.pools)
    return built.model, pools, b""


def _translated(path: Path, model: Model, pools: Sequence[bytes]) -> bytes:
    """The network of a vector file as a .tflite file."""
    try:
        return to_tflite(model, pools)
    except (KeyError, ValueError) as error:
        raise InvalidArgument(
            f"{path}: cannot be written as a .tflite file: {type(error).__name__}: {error}"
        ) from None


def _random_input(path: Path, model: Model) -> Array:
    """Random numbers for the only input."""
    inputs, outputs = model.main.input_indexes, model.main.output_indexes
    if (len(inputs), len(outputs)) != (1, 1):
        raise InvalidArgument(
            f"{path}: {len(inputs)} inputs and {len(outputs)} outputs, expected one of each"
        )
    operand = model.main.operands[inputs[0]]
    if operand.type not in _RANDOM or 0 in operand.dimensions:
        raise InvalidArgument(
            f"{path}: an input of {type_name(operand.type)} {list(operand.dimensions)}, expected float32 or"
            " integers, and extents that are known"
        )
    random = np.random.default_rng(1)
    if operand.type == OperandType.TENSOR_FLOAT32:
        return random.uniform(-1, 1, operand.dimensions).astype(np.float32)
    dtype = DTYPES[OperandType(operand.type)]
    limits = np.iinfo(dtype)
    numbers: Array = random.integers(
        limits.min, limits.max, operand.dimensions, dtype, endpoint=True
    )
    return numbers


def _bind(model: Model, pools: Sequence[bytes], given: Array) -> tuple[Callable[[], None], Array]:
    """Bind the reference executor; return a function that runs it, and the output's array."""
    prepared = ReferenceExecutor().prepare(model, [np.frombuffer(p, np.uint8) for p in pools])
    operand = model.main.operands[model.main.output_indexes[0]]
    out: Array = np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])
    execution: Execution = prepared.bind(
        [Argument(given.reshape(-1).view(np.uint8), given.shape)],
        [Argument(out.reshape(-1).view(np.uint8), out.shape)],
    )

    def run() -> None:
        outcome = execution.run()
        if outcome.status != ErrorStatus.NONE:
            raise GeneralFailure(f"the execution failed: {outcome.message}")

    return run, out


def _milliseconds(run: Callable[[], object], repeats: int) -> float:
    """The mean of some runs in milliseconds."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return 1e3 * (time.perf_counter() - start) / repeats
