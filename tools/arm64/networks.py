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
#: Behind the name of a network whose file lets its engine round activations to 8 bits (docs/adr/0029):
#: computed in that way.
HYBRID = ", hybrid kernels"
#: Networks whose results LiteRT alone has otherwise on Arm than on x86-64, for some inputs, and by how many
#: steps of the quantised output at most. The reference executor's results are the same on both. The reason is
#: what `LAYER` shows: how a product is rounded to 8 bits.
ENGINE_STEPS = {"mobilenet_v1_0.25_128_uint8": 1, "mobilenet_v2_1.0_224_uint8": 2}
#: Not a file: one layer of uint8, many of whose products are ties.
LAYER = "uint8_layer"
#: Of each network: at a tie one input may round where another does not.
INPUTS = 10


def outputs(folder: Path) -> dict[str, Array]:
    """For each executor and network the first outputs; "engine" is LiteRT without nnburst.

    All are in exact arithmetic but those with `HYBRID` behind their name and the engine's.
    """
    found = {}
    for path in sorted(folder.glob("*.tflite")):
        exact, own = nnburst.load(path, exact=True), nnburst.load(path)
        with nnburst.launch("litert") as device:
            found[f"litert {path.stem}"] = by_driver(device, exact)
            if own.model.relax_computation_float32_to_float16:
                found[f"litert {path.stem}{HYBRID}"] = by_driver(device, own)
        if not path.name.startswith(SLOW_BY_REFERENCE):
            with nnburst.launch("reference") as device:
                found[f"reference {path.stem}"] = by_driver(device, exact)
        found[f"engine {path.stem}"] = by_engine(path)
    with nnburst.launch("litert") as device:
        found[f"litert {LAYER}"] = by_driver(device, layer())
    return found


_WEIGHTS = np.random.default_rng(4711).integers(0, 256, (1000, 4)).astype(np.uint8)
_ZERO_POINT = 128
#: A power of two, so that a product is a tie if it is half a step away from one.
_STEP = 64


def layer() -> nnburst.Model:
    """A matrix product of uint8."""
    builder, kind = nnburst.ModelBuilder(), nnburst.OperandType.TENSOR_QUANT8_ASYMM
    x = builder.input(kind, (1, 4), scale=1.0, zero_point=_ZERO_POINT)
    weights = builder.constant(kind, _WEIGHTS, scale=1.0, zero_point=_ZERO_POINT)
    bias = builder.constant(nnburst.OperandType.TENSOR_INT32, np.zeros(1000), scale=1.0)
    y = builder.output(kind, (1, 1000), scale=float(_STEP), zero_point=_ZERO_POINT)
    activation = builder.scalar(int(nnburst.FusedActivationFunc.NONE))
    builder.operation(nnburst.OperationType.FULLY_CONNECTED, [x, weights, bias, activation], [y])
    return builder.build()


def rounded(ties_up: bool) -> Array:
    """The results of `layer` with ties rounded up, or else to even numbers.

    LiteRT's kernels for Arm multiply in fixed point and round up, those for x86-64 in float32 and to even
    numbers. None of its options changes that.
    """
    found = []
    for number in range(INPUTS):
        x = values(number, (1, 4), np.dtype(np.uint8))
        products = (x.astype(int) - _ZERO_POINT) @ (_WEIGHTS.astype(int) - _ZERO_POINT).T / _STEP
        steps = np.floor(products + 0.5) if ties_up else np.rint(products)
        found.append(np.clip(steps + _ZERO_POINT, 0, 255).astype(np.uint8))
    return np.stack(found)


def by_driver(device: nnburst.Device, network: ImportedModel) -> Array:
    """The first output for each input, by a burst."""
    prepared = device.prepare(network)
    found = []
    with prepared.open_burst() as burst:
        for number in range(INPUTS):
            inputs = [values(number, each.dimensions, each.dtype) for each in prepared.inputs]
            found.append(burst.execute(inputs, timeout=300).outputs[0])
    return np.stack(found)


