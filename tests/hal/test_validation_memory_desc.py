"""Rules D1 to D12: what a driver buffer may be wanted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from hal.validation_models import L, T, adder, with_graph, with_operand
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import ExtensionParams, Model, Operand, SymmPerChannelQuantParams
from nnburst.hal.types import BufferRole
from nnburst.hal.validation import validate_memory_desc

EXTENSION = 0x00030001


class Prepared(NamedTuple):
    """A prepared model; equal ones are still different objects."""

    model: Model | None


def first(*operands: Operand) -> Prepared:
    """A model with these operands as inputs (and the last one as output, too)."""
    count = len(operands)
    indexes = tuple(range(count))
    return Prepared(
        with_graph(adder(), operands=operands, input_indexes=indexes, output_indexes=(count - 1,))
    )


def operand(kind: int = T.TENSOR_FLOAT32, *dimensions: int, **fields: object) -> Operand:
    return Operand(kind, dimensions, lifetime=L.SUBGRAPH_INPUT, **fields)


def check(
    models: Sequence[Prepared | None],
    inputs: Sequence[BufferRole] = (),
    outputs: Sequence[BufferRole] = (),
    dimensions: Sequence[int] = (),
) -> Operand:
    return validate_memory_desc(dimensions, models, inputs, outputs, lambda p: p.model)


ONE = first(operand(T.TENSOR_FLOAT32, 2, 0), operand(T.TENSOR_FLOAT32, 0, 3))
OPEN = first(operand(T.TENSOR_FLOAT32, 0))
ROLE = BufferRole(0, 0)
BOTH = [BufferRole(0, 0), BufferRole(0, 1)]


def quantized(
    scale: float = 0.5, zero_point: int = 3, code: int = T.TENSOR_QUANT8_ASYMM
) -> Operand:
    return operand(code, 2, scale=scale, zero_point=zero_point)


def per_channel(scale: float) -> Operand:
    params = SymmPerChannelQuantParams((scale,), 0)
    return operand(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, 1, extra_params=params)


#: rule -> (accepted, rejected) arguments of `check`.
PAIRS: dict[str, list[tuple[tuple, tuple]]] = {
    "D1": [(([ONE], [ROLE]), ([], [ROLE]))],
    "D2": [(([ONE], [], [ROLE]), ([ONE], [], []))],
    "D3": [
        (([ONE], [ROLE]), ([ONE], [BufferRole(1, 0)])),
        (([ONE], [ROLE]), ([ONE], [BufferRole(-1, 0)])),
        (([ONE], [ROLE]), ([None], [ROLE])),
        (([ONE], [ROLE]), ([Prepared(None)], [ROLE])),
    ],
    "D4": [
        (([ONE], [BufferRole(0, 1)]), ([ONE], [BufferRole(0, 2)])),
        (([ONE], [BufferRole(0, 1)]), ([ONE], [BufferRole(0, -1)])),
        (([ONE], [], [BufferRole(0, 0)]), ([ONE], [], [BufferRole(0, 1)])),
    ],
    "D5": [
        (([ONE], [BufferRole(0, 0, 1.0)]), ([ONE], [BufferRole(0, 0, probability)]))
        for probability in (0.0, -0.5, 1.01, float("nan"))
    ],
    "D6": [
        (([ONE], [ROLE], [ROLE]), ([ONE], [ROLE, ROLE])),
        (([ONE, first(*ONE.model.main.operands)], [ROLE, BufferRole(1, 0)]),
         ([ONE, ONE], [ROLE, BufferRole(1, 0)])),
    ],
    "D7": [(([first(quantized(), quantized())], BOTH),
            ([first(quantized(), quantized(code=T.TENSOR_QUANT8_ASYMM_SIGNED))], BOTH))],
    "D8": [(([first(quantized(), quantized())], BOTH),
            ([first(quantized(), quantized(scale=0.25))], BOTH))],
    "D9": [(([first(quantized(), quantized())], BOTH),
            ([first(quantized(), quantized(zero_point=4))], BOTH))],
    "D10": [(([first(per_channel(0.5), per_channel(0.5))], BOTH),
             ([first(per_channel(0.5), per_channel(0.25))], BOTH))],
    "D11": [
        (([ONE], BOTH, [], (2, 3)), ([ONE], BOTH, [], (2, 4))),
        (([ONE], BOTH, [], (0, 0)), ([ONE], BOTH, [], (0, 0, 0))),
        (([ONE], BOTH, [], ()), ([ONE], BOTH, [], (-1, 3))),
        (([OPEN], [ROLE], [], (0,)), ([OPEN], [ROLE], [], (-1,))),
        (([OPEN], [ROLE], [], (UINT32_MAX,)), ([OPEN], [ROLE], [], (UINT32_MAX + 1,))),
        (([first(operand(T.TENSOR_FLOAT32))], [ROLE], [], (2,) * MAX_RANK),
         ([first(operand(T.TENSOR_FLOAT32))], [ROLE], [], (2,) * (MAX_RANK + 1))),
        (([ONE], BOTH, [], ()),
         ([first(operand(T.TENSOR_FLOAT32, 2), operand(T.TENSOR_FLOAT32, 3))], BOTH)),
    ],
    "D12": [(([first(operand(T.INT32))], [ROLE]), ([first(operand(T.INT32))], [ROLE], [], (1,)))],
}  # fmt: skip

CASES = [
    pytest.param(rule, *pair, id=f"{rule}-{n}", marks=pytest.mark.rule(rule))
    for rule, pairs in PAIRS.items()
    for n, pair in enumerate(pairs)
]


@pytest.mark.parametrize(("rule", "accepted", "rejected"), CASES)
def test_rule_accepts_one_description_and_rejects_the_other(
    rule: str, accepted: tuple, rejected: tuple
) -> None:
    check(*accepted)
    with pytest.raises(InvalidArgument) as caught:
        check(*rejected)
    assert str(caught.value).startswith(f"validation:{rule}: ")


def test_roles_combine_into_one_operand() -> None:
    wanted = check([ONE], BOTH, [ROLE], (2, 0))
    assert (wanted.type, wanted.dimensions) == (T.TENSOR_FLOAT32, (2, 3))
    assert check([ONE], [ROLE]).dimensions == (2, 0)


def test_extension_operands_may_differ_in_extra_params_and_have_dimensions() -> None:
    one = operand(EXTENSION, extra_params=ExtensionParams(b"a"))
    other = operand(EXTENSION, extra_params=ExtensionParams(b"b"))
    assert check([first(one, other)], BOTH, [], (4,)).dimensions == (4,)


def test_message_names_the_role() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^validation:D4: output role 1: io_index is 7 of 1 outputs"
    ):
        check([ONE], [], [ROLE, BufferRole(0, 7)])


def test_changed_models_are_distinguished_by_object() -> None:
    twin = Prepared(with_operand(ONE.model, 0, number_of_consumers=0))
    check([ONE, twin], [ROLE, BufferRole(1, 0)])
