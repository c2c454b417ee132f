"""Draws a model for Graphviz or mermaid, and writes pictures into `NNBURST_GRAPH_DIR`.

The text is labelled as Android's `graphDump` labels it. Operands are ellipses, operations boxes; inputs and
outputs of the model are black. Subgraphs are clusters, with a dotted arrow from the operand that refers to
them. Each device or engine has a colour, and each part that it runs is a cluster, with the reason as tooltip;
values that go from one part to another have two outlines and their bytes. No package is needed.

NNAPI: GraphDump.cpp.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal import vlog
from nnburst.hal.enums import OperandLifeTime, OperandType, operation_name
from nnburst.hal.environment import GRAPH_DIR
from nnburst.hal.model import DTYPES, Model, Operand, Subgraph
from nnburst.hal.signature import type_name

_L = OperandLifeTime
_LIFETIMES: Final = {
    _L.CONSTANT_COPY: "COPY",
    _L.CONSTANT_REFERENCE: "REF",
    _L.NO_VALUE: "NO",
    _L.SUBGRAPH: "SUBGRAPH",
    _L.POINTER: "POINTER",
}
_CONSTANTS: Final = frozenset({_L.CONSTANT_COPY, _L.CONSTANT_REFERENCE, _L.NO_VALUE, _L.POINTER})
_SHORT_TYPES: Final[dict[int, str]] = {
    OperandType.FLOAT32: "F32",
    OperandType.INT32: "I32",
    OperandType.UINT32: "U32",
    OperandType.TENSOR_FLOAT32: "TF32",
    OperandType.TENSOR_INT32: "TI32",
    OperandType.TENSOR_QUANT8_ASYMM: "TQ8A",
    OperandType.OEM: "OEM",
    OperandType.TENSOR_OEM_BYTE: "TOEMB",
}
_DTYPES: Final = {int(kind): dtype for kind, dtype in DTYPES.items()}
#: Colours of Brewer's set of twelve.
_COLOURS: Final = (
    "#8dd3c7", "#ffffb3", "#bebada", "#fb8072", "#80b1d3", "#fdb462",
    "#b3de69", "#fccde5", "#d9d9d9", "#bc80bd", "#ccebc5", "#ffed6f",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DrawnPart:
    """Operations of the main subgraph that run as one part.

    Attributes:
        by: the device or engine that runs them.
        operations: numbers of the operations.
        why: the reason for the choice of the device, as a tooltip.
    """

    by: str
    operations: range
    why: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Choices for a picture of a model.

    Attributes:
        parts: the parts with their devices; empty to leave them out.
        unsupported: by the number of an operation, the reason why it cannot run.
        constants: whether constants are drawn.
        values: whether the values of constants with one element are drawn.
        focus: an operation of the main subgraph; only it and its neighbours are drawn.
        depth: most steps between `focus` and a neighbour.
    """

    parts: Sequence[DrawnPart] = ()
    unsupported: Mapping[int, str] = field(default_factory=dict)
    constants: bool = True
    values: bool = True
    focus: int | None = None
    depth: int = 2


class _Node(NamedTuple):
    id: str
    label: str
    is_operation: bool
    fill: str = ""
    tooltip: str = ""
    is_border: bool = False
    is_crossing: bool = False
    is_missing: bool = False
    order: str = ""


class _Edge(NamedTuple):
    source: str
    target: str
    label: str


class _Graph(NamedTuple):
    """One subgraph; the first is the main one."""

    number: int
    nodes: list[_Node]
    edges: list[_Edge]


def dot(model: Model, name: str, drawing: Drawing | None = None) -> str:
    """Draw a model as text for Graphviz."""
    drawing = drawing or Drawing()
    main, *others = _graphs(model, drawing)
    lines = [f"digraph {_quoted(name)} {{", "  compound=true"]
    lines += [f"  {line}" for line in _dot_body(main)]
    lines += [f"  {line}" for line in _dot_parts(drawing, {node.id for node in main.nodes})]
    for graph in others:
        lines.append(f'  subgraph cluster_s{graph.number} {{ label="subgraph {graph.number}"')
        lines += [f"    {line}" for line in _dot_body(graph)]
        lines.append("  }")
    lines += [f"  {line}" for line in _dot_references(model, [main, *others])]
    return "\n".join([*lines, "}", ""])


def mermaid(model: Model, name: str, drawing: Drawing | None = None) -> str:
    """Draw a model as a mermaid flowchart."""
    drawing = drawing or Drawing()
    main, *others = _graphs(model, drawing)
    lines = [f"%% {' '.join(name.split())}", "flowchart TD", *_mermaid_body(main, "  ")]
    for graph in others:
        lines.append(f'  subgraph s{graph.number} ["subgraph {graph.number}"]')
        lines += [*_mermaid_body(graph, "    "), "  end"]
    for graph in (main, *others):
        for node in graph.nodes:
            style = _mermaid_style(node)
            if style:
                lines.append(f"  style {node.id} {style}")
    known = {graph.number for graph in others}
    for source, target in _references(model, [main, *others]):
        if target in known:
            lines.append(f"  {source} -.-> s{target}")
    return "\n".join([*lines, ""])


