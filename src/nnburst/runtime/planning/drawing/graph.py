"""A plan as a graph: DOT text for Graphviz, and mermaid text for pages that draw it."""

from __future__ import annotations

from nnburst.runtime.planning.drawing.flow import INPUT, OUTPUT, STEP, Amount, Edge, Node, flow
from nnburst.runtime.planning.drawing.rows import INTERPRETER, StepRow, plan_rows
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import CompoundPlan, GotoStep, Plan


def plan_dot(plan: Plan, source: FinishedModel) -> str:
    """A plan in the DOT language: boxes are steps, edges values, dashed what a branch or loop gives back."""
    lines = ["digraph plan {", "  rankdir=TB;", "  node [shape=box];"]
    lines += [f'  {_id(n)} [shape=ellipse, label="{_end_label(n)}"];' for n in _ends(source)]
    for row in _drawn_rows(plan, source):
        shape = ", shape=diamond" if row.device == INTERPRETER else ""
        label = "\\n".join(map(_dot_text, _label(row)))
        lines.append(f'  {_id(Node(STEP, row.step))} [label="{label}"{shape}];')
    for edge in flow(plan, source):
        style = ", style=dashed" if edge.is_result else ""
        lines.append(
            f'  {_id(edge.writer)} -> {_id(edge.reader)} [label="{_values(edge)}"{style}];'
        )
    return "\n".join([*lines, "}"])


def plan_mermaid(plan: Plan, source: FinishedModel) -> str:
    """A plan as a mermaid flowchart, drawn as by `plan_dot`."""
    lines = ["flowchart TB"]
    lines += [f'  {_id(node)}(["{_end_label(node)}"])' for node in _ends(source)]
    for row in _drawn_rows(plan, source):
        opened, closed = ("{{", "}}") if row.device == INTERPRETER else ("[", "]")
        label = "<br/>".join(map(_mermaid_text, _label(row)))
        lines.append(f'  {_id(Node(STEP, row.step))}{opened}"{label}"{closed}')
    for edge in flow(plan, source):
        arrow = "-.->" if edge.is_result else "-->"
        lines.append(f'  {_id(edge.writer)} {arrow}|"{_values(edge)}"| {_id(edge.reader)}')
    return "\n".join(lines)


def _ends(source: FinishedModel) -> list[Node]:
    main = source.model.main
    return [
        *(Node(INPUT, position) for position in range(len(main.input_indexes))),
        *(Node(OUTPUT, position) for position in range(len(main.output_indexes))),
    ]


def _drawn_rows(plan: Plan, source: FinishedModel) -> list[StepRow]:
    """All but the jumps, whose targets the steps of control flow name."""
    rows = plan_rows(plan, source)
    if not isinstance(plan, CompoundPlan):
        return rows
    return [row for row in rows if not isinstance(plan.steps[row.step], GotoStep)]


def _id(node: Node) -> str:
    return f"{node.kind}{node.number}"


def _end_label(node: Node) -> str:
    return f"{'input' if node.kind == INPUT else 'output'} {node.number}"


def _label(row: StepRow) -> tuple[str, str]:
    return f"{row.step}: {row.device}", row.operations


def _values(edge: Edge) -> str:
    values = "value" if edge.values == 1 else "values"
    return f"{edge.values} {values}, {Amount(edge.bytes, edge.exact)} B"


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _mermaid_text(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace("\n", " ")
