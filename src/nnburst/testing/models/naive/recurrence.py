"""Computes recurrent networks naively, one cell at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import (
    Array,
    Value,
    build,
    build_flat,
    elements,
    naive,
    real,
)

_T = OperationType
_Row = list[float]
_Maybe = Array | None


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


_ACTIVATIONS: dict[int, Callable[[float], float]] = {
    0: lambda x: x,
    1: lambda x: max(x, 0.0),
    3: lambda x: min(max(x, 0.0), 6.0),
    4: math.tanh,
    6: _sigmoid,
}


def _product(row: Sequence[float], matrix: _Maybe, unit: int) -> float:
    """Element `unit` of the product of row and transposed matrix; 0 without a matrix."""
    if matrix is None:
        return 0.0
    return math.fsum(v * w for v, w in zip(row, matrix[unit], strict=True))


def _clipped(x: float, limit: float) -> float:
    return min(max(x, -limit), limit) if limit > 0 else x


class NaiveGate(NamedTuple):
    """The operands of one gate: weights of input, state and auxiliary input, and vectors."""

    inputs: Array
    recurrent: Array
    peephole: _Maybe
    bias: Array
    norm: _Maybe
    auxiliary: _Maybe = None


class NaiveCell(NamedTuple):
    """An LSTM cell; `i` is None if input and forget gate are coupled."""

    i: NaiveGate | None
    f: NaiveGate
    g: NaiveGate
    o: NaiveGate
    projection: _Maybe
    projection_bias: _Maybe
    activation: int
    cell_clip: float
    projection_clip: float


def _gate(gate: NaiveGate, x: _Row, h: _Row, c: _Row, aux: _Row) -> _Row:
    units = range(gate.bias.shape[0])
    z = [
        _product(x, gate.inputs, u)
        + _product(h, gate.recurrent, u)
        + _product(aux, gate.auxiliary, u)
        + (0.0 if gate.peephole is None else gate.peephole[u] * c[u])
        for u in units
    ]
    if gate.norm is not None:
        mean = math.fsum(z) / len(z)
        deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in z) / len(z) + 1e-8)
        z = [(v - mean) / deviation * n for v, n in zip(z, gate.norm, strict=True)]
    return [v + b for v, b in zip(z, gate.bias, strict=True)]


def _step(cell: NaiveCell, x: _Row, h: _Row, c: _Row, aux: _Row) -> tuple[_Row, _Row]:
    """The next output and cell state of one batch."""
    act = _ACTIVATIONS[cell.activation]
    forget = [_sigmoid(z) for z in _gate(cell.f, x, h, c, aux)]
    enter = (
        [1 - f for f in forget]
        if cell.i is None
        else [_sigmoid(z) for z in _gate(cell.i, x, h, c, aux)]
    )
    new = [act(z) for z in _gate(cell.g, x, h, c, aux)]
    state = [
        _clipped(f * old + i * g, cell.cell_clip)
        for f, old, i, g in zip(forget, c, enter, new, strict=True)
    ]
    leave = [_sigmoid(z) for z in _gate(cell.o, x, h, state, aux)]
    out = [o * act(s) for o, s in zip(leave, state, strict=True)]
    if cell.projection is None:
        return out, state
    bias = cell.projection_bias
    projected = [
        _clipped(
            _product(out, cell.projection, u) + (0.0 if bias is None else bias[u]),
            cell.projection_clip,
        )
        for u in range(cell.projection.shape[0])
    ]
    return projected, state


def _run(
    cell: NaiveCell, x: Array, h: Array, c: Array, *, aux: _Maybe = None, backwards: bool = False
) -> tuple[Array, Array, Array]:
    """Outputs [T, B, P] and the final states, for x [T, B, I]."""
    times = range(x.shape[0])
    outputs: dict[tuple[int, int], _Row] = {}
    states, cells = [list(r) for r in h], [list(r) for r in c]
    for t in reversed(times) if backwards else times:
        for b in range(x.shape[1]):
            extra = [] if aux is None else list(aux[t, b])
            states[b], cells[b] = _step(cell, list(x[t, b]), states[b], cells[b], extra)
            outputs[t, b] = states[b]
    width = len(states[0])
    result = build((*x.shape[:2], width), lambda at: outputs[at[0], at[1]][at[2]])
    return result, _rows(states), _rows(cells)


def _rows(rows: list[_Row]) -> Array:
    return build_flat([v for row in rows for v in row], (len(rows), len(rows[0])))


def _cell(
    w: Sequence[Any], norms: Sequence[_Maybe], aux: Sequence[_Maybe], settings: Sequence[Any]
) -> NaiveCell:
    """A cell from operands 1 to 17 of LSTM, its norm and auxiliary weights (i, f, c, o)."""
    peepholes = (w[8], w[9], None, w[10])
    gates = [NaiveGate(w[k], w[4 + k], peepholes[k], w[11 + k], norms[k], aux[k]) for k in range(4)]
    i = None if w[0] is None else gates[0]
    return NaiveCell(i, gates[1], gates[2], gates[3], w[15], w[16], *settings)


_NONE = (None,) * 4


def _time_first(x: Array, time_major: bool) -> Array:
    return x if time_major else x.swapaxes(0, 1)


@naive(_T.LSTM)
def lstm(x: Array, *operands: Any) -> list[Array]:  # noqa: ANN401
    """One step: a scratch buffer of zeros, the states afterwards, and the output."""
    h, c, *settings = operands[17:22]
    norms = operands[22:26] if len(operands) > 22 else _NONE
    out, h, c = _run(_cell(operands[:17], norms, _NONE, settings), x[None], h, c)
    gates = 3 if operands[0] is None else 4
    scratch = build((x.shape[0], gates * c.shape[1]), lambda _: 0.0)
    return [scratch, h, c, out[0]]


@naive(_T.QUANTIZED_16BIT_LSTM)
def quantized_16bit_lstm(x: Array, *operands: Any) -> list[Array]:  # noqa: ANN401
    """One step: the cell state and the output.

    A row of weights has those of the output and then those of the input, but is multiplied by the input
    followed by the output. NNAPI: QuantizedLSTM.cpp.
    """
    weights, recurrent, biases = operands[:4], operands[4:8], operands[8:12]
    c, h = operands[12:14]
    units = range(c.shape[1])

    def gate(number: int, b: int, u: int) -> float:
        row = [*recurrent[number][u], *weights[number][u]]
        z = math.fsum(v * w for v, w in zip([*x[b], *h[b]], row, strict=True))
        return z + float(biases[number][u])

    def state(b: int, u: int) -> float:
        enter, forget, new = (gate(number, b, u) for number in range(3))
        moved = _sigmoid(enter) * math.tanh(new) + _sigmoid(forget) * c[b, u]
        return float(min(max(moved, -16.0), 16.0 - 2.0**-11))

    cells = {(b, u): state(b, u) for b in range(x.shape[0]) for u in units}
    return [
        build(c.shape, lambda at: cells[at[0], at[1]]),
        build(h.shape, lambda at: _sigmoid(gate(3, *at)) * math.tanh(cells[at[0], at[1]])),
    ]


def _fixed(x: float, fraction: int) -> float:
    """Round `x` to 16 bits with `fraction` bits after the point."""
    bits = min(max(round(x * (1 << fraction)), -32768), 32767)
    return bits / (1 << fraction)


class _QuantisedCell(NamedTuple):
    """Operands of QUANTIZED_LSTM by their names; see `NaiveGate` for those of a gate."""

    gates: tuple[NaiveGate | None, ...]
    steps: Sequence[float]
    cell_step: float
    cell_clip: float
    hidden: tuple[int, float]

    def arguments(self, number: int, x: _Row, h: _Row, c: _Row) -> _Row:
        """Arguments of a gate's function, by unit: sums saturated to 16 bits in its step, normalised."""
        gate, step = self.gates[number], self.steps[number]
        assert gate is not None
        z = []
        for u in range(gate.inputs.shape[0]):
            total = 0
            peephole = 0.0 if gate.peephole is None else gate.peephole[u] * c[u]
            for part in (_product(x, gate.inputs, u), _product(h, gate.recurrent, u), peephole):
                total = min(max(total + round(part / step), -32768), 32767)
            z.append(total)
        if gate.norm is None:
            return [v * 2.0**-12 for v in z]
        mean = math.fsum(z) / len(z)
        deviation = math.sqrt(max(1, int(math.fsum(v * v for v in z) / len(z) - mean**2)))
        pairs = zip(z, gate.norm, gate.bias, strict=True)
        return [_fixed((v - mean) / deviation * w + b, 12) for v, w, b in pairs]


