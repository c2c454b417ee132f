"""Options for what the file of a network leaves open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypedDict


class LoadOptions(TypedDict):
    """Arguments of `nnburst.load` beside the file."""

    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, float]
    states: dict[str, str]
    exact: bool | None
    extensions: list[str]


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """Add --shape, --constant, --state, --exact and --extension."""
    parser.add_argument(
        "--shape",
        type=_shape,
        action="append",
        default=[],
        metavar="INPUT=1,3,…",
        help="dimensions of an input that an .onnx file leaves open; may be repeated",
    )
    parser.add_argument(
        "--constant",
        type=_constant,
        action="append",
        default=[],
        metavar="INPUT=NUMBER",
        help="an input of an .onnx file that is the same in every execution; may be repeated",
    )
    parser.add_argument(
        "--state",
        type=_state,
        action="append",
        default=[],
        metavar="INPUT=OUTPUT",
        help="an input of an .onnx file that takes what an output gave before; may be repeated",
    )
    parser.add_argument(
        "--exact",
        action=argparse.BooleanOptionalAction,
        help="multiply real numbers with 8-bit weights in float32, or let the engine round the numbers to 8"
        " bits (default: as the file's own engine does)",
    )
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="vendor extension beside those of entry points, which may claim operators of a .tflite file; a"
        " driver that is launched has it, too; may be repeated",
    )


def load_options(args: argparse.Namespace) -> LoadOptions:
    """What was given, as `nnburst.load` takes it."""
    return {
        "shapes": dict(args.shape),
        "constants": dict(args.constant),
        "states": dict(args.state),
        "exact": args.exact,
        "extensions": args.extension,
    }


def options_for(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Those of `load_options` that a file takes: of several networks only the .onnx ones take all.

    Raises:
        OSError: the file cannot be read.
    """
    from nnburst.importer.load import is_onnx

    given: dict[str, Any] = dict(load_options(args))
    if not is_onnx(path.read_bytes()):
        given = {name: given[name] for name in ("exact", "extensions")}
    return given


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}, expected a name, = and a value")
    return name, value


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, value = _pair(text)
    extents = value.split(",")
    if not all(extent.isascii() and extent.isdigit() and int(extent) for extent in extents):
        raise argparse.ArgumentTypeError(f"{value!r}, expected extents above 0, comma-separated")
    return name, tuple(map(int, extents))


def _constant(text: str) -> tuple[str, float]:
    name, value = _pair(text)
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r}, expected a number") from None


def _state(text: str) -> tuple[str, str]:
    return _pair(text)
