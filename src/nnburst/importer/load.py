"""Reads networks from .tflite and .onnx files (`nnburst.load`)."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from nnburst.formats.onnx_model import read_model
from nnburst.formats.onnx_tensor import ExternalData
from nnburst.formats.tflite_graph import read_graph
from nnburst.formats.tflite_reader import IDENTIFIER
from nnburst.hal.errors import InvalidArgument, as_options, spelt
from nnburst.hal.extensions import ClaimsOperators
from nnburst.hal.model import Model
from nnburst.hal.regular_file import read_regular_file
from nnburst.hal.utils import check_integers, check_path, listed
from nnburst.importer.imported_model import Extensions, ImportedModel
from nnburst.importer.named_sources import NamedSource
from nnburst.importer.onnx.translation import OnnxTranslation
from nnburst.importer.onnx.whole_graph import whole_graph as onnx_graph
from nnburst.importer.tensors import Refused, as_graph_hint
from nnburst.importer.tflite.file import TfliteFile
from nnburst.importer.tflite.file import whole_graph as tflite_graph
from nnburst.importer.tflite.translation import Translation

log = logging.getLogger("nnburst.importer")


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, npt.ArrayLike] | None = None,
    states: Mapping[str, str] | None = None,
    as_graph: bool | None = None,
    resident: bool = False,
    largest: Sequence[str] = (),
    exact: bool | None = None,
    extensions: Sequence[ClaimsOperators | str] = (),
) -> ImportedModel:
    """Read a network from a .tflite or .onnx file; its first bytes, or its name, tell the format.

    The network becomes operations of NNAPI, for every driver that supports them. If a part cannot be
    translated, the whole file becomes one operation of the extension dev.nnburst.tflite or dev.nnburst.onnx,
    which drivers of the executor `litert` or `onnxruntime` run; `ImportedModel.refusal` and the log have the
    reason.

    No engine is loaded. The bytes may come from anywhere: reading them takes at most 16 times their size
    and 64 MiB of memory, and always ends. Weights of 8 bits that are multiplied with real numbers
    stay 8 bits, and DEQUANTIZE makes them real. Shapes that a .tflite file leaves open take the values
    that the file suggests, if `shapes` has none and `as_graph` is not True. Integers of 64 bits in an .onnx
    file become 32 bits wide, and images are stored as N×H×W×C inside the model; its inputs and outputs are as
    in the file. External data files with weights are read, too.

    Args:
        source: path of a file, or its contents.
        shapes: dimensions of inputs that the file leaves open, by name. A .tflite file with shapes that it
            does not already have becomes one operation.
        constants: values of inputs of an .onnx file that are the same in every execution, by name. They are
            not inputs of the model, and values that depend on them alone are computed now.
        states: states of an .onnx file: names of outputs, by the names of the inputs that receive their
            values in the next execution. The states of a whole graph are `resident`.
        as_graph: True makes the file one operation; dimensions that neither the file nor `shapes` gives then
            stay open, and each request gives them, unless a .tflite file keeps a state. False makes the file
            NNAPI operations, or refuses it. By default it becomes one operation only if it would be refused.
        resident: whether the states of a whole graph stay in the driver's engine, with slots for them in
            bursts (`Burst.slot`). The states of an .onnx file are `states`; they begin with zeros, and an
            extent that neither the file nor `shapes` gives begins as 0. The states of a .tflite file are its
            variables; if they are not resident, all requests share them.
        largest: outputs of a whole .onnx graph, by name, that are replaced with the index of the largest
            element along the last axis (INT64, `NAME_largest`).
        exact: whether real numbers are multiplied with 8-bit weights in float32. If not, the model is
            relaxed, and an engine may round the real numbers to 8 bits, too, which is quicker and changes
            outputs by about 1 % of their range. The default follows the file's own engine: a .tflite file
            with such operators is not exact, an .onnx file is.
        extensions: vendor extensions (or `module:attribute` strings) that may claim custom operators of a
            .tflite file, before those of the entry-point group `nnburst.extensions`.

    Returns:
        The model, not validated (the driver does that), with its pools, names, states, signatures and
        metadata.

    Raises:
        InvalidArgument: the path is of no regular file; or the file is not intact; or NNAPI cannot express it
            and it cannot be one operation, either: the message names the operator, its index and the reason.
        DeviceUnavailable: an extension cannot be imported.
        OSError: the file cannot be read.
    """
    extensions = listed("extensions", extensions)
    options = _Options(
        {
            name: check_integers(spelt("shapes", name), extents)
            for name, extents in _mapping("shapes", shapes).items()
        },
        _mapping("constants", constants),
        _mapping("states", states),
        as_graph,
        resident=resident,
        largest=largest,
    )
    if (resident or largest) and not as_graph:
        raise InvalidArgument(
            f"{spelt('resident')}, {spelt('largest')}: for whole graphs, {spelt('as_graph=True')}"
        )
    if exact and as_graph:
        raise InvalidArgument(
            f"{spelt('exact')}: given, but a whole graph is computed as its file defines"
        )
    further = _Further(exact, extensions, "the network")
    if isinstance(source, bytes | bytearray | memoryview):
        return _load(bytes(source), None, options, further)
    return _load_file(Path(check_path("source", source)), options, further)


def _mapping(name: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgument(f"{spelt(name)}: {given!r}, expected a mapping by names")
    return given or {}


def load_from(
    source: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    largest: Sequence[str] = (),
) -> ImportedModel:
    """Read a file as `load` does, or take the model that `module:attribute` is or returns.

    Several clients or sequences may use the model at once. So a .tflite file with variables that becomes a
    whole graph has slots, each with variables of its own.

    Args:
        source: path of the file, or `module:attribute`.
        shapes: dimensions of inputs that the file leaves open, by name.
        states: names of outputs by names of inputs of an .onnx file, which becomes a whole graph and keeps
            these states in the driver.
        largest: outputs of such a file that are replaced with the index of the largest element.

    Raises:
        NnburstError: the network cannot be read.
        InvalidArgument: the attribute is not a model, or options are given for one.
        OSError: the file cannot be read.
    """
    module, colon, attribute = source.rpartition(":")
    if not colon:
        options = _Options(
            shapes or {},
            {},
            states or {},
            as_graph=True if states or largest else None,
            resident=bool(states) or None,
            largest=largest,
        )
        return _load_file(Path(source), options, _Further(None, (), ""))
    for name, given in (("shapes", shapes), ("states", states), ("largest", largest)):
        if given:
            raise InvalidArgument(f"{spelt(name)}: for files, and {source} is an attribute")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"--model: {source}: {error}") from None
    made = found() if callable(found) else found
    if isinstance(made, Model):
        return ImportedModel(made)
    if isinstance(made, ImportedModel):
        return made
    raise InvalidArgument(f"--model: {source} is a {type(made).__name__}, expected a model")


def load_named(source: NamedSource) -> ImportedModel:
    """Read a named network; see `load_from`. Messages name options or settings instead of arguments."""
    with as_options(in_config=source.in_config):
        return load_from(source.source, source.shapes, source.states, source.largest)


def load_graph(content: bytes, files: Mapping[str, memoryview]) -> ImportedModel:
    """Import a file that a client in C gives as bytes as one operation.

    Extents that an .onnx file leaves open stay open; those of a .tflite file become the ones that it
    suggests.

    Args:
        content: bytes of the file.
        files: bytes of external data files, by the names that an .onnx file has for them.

    Raises:
        InvalidArgument: the file is not intact, has an input or output of a type that the extension lacks, or
            names a file that is not in `files`.
    """
    if not is_onnx(content):
        return tflite_graph(content, {}, extents_hold=True)
    file = read_model(content)
    external = ExternalData(None, file.budget, files)
    return onnx_graph(content, file, external, {}, extents_hold=True)


#: The first bytes of what lies in a working tree of Git in place of a large file that was not fetched.
_POINTER: Final = b"version https://git-lfs.github.com/spec/"


class _Options(NamedTuple):
    """The options of `load` that depend on the file.

    Attributes:
        resident: None for slots if a whole .tflite graph has variables.
        falls_back: whether the file becomes one operation because NNAPI operations were refused.
    """

    shapes: Mapping[str, Sequence[int]]
    constants: Mapping[str, npt.ArrayLike]
    states: Mapping[str, str]
    as_graph: bool | None
    falls_back: bool = False
    resident: bool | None = False
    largest: Sequence[str] = ()


class _Further(NamedTuple):
    """The other options of `load`, and the file's path for messages."""

    exact: bool | None
    extensions: Sequence[ClaimsOperators | str]
    name: str