# -- The nodes and edges of a picture --------------------------------------------------------------


def _graphs(model: Model, drawing: Drawing) -> list[_Graph]:
    found = [_graph(model, 0, model.main, drawing)]
    if drawing.focus is None:
        plain = Drawing(constants=drawing.constants, values=drawing.values)
        found += [_graph(model, n, g, plain) for n, g in enumerate(model.referenced, start=1)]
    return found


def _graph(model: Model, number: int, graph: Subgraph, drawing: Drawing) -> _Graph:
    prefix = f"s{number}" if number else ""
    shown = _focused(graph, drawing)
    crossing = _crossing(graph, drawing.parts)
    hidden: set[int] = set()
    if not drawing.constants:
        hidden = {at for at, each in enumerate(graph.operands) if each.lifetime in _CONSTANTS}
    used, edges = set(), []
    for at in shown:
        operation = graph.operations[at]
        for ends, is_input in ((operation.inputs, True), (operation.outputs, False)):
            for position, index in enumerate(ends):
                if index in hidden:
                    continue
                used.add(index)
                label = str(position) if len(ends) > 1 else ""
                pair = (f"{prefix}d{index}", f"{prefix}n{at}")
                edges.append(_Edge(*(pair if is_input else pair[::-1]), label))
    if drawing.focus is None:  # also operands that no operation uses
        used = set(range(len(graph.operands))) - hidden
    nodes = [
        _operand(model, graph, index, prefix, is_crossing=index in crossing, drawing=drawing)
        for index in sorted(used)
    ]
    nodes += [_operation(graph, at, prefix, drawing) for at in shown]
    return _Graph(number, nodes, edges)


def _focused(graph: Subgraph, drawing: Drawing) -> list[int]:
    """The numbers of the operations to draw."""
    everything = range(len(graph.operations))
    if drawing.focus is None:
        return list(everything)
    shown = {drawing.focus}
    for _ in range(drawing.depth):
        near = {
            index
            for at in shown
            for index in (*graph.operations[at].inputs, *graph.operations[at].outputs)
            if graph.operands[index].lifetime not in _CONSTANTS
        }
        shown |= {
            at
            for at in everything
            if near & {*graph.operations[at].inputs, *graph.operations[at].outputs}
        }
    return sorted(shown)


def _crossing(graph: Subgraph, parts: Sequence[DrawnPart]) -> set[int]:
    """Temporaries that one part writes and another reads."""
    part_of = {at: number for number, part in enumerate(parts) for at in part.operations}
    writer: dict[int, int | None] = {}
    for at, operation in enumerate(graph.operations):
        writer.update(dict.fromkeys(operation.outputs, part_of.get(at)))
    return {
        index
        for at, operation in enumerate(graph.operations)
        for index in operation.inputs
        if index in writer and writer[index] != part_of.get(at)
    }


def _operation(graph: Subgraph, at: int, prefix: str, drawing: Drawing) -> _Node:
    operation = graph.operations[at]
    inputs, outputs = len(operation.inputs), len(operation.outputs)
    # Graphviz keeps only one order: that of the longer list.
    order = "" if max(inputs, outputs) < 2 else "in" if inputs >= outputs else "out"
    part = next((part for part in drawing.parts if at in part.operations), None)
    missing = drawing.unsupported.get(at)
    return _Node(
        f"{prefix}n{at}",
        f"{at}: {operation_name(operation.type)}",
        is_operation=True,
        fill=colours(drawing.parts).get(part.by, "") if part is not None else "",
        tooltip=missing or (part.why if part is not None else ""),
        is_missing=missing is not None,
        order=order,
    )


def colours(parts: Sequence[DrawnPart]) -> dict[str, str]:
    """The colour of each device or engine that runs a part, in order of first use."""
    names = dict.fromkeys(part.by for part in parts)
    return {name: _COLOURS[n % len(_COLOURS)] for n, name in enumerate(names)}


def _operand(
    model: Model, graph: Subgraph, index: int, prefix: str, *, is_crossing: bool, drawing: Drawing
) -> _Node:
    operand = graph.operands[index]
    first = str(index)
    for kind, border in (("input", graph.input_indexes), ("output", graph.output_indexes)):
        if index in border:
            first += f" = {kind}[{border.index(index)}]"
    if operand.lifetime in _LIFETIMES:
        first += f": {_LIFETIMES[operand.lifetime]}"
    kind = _SHORT_TYPES.get(operand.type) or type_name(operand.type)
    extents = f"({'x'.join(map(str, operand.dimensions))})" if operand.dimensions else ""
    value = _value(model, operand) if drawing.values else ""
    label = f"{first}\n{kind}{value}{extents}"
    if is_crossing:
        dtype = _DTYPES.get(operand.type)
        size = math.prod(operand.dimensions) * dtype.itemsize if dtype is not None else 0
        label += f"\n{size} bytes" if size else "\nof unknown size"
    is_border = index in graph.input_indexes or index in graph.output_indexes
    return _Node(
        f"{prefix}d{index}", label, is_operation=False, is_border=is_border, is_crossing=is_crossing
    )


