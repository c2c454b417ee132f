"""Plans as tables and graphs."""

from __future__ import annotations

import re

import pytest

from nnburst.runtime.planning.drawing import plan_dot, plan_mermaid, plan_table
from nnburst.runtime.planning.finished_model import finish
from runtime.planning.plans import ADD, CPU, EXP, MUL, branches, chain, device, made


def test_table_has_a_line_for_each_step_with_what_crosses_and_what_it_took() -> None:
    source = finish(chain(ADD, ADD, EXP))
    plan = made(source, [device("adder", ADD), CPU]).plan
    header, _, first, of_first, second, of_second = plan_table(
        plan, source, estimated={0: 0.001}, measured={1: 2.5e-6}
    ).splitlines()
    assert re.split(r"\s{2,}", header) == [
        *("step", "device", "inputs", "outputs", "temporaries"),
        *("bytes across", "estimated", "measured"),
    ]
    assert re.split(r"\s{2,}", first) == ["0", "adder", *"111", "8", "1.000 ms", "-"]
    assert re.split(r"\s{2,}", second)[:2] == ["1", "nnapi-reference"]
    assert re.split(r"\s{2,}", second)[-2:] == ["-", "0.003 ms"]
    assert [of_first, of_second] == ["      ADD ×2", "      EXP"]


def test_table_fits_80_columns_and_has_no_times_that_nothing_took() -> None:
    source = finish(chain(ADD, ADD, EXP, MUL, 14, 19, 20, 21, 28))
    plan = made(source, [CPU]).plan
    for times in ({"estimated": {0: 12.5}}, {"measured": {0: 12.5}}, {}):
        table = plan_table(plan, source, **times)
        assert max(map(len, table.splitlines())) <= 80
        assert [name for name in ("estimated", "measured") if name in table] == [*times]


def test_simple_plan_is_one_step_and_one_box() -> None:
    source = finish(chain(ADD, EXP))
    plan = made(source, [CPU]).plan
    step, operations = plan_table(plan, source).splitlines()[2:]
    assert step.startswith("0     nnapi-reference  ")
    assert operations == "      ADD, EXP"
    assert 'in0 -> step0 [label="1 value, 8 B"];' in plan_dot(plan, source)
    assert 'step0 -->|"1 value, 8 B"| out0' in plan_mermaid(plan, source)


def test_size_that_only_an_execution_finds_out_is_marked() -> None:
    source = finish(chain(EXP, ADD, dims=(0,)))
    plan = made(source, [device("adder", ADD), CPU]).plan
    assert "0 + ?" in plan_table(plan, source)
    assert '"1 value, 0 + ? B"' in plan_dot(plan, source)


def test_many_kinds_of_operations_are_counted_not_listed() -> None:
    source = finish(chain(ADD, ADD, EXP, MUL, 14, 8, 28))
    plan = made(source, [CPU]).plan
    assert "ADD ×2, EXP, MUL, LOGISTIC and 2 more" in plan_table(plan, source)


def test_interpreted_control_flow_is_drawn_with_what_its_branches_give_back() -> None:
    source = finish(branches())
    plan = made(source, [device("adder", ADD), CPU]).plan
    table = plan_table(plan, source)
    assert re.search(r"interpreter .*\n      IF: then 1, else 3\n", table)
    assert "go to 4" in table
    dot = plan_dot(plan, source)
    assert 'step0 [label="0: interpreter\\nIF: then 1, else 3", shape=diamond];' in dot
    assert 'step3 -> step0 [label="1 value, 8 B", style=dashed];' in dot
    assert "step2 [" not in dot
    mermaid = plan_mermaid(plan, source)
    assert 'step0{{"0: interpreter<br/>IF: then 1, else 3"}}' in mermaid
    assert 'step1 -.->|"1 value, 8 B"| step0' in mermaid


def test_name_of_a_device_cannot_break_a_graph() -> None:
    source = finish(chain(ADD))
    plan = made(source, [device('a"b\\<c>', ADD), CPU]).plan
    assert 'label="0: a\\"b\\\\<c>\\nADD"' in plan_dot(plan, source)
    assert '["0: a#quot;b\\#lt;c><br/>ADD"]' in plan_mermaid(plan, source)


def test_graph_is_what_graphviz_reads() -> None:
    graphviz = pytest.importorskip("graphviz", reason="graphviz is not installed")
    source = finish(branches())
    text = plan_dot(made(source, [device("adder", ADD), CPU]).plan, source)
    try:
        drawn = graphviz.Source(text).pipe(format="svg")
    except graphviz.ExecutableNotFound:
        pytest.skip("Graphviz' program dot is not installed")
    assert b"interpreter" in drawn
