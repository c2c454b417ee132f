"""Rules M, O and P: for each a model that it accepts and one, barely different, that it rejects."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.validation_models import (
    SIGNATURES,
    L,
    T,
    adder,
    brancher,
    chain,
    constant,
    looper,
    nested,
    operation,
    plus,
    probe,
    recounted,
    with_graph,
    with_operand,
    with_operation,
)
from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import (
    DataLocation,
    ExtensionNameAndPrefix,
    ExtensionParams,
    MemoryPool,
    Model,
    Operand,
    SymmPerChannelQuantParams,
)
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.validation import validate_model
from nnburst.hal.validation.nesting import MAX_SUBGRAPH_DEPTH

OP = OperationType
EXTENSION = 0x00030001
Q8, Q8S, Q16 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_QUANT16_ASYMM
S8, S16, I32 = T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_SYMM, T.TENSOR_INT32
F32 = T.TENSOR_FLOAT32
INF, NAN = float("inf"), float("nan")
#: The least and the largest float32 above 0, and their neighbours outside.
LEAST, LARGEST = 2.0**-149, (2 - 2.0**-23) * 2.0**127
BELOW, ABOVE = LEAST / 2, math.nextafter(LARGEST, INF)


def declared(model: Model, *entries: tuple[str, int]) -> Model:
    """The model with extension names and prefixes."""
    return replace(
        model, extension_name_to_prefix=tuple(ExtensionNameAndPrefix(*e) for e in entries)
    )


def extended(**fields: object) -> Model:
    """An adder with an input of an extension's type."""
    return declared(probe(EXTENSION, (2,), **fields), ("com.example.test", 3))


def per_channel(
    scales: tuple[float, ...] = (0.5, 1.0), axis: int = 0, dimensions: tuple[int, ...] = (2, 3)
) -> Model:
    params = SymmPerChannelQuantParams(scales, axis)
    return probe(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, dimensions, extra_params=params)


def pooled(offset: int, length: int, pool: int = 0, dimensions: tuple[int, ...] = (2,)) -> Model:
    """An adder with a constant in a pool of 64 bytes."""
    operand = Operand(
        T.TENSOR_FLOAT32,
        dimensions,
        lifetime=L.CONSTANT_REFERENCE,
        location=DataLocation(pool, offset, length),
    )
    return replace(plus(adder(), operand), pools=(MemoryPool(64),))


def copied(offset: int, pool: int = 0) -> Model:
    """An adder whose values (20 bytes) hold one more float tensor of 8 bytes at `offset`."""
    location = DataLocation(pool, offset, 8)
    operand = Operand(T.TENSOR_FLOAT32, (2,), lifetime=L.CONSTANT_COPY, location=location)
    return plus(adder(), operand)


def placed(**location: int) -> Model:
    return probe(T.TENSOR_FLOAT32, (2,), location=DataLocation(**location))


def subgraph_at(**location: int) -> Model:
    return with_operand(brancher(), 1, location=DataLocation(**location))


def cycle() -> Model:
    """referenced[0] refers to itself."""
    model = nested(2)
    return with_operand(model, 3, graph=0, location=DataLocation(offset=0))


def without(model: Model, what: str) -> Model:
    return with_graph(model, **{what: ()})


def branch_changed(index: int = 0, **changes: object) -> Model:
    return with_operand(brancher(), index, graph=0, **changes)


def quantized_branch(outer: Operand, inner: Operand) -> Model:
    """An IF whose input is `outer`, given to branches whose input is `inner`."""
    model = brancher()
    for graph in (0, 1):
        operands = (inner, *model.referenced[graph].operands[1:])
        # An operation without a signature in these tests takes anything.
        model = with_operation(with_graph(model, graph, operands=operands), 0, graph, type=OP.MUL)
    operands = model.main.operands
    return recounted(with_graph(model, operands=(*operands[:3], outer, *operands[4:])))


def scaled_branch(scale: float = 0.5, zero_point: int = 0) -> Model:
    outer = Operand(Q8, (2,), scale=0.5, lifetime=L.SUBGRAPH_INPUT)
    return quantized_branch(outer, replace(outer, scale=scale, zero_point=zero_point))


