"""How fast the reference executor's kernels are beside LiteRT's reference kernels.

    python bench/operations.py MODEL.tflite VECTORS/V1_0/mobilenet_224_gender_basic_fixed.json.gz

Both run the same network on the same input, with one thread, in the same process and in turns. A
.tflite file is translated to a Model; a vector file is translated to a .tflite file. Outputs are
compared first: quantised ones must be equal, float ones close.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import nnburst
from nnburst.executor.protocol import Argument
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.model import Model
from nnburst.hal.operand_types import DTYPES
from nnburst.testing import vectors
from nnburst.testing.litert import interpreter, to_tflite


def load(path: Path) -> tuple[Model, list[bytes], bytes]:
    """A network as a Model, its pools, and as a .tflite file."""
    if path.suffix == ".tflite":
        content = path.read_bytes()
        imported = nnburst.load(content)
        return imported.model, [pool.tobytes() for pool in imported.pools], content
    built = vectors.build(vectors.read(path)[0])
    pools = list(built.pools)
    return built.model, pools, to_tflite(built.model, pools)


def random_input(model: Model) -> np.ndarray:
    """Numbers for the only input."""
    [index] = model.main.input_indexes
    operand = model.main.operands[index]
    random = np.random.default_rng(1)
    if operand.type == OperandType.TENSOR_FLOAT32:
        return random.uniform(-1, 1, operand.dimensions).astype(np.float32)
    dtype = DTYPES[OperandType(operand.type)]
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, operand.dimensions, dtype, endpoint=True)


def bind(
    model: Model, pools: Sequence[bytes], given: np.ndarray
) -> tuple[Callable[[], None], np.ndarray]:
    """A function that runs the reference executor, and where its output lies."""
    prepared = ReferenceExecutor().prepare(model, [np.frombuffer(p, np.uint8) for p in pools])
    operand = model.main.operands[model.main.output_indexes[0]]
    out = np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])
    source = given.reshape(-1).view(np.uint8)
    execution = prepared.bind(
        [Argument(source, given.shape)], [Argument(out.reshape(-1).view(np.uint8), out.shape)]
    )

    def run() -> None:
        outcome = execution.run()
        if outcome.status != ErrorStatus.NONE:
            sys.exit(f"execution failed: {outcome.message}")

    return run, out


def milliseconds(run: Callable[[], None], repeats: int) -> list[float]:
    """Duration of each of some runs."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(1e3 * (time.perf_counter() - start))
    return found


def compare(path: Path, rounds: int, repeats: int) -> dict[str, object]:
    """Run one network both ways in turns; medians in milliseconds."""
    model, pools, content = load(path)
    given = random_input(model)
    ours, out = bind(model, pools, given)
    peer = interpreter(content)
    peer.set_tensor(peer.get_input_details()[0]["index"], given)
    ours()
    peer.invoke()
    expected = peer.get_tensor(peer.get_output_details()[0]["index"])
    difference = float(np.max(np.abs(expected.astype(np.float64) - out)))
    times: dict[str, list[float]] = {"numpy": [], "litert": []}
    for _ in range(rounds):
        times["numpy"] += milliseconds(ours, repeats)
        times["litert"] += milliseconds(peer.invoke, repeats)
    medians = {name: round(statistics.median(t), 3) for name, t in times.items()}
    return {
        "network": path.name,
        "numpy_ms": medians["numpy"],
        "litert_builtin_ref_ms": medians["litert"],
        "ratio": round(medians["litert"] / medians["numpy"], 2),
        "largest_difference": difference,
    }


def with_one_thread() -> None:
    """Start over with one BLAS thread: numpy reads these variables while it loads."""
    wanted = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.execve(sys.executable, sys.orig_argv, os.environ | wanted)  # noqa: S606


def main() -> None:
    """Print one JSON object per network."""
    with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    for path in options.networks:
        print(json.dumps(compare(path, options.rounds, options.repeats)), flush=True)


if __name__ == "__main__":
    main()
