"""Rules P10 to P12: IF and WHILE against the subgraphs that they run.

NNAPI: Validation.cpp validateIfOperation, validateWhileOperation. All subgraphs are valid by
themselves when these run (P13: the original aborts where a referenced one is not).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model, Operand, Operation, Subgraph
from nnburst.hal.operand_types import SCALARS, is_extension
from nnburst.hal.signature import type_name
from nnburst.hal.validation.broken import Broken


class ControlFlow:
    """Checks the control flow of one model."""

    def __init__(self, model: Model, known_sizes: Collection[OperationType]) -> None:
        """Prepare.

        Args:
            model: whose referenced subgraphs are run.
            known_sizes: operations whose operands must have known dimensions (P12).
        """
        self._referenced = model.referenced
        self._known_sizes = known_sizes
        # Long lists of scales are compared once per pair, however many operations pass them on.
        self._same_params: dict[tuple[int, int], bool] = {}

    def validate(self, operation: Operation, subgraph: Subgraph) -> None:
        """Check one IF or WHILE of `subgraph`.

        Raises:
            Broken: P10, P11, P12.
        """
        inputs = [subgraph.operands[i] for i in operation.inputs]
        outputs = [subgraph.operands[i] for i in operation.outputs]
        kind = OperationType(operation.type)
        rule, check = (
            ("P10", self._check_if) if kind == OperationType.IF else ("P11", self._check_while)
        )
        if len(inputs) < 3 or not outputs:
            counts = f"{len(inputs)} inputs and {len(outputs)} outputs"
            raise Broken(rule, f"{counts}, expected at least 3 and 1")
        seen = check(inputs, outputs)
        if kind in self._known_sizes and any(map(_has_unknown_size, (*inputs, *outputs, *seen))):
            raise Broken("P12", f"{kind.name}: an operand has an unknown size")

    def _check_if(self, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> list[Operand]:
        _check_boolean("P10", inputs[0], "the condition")
        seen = []
        for name, operand in (("then", inputs[1]), ("else", inputs[2])):
            ins, outs = self._interface("P10", operand, f"the {name} model")
            self._check_same("P10", ins, inputs[3:], f"inputs of the {name} model")
            self._check_same("P10", outs, outputs, f"outputs of the {name} model")
            seen += ins + outs
        return seen

    def _check_while(self, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> list[Operand]:
        condition, decisions = self._interface("P11", inputs[0], "the condition model")
        self._check_same("P11", condition, inputs[2:], "inputs of the condition model")
        if len(decisions) != 1:
            raise Broken("P11", f"the condition model has {len(decisions)} outputs, expected 1")
        _check_boolean("P11", decisions[0], "the condition model's output")
        ins, outs = self._interface("P11", inputs[1], "the body model")
        self._check_same("P11", ins, inputs[2:], "inputs of the body model")
        if not len(ins) >= len(outs) >= len(outputs):
            raise Broken(
                "P11",
                f"the body model has {len(ins)} inputs and {len(outs)} outputs, the operation"
                f" {len(outputs)} outputs; expected no more of each than of the one before",
            )
        self._check_same("P11", outs, ins[: len(outs)], "outputs of the body model, as its inputs")
        self._check_same("P11", outs[: len(outputs)], outputs, "outputs of the body model")
        return condition + ins + outs

    def _interface(
        self, rule: str, operand: Operand, what: str
    ) -> tuple[list[Operand], list[Operand]]:
        """Inputs and outputs of the subgraph that `operand` names."""
        if operand.type != OperandType.SUBGRAPH:
            raise Broken(rule, f"{what} is {type_name(operand.type)}, expected SUBGRAPH")
        graph = self._referenced[operand.location.offset]
        return (
            [graph.operands[i] for i in graph.input_indexes],
            [graph.operands[i] for i in graph.output_indexes],
        )

    def _check_same(
        self, rule: str, inner: Sequence[Operand], outer: Sequence[Operand], what: str
    ) -> None:
        if len(inner) != len(outer):
            raise Broken(rule, f"{what}: {len(inner)}, expected {len(outer)}")
        for position, (a, b) in enumerate(zip(inner, outer, strict=True)):
            different = _difference(a, b) or self._different_params(a, b)
            if different:
                raise Broken(rule, f"{what}: number {position} differs in {different}")

    def _different_params(self, a: Operand, b: Operand) -> str:
        pair = id(a.extra_params), id(b.extra_params)
        if pair not in self._same_params:
            self._same_params[pair] = a.extra_params == b.extra_params
        return "" if self._same_params[pair] else "extra_params"


def _check_boolean(rule: str, operand: Operand, what: str) -> None:
    if operand.type != OperandType.TENSOR_BOOL8 or operand.dimensions != (1,):
        found = f"{type_name(operand.type)} {list(operand.dimensions)}"
        raise Broken(rule, f"{what} is {found}, expected TENSOR_BOOL8 [1]")


def _difference(a: Operand, b: Operand) -> str:
    """What keeps two operands from standing for each other; empty if nothing does."""
    for name in ("type", "scale", "zero_point"):
        if getattr(a, name) != getattr(b, name):
            return f"{name}: {getattr(a, name)} and {getattr(b, name)}"
    if a.dimensions and b.dimensions:
        pairs = zip(a.dimensions, b.dimensions, strict=False)
        if len(a.dimensions) != len(b.dimensions) or any(x != y and x and y for x, y in pairs):
            return f"dimensions: {list(a.dimensions)} and {list(b.dimensions)}"
    return ""


def _has_unknown_size(operand: Operand) -> bool:
    if is_extension(operand.type) or operand.type in SCALARS:
        return False
    return not operand.dimensions or 0 in operand.dimensions
