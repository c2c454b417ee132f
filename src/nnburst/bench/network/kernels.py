"""Measures single convolutions in LiteRT and onnxruntime, to see how much kernels explain a network's ratio.

    python -m nnburst.bench.network.kernels

Each case is six equal convolutions with ReLU on one thread of this process, on bound buffers: by
onnxruntime's C library, and by LiteRT after import to operations. The module prints the shortest time of
both, in µs, and their ratio. It needs the extras `onnx`, `onnxruntime` and `litert`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.bench.network.networks import aligned
from nnburst.executor.base import Argument
from nnburst.executor.built_in import BUILT_IN
from nnburst.executor.graph.whole_graph import Apart
from nnburst.executor.onnxruntime.native import Room, Session

Array = npt.NDArray[Any]

_REPEATED: Final = 6
_LONGEST_NS: Final = 4_000_000_000
#: The cases by name: channels, extent of the image, extent of the window, groups.
CASES: Final = {
    "3x3, 64 channels, 56x56": (64, 56, 3, 1),
    "3x3, 256 channels, 14x14": (256, 14, 3, 1),
    "3x3, 512 channels, 7x7": (512, 7, 3, 1),
    "1x1, 256 channels, 14x14": (256, 14, 1, 1),
    "depthwise 3x3, 128 channels, 28x28": (128, 28, 3, 128),
}


def convolutions(channels: int, extent: int, window: int, groups: int) -> bytes:
    """Make an ONNX file of equal convolutions, one after another."""
    helper, numpy_helper = import_module("onnx.helper"), import_module("onnx.numpy_helper")
    random, nodes, weights = np.random.default_rng(0), [], []
    shape = (channels, channels // groups, window, window)
    for at in range(_REPEATED):
        values = random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{at}"))
        conv = {"pads": [window // 2] * 4, "group": groups}
        nodes.append(helper.make_node("Conv", [f"x{at}", f"w{at}"], [f"y{at}"], **conv))
        nodes.append(helper.make_node("Relu", [f"y{at}"], [f"x{at + 1}"]))
    border = (1, channels, extent, extent)
    ends = [
        helper.make_tensor_value_info(name, 1, border)  # 1: float32
        for name in ("x0", f"x{_REPEATED}")
    ]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def shortest(content: bytes, x: Array, longest_ns: int = _LONGEST_NS) -> dict[str, float]:
    """The shortest times of both engines, in µs, run in turn; their results must agree.

    Raises:
        ValueError: the results differ.
    """
    output = aligned(np.zeros_like(x))
    session = Session(content, {}, 1)
    rooms = [
        Room(memory, border.element, x.shape, Apart.IN_ITS_PLACE)
        for memory, border in ((aligned(x), session.inputs[0]), (output, session.outputs[0]))
    ]
    graph = session.bind(rooms[:1], rooms[1:])
    imported = nnburst.load(content)
    prepared = BUILT_IN["litert"]().prepare(imported.model, list(imported.pools))
    given, result = aligned(x), aligned(np.zeros_like(x))
    execution = prepared.bind([Argument(given, x.shape)], [Argument(result, x.shape)])
    cases: dict[str, Callable[[], object]] = {"onnxruntime": graph.run, "litert": execution.run}
    best = dict.fromkeys(cases, float("inf"))
    until = perf_counter_ns() + longest_ns
    while min(best.values()) == float("inf") or perf_counter_ns() < until:
        for name, run in cases.items():
            for _ in range(5):
                began = perf_counter_ns()
                run()
                best[name] = min(best[name], (perf_counter_ns() - began) / 1e3)
    execution.close()
    prepared.close()
    found, expected = result.view(np.float32), output.view(np.float32)
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise ValueError(f"the engines differ by {np.abs(found - expected).max():.2g}")
    return best


def main() -> None:
    """Print a line for each case."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sys.stdout.write("| convolution | onnxruntime, µs | LiteRT, µs | ratio |\n|---|---|---|---|\n")
    for name, case in CASES.items():
        x = np.random.default_rng(1).standard_normal((1, case[0], case[1], case[1]))
        best = shortest(convolutions(*case), x.astype(np.float32))
        us = best["onnxruntime"], best["litert"]
        sys.stdout.write(f"| {name} | {us[0]:.0f} | {us[1]:.0f} | {us[1] / us[0]:.2f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
