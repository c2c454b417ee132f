"""Operands of LSTM and both sequence operations: slots, extents, activations and clips.

NNAPI: LSTM.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.signatures import V1_0, data
from nnburst.executor.operations.families.recurrence import require_activation
from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.signature import Slot

#: NNAPI documents NONE, RELU, RELU6, TANH and SIGMOID; the CPU implementation adds RELU1.
ACTIVATIONS: Final = (0, 1, 2, 3, 4, 6)


def require_settings(node: Node) -> None:
    """Refuse unknown activations and negative (or NaN) clips."""
    require_activation(node, ACTIVATIONS)
    for name in ("cell_clip", "projection_clip"):
        clip = node.value(name)
        node.require(clip >= 0, f"operand '{name}' is {clip}, expected 0 (off) or more")


GATES: Final = ("input", "forget", "cell", "output")

#: Gates that see the cell state through a peephole.
PEEPHOLES: Final = ("input", "forget", "output")


def direction_slots(
    prefix: str = "",
    weights: OperandType | str = "T",
    peephole: OperandType | str = "T",
    bias: OperandType | str = "T",
) -> list[Slot]:
    """The 17 operands that follow the input of every LSTM; nullable if spec calls them optional."""
    optional = ("input",)
    return [
        *_slots(f"{prefix}input_to_{{}}_weights", weights, GATES, optional),
        *_slots(f"{prefix}recurrent_to_{{}}_weights", weights, GATES, optional),
        *_slots(f"{prefix}cell_to_{{}}_weights", peephole, PEEPHOLES, PEEPHOLES),
        *_slots(f"{prefix}{{}}_gate_bias", bias, GATES, optional),
        data(f"{prefix}projection_weights", weights, nullable=True),
        data(f"{prefix}projection_bias", bias, nullable=True),
    ]


def layer_norm_slots(
    prefix: str = "",
    type: OperandType | str = "T",  # noqa: A002 - NNAPI's word
    since: FeatureLevel = V1_0,
) -> list[Slot]:
    """The weights of layer normalisation."""
    return _slots(f"{prefix}{{}}_layer_norm_weights", type, GATES, GATES, since)


def aux_slots(prefix: str) -> list[Slot]:
    """The weights of the auxiliary input."""
    return _slots(f"{prefix}aux_input_to_{{}}_weights", "T", GATES, GATES)


def _slots(
    pattern: str,
    kind: OperandType | str,
    gates: Sequence[str],
    optional: Sequence[str],
    since: FeatureLevel = V1_0,
) -> list[Slot]:
    return [data(pattern.format(g), kind, nullable=g in optional, since=since) for g in gates]


class LstmSizes(NamedTuple):
    """Extents of one direction.

    Attributes:
        batch: rows computed at a time.
        cells: cells.
        outputs: extent of the output; that of the projection if there is one.
    """

    batch: int
    cells: int
    outputs: int


class LstmOperands(msgspec.Struct, frozen=True):
    """Operands of one direction, by what they are for.

    Attributes:
        node: the operation.
        prefix: start of the operands' names; empty if there is one direction.
    """

    node: Node
    prefix: str = ""

    @property
    def coupled(self) -> bool:
        """Whether the input gate is what the forget gate leaves (CIFG): it has no weights then."""
        return not self.has("input_to_input_weights")

    @property
    def gates(self) -> tuple[str, ...]:
        """Gates that have weights."""
        return GATES[1:] if self.coupled else GATES

    @property
    def sizes(self) -> LstmSizes:
        """Extents."""
        shape = self.node.tensor
        return LstmSizes(
            shape(f"{self.prefix}output_state").shape[0],
            shape(f"{self.prefix}input_to_output_weights").shape[0],
            shape(f"{self.prefix}recurrent_to_output_weights").shape[1],
        )

    def has(self, name: str) -> bool:
        """Whether an operand is given; `name` comes without the prefix."""
        return self.node.find(self.prefix + name) is not None

    @property
    def has_peephole(self) -> bool:
        """Whether gates see the cell state."""
        return self.has("cell_to_output_weights")

    @property
    def has_layer_norm(self) -> bool:
        """Whether the gates are normalised."""
        return self.has("output_layer_norm_weights")

    @property
    def has_projection(self) -> bool:
        """Whether the output is a projection of the cells."""
        return self.has("projection_weights")

    def names(self, pattern: str, gates: Sequence[str] | None = None) -> list[str]:
        """Full names of an operand that each gate has; `{}` in `pattern` stands for the gate."""
        return [self.prefix + pattern.format(g) for g in (gates or self.gates)]

    def check(self, batch: int, inputs: int) -> LstmSizes:
        """Check presence and dimensions of all operands for rows of `inputs` elements.

        Raises:
            OperationFailed: the message names the operand and the rule.
        """
        self._check_presence()
        cells = require_rank(self.node, f"{self.prefix}input_to_output_weights", 2)[0]
        outputs = require_rank(self.node, f"{self.prefix}recurrent_to_output_weights", 2)[1]
        sizes = LstmSizes(batch, cells, outputs)
        self._check_dimensions(sizes, inputs)
        self.node.require(
            self.has_projection or outputs == cells,
            f"operand '{self.prefix}recurrent_to_output_weights' gives {outputs} outputs;"
            f" without 'projection_weights' there must be as many as cells ({cells})",
        )
        return sizes

    def _check_presence(self) -> None:
        cifg = self.coupled
        self._require_same("recurrent_to_input_weights", not cifg)
        self._require_same("input_gate_bias", not cifg)
        # NNAPI: without input gate its peephole is optional, but it needs the others.
        peephole = self.has_peephole
        self._require_same("cell_to_forget_weights", peephole)
        if not (cifg and peephole):
            self._require_same("cell_to_input_weights", peephole)
        norm = self.has_layer_norm
        self._require_same("forget_layer_norm_weights", norm)
        self._require_same("cell_layer_norm_weights", norm)
        self._require_same("input_layer_norm_weights", norm and not cifg)
        self.node.require(
            self.has_projection or not self.has("projection_bias"),
            f"operand '{self.prefix}projection_bias' is given without 'projection_weights'",
        )

    def _require_same(self, name: str, wanted: bool) -> None:
        state = "omitted" if wanted else "given"
        self.node.require(
            self.has(name) == wanted,
            f"operand '{self.prefix}{name}' is {state}, which contradicts the operands beside it",
        )

    def _check_dimensions(self, sizes: LstmSizes, inputs: int) -> None:
        batch, cells, outputs = sizes
        expected: dict[str, tuple[int, ...]] = {
            "projection_weights": (outputs, cells),
            "projection_bias": (outputs,),
            "output_state": (batch, outputs),
            "cell_state": (batch, cells),
        }
        for gate in GATES:
            expected[f"input_to_{gate}_weights"] = (cells, inputs)
            expected[f"recurrent_to_{gate}_weights"] = (cells, outputs)
            expected[f"cell_to_{gate}_weights"] = (cells,)
            expected[f"{gate}_gate_bias"] = (cells,)
            expected[f"{gate}_layer_norm_weights"] = (cells,)
        for name, dimensions in expected.items():
            require_dimensions(self.node, self.prefix + name, dimensions)
