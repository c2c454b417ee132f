"""`nnburst.load`: a .tflite or .onnx file as a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy.typing as npt

from nnburst.formats.onnx.external_data import ExternalData
from nnburst.formats.onnx.model import read_model
from nnburst.formats.tflite.format import IDENTIFIER
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions.custom_operators import ClaimsOperators
from nnburst.importer.extensions import Extensions
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.onnx.translation import OnnxTranslation
from nnburst.importer.onnx.whole_graph import whole_graph
from nnburst.importer.tflite.tflite_file import TfliteFile
from nnburst.importer.tflite.translation import Translation


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, npt.ArrayLike] | None = None,
    states: Mapping[str, str] | None = None,
    as_graph: bool = False,
    exact: bool | None = None,
    extensions: Sequence[ClaimsOperators | str] = (),
) -> ImportedModel:
    """Read a network from a .tflite or .onnx file; its bytes show which of them it is.

    No engine is loaded. The bytes may come from anywhere: reading them takes at most 16 times their size
    and 64 MiB of memory, and always ends. Weights of 8 bits that are multiplied with real numbers
    stay 8 bits, and DEQUANTIZE makes them real. Shapes that a .tflite file leaves open take the values
    that the file suggests. Integers of 64 bits in an .onnx file become 32 bits wide, and images are stored as
    N×H×W×C inside the model; its inputs and outputs are as in the file. Files beside it that hold its
    weights are read, too.

    Args:
        source: path of a file, or its contents.
        shapes: dimensions of inputs of an .onnx file that leaves them open, by name.
        constants: values of inputs of an .onnx file that are the same in every execution, by name. They are
            not inputs of the model, and what depends on them alone is computed now.
        states: inputs of an .onnx file that take what an output gave in the execution before: names of
            outputs, by names of inputs. They become states.
        as_graph: make an .onnx file one operation of the extension dev.nnburst.onnx, which drivers of the
            `onnxruntime` executor run as it is: dimensions may stay open, each request carries them.
        exact: whether real numbers are multiplied with 8-bit weights in float32. If not, the model is
            relaxed, and an engine may round the real numbers to 8 bits, too, which is quicker and about 1 %
            of an output's range away. By default as the file's own engine does: a .tflite file with such
            operators is not exact, an .onnx file is.
        extensions: vendor extensions (or `module:attribute` of some) that may claim operators of a .tflite
            file that are not built in, before those of the entry-point group `nnburst.extensions`.

    Returns:
        The model, not validated (the driver does that), with its pools, names, states, signatures and
        metadata.

    Raises:
        InvalidArgument: the file is not intact, or NNAPI cannot express what it holds; the message names
            the operator, its index and the reason.
        DeviceUnavailable: an extension cannot be imported.
        OSError: the file cannot be read.
    """
    options = _Options(shapes or {}, constants or {}, states or {}, as_graph)
    if exact and as_graph:
        raise InvalidArgument("exact: True, but a whole graph is computed as its file defines")
    further = _Further(exact, extensions)
    if isinstance(source, bytes | bytearray | memoryview):
        return _load(bytes(source), None, options, further)
    path = Path(source)
    try:
        return _load(path.read_bytes(), path.parent, options, further)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


class _Options(NamedTuple):
    """Options of `load` for an .onnx file."""

    shapes: Mapping[str, Sequence[int]]
    constants: Mapping[str, npt.ArrayLike]
    states: Mapping[str, str]
    as_graph: bool


class _Further(NamedTuple):
    """Options of `load` beside the file."""

    exact: bool | None
    extensions: Sequence[ClaimsOperators | str]


def _load(
    content: bytes, directory: Path | None, options: _Options, further: _Further
) -> ImportedModel:
    if not is_onnx(content):
        if any(options):
            raise InvalidArgument(
                f"{', '.join(options._fields)} are for .onnx files; a .tflite file has its own"
            )
        extensions = Extensions(further.extensions)
        return Translation(TfliteFile(content), extensions, exact=bool(further.exact)).run()
    file = read_model(content)
    external = ExternalData(directory, file.budget)
    if not options.as_graph:
        given = options.shapes, options.constants, options.states
        return OnnxTranslation(file, external, *given, exact=further.exact is not False).run()
    if options.states or options.constants:
        raise InvalidArgument("states and constants are for what is imported, not for whole graphs")
    return whole_graph(content, file, external, options.shapes)


def is_onnx(content: bytes) -> bool:
    """Whether `load` takes a file for an .onnx one."""
    return content[4:8] != IDENTIFIER and _may_be_onnx(content)


def _may_be_onnx(content: bytes) -> bool:
    """Whether the bytes begin as ONNX files do: with the version of the format, or a string after it."""
    if content[:2] == b"\x08\x00":
        return False  # no version is 0: a flatbuffer of another format begins like this
    return content[:1] in (b"\x08", b"\x12", b"\x1a", b"\x22", b"\x32", b"\x3a", b"\x42")
