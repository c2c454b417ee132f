"""`nnburst.load`: a .tflite file as a model."""

from __future__ import annotations

import os
from pathlib import Path

from nnburst.hal.errors import InvalidArgument
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.tflite.tflite_file import TfliteFile
from nnburst.importer.tflite.translation import Translation


def load(source: str | os.PathLike[str] | bytes) -> ImportedModel:
    """Read a network from a .tflite file.

    The engine is not loaded for it. The bytes may come from anywhere: reading them takes memory of at
    most 16 times their number and 64 MiB, and ends. Weights that are quantised where the other operand
    is not are made real; shapes that the file leaves open take the value that it gives them.

    Args:
        source: path of a file, or its contents.

    Returns:
        The model, not validated (the driver does that), with its pools, names, states, signatures and
        metadata.

    Raises:
        InvalidArgument: the file is not intact, or NNAPI cannot say what it holds; the message names
            the operator, its index and the reason.
        NnburstError: `ai-edge-litert`, whose classes read the format, is not installed.
        OSError: the file cannot be read.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return Translation(TfliteFile(bytes(source))).run()
    path = Path(source)
    try:
        return Translation(TfliteFile(path.read_bytes())).run()
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None
