"""Variables of a network as inputs and outputs of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Runner
from nnburst.importer.imported_model import ImportedModel
from nnburst.testing.models.tflite_builder import SubgraphBuilder, TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS

ONE = (1,)


class Network:
    """A network that the tests fill with operators on single numbers."""

    def __init__(self, **initial: float) -> None:
        """`initial` are variables and their first values."""
        self.b = TfliteBuilder()
        self.x = self.b.input("FLOAT32", ONE)
        self.start, self.first = self.b.subgraph()
        for name, value in initial.items():
            stored = self.first.constant("FLOAT32", np.full(ONE, value, "<f4"))
            self.assign(self.handle(name, self.first), stored, self.first)
        self.b.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=self.start)

    def handle(self, name: str, part: SubgraphBuilder | None = None, **container: str) -> int:
        graph = part or self.b
        tensor = graph.tensor("RESOURCE", ())
        graph.operator("VAR_HANDLE", [], [tensor], "VarHandleOptions", sharedName=name, **container)
        return tensor

    def read(self, handle: int) -> int:
        value = self.b.tensor("FLOAT32", ONE)
        self.b.operator("READ_VARIABLE", [handle], [value], "ReadVariableOptions")
        return value

    def assign(self, handle: int, value: int, part: SubgraphBuilder | None = None) -> None:
        (part or self.b).operator("ASSIGN_VARIABLE", [handle, value], [])

    def add(self, x: int, y: int) -> int:
        total = self.b.tensor("FLOAT32", ONE)
        self.b.operator("ADD", [x, y], [total], "AddOptions")
        return total

    def loaded(self, *outputs: int) -> ImportedModel:
        self.b.raw.outputs = list(outputs)
        return nnburst.load(self.b.finish(), as_graph=False)


def numbers(imported: ImportedModel, inputs: Sequence[float]) -> list[list[float]]:
    """Outputs for one input after the other."""
    runner = Runner(imported)
    return [[float(y[0]) for y in runner.run([np.full(ONE, x, "<f4")])] for x in inputs]


def test_variable_keeps_its_value_from_one_execution_to_the_next() -> None:
    n = Network(total=10)
    total = n.handle("total")
    after = n.add(n.x, n.read(total))
    n.assign(total, after)
    assert numbers(n.loaded(after), [1, 2, 3]) == [[11], [13], [16]]


def test_two_variables_of_one_name_are_refused() -> None:
    n = Network()
    for handle in (n.handle("sum", container="a"), n.handle("a/sum")):
        n.assign(handle, n.add(n.read(handle), n.x))
    with pytest.raises(nnburst.InvalidArgument, match=r"'sum' of 'a' and 'a/sum' .* named 'a/sum'"):
        n.loaded(n.x)


def test_states_are_in_the_order_of_their_inputs_and_outputs() -> None:
    n = Network(a=1, b=2)
    a, b = n.handle("a"), n.handle("b")
    b_before, a_before = n.read(b), n.read(a)  # not the order of the handles
    n.assign(a, n.add(a_before, n.x))
    n.assign(b, n.add(b_before, b_before))
    loaded = n.loaded(n.add(a_before, b_before))
    assert [state.name for state in loaded.states] == ["b", "a"]
    assert loaded.input_names[1:] == loaded.output_names[1:] == ("b", "a")
    assert [(s.input_index, s.output_index) for s in loaded.states] == [(1, 1), (2, 2)]
    assert [float(state.initial[0]) for state in loaded.states] == [2, 1]
    assert not any(state.initial.flags.writeable for state in loaded.states)
    assert numbers(loaded, [5, 5]) == [[3], [10]]


def test_read_after_assignment_sees_the_new_value() -> None:
    n = Network(v=1)
    v = n.handle("v")
    n.assign(v, n.add(n.read(v), n.x))
    second = n.add(n.read(v), n.x)
    n.assign(v, second)
    assert numbers(n.loaded(second), [1, 10]) == [[3], [23]]


def test_value_that_is_assigned_from_another_variable_needs_no_operation() -> None:
    n = Network(last=7, before=8)
    last, before = n.handle("last"), n.handle("before")
    old, older = n.read(last), n.read(before)
    n.assign(before, old)
    n.assign(last, n.x)
    assert numbers(n.loaded(n.add(old, older)), [1, 2, 3]) == [[15], [8], [3]]


def test_variable_that_is_only_read_keeps_its_first_value() -> None:
    n = Network(v=4)
    assert numbers(n.loaded(n.add(n.read(n.handle("v")), n.x)), [1, 2]) == [[5], [6]]


def test_variable_that_is_only_assigned_is_not_a_state() -> None:
    n = Network(v=4)
    n.assign(n.handle("v"), n.x)
    assert n.loaded(n.add(n.x, n.x)).states == ()


def test_recurrent_operator_starts_with_zeros_and_keeps_its_state() -> None:
    loaded = nnburst.load(NETWORKS["SVDF-FLOAT32"]())
    [state] = loaded.states
    assert state.name == "state"
    assert state.initial.shape == (2, 40)
    assert not state.initial.any()


def test_variable_in_a_branch_is_refused() -> None:
    b = TfliteBuilder()
    x, condition = b.input("FLOAT32", ONE), b.input("BOOL", ONE)
    number, branch = b.subgraph()
    branch.operator("VAR_HANDLE", [], [branch.tensor("RESOURCE", ())], "VarHandleOptions")
    branch.raw.outputs = branch.raw.inputs = [branch.tensor("FLOAT32", ONE)]
    b.operator(
        "IF",
        [condition, x],
        [b.output("FLOAT32", ONE)],
        "IfOptions",
        thenSubgraphIndex=number,
        elseSubgraphIndex=number,
    )
    with pytest.raises(
        nnburst.InvalidArgument, match=r"operator 0 of subgraph 1 \(VAR_HANDLE\).*IF or WHILE"
    ):
        nnburst.load(b.finish(), as_graph=False)


def test_initial_value_that_is_computed_is_refused() -> None:
    n = Network()
    value, computed = n.first.input("FLOAT32", ONE), n.first.tensor("FLOAT32", ONE)
    n.assign(n.handle("v", n.first), value, n.first)
    with pytest.raises(nnburst.InvalidArgument, match=r"\(CALL_ONCE\).*'v' is computed"):
        n.loaded(n.x)
    n.first.raw.operators.clear()
    n.first.operator("RELU", [value], [computed])
    with pytest.raises(nnburst.InvalidArgument, match=r"subgraph 1 uses RELU \(operator 0\)"):
        n.loaded(n.x)


def test_variable_of_two_types_is_refused() -> None:
    n = Network(v=4)
    v = n.handle("v")
    n.read(v)
    n.assign(v, n.b.constant("FLOAT32", np.zeros(2, "<f4")))
    with pytest.raises(nnburst.InvalidArgument, match=r"\(ASSIGN_VARIABLE\).*variable 'v' is"):
        n.loaded(n.x)
