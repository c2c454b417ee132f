"""Compiles networks without options but shapes, and compares each with its own engine in this process.

    python tools/first_try.py [--output TABLE.md] FOLDER …

Prints a row for each .tflite and .onnx file below the folders: the way that `nnburst.compile` took, why it is
a whole graph if it is one, and how far its outputs are from the engine's, in parts of their range over three
inputs. Exit status 1 if a network that its engine runs does not run, differs as a whole graph in a bit, or by
operations by more than a thousandth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.bench.network.onnx import Distances, InProcessGraph
from nnburst.hal.errors import NnburstError
from nnburst.testing.models.network_file import NetworkFile
from nnburst.testing.models.onnx_networks import NETWORKS

Array = npt.NDArray[Any]
Shapes = Mapping[str, Sequence[int]]

#: Largest difference by operations, in parts of the range.
_CLOSE: Final = 1e-3
_INPUTS: Final = 3
_SEED: Final = 5

_VOICE: Final = {"input": (1, 576), "state": (2, 1, 128)}
_HEARD: Final = {"input_1": (1, 144160)}
_SPECTRUM: Final = {"input_1": (1, 901, 161)}
_ECHO: Final = {"input": (1, 3, 100, 160)}
#: Shapes of inputs that files leave open, by the end of a file's path; beside those of `NETWORKS`.
SHAPES: Final[dict[str, Shapes]] = {
    "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x": (1, 3, 48, 192)},
    "nudenet/320n.onnx": {"images": (1, 3, 320, 320)},
    "icassp_2022/nmp.onnx": {"serving_default_input_2:0": (1, 43844, 1)},
    "data/silero_vad_op18_ifless.onnx": _VOICE,
    "pdnsmos_models/sig_bak_ovr.onnx": _HEARD,
    "dnsmos_models/sig_bak_ovr.onnx": _HEARD,
    "dnsmos_models/sig.onnx": _SPECTRUM,
    "dnsmos_models/bak_ovr.onnx": _SPECTRUM,
    "dnsmos_models/model_v8.onnx": {"input_1": (1, 900, 120)},
    "aecmos_models/Run_1663829550_Stage_0.onnx": _ECHO,
    "aecmos_models/Run_1663915512_Stage_0.onnx": _ECHO,
    "aecmos_models/Run_1668423760_Stage_0.onnx": _ECHO,
    "plcmos_models/plcmos_v2.onnx": {"degraded_audio": (1, 1, 100, 257), "rater_embed": (1, 64)},
    "hebrew/nakdimon.onnx": {"input_1": (1, 40)},
    "tashkeel/model.onnx": {"char_inputs": (1, 24), "diac_inputs": (1, 24), "input_lengths": (1,)},
}
#: Values that are the same in each execution, likewise; what else is an integer is below 8: most are indices.
VALUES: Final[dict[str, dict[str, Any]]] = {
    "data/silero_vad_op18_ifless.onnx": {"sr": 16000},
    "tashkeel/model.onnx": {"input_lengths": [24]},
}
_INDICES: Final = 8


@dataclass(frozen=True)
class Row:
    """The outcome of one file.

    Attributes:
        file: its path below the folder.
        way: "operations", "whole graph", or what refused it.
        why: the reason for a whole graph, or what else is to be said.
        difference: from the engine in process, in parts of the range; None if there are no results.
        fails: whether that is not as it must be.
    """

    file: str
    way: str
    why: str = ""
    difference: float | None = None
    fails: bool = False

    def __str__(self) -> str:
        shown = "" if self.difference is None else _shown(self.difference)
        return f"| `{self.file}` | {self.way} | {shown} | {self.why} |"


class _LiteRT:
    """LiteRT's Interpreter in this process, with one thread."""

    def __init__(self, content: bytes, shapes: Shapes) -> None:
        self._content, self._shapes = content, shapes
        self._inputs = self._new().get_input_details()

    def _new(self) -> Any:  # noqa: ANN401 - Interpreter
        engine = import_module("ai_edge_litert.interpreter")
        interpreter = engine.Interpreter(model_content=self._content, num_threads=1)
        for detail in interpreter.get_input_details():
            if detail["name"] in self._shapes:
                interpreter.resize_tensor_input(detail["index"], self._shapes[detail["name"]])
        interpreter.allocate_tensors()
        return interpreter

    def run(self, values: Sequence[Array]) -> list[Array]:
        """All outputs, from the first states: `reset_all_variables` makes them zeros, whatever they were."""
        interpreter = self._new()
        for detail, array in zip(self._inputs, values, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]

    def values(self, random: np.random.Generator) -> list[Array]:
        """Values of all inputs: between -1 and 1, or any bytes."""
        return [_drawn(random, d["shape"], np.dtype(d["dtype"])) for d in self._inputs]