@naive(_T.QUANTIZED_LSTM, of_values=True)
def quantized_lstm(*values: Value) -> list[Array]:
    """One step: the output, the cell state, and the output again.

    Biases of gates are used only with layer normalisation. NNAPI: QLSTM.cpp.

    Raises:
        ValueError: the projection is clipped, for which the unit of the bound is not defined.
    """
    x, *given = (real(value) for value in values)
    norms = given[19:23]
    biases = [
        None
        if n is None
        else [v * values[20 + at].meta.scale / 1024 for v in elements(values[12 + at])]
        for at, n in enumerate(norms)
    ]
    peepholes = (given[8], given[9], None, given[10])
    gates = tuple(
        None
        if given[at] is None
        else NaiveGate(given[at], given[4 + at], peepholes[at], biases[at], norms[at])  # type: ignore[arg-type]
        for at in range(4)
    )
    projection, h, c = given[15], given[17], given[18]
    cell_clip, projection_clip, *steps, zero_point, hidden_step = given[23:31]
    if projection_clip > 0:
        raise ValueError("a projection that is clipped")
    cell_step = values[19].meta.scale
    cell = _QuantisedCell(gates, steps, cell_step, cell_clip, (zero_point, hidden_step))
    outputs, cells = [], []
    for b in range(x.shape[0]):
        state, hidden = _quantised_step(cell, list(x[b]), list(h[b]), list(c[b]))
        if projection is not None:
            bias = values[17]
            step = values[16].meta.scale * hidden_step
            more = [0.0] * len(projection) if bias.is_omitted else [v * step for v in bias.array]
            hidden = [_product(hidden, projection, u) + more[u] for u in range(len(projection))]
        outputs.append(hidden)
        cells.append(state)
    return [_rows(outputs), _rows(cells), _rows(outputs)]