def per_channel_branch(scales: tuple[float, ...]) -> Model:
    params = [SymmPerChannelQuantParams(s, 0) for s in ((0.5, 1.0), scales)]
    outer, inner = (
        Operand(
            T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,), lifetime=L.SUBGRAPH_INPUT, extra_params=given
        )
        for given in params
    )
    return quantized_branch(outer, inner)


def body_changed(index: int = 0, **changes: object) -> Model:
    return with_operand(looper(), index, graph=1, **changes)


def two_outputs() -> Model:
    """A WHILE whose operation gives more values than its body."""
    model = plus(looper(), Operand(T.TENSOR_FLOAT32, (2,), lifetime=L.SUBGRAPH_OUTPUT))
    return with_operation(model, 0, outputs=(3, 4))


def without_outputs() -> Model:
    """A WHILE whose values are not read."""
    model = looper()
    operands = model.main.operands[:3]
    return with_operation(with_graph(model, operands=operands, output_indexes=()), 0, outputs=())


def pair_looper(inputs: int = 2, body_inputs: int = 2, results: int = 2, outputs: int = 2) -> Model:
    """A WHILE over so many values of [2], whose body takes, and gives, as many or fewer."""
    builder = ModelBuilder()
    condition, graph = builder.add_subgraph()
    taken = [graph.input(F32, (2,)) for _ in range(inputs)]
    graph.operation(OP.LESS, [*taken, *taken], [graph.output(T.TENSOR_BOOL8, (1,))])
    body, graph = builder.add_subgraph()
    taken = [graph.input(F32, (2,)) for _ in range(body_inputs)]
    for _ in range(results):
        graph.operation(OP.MUL, taken, [graph.output(F32, (2,))])
    values = [builder.subgraph(condition), builder.subgraph(body)]
    values += [builder.input(F32, (2,)) for _ in range(inputs)]
    builder.operation(OP.WHILE, values, [builder.output(F32, (2,)) for _ in range(outputs)])
    return builder.build()


def brancher_of_constants() -> Model:
    """An IF whose branches take nothing: it has three inputs."""
    builder = ModelBuilder()
    inputs = [builder.input(T.TENSOR_BOOL8, (1,))]
    for _ in range(2):
        index, graph = builder.add_subgraph()
        y = graph.constant(F32, [1.0, 1.0])
        graph.operation(OP.ADD, [y, y, graph.scalar(0)], [graph.output(F32, (2,))])
        inputs.append(builder.subgraph(index))
    builder.operation(OP.IF, inputs, [builder.output(F32, (2,))])
    return builder.build()


def two_decisions() -> Model:
    """A WHILE whose condition model has two outputs."""
    model = looper()
    condition = model.referenced[0]
    operations = (
        *condition.operations,
        operation(OP.LESS, condition.operations[0].inputs, (len(condition.operands),)),
    )
    operands = (*condition.operands, condition.operands[condition.output_indexes[0]])
    outputs = (*condition.output_indexes, len(condition.operands))
    changed = with_graph(model, 0, operands=operands, operations=operations, output_indexes=outputs)
    return recounted(changed, 0)


def more_results_than_values() -> Model:
    """A WHILE whose body gives more values than it takes."""
    model = looper()
    body = model.referenced[1]
    first = body.operations[0]
    added = len(body.operands)
    changed = with_graph(
        model,
        1,
        operands=(*body.operands, body.operands[first.outputs[0]]),
        operations=(first, replace(first, outputs=(added,))),
        output_indexes=(*body.output_indexes, added),
    )
    return recounted(changed, 1)


def extra_if_input() -> Model:
    model = plus(brancher(), Operand(T.TENSOR_FLOAT32, (2,), lifetime=L.SUBGRAPH_INPUT))
    return with_operation(model, 0, inputs=(0, 1, 2, 3, 5))


