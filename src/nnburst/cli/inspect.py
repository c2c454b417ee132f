"""`nnburst inspect`: shows the contents of a .tflite or .onnx file, and how each executor runs it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.cli.options import Subparsers, add_network_options, load_options, zero_or_more
from nnburst.cli.output import (
    Coloured,
    add_json_option,
    printable,
    table,
    text_for_people,
    write_json,
    writing,
)
from nnburst.driver.executors import GROUP, find_executor
from nnburst.executor.built_in import BUILT_IN
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType, operation_name
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.hal.graph_dump import Drawing, DrawnPart, colours, dot, mermaid
from nnburst.hal.model import (
    Model,
    Operand,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
    size_bytes,
)
from nnburst.hal.signature import type_name
from nnburst.importer.imported_model import ImportedModel

# -- which executor runs what ----------------------------------------------------------------------
_ENGINE: Final = "LiteRT"
_REFERENCE: Final = "the reference executor"
#: Reasons shown for one partition; further ones are only counted.
_REASONS: Final = 3


@dataclass(frozen=True, slots=True)
class Partition:
    """Consecutive operations that one engine runs together.

    Attributes:
        first: number of its first operation.
        last: number of its last operation.
        by: the engine that runs it.
        why: the reason for this engine, and for the end of the partition.
    """

    first: int
    last: int
    by: str
    why: str

    def as_json(self) -> dict[str, Any]:
        """The partition as `--json` writes it."""
        return {"first": self.first, "last": self.last, "by": self.by, "why": self.why}


@dataclass(frozen=True, slots=True)
class ExecutorPlacement:
    """The partitions in which one executor runs a model.

    Attributes:
        executor: the executor's name.
        supported: for each operation of the main subgraph, whether the executor can run it.
        partitions: the partitions; empty if the executor does not run the model.
        problem: why the executor does not run the model, or "".
        reasons: the reason for each operation that the executor does not run, by the operation's number.
    """

    executor: str
    supported: tuple[bool, ...]
    partitions: tuple[Partition, ...]
    problem: str = ""
    reasons: Mapping[int, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The placement as `--json` writes it."""
        return {
            "executor": self.executor,
            "supported": sum(self.supported),
            "unsupported": [n for n, able in enumerate(self.supported) if not able],
            "partitions": [partition.as_json() for partition in self.partitions],
            "problem": self.problem,
        }