def _quantised_step(cell: _QuantisedCell, x: _Row, h: _Row, c: _Row) -> tuple[_Row, _Row]:
    """The next cell state and hidden values of one batch."""
    forget = [_sigmoid(z) for z in cell.arguments(1, x, h, c)]
    new = [math.tanh(z) for z in cell.arguments(2, x, h, c)]
    enter = (
        [1 - f for f in forget]
        if cell.gates[0] is None
        else [_sigmoid(z) for z in cell.arguments(0, x, h, c)]
    )
    bound = 32767 * cell.cell_step
    if cell.cell_clip > 0:
        bound = min(bound, int(cell.cell_clip / cell.cell_step) * cell.cell_step)
    state = [
        min(max(f * old + i * g, -bound), bound)
        for f, old, i, g in zip(forget, c, enter, new, strict=True)
    ]
    leave = [_sigmoid(z) for z in cell.arguments(3, x, h, state)]
    zero_point, step = cell.hidden
    # The zero point is subtracted here, where other operations add it.
    low, high = ((edge + zero_point) * step for edge in (-128, 127))
    return state, [
        min(max(round(o * math.tanh(s) / step) * step, low), high)
        for o, s in zip(leave, state, strict=True)
    ]


@naive(_T.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(x: Array, *operands: Any) -> list[Array]:  # noqa: ANN401
    """Outputs, and the final states."""
    h, c, *settings, time_major = operands[17:23]
    cell = _cell(operands[:17], operands[23:27], _NONE, settings)
    out, h, c = _run(cell, _time_first(x, time_major), h, c)
    return [_time_first(out, time_major), h, c]


@naive(_T.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(x: Array, *operands: Any) -> list[Array]:  # noqa: ANN401
    """Outputs of both directions (merged or not), and the final states."""
    states, aux = operands[34:38], operands[38]
    weights = (operands[39:43], operands[43:47])
    *settings, merge, time_major = operands[47:52]
    norms = (operands[52:56], operands[56:60])
    forwards = _cell(operands[:17], norms[0], weights[0], settings)
    backwards = _cell(operands[17:34], norms[1], weights[1], settings)
    x = _time_first(x, time_major)
    aux = None if aux is None else _time_first(aux, time_major)
    second, crossing = (aux, None) if aux is not None and weights[0][1] is None else (x, aux)
    fw, *fw_states = _run(forwards, x, states[0], states[1], aux=crossing)
    bw, *bw_states = _run(backwards, second, states[2], states[3], aux=crossing, backwards=True)
    return [*_outputs(fw, bw, merge, time_major), *fw_states, *bw_states]


def _outputs(fw: Array, bw: Array, merge: bool, time_major: bool) -> list[Array]:
    if not merge:
        return [_time_first(fw, time_major), _time_first(bw, time_major)]
    width = fw.shape[2]
    merged = build(
        (*fw.shape[:2], width + bw.shape[2]),
        lambda at: fw[at] if at[2] < width else bw[at[0], at[1], at[2] - width],
    )
    return [_time_first(merged, time_major)]


def _simple(
    x: Array,
    w: Sequence[Array],
    h: Array,
    activation: int,
    *,
    aux: tuple[_Maybe, _Maybe] = (None, None),
    backwards: bool = False,
) -> tuple[Array, Array]:
    """Outputs [T, B, U] and the final state of a plain recurrent network."""
    act = _ACTIVATIONS[activation]
    times = range(x.shape[0])
    states = [list(r) for r in h]
    outputs = {}
    for t in reversed(times) if backwards else times:
        for b in range(x.shape[1]):
            extra = [] if aux[0] is None else list(aux[0][t, b])
            states[b] = [
                act(
                    _product(x[t, b], w[0], u)
                    + _product(states[b], w[1], u)
                    + _product(extra, aux[1], u)
                    + w[2][u]
                )
                for u in range(w[2].shape[0])
            ]
            outputs[t, b] = states[b]
    shape = (*x.shape[:2], w[2].shape[0])
    return build(shape, lambda at: outputs[at[0], at[1]][at[2]]), _rows(states)


@naive(_T.RNN)
def rnn(x: Array, w: Array, r: Array, bias: Array, h: Array, activation: int) -> list[Array]:
    """One step, whose output is also the new state."""
    _, state = _simple(x.reshape(1, *x.shape), (w, r, bias), h, activation)
    return [state, state]


@naive(_T.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(
    x: Array, w: Array, r: Array, bias: Array, h: Array, activation: int, time_major: int
) -> list[Array]:
    """Outputs, and the final state."""
    out, state = _simple(_time_first(x, bool(time_major)), (w, r, bias), h, activation)
    return [_time_first(out, bool(time_major)), state]


@naive(_T.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(x: Array, *operands: Any) -> list[Array]:  # noqa: ANN401
    """Outputs of both directions (merged or not), and the final states."""
    fw, bw, (aux, fw_aux, bw_aux) = operands[:4], operands[4:8], operands[8:11]
    activation, time_major, merge = operands[11:14]
    x = _time_first(x, time_major)
    aux = None if aux is None else _time_first(aux, time_major)
    second, crossing = (aux, None) if aux is not None and fw_aux is None else (x, aux)
    a, a_state = _simple(x, fw[:3], fw[3], activation, aux=(crossing, fw_aux))
    b, b_state = _simple(
        second,
        bw[:3],
        bw[3],
        activation,
        aux=(crossing, bw_aux),
        backwards=True,
    )
    return [*_outputs(a, b, merge, time_major), a_state, b_state]


@naive(_T.SVDF)
def svdf(
    x: Array, features: Array, times: Array, bias: _Maybe, state: Array, rank: int, activation: int
) -> list[Array]:
    """A filter over features and the last `memory` steps; the state moves on by one."""
    count, memory = times.shape
    act = _ACTIVATIONS[activation]

    def column(b: int, f: int, m: int) -> float:
        if m == memory - 1:
            return _product(x[b], features, f)
        return float(state[b, f * memory + m])

    def output(b: int, u: int) -> float:
        total = math.fsum(
            column(b, f, m) * times[f, m]
            for f in range(u * rank, (u + 1) * rank)
            for m in range(memory)
        )
        return act(total + (0.0 if bias is None else bias[u]))

    def moved(b: int, place: int) -> float:
        f, m = divmod(place, memory)
        return 0.0 if m == memory - 1 else column(b, f, m + 1)

    return [
        build(state.shape, lambda at: moved(*at)),
        build((x.shape[0], count // rank), lambda at: output(*at)),
    ]