#: rule -> (accepted, rejected) pairs; the rejected one breaks exactly this rule.
PAIRS: dict[str, list[tuple[Model, Model]]] = {
    "M1": [
        (adder(), without(adder(), "operations")),
        (brancher(), with_graph(brancher(), 0, operations=())),
        (adder(), with_graph(without(adder(), "operations"), operands=())),
        (adder(), without(adder(), "operands")),
    ],
    "M3": [(pooled(0, 8), replace(pooled(0, 8), pools=(MemoryPool(64, -1),)))],
    "M4": [
        (replace(adder(), pools=(MemoryPool(1),)), replace(adder(), pools=(MemoryPool(0),))),
        (adder(), replace(adder(), pools=(MemoryPool(-1),))),
        (
            replace(adder(), pools=(MemoryPool(2**63 - 1),)),
            replace(adder(), pools=(MemoryPool(2**63),)),
        ),
    ],
    "M5": [(nested(2), cycle()), (nested(MAX_SUBGRAPH_DEPTH), nested(MAX_SUBGRAPH_DEPTH + 1))],
    "M6": [
        (declared(adder(), ("a.b_c0", 1)), declared(adder(), (name, 1)))
        for name in ("", "nodot", "Upper.case", "a b.c", "ä.b", "a.b\n")
    ] + [
        (declared(adder(), ("a.b", 1), ("a.c", 2)), declared(adder(), ("a.b", 1), ("a.b", 2))),
        (declared(adder(), ("a.b", 65535)), declared(adder(), ("a.b", 65536))),
        (declared(adder(), ("a.b", 0)), declared(adder(), ("a.b", -1))),
        (declared(adder(), ("a.b", 1), ("a.c", 2)), declared(adder(), ("a.b", 1), ("a.c", 1))),
    ],
    "M9": [
        (extended(), probe(EXTENSION, (2,))),
        (extended(), probe(-1)),
        (declared(probe(-(2**31), (2,)), ("a.b", 2**15)), probe(-(2**31), (2,))),
        (declared(probe(UINT32_MAX, (2,)), ("a.b", 65535)), probe(UINT32_MAX, (2,))),
        (
            declared(with_operation(adder(), 0, type=-(2**31)), ("a.b", 2**15)),
            with_operation(adder(), 0, type=-(2**31)),
        ),
        (
            declared(with_operation(adder(), 0, type=EXTENSION), ("a.b", 3)),
            declared(with_operation(adder(), 0, type=EXTENSION), ("a.b", 4)),
        ),
    ],
    "O1": [
        (probe(T.TENSOR_OEM_BYTE, (2,)), probe(code, (2,)))
        for code in (16, 9999, 10002, 2**32, -(2**31) - 1)
    ] + [(probe(F32, (UINT32_MAX,)), probe(F32, (extent,))) for extent in (-1, 2**32)],
    "O2": [(probe(kind), probe(kind, (0,))) for kind in (T.FLOAT32, T.BOOL, T.OEM, T.FLOAT16)],
    "O3": [(probe(F32, (1,) * MAX_RANK), probe(F32, (1,) * (MAX_RANK + 1)))],
    "O4": [(constant(F32, (2,), 8), constant(F32, (), 0))],
    "O5": [
        (constant(F32, (2,), 8), constant(F32, (2, 0), 0)),
        (constant(F32, (2,), 8), constant(F32, (65536, 65536), 0)),
        (constant(F32, (2,), 8), constant(F32, (UINT32_MAX,) * 4, 4)),
        (constant(F32, (2,), 8), constant(T.TENSOR_BOOL8, (65536, 65536), 4)),
    ],
    "O6": [
        (probe(kind), probe(kind, scale=1.0)) for kind in (T.FLOAT32, T.INT32, T.UINT32, T.BOOL)
    ] + [
        (probe(F32, (2,)), probe(F32, (2,), scale=NAN)),
        (per_channel(), with_operand(per_channel(), 4, scale=1.0)),
        (extended(), extended(scale=0.5)),
    ],
    "O7": [(probe(I32, (2,), scale=0.5), probe(I32, (2,), scale=s)) for s in (-1.0, NAN, INF)]
    + [
        (probe(I32, (2,)), probe(I32, (2,), scale=-1e-9)),
        (probe(I32, (2,), scale=LARGEST), probe(I32, (2,), scale=ABOVE)),
    ],
    "O8": [
        (probe(kind, (2,), scale=0.5), probe(kind, (2,), scale=scale))
        for kind in (Q8, Q8S, S8, Q16, S16)
        for scale in (0.0, -0.5, NAN, INF, 1e-60, 1e39)
    ] + [
        (probe(Q8, (2,), scale=ok), probe(Q8, (2,), scale=no))
        for ok, no in ((LEAST, BELOW), (LARGEST, ABOVE))
    ],
    "O9": [
        (probe(kind, (2,), scale=scale), probe(kind, (2,), scale=scale, zero_point=1))
        for kind, scale in ((F32, 0.0), (T.TENSOR_BOOL8, 0.0), (I32, 0.5), (S8, 0.5), (S16, 0.5))
    ] + [
        (extended(), extended(zero_point=-1)),
        (probe(F32, (2,)), probe(F32, (2,), zero_point=-1)),
    ],
    "O10": [
        (probe(kind, (2,), scale=0.5, zero_point=ok), probe(kind, (2,), scale=0.5, zero_point=no))
        for kind, ok, no in (
            (Q8, 0, -1), (Q8, 255, 256), (Q8S, -128, -129), (Q8S, 127, 128),
            (Q16, 0, -1), (Q16, 65535, 65536),
        )
    ],
    "O12": [
        (probe(F32, (2,)), probe(F32, (2,), extra_params=ExtensionParams(b""))),
        (per_channel(), with_operand(per_channel(), 4, extra_params=None)),
        (
            extended(extra_params=ExtensionParams(b"x")),
            extended(extra_params=SymmPerChannelQuantParams((1.0,), 0)),
        ),
    ],
    "O13": [
        (per_channel(), per_channel(axis=2)),
        (per_channel(), per_channel(axis=-1)),
        (per_channel(), per_channel(scales=(0.5,))),
        (per_channel(), per_channel(scales=(), dimensions=(0, 3))),
        (per_channel(), per_channel(scales=(0.5, 0.0))),
        (per_channel(), per_channel(scales=(0.5, NAN))),
        (per_channel(), per_channel(dimensions=())),
        (per_channel(scales=(0.5, 1.0, 2.0), axis=1), per_channel(axis=1)),
        (per_channel(scales=(LEAST, 1.0)), per_channel(scales=(BELOW, 1.0))),
        (per_channel(scales=(LARGEST, 1.0)), per_channel(scales=(ABOVE, 1.0))),
    ],
    "O14": [(adder(), probe(F32, (2,), lifetime=8)), (adder(), probe(F32, (2,), lifetime=-1))],
    "O15": [
        (brancher(), probe(T.SUBGRAPH)),
        (brancher(), probe(F32, (2,), lifetime=L.SUBGRAPH)),
    ],
    "O16": [
        (copied(12), copied(13)),
        (copied(12), copied(-1)),
        (copied(12), copied(UINT32_MAX)),
        (copied(12), copied(0, pool=1)),
        (copied(12), constant(F32, (2,), -1)),
    ],
    "O17": [
        (pooled(56, 8), pooled(57, 8)),
        (pooled(56, 8), pooled(0, 8, pool=1)),
        (pooled(56, 8), pooled(0, 8, pool=-1)),
        (pooled(56, 8), pooled(2**32 - 8, 8)),
        (pooled(56, 8), pooled(-8, 8)),
    ],
    "O18": [(placed(), placed(pool_index=1)), (placed(), placed(offset=1)),
            (placed(), placed(length=1))],
    "O19": [
        (subgraph_at(offset=1), subgraph_at(offset=2)),
        (subgraph_at(offset=1), subgraph_at(offset=-1)),
        (subgraph_at(offset=1), subgraph_at(offset=1, length=1)),
        (subgraph_at(offset=1), subgraph_at(offset=1, pool_index=1)),
    ],
    "O21": [(adder(), with_operand(adder(), 1, lifetime=L.POINTER))],
    "O22": [
        (constant(F32, (2,), 8), constant(F32, (2,), 7)),
        (constant(T.INT32, (), 4), constant(T.INT32, (), 8)),
        (pooled(0, 8), pooled(0, 12)),
        (constant(F32, (2,), 8), constant(T.TENSOR_BOOL8, (UINT32_MAX,), 4)),
    ],
    "O23": [
        (adder(), with_operand(adder(), 0, number_of_consumers=0)),
        (adder(), with_operand(adder(), 0, number_of_consumers=2)),
        (brancher(), with_operand(brancher(), 1, graph=1, number_of_consumers=2)),
    ],
    "P1": [
        (adder(), with_operation(adder(), 0, type=code))
        for code in (106, 9999, 10001, 2**32, -(2**31) - 1)
    ],
    "P2": [
        (adder(), with_graph(adder(), operations=(operation(OP.ADD, inputs, outputs),)))
        for inputs, outputs in (
            ((4, 1, 2), (3,)), ((0, -1, 2), (3,)), ((0, 1, 2), (4,)), ((0, 1, 2), (-1,))
        )
    ],
    "P4": [
        (adder(), with_operation(adder(), 0, inputs=(0, 1))),
        (adder(), with_operation(adder(), 0, inputs=(0, 1, 2, 2))),
        (adder(), with_operation(adder(), 0, inputs=(0, 2, 2))),
    ],
    "P5": [
        (adder(), with_operation(adder(), 0, outputs=(0,))),
        (adder(), with_operation(adder(), 0, outputs=(1,))),
    ],
    "P6": [
        (chain(), with_graph(chain(), operations=chain().main.operations[::-1])),
        (chain(), with_operation(chain(), 0, inputs=(3, 1, 2))),
    ],
    "P7": [(chain(), with_operation(chain(), 1, outputs=(3,)))],
    "P8": [
        (adder(), plus(adder(), Operand(F32, (2,)))),
        (adder(), plus(adder(), Operand(F32, (2,), lifetime=L.SUBGRAPH_OUTPUT))),
    ],
    "P9": [
        (adder(), with_graph(adder(), input_indexes=indexes))
        for indexes in ((), (0, 0), (1,), (4,), (-1,), (3,), (0, 1), (0, 3))
    ] + [
        (adder(), with_graph(adder(), output_indexes=indexes))
        for indexes in ((), (3, 3), (0,), (3, 1), (3, 0))
    ],
    "P10": [
        (brancher(), with_operand(brancher(), 0, dimensions=(2,))),
        (brancher(), with_operand(brancher(), 0, dimensions=())),
        (brancher(), with_operand(brancher(), 0, type=T.TENSOR_FLOAT32)),
        (brancher(), with_operation(brancher(), 0, inputs=(0, 3, 2, 3))),
        (brancher(), with_operation(brancher(), 0, inputs=(0, 1))),
        (brancher(), extra_if_input()),
        (branch_changed(dimensions=(0,)), branch_changed(dimensions=(3,))),
        (branch_changed(dimensions=()), branch_changed(dimensions=(2, 1))),
        (
            with_operand(brancher(), 3, dimensions=()),
            with_operand(brancher(), 3, dimensions=(2, 1)),
        ),
        (brancher((2, 3)), with_operand(brancher((2, 3)), 0, graph=0, dimensions=(2, 4))),
        (brancher(), with_operand(brancher(), 3, type=T.TENSOR_INT32)),
        (scaled_branch(0.5), scaled_branch(0.25)),
        (scaled_branch(), scaled_branch(zero_point=1)),
        (brancher(), with_operand(brancher(), 0, graph=1, dimensions=(3,))),
        (brancher(), with_operand(brancher(), 2, graph=1, dimensions=(3,))),
        (brancher_of_constants(), with_operation(brancher_of_constants(), 0, inputs=(0, 1))),
        (per_channel_branch((0.5, 1.0)), per_channel_branch((0.5, 2.0))),
    ],
    "P11": [
        (looper(), with_operation(looper(), 0, inputs=(0, 1))),
        (looper(), with_operation(looper(), 0, inputs=(2, 1, 2))),
        (looper(), with_operation(looper(), 0, inputs=(1, 1, 2))),
        (looper(), with_operation(looper(), 0, inputs=(0, 0, 2))),
        (looper(), with_operand(looper(), 2, graph=0, dimensions=(2,))),
        (body_changed(dimensions=(0,)), body_changed(dimensions=(3,))),
        (looper(), body_changed(2, dimensions=(3,))),
        (looper(), two_outputs()),
        (looper(), two_decisions()),
        (looper(), more_results_than_values()),
        (looper(), without_outputs()),
        (looper(), with_operand(looper(), 0, graph=0, dimensions=(3,))),
        (looper(), with_operand(looper(), 3, dimensions=(3,))),
        (looper(), with_operand(body_changed(2, dimensions=(3,)), 3, dimensions=(3,))),
        (pair_looper(), pair_looper(body_inputs=3)),
        (pair_looper(results=1, outputs=1), pair_looper(results=1, outputs=2)),
        (pair_looper(outputs=1), pair_looper(results=3)),
    ],
}  # fmt: skip

