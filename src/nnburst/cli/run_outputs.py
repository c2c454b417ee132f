"""What a network gave: saved as arrays, or printed in a few lines with the most likely classes."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.cli.output import table
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.testing.models.pictures import real_values

Array = npt.NDArray[Any]

#: Bytes of a list of labels inside a .tflite file; larger ones are not taken for labels.
_LABELS_BYTES: Final = 1 << 20

#: What reading the archive of a file may raise: most files carry none, some a damaged one.
_NO_LABELS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # encrypted, or packed in a way that zipfile does not support
)


def read_labels(path: Path) -> list[str]:
    """Names of classes, one in each line.

    Raises:
        InvalidArgument: it is not text.
        OSError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"--labels {path}: not UTF-8 text: {error}") from None


def packed_labels(model: Path) -> list[list[str]]:
    """Lists of labels that a .tflite file carries with it (as files of a zip archive at its end)."""
    try:
        with zipfile.ZipFile(model) as archive:
            found = []
            for member in archive.infolist():
                if member.filename.endswith(".txt") and member.file_size <= _LABELS_BYTES:
                    with archive.open(member) as file:
                        text = file.read(_LABELS_BYTES)
                    found.append(text.decode("utf-8", "backslashreplace").splitlines())
            return found
    except _NO_LABELS:
        return []


def check_labels(path: Path, labels: Sequence[str], operands: Sequence[Operand]) -> None:
    """See that there is an output with as many classes as labels.

    Raises:
        InvalidArgument: it does not exist.
    """
    sizes = [math.prod(operand.dimensions) for operand in operands]
    if len(labels) not in sizes and all(sizes):
        raise InvalidArgument(
            f"--labels {path}: {len(labels)} lines, the outputs have {sizes} elements"
        )


def summary(
    name: str, values: Array, operand: Operand, labels: Sequence[Sequence[str]], count: int
) -> dict[str, Any]:
    """An output as `--json` writes it.

    Args:
        name: of the output.
        values: stored values.
        operand: the output.
        labels: lists of class names; the one with as many as there are classes is taken.
        count: most likely classes to list if the output is a vector of scores.
    """
    real = real_values(values, operand)
    told: dict[str, Any] = {"name": name, "dtype": str(values.dtype), "shape": list(values.shape)}
    if values.size:
        told |= {"min": _number(real.min()), "max": _number(real.max())}
        told["mean"] = _number(real.mean())
    if values.size > 1 and max(values.shape) == values.size:
        names = next((found for found in labels if len(found) == values.size), None)
        order = np.argsort(-real.reshape(-1), kind="stable")[:count]
        told["top"] = [
            {
                "index": int(index),
                "label": names[index] if names else "",
                "score": _number(real.reshape(-1)[index]),
            }
            for index in order
        ]
    return told


def _number(value: float) -> float | None:
    """None for what JSON cannot express."""
    return float(value) if math.isfinite(value) else None


def show(summaries: Sequence[dict[str, Any]]) -> None:
    """Print the outputs."""
    columns = ["output", "dtype", "shape", "min", "max", "mean"]
    table(
        "outputs (real values)",
        columns,
        [
            [
                told["name"],
                told["dtype"],
                "x".join(map(str, told["shape"])),
                *(_text(told.get(key)) for key in ("min", "max", "mean")),
            ]
            for told in summaries
        ],
    )
    for told in summaries:
        if "top" in told:
            rows = [[top["index"], top["label"], _text(top["score"])] for top in told["top"]]
            table(f"{told['name']}: most likely", ["class", "label", "score"], rows)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def save(paths: Sequence[Path], outputs: Sequence[Array]) -> None:
    """Write each output to its file, if there are files.

    Raises:
        OSError: a file cannot be written.
    """
    if not paths:
        return
    for path, values in zip(paths, outputs, strict=True):
        with path.open("wb") as file:
            np.save(file, values, allow_pickle=False)


def check_output_count(paths: Sequence[Path], names: Sequence[str]) -> None:
    """Compare the number of files with the model's outputs.

    Raises:
        InvalidArgument: they differ, and there are files.
    """
    if paths and len(paths) != len(names):
        raise InvalidArgument(
            f"--output: {len(paths)} given, the model has {len(names)}: {', '.join(names)}"
        )