def _value(model: Model, operand: Operand) -> str:
    """The value of a constant with one element whose bytes are in the model itself."""
    if operand.lifetime is not _L.CONSTANT_COPY or math.prod(operand.dimensions) != 1:
        return ""
    dtype = _DTYPES.get(operand.type)
    place = operand.location
    if dtype is None or place.length != dtype.itemsize:
        return ""
    raw = model.operand_values[place.offset : place.offset + place.length]
    return f" = {np.frombuffer(raw, dtype)[0]}" if len(raw) == dtype.itemsize else ""


def _references(model: Model, graphs: Sequence[_Graph]) -> Iterator[tuple[str, int]]:
    """The operands that refer to a subgraph, each with the subgraph's number."""
    for graph in graphs:
        subgraph = model.main if graph.number == 0 else model.referenced[graph.number - 1]
        prefix = f"s{graph.number}" if graph.number else ""
        drawn = {node.id for node in graph.nodes}
        for index, operand in enumerate(subgraph.operands):
            if operand.lifetime is _L.SUBGRAPH and f"{prefix}d{index}" in drawn:
                yield f"{prefix}d{index}", operand.location.offset + 1


# -- Text for Graphviz and for mermaid -------------------------------------------------------------


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _dot_body(graph: _Graph) -> Iterator[str]:
    for node in graph.nodes:
        looks = [f"label={_quoted(node.label)}"]
        if node.is_border:
            looks += ["fillcolor=black", "fontcolor=white", "style=filled"]
        if node.is_operation:
            looks.append("shape=box")
        if node.order:
            looks.append(f"ordering={node.order}")
        if node.is_crossing:
            looks.append("peripheries=2")
        if node.is_missing:
            looks += ["style=dashed", "color=red"]
        elif node.fill:
            looks += ["style=filled", f"fillcolor={_quoted(node.fill)}"]
        if node.tooltip:
            looks.append(f"tooltip={_quoted(node.tooltip)}")
        yield f"{node.id} [{' '.join(looks)}]"
    for edge in graph.edges:
        yield f"{edge.source} -> {edge.target}" + (f" [label={edge.label}]" if edge.label else "")


def _dot_parts(drawing: Drawing, drawn: set[str]) -> Iterator[str]:
    """Make a cluster for each part, and a legend."""
    for number, part in enumerate(drawing.parts):
        members = [f"n{at}" for at in part.operations if f"n{at}" in drawn]
        if members:
            label = f"label={_quoted(f'part {number}: {part.by}')}"
            yield f"subgraph cluster_p{number} {{ {label}; {'; '.join(members)} }}"
    found = colours(drawing.parts)
    if found:
        entries = "; ".join(
            f"legend{n} [label={_quoted(name)} shape=box style=filled fillcolor={_quoted(colour)}]"
            for n, (name, colour) in enumerate(found.items())
        )
        yield f'subgraph cluster_legend {{ label="run by"; {entries} }}'


def _dot_references(model: Model, graphs: Sequence[_Graph]) -> Iterator[str]:
    first = {graph.number: graph.nodes[0].id for graph in graphs if graph.nodes}
    for source, target in _references(model, graphs):
        if target in first:
            yield f"{source} -> {first[target]} [style=dotted lhead=cluster_s{target}]"


def _mermaid_body(graph: _Graph, indent: str) -> Iterator[str]:
    for node in graph.nodes:
        text = node.label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        text = text.replace("\n", "<br/>")
        opening, closing = ("[", "]") if node.is_operation else ("([", "])")
        yield f'{indent}{node.id}{opening}"{text}"{closing}'
    for edge in graph.edges:
        label = f"|{edge.label}|" if edge.label else ""
        yield f"{indent}{edge.source} -->{label} {edge.target}"


def _mermaid_style(node: _Node) -> str:
    if node.is_border:
        return "fill:#000,color:#fff"
    if node.is_missing:
        return "stroke:#f00,stroke-dasharray:5"
    if node.fill:
        return f"fill:{node.fill}"
    return "stroke-width:3px" if node.is_crossing else ""


# -- Files in NNBURST_GRAPH_DIR --------------------------------------------------------------------


logger = logging.getLogger(__name__)
_numbers: Final = itertools.count(1)


def dump_model(model: Model, name: str) -> None:
    """Log a model, without values, if the tag is on, and write its picture if NNBURST_GRAPH_DIR is set."""
    if vlog.on("model"):
        vlog.write_all("model", dot(model, name, Drawing(values=False)))
    if GRAPH_DIR.is_set:
        write_picture(name, dot(model, name))


def write_picture(name: str, text: str) -> None:
    """Write a picture to NNBURST_GRAPH_DIR, which must be set; log a warning if that fails."""
    words = re.sub(r"[^\w.-]+", "_", name)[:60]
    path = GRAPH_DIR.read() / f"{os.getpid()}-{next(_numbers):03}-{words}.dot"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        logger.warning("%s: the picture of %s is not written: %s", GRAPH_DIR.name, name, error)