CASES = [
    pytest.param(rule, *pair, id=f"{rule}-{n}", marks=pytest.mark.rule(rule))
    for rule, pairs in PAIRS.items()
    for n, pair in enumerate(pairs)
]


@pytest.mark.parametrize(("rule", "accepted", "rejected"), CASES)
def test_rule_accepts_one_model_and_rejects_the_other(
    rule: str, accepted: Model, rejected: Model
) -> None:
    validate_model(accepted, SIGNATURES)
    with pytest.raises(InvalidArgument) as caught:
        validate_model(rejected, SIGNATURES)
    assert str(caught.value).startswith(f"validation:{rule}: ")


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (copied(13), "O16: operand 4 of main: offset 13 and length 8 lie outside the 20 bytes"),
        (branch_changed(type=16), "O1: operand 0 of referenced[0]: type 16 is unknown"),
        (PAIRS["P4"][0][1], "P4: operation 0 of main: ADD: 2 inputs and 1 outputs fit no form"),
        (PAIRS["M1"][1][1], "M1: referenced[0]: 0 operations"),
        (PAIRS["P10"][0][1], "P10: operation 0 of main: the condition is TENSOR_BOOL8 [2]"),
        (PAIRS["P7"][0][1], "P7: main: operation 1 writes operand 3 a second time"),
        (PAIRS["P8"][0][1], "P8: main: operand 4 is never written"),
        (PAIRS["O9"][0][1], "O9: operand 4 of main: zero_point is 1, expected 0"),
        (PAIRS["O10"][1][1], "O10: operand 4 of main: zero_point is 256, expected 0 to 255"),
    ],
)
def test_message_names_rule_and_place(model: Model, where: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        validate_model(model, SIGNATURES)
    assert str(caught.value).startswith(f"validation:{where}")


def test_message_names_no_range_where_only_zero_is_allowed() -> None:
    with pytest.raises(InvalidArgument, match=r"^validation:O9: .* zero_point is 1, expected 0$"):
        validate_model(probe(F32, (2,), zero_point=1), SIGNATURES)


@pytest.mark.rule("M2", "accepts")
def test_models_without_inputs_or_outputs_pass() -> None:
    model = adder()
    validate_model(
        with_graph(
            with_operand(model, 0, lifetime=L.NO_VALUE), input_indexes=(), output_indexes=(3,)
        ),
        SIGNATURES,
    )


@pytest.mark.rule("M7", "accepts")
@pytest.mark.parametrize("relaxed", [False, True])
def test_any_relaxed_flag_passes(relaxed: bool) -> None:
    validate_model(adder(relax_computation_float32_to_float16=relaxed), SIGNATURES)


@pytest.mark.rule("P14", "accepts")
def test_dimension_zero_is_unknown_and_not_an_empty_tensor() -> None:
    validate_model(probe(F32, (0, 3)), SIGNATURES)


@pytest.mark.rule("O11", "accepts")
def test_oem_operands_are_not_checked_further() -> None:
    validate_model(probe(T.TENSOR_OEM_BYTE, (), scale=-3.0, zero_point=9), SIGNATURES)
    validate_model(constant(T.OEM, (), 3), SIGNATURES)


@pytest.mark.rule("P3", "accepts")
def test_extension_operations_and_oem_operation_take_any_operands() -> None:
    free = with_operation(adder(), 0, type=OP.OEM_OPERATION, inputs=(0,))
    validate_model(free, SIGNATURES)
    free = declared(with_operation(adder(), 0, type=EXTENSION, inputs=()), ("a.b", 3))
    validate_model(free, SIGNATURES)


def test_extension_constants_have_any_length() -> None:
    validate_model(declared(constant(EXTENSION, (2,), 5), ("a.b", 3)), SIGNATURES)


def test_operation_without_a_signature_is_not_checked_against_one() -> None:
    unknown_here = with_operation(adder(), 0, type=OP.MUL, inputs=(0,))
    validate_model(unknown_here, SIGNATURES)


@pytest.mark.parametrize(
    ("model", "level", "rule"),
    [
        (probe(T.TENSOR_BOOL8, (2,)), FeatureLevel.V1_2, "O1"),
        (probe(Q8S, (2,), scale=1.0), FeatureLevel.V1_3, "O1"),
        (probe(F32, ()), FeatureLevel.V1_2, "O3"),
        (extended(), FeatureLevel.V1_2, "O1"),
        pytest.param(brancher(), FeatureLevel.V1_3, "M8", marks=pytest.mark.rule("M8")),
        (with_operation(adder(), 0, type=OP.DIV), FeatureLevel.V1_1, "P1"),
        (with_operation(adder(), 0, type=OP.ABS), FeatureLevel.V1_2, "P1"),
        (with_operation(adder(), 0, type=OP.PACK), FeatureLevel.AIDL_V2, "P1"),
        (with_operation(adder(), 0, type=OP.REVERSE), FeatureLevel.AIDL_V3, "P1"),
        (adder(), FeatureLevel.V1_0, ""),
    ],
)
def test_feature_level_refuses_what_came_later(
    model: Model, level: FeatureLevel, rule: str
) -> None:
    validate_model(model, SIGNATURES, feature_level=level)
    if rule:
        with pytest.raises(InvalidArgument, match=f"^validation:{rule}: "):
            validate_model(model, SIGNATURES, feature_level=FeatureLevel(level - 1))


@pytest.mark.parametrize(
    ("last", "level"),
    [
        (OP.TANH, FeatureLevel.V1_0),
        (OP.TRANSPOSE, FeatureLevel.V1_1),
        (OP.RESIZE_NEAREST_NEIGHBOR, FeatureLevel.V1_2),
        (OP.RANK, FeatureLevel.V1_3),
        (OP.PACK, FeatureLevel.AIDL_V2),
    ],
)
def test_last_operation_of_a_version_is_old_enough_and_the_next_is_not(
    last: OperationType, level: FeatureLevel
) -> None:
    validate_model(with_operation(adder(), 0, type=last), {}, feature_level=level)
    with pytest.raises(InvalidArgument, match=r"^validation:P1: .* needs "):
        validate_model(with_operation(adder(), 0, type=last + 1), {}, feature_level=level)


def test_control_flow_is_checked_as_a_whole_and_not_by_a_signature() -> None:
    validate_model(brancher(), {**SIGNATURES, OP.IF: SIGNATURES[OP.ADD]})


def test_feature_level_counts_for_combinations_of_types() -> None:
    model = adder()
    for index in (0, 1, 3):
        model = with_operand(model, index, type=T.TENSOR_FLOAT16)
    model = with_operand(model, 1, location=DataLocation(length=4))
    validate_model(model, SIGNATURES, feature_level=FeatureLevel.V1_2)
    row = SIGNATURES[OP.ADD].rows[1]
    late = replace(SIGNATURES[OP.ADD], rows=(replace(row, since=FeatureLevel.V1_3),))
    with pytest.raises(
        InvalidArgument, match=r"^validation:P4: operation 0 of main: ADD: .* V1_3, after V1_2"
    ):
        validate_model(model, {OP.ADD: late}, feature_level=FeatureLevel.V1_2)


@pytest.mark.rule("P12")
@pytest.mark.parametrize(("build", "kind"), [(brancher, OP.IF), (looper, OP.WHILE)])
def test_unknown_sizes_in_control_flow_are_refused_only_on_request(
    build: Callable[..., Model], kind: OperationType
) -> None:
    other = OP.WHILE if kind == OP.IF else OP.IF
    validate_model(build(), SIGNATURES, known_sizes={OP.IF, OP.WHILE})
    for dimensions in ((0,), ()):
        validate_model(build(dimensions), SIGNATURES)
        validate_model(build(dimensions), SIGNATURES, known_sizes={other})
        with pytest.raises(
            InvalidArgument, match=f"^validation:P12: operation 0 of main: {kind.name}"
        ):
            validate_model(build(dimensions), SIGNATURES, known_sizes={kind})


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (branch_changed(dimensions=(0,)), OP.IF),
        (with_operand(brancher(), 2, graph=1, dimensions=()), OP.IF),
        (with_operand(looper(), 0, graph=0, dimensions=(0,)), OP.WHILE),
        (body_changed(dimensions=()), OP.WHILE),
        (body_changed(2, dimensions=(0,)), OP.WHILE),
    ],
)
def test_sizes_that_only_a_subgraph_leaves_unknown_count_too(
    model: Model, kind: OperationType
) -> None:
    validate_model(model, SIGNATURES)
    with pytest.raises(InvalidArgument, match=f"^validation:P12: operation 0 of main: {kind.name}"):
        validate_model(model, SIGNATURES, known_sizes={kind})


