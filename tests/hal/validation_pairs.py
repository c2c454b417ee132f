"""Has pairs of models for each rule: one that it accepts, and a barely different one that it rejects."""

from __future__ import annotations

import math

from msgspec.structs import replace

from hal.validation_models import (
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
from nnburst.hal.enums import OperationType
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
from nnburst.hal.validation.model import MAX_SUBGRAPH_DEPTH

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


def branch_changed(**changes: object) -> Model:
    return with_operand(brancher(), 0, graph=0, **changes)


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


def pair_looper(body_inputs: int = 2, results: int = 2, outputs: int = 2) -> Model:
    """A WHILE over two values of [2], whose body takes, and gives, two or another number."""
    builder = ModelBuilder()
    condition, graph = builder.add_subgraph()
    taken = [graph.input(F32, (2,)) for _ in range(2)]
    graph.operation(OP.LESS, [*taken, *taken], [graph.output(T.TENSOR_BOOL8, (1,))])
    body, graph = builder.add_subgraph()
    taken = [graph.input(F32, (2,)) for _ in range(body_inputs)]
    for _ in range(results):
        graph.operation(OP.MUL, taken, [graph.output(F32, (2,))])
    values = [builder.subgraph(condition), builder.subgraph(body)]
    values += [builder.input(F32, (2,)) for _ in range(2)]
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
