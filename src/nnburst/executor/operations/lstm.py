"""Declares the LSTM operations, float and quantised, by their signatures and shape rules.

An LSTM has up to 24 weights for each direction, most of them optional. `LstmOperands` finds them by name and
checks that weights which belong together are given and fit each other; the three float operations and their
kernels use it. `nnburst.executor.reference.operations.lstm` computes the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    I32,
    INT32,
    Q8,
    Q8S,
    Q16S,
    QSYM8,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    require_dimensions,
    require_rank,
    row,
    scale_exponent,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.recurrence import (
    Linking,
    bidirectional_forms,
    linking,
    require_activation,
    require_merged_count,
    results,
    sequence_dimensions,
    sequence_extents,
)
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandType, OperationType
from nnburst.hal.signature import Form, Signature, Slot

# -- Operands of the float LSTMs: slots, extents, activations and clips ----------------------------
# NNAPI: LSTM.cpp.

#: NNAPI documents NONE, RELU, RELU6, TANH and SIGMOID; the CPU implementation adds RELU1.
ACTIVATIONS: Final = (0, 1, 2, 3, 4, 6)


def require_settings(node: Node) -> None:
    """Refuse unknown activations and negative (or NaN) clips."""
    require_activation(node, ACTIVATIONS)
    for name in ("cell_clip", "projection_clip"):
        clip = node.value(name)
        node.require(clip >= 0, f"operand '{name}' is {clip}, expected 0 (off) or more")


GATES: Final = ("input", "forget", "cell", "output")

#: Gates that read the cell state through a peephole.
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
    """The operands of one direction, by their purpose.

    Attributes:
        node: the operation.
        prefix: start of the operands' names; empty if there is one direction.
    """

    node: Node
    prefix: str = ""

    @property
    def coupled(self) -> bool:
        """Whether the input gate is one minus the forget gate (CIFG) and so has no weights."""
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
        """Whether gates read the cell state."""
        return self.has("cell_to_output_weights")

    @property
    def has_layer_norm(self) -> bool:
        """Whether the gates are normalised."""
        return self.has("output_layer_norm_weights")

    @property
    def has_projection(self) -> bool:
        """Whether the output is a projection of the cells."""
        return self.has("projection_weights")

    def names(self, pattern: str) -> list[str]:
        """Full names of an operand that each gate has; `{}` in `pattern` stands for the gate."""
        return [self.prefix + pattern.format(g) for g in self.gates]

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


# -- LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM -------------------------------
# NNAPI: LSTM.cpp, UnidirectionalSequenceLSTM.cpp, BidirectionalSequenceLSTM.cpp.


AUX_WEIGHTS: Final = "aux_input_to_{}_weights"
_STATES: Final = (data("output_state"), data("cell_state"))

_SETTINGS: Final = (
    control("activation"),
    control("cell_clip", "S"),
    control("projection_clip", "S"),
)

_ROWS: Final = (row(V1_0, T=F32, S=FLOAT32), row(V1_2, T=F16, S=FLOAT16))


# LSTM: one time step.


def _lstm_shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    require_settings(node)
    operands = LstmOperands(node)
    sizes = operands.check(batch, inputs)
    extents = (len(operands.gates) * sizes.cells, sizes.outputs, sizes.cells, sizes.outputs)
    return results(node, *((batch, extent) for extent in extents))


declare(
    Signature(
        OperationType.LSTM,
        V1_0,
        (
            Form(
                inputs=(
                    data("input"),
                    *direction_slots(),
                    *_STATES,
                    *_SETTINGS,
                    *layer_norm_slots(since=V1_2),
                ),
                outputs=(
                    data("scratch_buffer"),
                    data("output_state_out"),
                    data("cell_state_out"),
                    data("output"),
                ),
                counts=(23, 27),
            ),
        ),
        _ROWS,
        "Computes one time step of a long short-term memory, with optional coupling of gates,"
        " peepholes, projection and layer normalisation.",
    ),
    shape=_lstm_shape,
)


# UNIDIRECTIONAL_SEQUENCE_LSTM


def _unidirectional_shape(node: Node) -> list[TensorType]:
    _, batch, width = sequence_extents(node, time_major=node.value("time_major"))
    require_settings(node)
    sizes = LstmOperands(node).check(batch, width)
    sequence = sequence_dimensions(node, sizes.outputs)
    return results(node, sequence, (batch, sizes.outputs), (batch, sizes.cells))


_UNIDIRECTIONAL_INPUTS: Final = (
    data("input"),
    *direction_slots(),
    *_STATES,
    *_SETTINGS,
    control("time_major", BOOL),
    *layer_norm_slots(),
)


declare(
    Signature(
        OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
        V1_2,
        (
            Form(_UNIDIRECTIONAL_INPUTS, (data("output"),)),
            Form(
                _UNIDIRECTIONAL_INPUTS,
                (data("output"), data("output_state_out"), data("cell_state_out")),
                since=V1_3,
                name="with states",
            ),
        ),
        _ROWS,
        "Runs a long short-term memory over a sequence.",
    ),
    shape=_unidirectional_shape,
)


# BIDIRECTIONAL_SEQUENCE_LSTM


def directions_of(node: Node) -> tuple[LstmOperands, LstmOperands]:
    """The operands of both directions of a BIDIRECTIONAL_SEQUENCE_LSTM."""
    # DEVIATES: NNAPI's CPU implementation applies the backward direction's configuration (coupling,
    # peepholes, projection, normalisation) to both; here each direction has its own.
    return LstmOperands(node, "fw_"), LstmOperands(node, "bw_")


def linking_of(node: Node) -> Linking:
    """The use that a BIDIRECTIONAL_SEQUENCE_LSTM makes of its auxiliary input."""
    names = [name for d in directions_of(node) for name in d.names(AUX_WEIGHTS)]
    for direction in directions_of(node):
        node.require(
            not (direction.coupled and direction.has(AUX_WEIGHTS.format("input"))),
            f"operand '{direction.prefix}aux_input_to_input_weights' is given"
            f" without '{direction.prefix}input_to_input_weights'",
        )
    return linking(node, names)


def _check_directions(node: Node, batch: int, inputs: int) -> tuple[LstmSizes, LstmSizes]:
    """Check both directions and the auxiliary input; return their extents."""
    forward, backward = directions_of(node)
    link, aux = linking_of(node), 0
    if link is not Linking.NONE:
        aux = require_rank(node, "aux_input", 3)[2]
        require_dimensions(node, "aux_input", sequence_dimensions(node, aux))
    sizes = (
        forward.check(batch, inputs),
        backward.check(batch, aux if link is Linking.PARALLEL else inputs),
    )
    # DEVIATES: NNAPI's CPU implementation accepts weights only if the auxiliary input is as wide
    # as the input, and none at all with coupled gates; its documentation asks for neither.
    for direction, (_, cells, _) in zip((forward, backward), sizes, strict=True):
        for name in direction.names(AUX_WEIGHTS):
            require_dimensions(node, name, (cells, aux))
    return sizes


def _bidirectional_shape(node: Node) -> list[TensorType]:
    _, batch, width = sequence_extents(node, time_major=node.value("time_major"))
    require_settings(node)
    forward, backward = _check_directions(node, batch, width)
    require_merged_count(node, states=4)
    widths = [forward.outputs, backward.outputs]
    if node.value("merge_outputs"):
        widths = [sum(widths)]
    dimensions = [sequence_dimensions(node, extent) for extent in widths]
    for sizes in (forward, backward):
        dimensions += [(batch, sizes.outputs), (batch, sizes.cells)]
    return results(node, *dimensions)


def _bidirectional_inputs() -> tuple[Slot, ...]:
    return (
        data("input"),
        *direction_slots("fw_"),
        *direction_slots("bw_"),
        data("fw_output_state"),
        data("fw_cell_state"),
        data("bw_output_state"),
        data("bw_cell_state"),
        data("aux_input", nullable=True),
        *aux_slots("fw_"),
        *aux_slots("bw_"),
        *_SETTINGS,
        control("merge_outputs", BOOL),
        control("time_major", BOOL),
        *layer_norm_slots("fw_"),
        *layer_norm_slots("bw_"),
    )


def _bidirectional_forms() -> tuple[Form, ...]:
    inputs = _bidirectional_inputs()
    states = [
        data(f"{prefix}{name}")
        for prefix in ("fw_", "bw_")
        for name in ("output_state_out", "cell_state_out")
    ]
    return bidirectional_forms(inputs, states)


declare(
    Signature(
        OperationType.BIDIRECTIONAL_SEQUENCE_LSTM,
        V1_2,
        _bidirectional_forms(),
        _ROWS,
        "Runs one long short-term memory over a sequence and another one over it backwards.",
    ),
    shape=_bidirectional_shape,
)


# -- QUANTIZED_LSTM --------------------------------------------------------------------------------
# NNAPI: QLSTM.cpp, QuantUtils.cpp. Real multipliers are formed in float32, as there.


_INTERMEDIATE: Final = tuple(f"{gate}_intermediate_scale" for gate in GATES)
_CLIPS: Final = ("cell_clip", "projection_clip")


def _quantized_lstm_shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    operands = LstmOperands(node)
    sizes = operands.check(batch, inputs)
    exponent = scale_exponent(node, "cell_state")
    # NNAPI: tanh is defined for 0 to 6 integer bits of the cell state.
    node.require(
        -15 <= exponent <= -9,
        f"operand 'cell_state' has scale 2**{exponent}, expected 2**-15 to 2**-9",
    )
    scales = operands.names("{}_intermediate_scale")
    for name in (*scales, "hidden_state_scale"):
        value = node.value(name)
        node.require(value > 0, f"operand '{name}' is {value}, expected more than 0")
    zero_point = node.value("hidden_state_zero_point")
    node.require(
        -128 <= zero_point <= 127,
        f"operand 'hidden_state_zero_point' is {zero_point}, expected -128 to 127",
    )
    dimensions = ((batch, sizes.outputs), (batch, sizes.cells), (batch, sizes.outputs))
    return [node.like_declared(d, at) for at, d in enumerate(dimensions)]


declare(
    signature(
        OperationType.QUANTIZED_LSTM,
        V1_3,
        "Computes one time step of a long short-term memory in 8-bit and 16-bit integers, with"
        " optional coupling of gates, peepholes, projection and layer normalisation.",
        inputs=[
            data("input", Q8S),
            *direction_slots("", QSYM8, Q16S, I32),
            data("output_state", Q8S),
            data("cell_state", Q16S),
            *layer_norm_slots("", Q16S),
            *(control(name, FLOAT32, nullable=True) for name in _CLIPS),
            *(control(name, FLOAT32) for name in _INTERMEDIATE),
            control("hidden_state_zero_point", INT32),
            control("hidden_state_scale", FLOAT32),
        ],
        outputs=[
            data("output_state_out", Q8S),
            data("cell_state_out", Q16S),
            data("output", Q8S),
        ],
        rows=[row(V1_3)],
    ),
    shape=_quantized_lstm_shape,
)


# -- QUANTIZED_16BIT_LSTM --------------------------------------------------------------------------
# NNAPI: QuantizedLSTM.cpp.


INPUT_WEIGHTS: Final = tuple(f"input_to_{gate}_weights" for gate in GATES)
RECURRENT_WEIGHTS: Final = tuple(f"recurrent_to_{gate}_weights" for gate in GATES)
BIASES: Final = tuple(f"{gate}_gate_bias" for gate in GATES)

#: Scale and zero point of the input and of the outputs.
_STEP: Final = 1 / 128
ZERO: Final = 128

#: NNAPI: integer bits of the cell state; no other number is supported.
STATE_BITS: Final = 4


def _quantized_16bit_lstm_shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    outputs = require_rank(node, "output_state", 2)[1]
    for names, dimensions in (
        (INPUT_WEIGHTS, (outputs, inputs)),
        (RECURRENT_WEIGHTS, (outputs, outputs)),
        (BIASES, (outputs,)),
        (("cell_state", "output_state"), (batch, outputs)),
    ):
        for name in names:
            require_dimensions(node, name, dimensions)
    _check_quantisation(node)
    return [node.tensor("cell_state").meta, node.tensor("output_state").meta]


def _check_quantisation(node: Node) -> None:
    weights = node.tensor(INPUT_WEIGHTS[0])
    for name in ("input", "output_state"):
        _require_quantisation(node, name, _STEP, ZERO)
    for name in (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS):
        _require_quantisation(node, name, weights.scale, weights.zero_point)
    for name in BIASES:
        _require_quantisation(node, name, weights.scale / 128, 0)
    exponent = scale_exponent(node, "cell_state")
    node.require(
        exponent == STATE_BITS - 15,
        f"operand 'cell_state' has scale 2**{exponent}, expected 2**-11",
    )


def _require_quantisation(node: Node, name: str, scale: float, zero_point: int) -> None:
    tensor = node.tensor(name)
    node.require(
        (tensor.scale, tensor.zero_point) == (scale, zero_point),
        f"operand '{name}' has scale {tensor.scale} and zero point {tensor.zero_point},"
        f" expected {scale} and {zero_point}",
    )


declare(
    signature(
        OperationType.QUANTIZED_16BIT_LSTM,
        V1_2,
        "Computes one time step of a long short-term memory in 8-bit and 16-bit integers.",
        inputs=[
            data("input", Q8),
            *(data(name, Q8) for name in (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS)),
            *(data(name, I32) for name in BIASES),
            data("cell_state", Q16S),
            data("output_state", Q8),
        ],
        outputs=[data("cell_state_out", Q16S), data("output", Q8)],
        rows=[row(V1_2)],
    ),
    shape=_quantized_16bit_lstm_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