def values(number: int, dimensions: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An input, the same on each machine."""
    rng = np.random.default_rng(number)
    if dtype.kind in "iu":
        return rng.integers(-100, 100, dimensions).astype(dtype)
    return rng.standard_normal(dimensions).astype(dtype)


def by_engine(path: Path) -> Array:
    """LiteRT's own results on one thread."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(str(path), num_threads=1)
    engine.allocate_tensors()
    described = engine.get_input_details()[0]
    shape = tuple(map(int, described["shape"]))
    found = []
    for number in range(INPUTS):
        engine.set_tensor(described["index"], values(number, shape, np.dtype(described["dtype"])))
        engine.invoke()
        found.append(engine.get_tensor(engine.get_output_details()[0]["index"]))
    return np.stack(found)


def compare(here: Mapping[str, Array], there: Mapping[str, Array]) -> list[str]:
    """A line for each executor and network.

    Results there and here: integers are equal bit for bit, floats within 1e-6 of their range. Hybrid kernels
    do not hold to that: they round activations to 8 bits, and a last bit decides at a tie which of two it is.
    What they compute is no further apart than rounding takes it from exact results. LiteRT's results are also
    those of the engine alone there, bit for bit, which shows whose fault a difference is. That excuses one
    only for the networks and steps of `ENGINE_STEPS`, and if the engine alone has it, too. The layer of uint8
    has on both what is known of how products are rounded there.

    Returns:
        Lines; those that begin with "WRONG" break a rule.
    """
    lines = []
    for name, found in there.items():
        executor, _, network = name.partition(" ")
        if executor == "engine":
            continue
        if network == LAYER:
            lines.append(_explained(here[name], found))
            continue
        limit = 1e-6 if found.dtype.kind == "f" else 0
        if name.endswith(HYBRID):
            limit = _distance(here[name], here[name.removesuffix(HYBRID)])
        distance = _distance(found, here[name])
        wrong = distance > limit
        line = f"{name}: {distance:.1e} from here (allowed {limit:.1e})"
        if executor == "litert" and f"{name}{HYBRID}" not in there:
            engine = f"engine {network.removesuffix(HYBRID)}"
            wrong = not np.array_equal(found, there[engine])
            line += f", {_distance(found, there[engine]):.1e} from the engine there"
            if distance > limit:
                own, text = _engines_own(
                    found, here[name], here[engine], ENGINE_STEPS.get(network, 0)
                )
                wrong = wrong or not own
                line += f"; {text}"
        lines.append(f"WRONG {line}" if wrong else line)
    return lines


def _explained(here: Array, there: Array) -> str:
    """Whether a layer of uint8 differs by how its products' ties are rounded, and by nothing else."""
    expected = {"here to even": (here, rounded(False)), "there up": (there, rounded(True))}
    wrong = [what for what, (found, right) in expected.items() if not np.array_equal(found, right)]
    text = f"{np.count_nonzero(here != there)} values of {here.size} differ, which are ties"
    return f"WRONG {LAYER}: not rounded {', '.join(wrong)}" if wrong else f"{LAYER}: {text}"


def _engines_own(found: Array, here: Array, engine_here: Array, steps: int) -> tuple[bool, str]:
    """Whether what differs is the engine's own difference and within so many steps, and how much differs."""
    differences = np.abs(found.astype(float) - here.astype(float)).reshape(len(here), -1)
    own = np.array_equal(here, engine_here) and bool(differences.max() <= steps)
    inputs = np.count_nonzero(differences.max(axis=1))
    text = (
        f"{np.count_nonzero(differences)} values of {differences.size}, by {differences.max():g} at most,"
        f" for {inputs} of {len(here)} inputs{', as the engine alone' if own else ''}"
    )
    return own, text


def _distance(found: Array, expected: Array) -> float:
    """The largest difference, as a share of the range of the expected values for the same input."""
    values = expected.astype(float).reshape(len(expected), -1)
    differences = np.abs(found.astype(float).reshape(values.shape) - values).max(axis=1)
    ranges = np.ptp(values, axis=1)
    return float((differences / np.where(ranges == 0, 1.0, ranges)).max())


if __name__ == "__main__":
    np.savez(sys.argv[2], **outputs(Path(sys.argv[1])))