def _load_file(path: Path, options: _Options, further: _Further) -> ImportedModel:
    content = read_regular_file(path)
    try:
        return _load(content, path.parent, options, further._replace(name=str(path)))
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _load(
    content: bytes, directory: Path | None, options: _Options, further: _Further
) -> ImportedModel:
    """Import as operations or as one operation, as `as_graph` demands; by default the first that works."""
    if content.startswith(_POINTER):
        raise InvalidArgument("a pointer of Git LFS, not the network: `git lfs pull` fetches it")
    if not content:
        raise InvalidArgument("the file is empty")
    is_named_so = further.name.endswith(".onnx") and content[4:8] != IDENTIFIER
    load_one = _load_onnx if is_named_so or is_onnx(content) else _load_tflite
    if options.as_graph is not None:
        return load_one(content, directory, options, further)
    try:
        return load_one(content, directory, options._replace(as_graph=False), further)
    except Refused as refused:
        if further.exact or options.constants or options.states:
            raise  # a whole graph does not support these options
        why = str(refused).removesuffix(f"; {as_graph_hint()}")
        try:
            instead = options._replace(as_graph=True, falls_back=True)
            found = load_one(content, directory, instead, further)
        except InvalidArgument as error:
            raise Refused(f"{why}; as a whole graph: {error}") from None
        log.warning("%s runs as a whole graph, on its own engine: %s", further.name, why)
        return replace(found, refusal=why)


