"""Runs networks on fixed inputs: `python networks.py FOLDER OUTPUT.npz`, on the emulator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nnburst
from nnburst.importer.imported_model import ImportedModel

Array = np.ndarray[Any, Any]

#: Networks whose convolutions take the reference executor minutes on an emulator.
SLOW_BY_REFERENCE = ("mobilenet_v2",)
#: Behind the name of a network whose file lets an engine round real numbers to 8 bits: in float32 instead.
EXACT = ", exact"


def outputs(folder: Path) -> dict[str, Array]:
    """For each executor and network the first output; "engine" is LiteRT without nnburst."""
    found = {}
    for path in sorted(folder.glob("*.tflite")):
        for executor in ("litert", "reference"):
            if executor == "reference" and path.name.startswith(SLOW_BY_REFERENCE):
                continue
            network = nnburst.load(path)
            with nnburst.launch(executor) as device:
                found[f"{executor} {path.stem}"] = by_driver(device, network)
                if network.model.relax_computation_float32_to_float16:
                    exact = nnburst.load(path, exact=True)
                    found[f"{executor} {path.stem}{EXACT}"] = by_driver(device, exact)
        found[f"engine {path.stem}"] = by_engine(path)
    return found


def by_driver(device: nnburst.Device, network: ImportedModel) -> Array:
    """The first output of a burst."""
    prepared = device.prepare(network)
    inputs = [values(each.dimensions, each.dtype) for each in prepared.inputs]
    with prepared.open_burst() as burst:
        result: Array = burst.execute(inputs, timeout=300).outputs[0]
    return result


def values(dimensions: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The same on each machine."""
    rng = np.random.default_rng(5)
    if dtype.kind in "iu":
        return rng.integers(-100, 100, dimensions).astype(dtype)
    return rng.standard_normal(dimensions).astype(dtype)


def by_engine(path: Path) -> Array:
    """LiteRT's own result on one thread."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(str(path), num_threads=1)
    engine.allocate_tensors()
    described = engine.get_input_details()[0]
    shape = tuple(map(int, described["shape"]))
    engine.set_tensor(described["index"], values(shape, np.dtype(described["dtype"])))
    engine.invoke()
    result: Array = engine.get_tensor(engine.get_output_details()[0]["index"])
    return result


def compare(here: Mapping[str, Array], there: Mapping[str, Array]) -> list[str]:
    """A line for each executor and network.

    Results there and here: integers are equal bit for bit, floats within 1e-6 of their range. If a network's
    real numbers may be rounded to 8 bits, a last bit decides at a tie which of two it is; such results are no
    further apart than rounding takes them from exact ones. LiteRT's are also those of the engine alone there,
    bit for bit, which shows whose fault a difference is.

    Returns:
        Lines; those that begin with "WRONG" break a rule.
    """
    lines = []
    for name, found in there.items():
        executor, _, network = name.partition(" ")
        if executor == "engine":
            continue
        distance = _distance(found, here[name])
        limit = 1e-6 if found.dtype.kind == "f" else 0
        exact = here.get(f"{name}{EXACT}")
        if exact is not None:
            limit = max(limit, _distance(here[name], exact))
        wrong = distance > limit
        line = f"{name}: {distance:.1e} from here"
        if executor == "litert" and not name.endswith(EXACT):
            alone = _distance(found, there[f"engine {network}"])
            wrong = wrong or alone != 0
            line += f", {alone:.1e} from the engine there"
        lines.append(f"WRONG {line}" if wrong else line)
    return lines


def _distance(found: Array, expected: Array) -> float:
    """The largest difference, as a share of the expected values' range."""
    differences = np.abs(found.astype(float) - expected.astype(float))
    return float(differences.max() / (np.ptp(expected.astype(float)) or 1.0))


if __name__ == "__main__":
    np.savez(sys.argv[2], **outputs(Path(sys.argv[1])))
