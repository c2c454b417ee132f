"""What float recurrent operations accept: activations, the time axis, auxiliary inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from nnburst.executor.graph.operand_dimensions import require_rank
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.signatures import V1_3, data
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.signature import Form, Slot


class Linking(Enum):
    """What a bidirectional operation does with its auxiliary input (BIDIRECTIONAL_SEQUENCE_*)."""

    #: No activation.
    NONE = "no auxiliary input"
    #: It is what the backward direction reads instead of the input.
    PARALLEL = "auxiliary input without weights"
    #: Both directions add it to the input, through weights of its own.
    CROSS = "auxiliary input with weights"


def require_activation(node: Node, accepted: Collection[int]) -> None:
    """Refuse a code of operand 'activation' that is not among `accepted`."""
    code = node.value("activation")
    node.require(
        code in accepted, f"operand 'activation' is {code}, expected one of {sorted(accepted)}"
    )


def sequence_extents(node: Node, *, time_major: bool) -> tuple[int, int, int]:
    """Time, batch and width of operand 'input'."""
    first, second, width = require_rank(node, "input", 3)
    return (first, second, width) if time_major else (second, first, width)


def sequence_dimensions(node: Node, width: int) -> tuple[int, ...]:
    """Dimensions of a sequence as long as operand 'input', in the same layout, of other width."""
    return (*node.tensor("input").shape[:2], width)


def results(node: Node, *dimensions: tuple[int, ...]) -> list[TensorType]:
    """As many outputs as are declared, of these dimensions."""
    count = len(node.outputs_declared)
    return [node.like_declared(d, at) for at, d in enumerate(dimensions[:count])]


def require_merged_count(node: Node, states: int) -> None:
    """Refuse a number of outputs that operand 'merge_outputs' does not give.

    Args:
        node: a bidirectional operation.
        states: how many outputs the states of both directions are.
    """
    merged, count = node.value("merge_outputs"), len(node.outputs_declared)
    sequences = 1 if merged else 2
    node.require(
        count in (sequences, sequences + states),
        f"operand 'merge_outputs' is {merged}, which gives {sequences} outputs"
        f" ({sequences + states} with states), not {count}",
    )


def linking(node: Node, aux_weights: Sequence[str]) -> Linking:
    """How operand 'aux_input' takes part; `aux_weights` names its weights, which go together.

    Raises:
        OperationFailed: some weights are missing, or they are there without the auxiliary input.
    """
    given = [name for name in aux_weights if node.find(name) is not None]
    missing = next((name for name in aux_weights if name not in given), None)
    node.require(
        not given or missing is None,
        f"operand '{missing}' is omitted although other weights of 'aux_input' are given",
    )
    if node.find("aux_input") is None:
        node.require(not given, "weights of 'aux_input' are given although it is omitted")
        return Linking.NONE
    return Linking.CROSS if given else Linking.PARALLEL


def bidirectional_forms(inputs: tuple[Slot, ...], states: Sequence[Slot]) -> tuple[Form, ...]:
    """Of a BIDIRECTIONAL_SEQUENCE operation: one output or one for each direction, with or without states."""
    merged, separate = [data("output")], [data("fw_output"), data("bw_output")]
    return (
        Form(inputs, tuple(merged), name="merged"),
        Form(inputs, tuple(separate), name="separate"),
        Form(inputs, (*merged, *states), since=V1_3, name="merged, with states"),
        Form(inputs, (*separate, *states), since=V1_3, name="separate, with states"),
    )