def _load_tflite(
    content: bytes, _directory: Path | None, options: _Options, further: _Further
) -> ImportedModel:
    if options.largest:
        raise InvalidArgument(f"{spelt('largest')}: for .onnx files")
    if options.constants or options.states:
        raise InvalidArgument(
            f"{spelt('constants')}, {spelt('states')}: for .onnx files; a .tflite file has its own"
        )
    shapes = _without_known(content, options.shapes)
    if options.as_graph:
        return tflite_graph(
            content,
            shapes,
            stays_open=not options.falls_back,
            resident=options.resident,
        )
    if shapes:
        raise Refused(
            f"{spelt('shapes')}: given, with which a .tflite file cannot become operations"
        )
    extensions = Extensions(further.extensions)
    return Translation(TfliteFile(content), extensions, exact=bool(further.exact)).run()


def _without_known(content: bytes, shapes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Drop the shapes that a .tflite file already has."""
    known = {each.name: each.signature for each in read_graph(content).inputs} if shapes else {}
    return {name: shape for name, shape in shapes.items() if known.get(name) != tuple(shape)}


def _load_onnx(
    content: bytes, directory: Path | None, options: _Options, further: _Further
) -> ImportedModel:
    file = read_model(content)
    external = ExternalData(directory, file.budget)
    if not options.as_graph:
        given = options.shapes, options.constants, options.states
        return OnnxTranslation(file, external, *given, exact=further.exact is not False).run()
    if options.constants:
        raise InvalidArgument(f"{spelt('constants')}: for what is imported, not for whole graphs")
    if bool(options.states) != bool(options.resident):
        raise InvalidArgument(
            f"{spelt('states')}: of a whole graph they stay in the driver; expected in a program, together"
            " with `resident`, or with `nnburst serve`, not with another command"
        )
    return onnx_graph(
        content,
        file,
        external,
        options.shapes,
        fixed=not options.falls_back,
        states=options.states,
        largest=options.largest,
    )


def is_onnx(content: bytes) -> bool:
    """Whether `load` reads a file as ONNX."""
    return content[4:8] != IDENTIFIER and _may_be_onnx(content)


def _may_be_onnx(content: bytes) -> bool:
    """Whether the bytes begin as ONNX files do: with the version of the format, or a string after it."""
    if content[:2] == b"\x08\x00":
        return False  # no version is 0: a flatbuffer of another format begins like this
    return content[:1] in (b"\x08", b"\x12", b"\x1a", b"\x22", b"\x32", b"\x3a", b"\x42")