def known_executors() -> list[str]:
    """Names of the executors that come with nnburst, and of those of other packages."""
    others = {point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()
    return [*sorted(BUILT_IN), *sorted(others)]


def place(name: str, model: Model, pools: Sequence[npt.NDArray[np.uint8]]) -> ExecutorPlacement:
    """Find the partitions in which executor `name` runs a valid model. The model is not compiled.

    Raises:
        DeviceUnavailable: there is no such executor, or it cannot be imported.
    """
    factory = find_executor(name)
    try:
        supported = tuple(factory().supported(model))
    except NnburstError as error:  # the package that it needs is not installed
        return ExecutorPlacement(name, (), (), str(error))
    except Exception as error:  # of the executor itself
        return ExecutorPlacement(name, (), (), f"{type(error).__name__}: {error}")
    if not all(supported):
        reasons = _unsupported(model, supported)
        if name == "onnxruntime":
            reasons |= _not_lowered(model)
        return ExecutorPlacement(name, supported, (), _some([*reasons.values()]), reasons)
    if name == "litert":
        return ExecutorPlacement(name, supported, tuple(_engine_partitions(model, pools)))
    return ExecutorPlacement(name, supported, (_whole(model, name),))


def _placed(name: str, imported: ImportedModel, *, asked: bool) -> ExecutorPlacement:
    """The partitions of an executor; one that was not asked for and cannot be imported runs none."""
    try:
        return place(name, imported.model, imported.pools)
    except DeviceUnavailable as error:
        if asked:
            raise
        return ExecutorPlacement(name, (), (), str(error))


def _whole(model: Model, by: str) -> Partition:
    count = len(model.main.operations)
    return Partition(0, count - 1, by, "it supports every operation")


def _unsupported(model: Model, supported: Sequence[bool]) -> dict[int, str]:
    """The reason for each operation that is not supported, by the operation's number."""
    from nnburst.executor.graph.plan import match_operation

    reasons = {}
    for number, able in enumerate(supported):
        if able:
            continue
        operation = model.main.operations[number]
        try:
            match_operation(model.main, operation)
            why = f"operation {number} ({operation_name(operation.type)}) is not supported"
        except (InvalidArgument, IndexError) as error:
            why = f"operation {number} is not supported: {error}"
        reasons[number] = why
    return reasons


def _not_lowered(model: Model) -> dict[int, str]:
    """Why the onnxruntime executor does not run an operation, by the operation's number."""
    from nnburst.executor.onnxruntime.network import survey

    refusals = survey(model).refusals
    return {number: _refusals(model, refusals, [number])[0] for number in refusals}


def _engine_partitions(model: Model, pools: Sequence[npt.NDArray[np.uint8]]) -> Sequence[Partition]:
    """The partitions into which the litert executor cuts a model, with the engine of each."""
    from nnburst.executor.graph.whole_graph import graph_prefix
    from nnburst.executor.litert.network import survey
    from nnburst.executor.litert.split import cut
    from nnburst.hal.whole_graph import TFLITE

    count = len(model.main.operations)
    if graph_prefix(model, TFLITE) is not None:
        return [Partition(0, count - 1, _ENGINE, "it is the engine's own format")]
    found = survey(model, pools)
    if found.network is not None:
        return [Partition(0, count - 1, _ENGINE, "every operation can be lowered")]
    if not any(found.lowered[n] for n in found.static):
        reasons = _some(_refusals(model, found.refusals, range(count)))
        return [Partition(0, count - 1, _REFERENCE, reasons)]
    partitions = []
    for part in cut(model, found):
        numbers, first = part.numbers, part.numbers[0]
        why = "these can be lowered"
        if not part.lowered:
            why = _some(_refusals(model, found.refusals, numbers))
        if not part.static:
            why = f"from operation {first} on, extents depend on data"
        by = _ENGINE if part.lowered else _REFERENCE
        partitions.append(Partition(first, numbers[-1], by, why))
    return partitions


def _refusals(model: Model, refusals: Mapping[int, str], numbers: Sequence[int]) -> list[str]:
    operations = model.main.operations
    return [
        f"{n} {operation_name(operations[n].type)}: {refusals[n]}" for n in numbers if n in refusals
    ]


def _some(reasons: Sequence[str]) -> str:
    shown = "; ".join(reasons[:_REASONS])
    left = len(reasons) - _REASONS
    return f"{shown}; and {left} more" if left > 0 else shown


#: Suffixes of Graphviz source files; other suffixes are formats that `dot` draws.
SOURCE_SUFFIXES: Final = frozenset({".dot", ".gv"})


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that draw the graph."""
    parser.add_argument(
        "--dot",
        type=Path,
        metavar="FILE",
        help="write the graph for Graphviz (.dot, .gv), or drawn by it (.svg, .png, .pdf)",
    )
    parser.add_argument(
        "--mermaid", type=Path, metavar="FILE", help="write the graph as a mermaid flowchart"
    )
    parser.add_argument(
        "--focus", type=zero_or_more, metavar="N", help="draw operation N and its neighbours only"
    )
    parser.add_argument(
        "--depth",
        type=zero_or_more,
        default=2,
        metavar="D",
        help="how far they are (default: %(default)s)",
    )
    parser.add_argument("--no-constants", action="store_true", help="draw no constants")


def check_graph_options(args: argparse.Namespace) -> None:
    """Refuse options for pictures that cannot be drawn, before anything else is done.

    Raises:
        InvalidArgument: a package is missing, or there is `--focus` without a picture.
    """
    if args.focus is not None and args.dot is None and args.mermaid is None:
        raise InvalidArgument(
            f"--focus: {args.focus}, but no picture is drawn, expected --dot or --mermaid, too"
        )
    needs_graphviz = args.dot is not None and args.dot.suffix not in SOURCE_SUFFIXES
    if needs_graphviz and find_spec("graphviz") is None:
        raise InvalidArgument(
            f"--dot: a {args.dot.suffix} file needs the package graphviz:"
            " pip install 'nnburst[cli]'; a .dot file does not"
        )


def write_graphs(
    args: argparse.Namespace, model: Model, placements: Sequence[ExecutorPlacement]
) -> None:
    """Write the pictures that the options ask for.

    Raises:
        InvalidArgument: there is no operation `--focus`, or Graphviz cannot draw the format.
        OSError: a file cannot be written.
    """
    count = len(model.main.operations)
    if args.focus is not None and not 0 <= args.focus < count:
        raise InvalidArgument(f"--focus: {args.focus}, expected an operation from 0 to {count - 1}")
    drawing = drawing_of(
        placements, constants=not args.no_constants, focus=args.focus, depth=args.depth
    )
    name = args.model.stem
    if args.mermaid is not None:
        with writing(args.mermaid):
            args.mermaid.write_text(mermaid(model, name, drawing), encoding="utf-8")
    if args.dot is not None:
        with writing(args.dot):
            _write_dot(dot(model, name, drawing), args.dot)


def drawing_of(
    placements: Sequence[ExecutorPlacement],
    *,
    constants: bool = True,
    focus: int | None = None,
    depth: int = 2,
) -> Drawing:
    """The partitions of the executor that has the most; if none has any, what the first lacks.

    An executor whose package is not installed did not examine the model and is chosen last.
    """
    chosen = _chosen(placements)
    parts: tuple[DrawnPart, ...] = ()
    unsupported: dict[int, str] = {}
    if chosen is not None:
        parts = _parts(chosen)
        unsupported = {n: f"{chosen.executor}: {why}" for n, why in chosen.reasons.items()}
    return Drawing(parts, unsupported, constants=constants, focus=focus, depth=depth)


def colours_of(placements: Sequence[ExecutorPlacement]) -> dict[str, str]:
    """The colour of each engine that runs a partition, the same as in the picture."""
    chosen = _chosen(placements)
    ordered = sorted(placements, key=lambda placement: placement is not chosen)
    return colours([part for placement in ordered for part in _parts(placement)])


def _chosen(placements: Sequence[ExecutorPlacement]) -> ExecutorPlacement | None:
    return max(placements, key=lambda p: (len(p.partitions), len(p.supported)), default=None)


def _parts(placement: ExecutorPlacement) -> tuple[DrawnPart, ...]:
    return tuple(DrawnPart(p.by, range(p.first, p.last + 1), p.why) for p in placement.partitions)


def _write_dot(text: str, path: Path) -> None:
    if path.suffix in SOURCE_SUFFIXES:
        path.write_text(text, encoding="utf-8")
        return
    import graphviz

    try:
        path.write_bytes(graphviz.Source(text).pipe(format=path.suffix.removeprefix(".")))
    except graphviz.ExecutableNotFound:
        raise InvalidArgument(
            f"--dot: a {path.suffix} file needs Graphviz's program dot; a .dot file does not"
        ) from None
    except (ValueError, graphviz.RequiredArgumentError, graphviz.CalledProcessError) as error:
        raise InvalidArgument(
            f"--dot: {path.suffix} is not a format of Graphviz: {error}"
        ) from None


# -- the command -----------------------------------------------------------------------------------


def prepare_parser(subparsers: Subparsers) -> None:
    """Add `nnburst inspect`."""
    parser = subparsers.add_parser(
        "inspect",
        help="what is in a .tflite or .onnx file, and who can run it",
        description="`nnburst inspect`: what is in a .tflite or .onnx file, and what each executor "
        "makes of it.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help=".tflite or .onnx file")
    add_network_options(parser)
    parser.add_argument(
        "--executor",
        action="append",
        metavar="NAME",
        help="executor to ask, any number of times (default: all that are known)",
    )
    add_graph_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print and write the contents and placements; 1 if no chosen executor runs the model."""
    from nnburst.executor.graph.extension import install_from
    from nnburst.executor.operations import SIGNATURES
    from nnburst.hal.validation import validate_model
    from nnburst.importer.load import load

    check_graph_options(args)
    imported = load(args.model, **load_options(args))
    for extension in args.extension:
        install_from(extension)
    validate_model(imported.model, SIGNATURES)
    names = args.executor or known_executors()
    placements = [_placed(name, imported, asked=bool(args.executor)) for name in names]
    with text_for_people(args.json):
        report = {
            "model": str(args.model),
            "file_bytes": args.model.stat().st_size,
            **contents(imported),
            "executors": [placement.as_json() for placement in placements],
        }
        _print(report, colours_of(placements))
        write_graphs(args, imported.model, placements)
    write_json(args.json, report)
    return 0 if any(placement.partitions for placement in placements) else 1


def _print(report: dict[str, Any], colours: dict[str, str]) -> None:
    what = report["description"] or "a network"
    print(printable(f"{report['model']}: {report['file_bytes']} bytes, {what}"))
    _print_border(report)
    table(
        f"{len(report['operations'])} operations, {report['operands']} operands",
        ["#", "operation", "from", "first input", "first output", "constant bytes"],
        [
            [
                operation["number"],
                operation["type"],
                operation["from"],
                _short(operation["inputs"]),
                _short(operation["outputs"]),
                operation["constant_bytes"],
            ]
            for operation in report["operations"]
        ],
    )
    counts = ", ".join(f"{count} {kind}" for kind, count in report["operation_counts"].items())
    print(f"  {counts}")
    _print_dynamic_range(report)
    print(
        f"  {report['constant_bytes']} bytes of constants,"
        f" {report['temporary_bytes']} bytes of temporaries, {report['subgraphs']} subgraphs\n"
    )
    _print_executors(report, colours)


def _print_dynamic_range(report: dict[str, Any]) -> None:
    """Print which operations have 8-bit weights for real numbers, and how these operations are computed."""
    numbers = report["dynamic_range"]["operations"]
    if not numbers:
        return
    how = "in float32"
    if not report["dynamic_range"]["exact"]:
        how = "by an engine that rounds the numbers to 8 bits, too, if it can (--exact: in float32)"
    names = ", ".join(f"{n} {report['operations'][n]['type']}" for n in numbers)
    print(f"  dynamic range: real numbers and 8-bit weights in {names}: computed {how}")


def _print_border(report: dict[str, Any]) -> None:
    """Print the inputs and outputs, with the file's descriptions of them."""
    states = {(kind, state[kind]) for state in report["states"] for kind in ("input", "output")}
    rows = [
        [
            f"{kind} {at}{' (state)' if (kind, at) in states else ''}",
            operand["name"],
            operand["type"],
            "x".join(map(str, operand["shape"])),
            f"{operand['scale']:.6g}" if operand["scale"] else "",
            operand["zero_point"] if operand["scale"] else "",
            operand["bytes"],
        ]
        for kind in ("input", "output")
        for at, operand in enumerate(report[f"{kind}s"])
    ]
    columns = ["", "name", "type", "shape", "scale", "zero point", "bytes"]
    table("inputs and outputs", columns, rows)
    for signature in report["signatures"]:
        border = f"{signature['inputs']} -> {signature['outputs']}"
        print(printable(f"  signature {signature['key']}: {border}"))
    for name, size in report["metadata"].items():
        print(printable(f"  metadata {name}: {size} bytes"))
    print()


def _print_executors(report: dict[str, Any], colours: dict[str, str]) -> None:
    """Print the partitions of each executor, in the picture's colours."""
    total = len(report["operations"])
    rows = []
    for placement in report["executors"]:
        partitions = placement["partitions"]
        first = [placement["executor"], f"{placement['supported']} of {total}", len(partitions)]
        if not partitions:
            rows.append([*first, "", "", placement["problem"]])
        for at, part in enumerate(partitions):
            begin = first if at == 0 else ["", "", ""]
            by = Coloured(part["by"], colours[part["by"]])
            rows.append([*begin, f"{part['first']}-{part['last']}", by, part["why"]])
    columns = ["executor", "supported", "partitions", "operations", "run by", "why"]
    table("executors", columns, rows)


def _short(described: list[str]) -> str:
    """Type and extents of the first operand."""
    return " ".join(described[0].split()[:2]) if described else ""


def contents(imported: ImportedModel) -> dict[str, Any]:
    """The contents of a file for `--json`, without the executors that can run it."""
    model = imported.model
    main = model.main
    every = [operand for graph in (main, *model.referenced) for operand in graph.operands]
    return {
        "description": imported.description,
        "metadata": {name: len(value) for name, value in imported.metadata.items()},
        "signatures": [
            {"key": s.key, "inputs": dict(s.inputs), "outputs": dict(s.outputs)}
            for s in imported.signatures
        ],
        "states": [
            {"name": s.name, "input": s.input_index, "output": s.output_index}
            for s in imported.states
        ],
        "inputs": _operands(model, imported.input_names, main.input_indexes),
        "outputs": _operands(model, imported.output_names, main.output_indexes),
        "operations": _operations(imported),
        "operation_counts": dict(Counter(operation_name(o.type) for o in main.operations)),
        "dynamic_range": {
            "operations": _dynamic_range(main),
            "exact": not model.relax_computation_float32_to_float16,
        },
        "subgraphs": len(model.referenced),
        "operands": len(every),
        "constant_bytes": sum(o.location.length for o in every if o.is_constant),
        "temporary_bytes": sum(
            _size(o) for o in every if o.lifetime is OperandLifeTime.TEMPORARY_VARIABLE
        ),
    }


def _operands(
    model: Model, names: tuple[str, ...], indexes: tuple[int, ...]
) -> list[dict[str, Any]]:
    shown = []
    for name, index in zip(names, indexes, strict=True):
        operand = model.main.operands[index]
        shown.append(
            {
                "name": name,
                "type": type_name(operand.type),
                "shape": list(operand.dimensions),
                "scale": operand.scale,
                "zero_point": operand.zero_point,
                "bytes": _size(operand),
            }
        )
    return shown


def _operations(imported: ImportedModel) -> list[dict[str, Any]]:
    main = imported.model.main
    origins = imported.operators or ("",) * len(main.operations)
    return [
        {
            "number": number,
            "type": operation_name(operation.type),
            "from": origin,
            "inputs": [
                described(main.operands[i]) for i in operation.inputs if main.operands[i].dimensions
            ],
            "outputs": [described(main.operands[i]) for i in operation.outputs],
            "constant_bytes": sum(
                main.operands[i].location.length
                for i in set(operation.inputs)
                if main.operands[i].is_constant
            ),
        }
        for number, (operation, origin) in enumerate(zip(main.operations, origins, strict=True))
    ]


def _dynamic_range(main: Subgraph) -> list[int]:
    """Numbers of the operations that compute real numbers with constants of 8 bits."""
    weights = {
        operation.outputs[0]
        for operation in main.operations
        if operation.type == OperationType.DEQUANTIZE
        and main.operands[operation.inputs[0]].is_constant
    }
    return [n for n, o in enumerate(main.operations) if weights.intersection(o.inputs)]


def _size(operand: Operand) -> int:
    """Bytes of an operand; 0 if they are not known."""
    if is_extension(operand.type):
        return 0
    return size_bytes(OperandType(operand.type), operand.dimensions)


def described(operand: Operand) -> str:
    """Type, extents and quantisation in a few words."""
    words = [type_name(operand.type)]
    if operand.dimensions:
        words.append("x".join(map(str, operand.dimensions)))
    if isinstance(operand.extra_params, SymmPerChannelQuantParams):
        params = operand.extra_params
        words.append(f"{len(params.scales)} scales along {params.channel_dim}")
    elif operand.scale:
        words.append(f"scale {operand.scale:.6g} zero {operand.zero_point}")
    return " ".join(words)