def _drawn(random: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        return random.uniform(-1, 1, shape).astype(dtype)
    highest = min(256, np.iinfo(dtype).max) if dtype.kind in "iu" else 2
    return random.integers(0, highest, shape).astype(dtype)


def _known(path: Path) -> tuple[Shapes, Mapping[str, Any]]:
    """Shapes and values that are the same in each execution, of a file."""
    name = path.as_posix()
    for network in NETWORKS:
        if name.endswith(f"/{network.file}"):
            return network.shapes, network.constants
    shapes = next((s for end, s in SHAPES.items() if name.endswith(f"/{end}")), {})
    return shapes, next((v for end, v in VALUES.items() if name.endswith(f"/{end}")), {})


def _onnx_values(
    engine: InProcessGraph,
    random: np.random.Generator,
    shapes: Shapes,
    constants: Mapping[str, Any],
) -> list[Array]:
    made = engine.values(random, shapes, constants)
    return [
        array % _INDICES if array.dtype.kind == "i" and name not in constants else array
        for name, array in zip(engine.names, made, strict=True)
    ]


def _results(
    compiled: nnburst.CompiledModel, network: NetworkFile, inputs: Sequence[Sequence[Array]]
) -> list[list[Array]]:
    """All outputs, each time from the first states.

    A tensor of rank 0 is one of shape (1,), and NNAPI's integers have 32 bits.
    """
    found = []
    for values in inputs:
        given = [
            np.atleast_1d(array).astype(parameter.dtype, copy=False)
            for array, parameter in zip(network.with_states(values), compiled.inputs, strict=True)
        ]
        outputs = [np.array(array) for array in compiled.execute(given).outputs]
        found.append(network.without_states(outputs))
    return found


def tried(path: Path, name: str, timeout: float = 60.0) -> Row:
    """Compile a file, run it, and compare."""
    shapes, constants = _known(path)
    content, random = path.read_bytes(), np.random.default_rng(_SEED)
    engine: _LiteRT | InProcessGraph
    try:
        if path.suffix == ".tflite":
            engine = _LiteRT(content, shapes)
            inputs = [engine.values(random) for _ in range(_INPUTS)]
        else:
            engine = InProcessGraph(content)
            inputs = [_onnx_values(engine, random, shapes, constants) for _ in range(_INPUTS)]
        expected = [engine.run(values) for values in inputs]
    except Exception as error:  # the engines' own, which have nothing in common
        return Row(name, f"its engine refuses it: {_line(error)}")
    why = ""
    try:
        network = NetworkFile.read(path, shapes=shapes or None)
        why = network.imported.refusal
        with nnburst.compile(path, shapes=shapes or None, timeout=timeout) as compiled:
            device = "/".join(compiled.plan.devices)
            difference = _difference(_results(compiled, network, inputs), expected)
    except NnburstError as error:
        return Row(name, f"refused: {_line(error)}", why, fails=True)
    way = "whole graph" if why else "operations"
    fails = difference > (0 if why else _CLOSE)
    return Row(name, f"{way}, {device}", why, difference, fails=fails)


def _difference(found: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> float:
    """In parts of the range, the largest of all outputs; 0 only if all bits are equal."""
    distances, equal = Distances(), True
    for mine, right in zip(found, expected, strict=True):
        shaped = [a.reshape(b.shape).astype(b.dtype) for a, b in zip(mine, right, strict=True)]
        equal &= all(a.tobytes() == b.tobytes() for a, b in zip(shaped, right, strict=True))
        distances.add(shaped, right)
    return 0.0 if equal else max(distances.in_parts_of_range(), np.finfo(float).tiny)


def _shown(difference: float) -> str:
    return "bit-equal" if difference == 0 else f"{difference:.1e}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]


def main() -> int:
    """Try all files; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds to place and prepare each (default: 60)",
    )
    parser.add_argument("--output", type=Path, help="where the table is written, too")
    args = parser.parse_args()
    rows = ["| file | way, device | from its engine | why as a whole graph |", "|---|---|---|---|"]
    failed = False
    for folder in args.folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".tflite", ".onnx")):
            row = tried(path, path.relative_to(folder).as_posix(), args.timeout)
            rows.append(str(row))
            failed |= row.fails
            sys.stdout.write(f"{'FAILS ' if row.fails else ''}{row}\n")
            sys.stdout.flush()
    if args.output is not None:
        args.output.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