def test_operands_of_an_extension_have_no_size_that_control_flow_could_miss() -> None:
    operand = Operand(EXTENSION, (), lifetime=L.SUBGRAPH_INPUT)
    model = declared(quantized_branch(operand, operand), ("a.b", 3))
    validate_model(model, SIGNATURES, known_sizes={OP.IF})


@pytest.mark.rule("P13")
def test_referenced_subgraph_with_an_index_out_of_range_is_refused_not_an_abort() -> None:
    validate_model(brancher(), SIGNATURES)
    broken = with_graph(brancher(), 1, output_indexes=(99,))
    with pytest.raises(
        InvalidArgument, match=r"^validation:P9: referenced\[1\]: output 0 is operand 99 of 4"
    ):
        validate_model(broken, SIGNATURES)


def test_subgraph_that_nothing_uses_is_checked_too() -> None:
    unused = replace(adder(), referenced=(adder().main,))
    validate_model(unused, SIGNATURES)
    with pytest.raises(InvalidArgument, match=r"^validation:O1: operand 0 of referenced\[0\]"):
        validate_model(with_operand(unused, 0, graph=0, type=16), SIGNATURES)


def test_two_subgraphs_in_a_cycle_are_refused() -> None:
    model = nested(3)
    first, second, _ = model.referenced
    model = replace(model, referenced=(first, second, first))
    with pytest.raises(
        InvalidArgument, match=r"^validation:M5: model: subgraphs refer to each other"
    ):
        validate_model(model, SIGNATURES)


