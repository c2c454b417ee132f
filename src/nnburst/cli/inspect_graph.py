"""`nnburst inspect --dot` and `--mermaid`: the picture of a model, with what runs each part."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nnburst.cli.inspect_placement import Placement
from nnburst.cli.options import zero_or_more
from nnburst.hal.diagnostics.graph_dump import Drawing, DrawnPart, colours, dot, mermaid
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model

#: Suffixes that hold the description itself; others are formats that `dot` draws.
SOURCE_SUFFIXES: Final = frozenset({".dot", ".gv"})


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Give a command its pictures."""
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
    """Refuse pictures that cannot be drawn, before anything else is done.

    Raises:
        InvalidArgument: a package is missing.
    """
    needs_graphviz = args.dot is not None and args.dot.suffix not in SOURCE_SUFFIXES
    if needs_graphviz and find_spec("graphviz") is None:
        raise InvalidArgument(
            f"--dot: a {args.dot.suffix} file needs the package graphviz:"
            " pip install 'nnburst[cli]'; a .dot file does not"
        )


def write_graphs(args: argparse.Namespace, model: Model, placements: Sequence[Placement]) -> None:
    """Write the pictures that were asked for.

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
        args.mermaid.write_text(mermaid(model, name, drawing), encoding="utf-8")
    if args.dot is not None:
        _write_dot(dot(model, name, drawing), args.dot)


def drawing_of(
    placements: Sequence[Placement],
    *,
    constants: bool = True,
    focus: int | None = None,
    depth: int = 2,
) -> Drawing:
    """The parts of the executor that cuts the model the most; what the first one lacks if none runs it.

    An executor whose package is not installed has not looked at the model and counts last.
    """
    chosen = _chosen(placements)
    parts: tuple[DrawnPart, ...] = ()
    unsupported: dict[int, str] = {}
    if chosen is not None:
        parts = _parts(chosen)
        unsupported = {n: f"{chosen.executor}: {why}" for n, why in chosen.reasons.items()}
    return Drawing(parts, unsupported, constants=constants, focus=focus, depth=depth)


def colours_of(placements: Sequence[Placement]) -> dict[str, str]:
    """The colour of each executor that runs a partition: in the picture's order first, so that both agree."""
    chosen = _chosen(placements)
    ordered = sorted(placements, key=lambda placement: placement is not chosen)
    return colours([part for placement in ordered for part in _parts(placement)])


def _chosen(placements: Sequence[Placement]) -> Placement | None:
    return max(placements, key=lambda p: (len(p.partitions), len(p.supported)), default=None)


def _parts(placement: Placement) -> tuple[DrawnPart, ...]:
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
