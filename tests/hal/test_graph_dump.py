"""Pictures of models: what is drawn of parts, subgraphs and neighbours, with no package for it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.graph_dump import Drawing, DrawnPart, dot, mermaid
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.models.small_models import all_models

F32 = OperandType.TENSOR_FLOAT32


def chain(count: int) -> Model:
    """So many TANHs one after the other."""
    builder = ModelBuilder()
    value = builder.input(F32, (2, 3))
    for number in range(count):
        make = builder.output if number == count - 1 else builder.temporary
        result = make(F32, (2, 3))
        builder.operation(OperationType.TANH, [value], [result])
        value = result
    return builder.build()


def test_parts_have_colours_clusters_a_legend_and_reasons() -> None:
    parts = [DrawnPart("one", range(2), "it can"), DrawnPart("two", range(2, 4), 'not "one"')]
    text = dot(chain(4), "x", Drawing(parts))
    fills = dict(re.findall(r'^  n(\d) \[.*fillcolor="(#\w+)"', text, re.MULTILINE))
    assert fills["0"] == fills["1"] != fills["2"] == fills["3"]
    assert 'subgraph cluster_p0 { label="part 0: one"; n0; n1 }' in text
    assert 'tooltip="not \\"one\\""' in text
    assert "cluster_legend" in text
    [crossing] = [line for line in text.splitlines() if "peripheries=2" in line]
    assert "24 bytes" in crossing


def test_edges_keep_the_order_of_the_longer_list() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (4,))
    parts = [builder.output(F32, (1,)) for _ in range(4)]
    builder.operation(OperationType.SPLIT, [x, builder.scalar(0), builder.scalar(4)], parts)
    assert "ordering=out" in dot(builder.build(), "x")
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    assert "ordering=in" in dot(builder.build(), "x")
    assert "ordering" not in dot(chain(1), "x")


def test_unsupported_operations_are_dashed_red_with_the_reason() -> None:
    text = dot(chain(2), "x", Drawing(unsupported={1: "no TANH here"}))
    [line] = [line for line in text.splitlines() if line.startswith("  n1 [")]
    assert "style=dashed color=red" in line
    assert 'tooltip="no TANH here"' in line
    assert "stroke-dasharray" in mermaid(chain(2), "x", Drawing(unsupported={1: "no"}))


def test_focus_draws_neighbours_only() -> None:
    text = dot(chain(9), "x", Drawing(focus=4, depth=1))
    assert re.findall(r"^  n(\d) \[", text, re.MULTILINE) == ["3", "4", "5"]


def test_values_can_be_left_out() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(3)], [y])
    model = builder.build()
    assert "I32 = 3" in dot(model, "x")
    assert "= 3" not in dot(model, "x", Drawing(values=False))


def test_constants_can_be_left_out() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    model = builder.build()
    assert "COPY" in dot(model, "x")
    assert "COPY" not in dot(model, "x", Drawing(constants=False))
    assert "COPY" not in mermaid(model, "x", Drawing(constants=False))


def test_subgraphs_are_clusters_that_their_operands_point_to() -> None:
    model = next(m.model for m in all_models() if m.model.referenced)
    text = dot(model, "x")
    count = len(model.referenced)
    assert all(f"subgraph cluster_s{n} " in text for n in range(1, count + 1))
    assert text.count("style=dotted lhead=cluster_s") >= count
    assert mermaid(model, "x").count("\n  end") == count


def test_names_cannot_break_a_picture() -> None:
    evil = 'x" ]; evil [label="\n%% y'
    parts = [DrawnPart(evil, range(2), evil)]
    text = dot(chain(2), evil, Drawing(parts))
    assert all(len(re.findall(r'(?<!\\)"', line)) % 2 == 0 for line in text.splitlines())
    assert mermaid(chain(2), evil).splitlines()[0].startswith("%% x")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz' program dot is not installed")
def test_graphviz_draws_every_small_model() -> None:
    for small in all_models():
        subprocess.run(
            ["dot", "-Tsvg"], input=dot(small.model, "x").encode(), check=True, capture_output=True
        )
