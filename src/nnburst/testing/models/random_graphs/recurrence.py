"""Has templates of recurrent networks with random configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import F16, FLOATS, GraphBuilder, Made, template

_O = OperationType
_ACTIVATIONS = (0, 1, 3, 4, 6)


class _Configuration(NamedTuple):
    """The sizes of an LSTM, and its optional operands."""

    inputs: int
    cells: int
    outputs: int
    coupled: bool
    peephole: bool
    norm: bool
    projection: bool
    projection_bias: bool


def _configuration(g: GraphBuilder, inputs: int) -> _Configuration:
    cells, projection = g.between(2, 3), g.chance(0.5)
    return _Configuration(
        inputs=inputs,
        cells=cells,
        outputs=g.between(1, 3) if projection else cells,
        coupled=g.chance(0.4),
        peephole=g.chance(0.5),
        norm=g.chance(0.5),
        projection=projection,
        projection_bias=g.chance(0.5),
    )


def _weights(g: GraphBuilder, kind: OperandType, c: _Configuration) -> list[int]:
    """Operands 1 to 17 of LSTM."""
    gates = (not c.coupled, True, True, True)

    def some(dims: tuple[int, ...], *, given: bool) -> int:
        return g.fresh(kind, dims, -1, 1) if given else g.omitted(kind)

    weights = [some((c.cells, c.inputs), given=there) for there in gates]
    recurrent = [some((c.cells, c.outputs), given=there) for there in gates]
    peephole = [
        some((c.cells,), given=c.peephole and there) for there in (not c.coupled, True, True)
    ]
    biases = [some((c.cells,), given=there) for there in gates]
    projection = [
        some((c.outputs, c.cells), given=c.projection),
        some((c.outputs,), given=c.projection and c.projection_bias),
    ]
    return [*weights, *recurrent, *peephole, *biases, *projection]


def _norms(g: GraphBuilder, kind: OperandType, c: _Configuration) -> list[int]:
    given = (c.norm and not c.coupled, c.norm, c.norm, c.norm)
    return [g.fresh(kind, (c.cells,), -1, 1) if there else g.omitted(kind) for there in given]


def _states(g: GraphBuilder, kind: OperandType, batches: int, sizes: Sequence[int]) -> list[int]:
    return [g.fresh(kind, (batches, size), -1, 1) for size in sizes]


def _settings(g: GraphBuilder, kind: OperandType) -> list[int]:
    """Activation, cell clip and projection clip; 0 is for no clip."""
    scalar = OperandType.FLOAT16 if kind is F16 else OperandType.FLOAT32
    clips = [g.choice([0.0, 0.25, 0.5, 2.0]) for _ in range(2)]
    return [g.scalar(g.choice(_ACTIVATIONS)), *(g.scalar(v, scalar) for v in clips)]


def _sequence(g: GraphBuilder, kind: OperandType) -> tuple[int, int, int, bool]:
    """A sequence, its batches and inputs, and whether time comes first."""
    time_major = g.chance(0.5)
    times, batches, inputs = g.extent(1, 3), g.extent(1, 2), g.extent(1, 3)
    dims = (times, batches, inputs) if time_major else (batches, times, inputs)
    return g.tensor(kind, -2, 2, dims=dims), batches, inputs, time_major


@template(_O.LSTM, kinds=FLOATS, criteria="relaxed", exact=False, joined=True)
def _lstm(g: GraphBuilder, kind: OperandType) -> Made:
    batches, inputs = g.extent(1, 3), g.extent(1, 4)
    x = g.tensor(kind, -2, 2, dims=(batches, inputs))
    c = _configuration(g, inputs)
    states = _states(g, kind, batches, (c.outputs, c.cells))
    head = [x, *_weights(g, kind, c), *states, *_settings(g, kind)]
    norms = _norms(g, kind, c) if c.norm or g.chance(0.5) else []
    return [*head, *norms], [Meta(kind)] * 4


@template(_O.UNIDIRECTIONAL_SEQUENCE_LSTM, kinds=FLOATS, criteria="relaxed", exact=False)
def _unidirectional_lstm(g: GraphBuilder, kind: OperandType) -> Made:
    x, batches, inputs, time_major = _sequence(g, kind)
    c = _configuration(g, inputs)
    states = _states(g, kind, batches, (c.outputs, c.cells))
    head = [x, *_weights(g, kind, c), *states, *_settings(g, kind), g.scalar(time_major)]
    return [*head, *_norms(g, kind, c)], [Meta(kind)] * 3


@template(_O.BIDIRECTIONAL_SEQUENCE_LSTM, kinds=FLOATS, criteria="relaxed", exact=False)
def _bidirectional_lstm(g: GraphBuilder, kind: OperandType) -> Made:
    x, batches, inputs, time_major = _sequence(g, kind)
    c = _configuration(g, inputs)
    sizes = (c.outputs, c.cells)
    weights = [*_weights(g, kind, c), *_weights(g, kind, c)]
    states = [*_states(g, kind, batches, sizes), *_states(g, kind, batches, sizes)]
    # The original cannot link the directions of an LSTM with coupled gates.
    link = "none" if c.coupled else g.choice(["none", "parallel", "cross"])
    auxiliary = _auxiliary(g, kind, x, link, (c.cells, inputs), 4)
    merge = g.chance(0.5)
    flags = [g.scalar(merge), g.scalar(time_major)]
    norms = [*_norms(g, kind, c), *_norms(g, kind, c)]
    operands = [x, *weights, *states, *auxiliary, *_settings(g, kind), *flags, *norms]
    return operands, [Meta(kind)] * (5 if merge else 6)


def _auxiliary(
    g: GraphBuilder,
    kind: OperandType,
    x: int,
    link: str,
    dims: tuple[int, int],
    gates: int,
) -> list[int]:
    """The auxiliary input, and its weights for both directions."""
    given = link != "none"
    aux = g.fresh(kind, g.shape(x), -2, 2) if given else g.omitted(kind)
    return [
        aux,
        *(
            g.fresh(kind, dims, -1, 1) if link == "cross" else g.omitted(kind)
            for _ in range(2 * gates)
        ),
    ]


def _plain(g: GraphBuilder, kind: OperandType, inputs: int, batches: int, units: int) -> list[int]:
    """Weights, recurrent weights, bias and state of a plain network."""
    dims = ((units, inputs), (units, units), (units,), (batches, units))
    return [g.fresh(kind, d, -1, 1) for d in dims]


@template(_O.RNN, kinds=FLOATS, criteria="relaxed", exact=False)
def _rnn(g: GraphBuilder, kind: OperandType) -> Made:
    batches, inputs, units = g.extent(1, 3), g.extent(1, 4), g.extent(1, 4)
    x = g.tensor(kind, -2, 2, dims=(batches, inputs))
    operands = [x, *_plain(g, kind, inputs, batches, units), g.scalar(_simple_activation(g))]
    return operands, [Meta(kind)] * 2


def _simple_activation(g: GraphBuilder) -> int:
    return int(g.choice([0, 1, 3, 4, 6]))


@template(_O.UNIDIRECTIONAL_SEQUENCE_RNN, kinds=FLOATS, criteria="relaxed", exact=False)
def _unidirectional_rnn(g: GraphBuilder, kind: OperandType) -> Made:
    x, batches, inputs, time_major = _sequence(g, kind)
    weights = _plain(g, kind, inputs, batches, g.between(1, 3))
    scalars = [g.scalar(_simple_activation(g)), g.scalar(int(time_major))]
    return [x, *weights, *scalars], [Meta(kind)] * 2


@template(_O.BIDIRECTIONAL_SEQUENCE_RNN, kinds=FLOATS, criteria="relaxed", exact=False)
def _bidirectional_rnn(g: GraphBuilder, kind: OperandType) -> Made:
    x, batches, inputs, time_major = _sequence(g, kind)
    units, merge = g.between(1, 3), g.chance(0.5)
    weights = [i for _ in range(2) for i in _plain(g, kind, inputs, batches, units)]
    link = g.choice(["none", "parallel", "cross"])
    auxiliary = _auxiliary(g, kind, x, link, (units, inputs), 1)
    scalars = [g.scalar(_simple_activation(g)), g.scalar(time_major), g.scalar(merge)]
    return [x, *weights, *auxiliary, *scalars], [Meta(kind)] * (3 if merge else 4)


@template(_O.SVDF, kinds=FLOATS, criteria="relaxed", exact=False)
def _svdf(g: GraphBuilder, kind: OperandType) -> Made:
    batches, inputs, units = g.extent(1, 3), g.extent(1, 4), g.extent(1, 3)
    rank, memory = g.between(1, 3), g.between(1, 4)
    filters = units * rank
    dims = ((filters, inputs), (filters, memory))
    x = g.tensor(kind, -2, 2, dims=(batches, inputs))
    weights = [g.fresh(kind, d, -1, 1) for d in dims]
    bias = g.fresh(kind, (units,), -1, 1) if g.chance(0.5) else g.omitted(kind)
    state = g.fresh(kind, (batches, memory * filters), -1, 1)
    scalars = [g.scalar(rank), g.scalar(_simple_activation(g))]
    return [x, *weights, bias, state, *scalars], [Meta(kind)] * 2