def test_subgraphs_may_nest_64_deep() -> None:
    assert MAX_SUBGRAPH_DEPTH == 64


def test_thousands_of_nested_subgraphs_are_refused_without_recursion() -> None:
    with pytest.raises(InvalidArgument, match=r"^validation:M5: model: subgraphs nest 3000 deep"):
        validate_model(nested(3000), SIGNATURES)


def test_omitted_operands_and_scalars_pass_through_control_flow() -> None:
    model = with_operand(brancher(), 3, lifetime=L.NO_VALUE)
    validate_model(with_graph(model, input_indexes=(0,)), SIGNATURES)


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_mutated_models_are_accepted_or_refused_by_a_rule(seed: int, changes: int) -> None:
    rng = random.Random(seed)
    model = rng.choice([adder, chain, brancher, looper])()
    for _ in range(changes):
        model = _mutated(model, rng)
    try:
        validate_model(model, SIGNATURES)
    except InvalidArgument as error:
        rule, where, _ = str(error).removeprefix("validation:").split(": ", 2)
        assert rule in PAIRS
        assert where.split(" ")[0] in {"operand", "operation", "main", "model"} or "[" in where


def _mutated(model: Model, rng: random.Random) -> Model:
    """One field of one operand, operation or index list set to something."""
    graph = rng.choice([None, *range(len(model.referenced))])
    subgraph = model.main if graph is None else model.referenced[graph]
    number = rng.choice([0, 1, 2, 3, 5, 16, 255, 2**31 - 1, 2**32 - 1, -1, 2**40])
    match rng.randrange(8):
        case 0:
            change = {"type": number}
        case 1:
            change = {"dimensions": tuple(rng.choice([0, 1, 2, number]) for _ in range(3))}
        case 2:
            change = {"scale": rng.choice([0.0, 0.5, -1.0, NAN, INF])}
        case 3:
            change = {"zero_point": number}
        case 4:
            change = {"lifetime": rng.choice(list(L))}
        case 5:
            fields = [rng.choice([0, number]) for _ in range(3)]
            change = {"location": DataLocation(*fields)}
        case 6:
            inputs = tuple(rng.choice([0, 1, number]) for _ in range(rng.randrange(4)))
            field = rng.choice(["inputs", "outputs"])
            changed = with_operation(model, 0, graph, **{field: inputs})
            return changed if rng.random() < 0.5 else recounted(changed, graph)
        case _:
            field = rng.choice(["input_indexes", "output_indexes"])
            return with_graph(model, graph, **{field: (rng.choice([0, 1, 3, number]),)})
    return with_operand(model, rng.randrange(len(subgraph.operands)), graph, **change)
