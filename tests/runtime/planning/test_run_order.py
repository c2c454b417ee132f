"""Run order and finishing (RT:M9 to M12, T6)."""

from __future__ import annotations

from struct import pack

import numpy as np
import pytest
from msgspec.structs import replace

from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import DataLocation, MemoryPool, Model, Operation, Subgraph
from nnburst.hal.model_builder import ModelBuilder
from nnburst.runtime.planning.finished_model import finish
from nnburst.runtime.planning.slices import hal_model
from runtime.planning.plans import ADD, EXP, F32, branches, chain

_O = OperationType
_T = OperandType


def reordered(model: Model, order: tuple[int, ...]) -> Model:
    main = model.main
    operations = tuple(main.operations[n] for n in order)
    return replace(
        model, main=Subgraph(main.operands, operations, main.input_indexes, main.output_indexes)
    )


def diamond() -> Model:
    """Operation 0 feeds 1 and 2, which feed 3; and 4 stands alone."""
    builder = ModelBuilder()
    x = builder.input(F32, (2,))
    a, b, c = (builder.temporary(F32, (2,)) for _ in range(3))
    y, z = builder.output(F32, (2,)), builder.output(F32, (2,))
    none = builder.scalar(0)
    builder.operation(EXP, [x], [a])
    builder.operation(EXP, [a], [b])
    builder.operation(EXP, [a], [c])
    builder.operation(ADD, [b, c, none], [y])
    builder.operation(EXP, [x], [z])
    return builder.build()


def test_ready_operations_lie_on_a_stack() -> None:
    assert finish(diamond()).run_orders == ((4, 0, 2, 1, 3),)


def test_order_of_adding_is_free_and_mapped_back() -> None:
    source = finish(reordered(diamond(), (3, 4, 2, 1, 0)))
    kinds = [operation.outputs for operation in source.model.main.operations]
    assert kinds == [diamond().main.operations[n].outputs for n in (0, 1, 2, 3, 4)]
    assert source.run_orders == ((4, 3, 2, 0, 1),)


def test_operand_that_is_read_twice_is_waited_for_twice() -> None:
    source = finish(reordered(chain(EXP, ADD), (1, 0)))
    assert source.run_orders == ((1, 0),)


def test_referenced_models_have_run_orders_of_their_own() -> None:
    assert finish(branches()).run_orders == ((0, 1), (0,), (0,))


def cycle() -> Model:
    model = chain(EXP, EXP, EXP)
    first, second, third = model.main.operations
    looped = Operation(first.type, second.outputs, first.outputs)
    return replace(model, main=replace(model.main, operations=(looped, second, third)))


def unwritten() -> Model:
    model = chain(EXP, EXP)
    return replace(model, main=replace(model.main, operations=model.main.operations[1:]))


def written_twice() -> Model:
    model = chain(EXP, EXP)
    first, second = model.main.operations
    return replace(model, main=replace(model.main, operations=(first, first, second)))


def without_operations() -> Model:
    model = chain(EXP)
    return replace(model, main=replace(model.main, operations=()))


def of_missing_operand() -> Model:
    model = chain(EXP)
    return replace(model, main=replace(model.main, operations=(Operation(EXP, (9,), (1,)),)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cycle, "operations: number 0 can never run"),
        (unwritten, "operations: number 0 can never run"),
        (written_twice, "P7"),
        (without_operations, "M1"),
        (of_missing_operand, "P2: operation 0: operand 9 of"),
    ],
)
def test_model_without_an_order_is_bad_data(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidArgument, match=message) as caught:
        finish(make())
    assert caught.value.code.name == "BAD_DATA"


def test_model_newer_than_the_runtime_is_bad_data() -> None:
    with pytest.raises(InvalidArgument, match="the model is of V1_1"):
        finish(chain(EXP), feature_level=FeatureLevel.V1_1)


def test_one_flag_for_each_subgraph_is_asked_for() -> None:
    with pytest.raises(InvalidArgument, match="relaxed: 1 flags for 3 subgraphs"):
        finish(branches(), relaxed=[True])
    assert finish(branches(), relaxed=[True, False, True]).relaxed == (True, False, True)


#: Operation, all its inputs as (type, value or dimensions), and how many inputs stay.
_IMAGE = (F32, (1, 4, 4, 2))
_FILTER = (F32, (2, 1, 1, 2))
_BIAS = (F32, (2,))
_I, _B, _F = _T.INT32, _T.BOOL, _T.FLOAT32
_CONV = [_IMAGE, _FILTER, _BIAS]
_EXPLICIT = [(_I, 0)] * 4 + [(_I, 1)] * 2 + [(_I, 0)]
_IMPLICIT = [(_I, 1), (_I, 1), (_I, 1), (_I, 0)]
_POOL_EXPLICIT = [_IMAGE, *[(_I, 0)] * 4, *[(_I, 1)] * 4, (_I, 0)]
_POOL_IMPLICIT = [_IMAGE, (_I, 1), *[(_I, 1)] * 4, (_I, 0)]
_TRAILING = [
    (_O.AVERAGE_POOL_2D, [*_POOL_EXPLICIT, (_B, 0)], 10),
    (_O.AVERAGE_POOL_2D, [*_POOL_EXPLICIT, (_B, 1)], 11),
    (_O.MAX_POOL_2D, [*_POOL_IMPLICIT, (_B, 0)], 7),
    (_O.L2_POOL_2D, [*_POOL_IMPLICIT, (_B, 1)], 8),
    (_O.CONV_2D, [*_CONV, *_EXPLICIT, (_B, 0), (_I, 1), (_I, 1)], 10),
    (_O.CONV_2D, [*_CONV, *_EXPLICIT, (_B, 1), (_I, 1), (_I, 1)], 11),
    (_O.CONV_2D, [*_CONV, *_EXPLICIT, (_B, 0), (_I, 2), (_I, 1)], 13),
    (_O.CONV_2D, [*_CONV, *_EXPLICIT, (_B, 0), (_I, 1), (_I, 2)], 13),
    (_O.CONV_2D, [*_CONV, *_EXPLICIT, (_B, 0)], 10),
    (_O.CONV_2D, [*_CONV, *_EXPLICIT], 10),
    (_O.CONV_2D, [*_CONV, *_IMPLICIT, (_B, 0), (_I, 1), (_I, 1)], 7),
    (_O.CONV_2D, [*_CONV, *_IMPLICIT, (_B, 0), (_I, 2), (_I, 1)], 10),
    (_O.CONV_2D, [*_CONV, *_IMPLICIT, (_B, 1), (_I, 1), (_I, 1)], 8),
    (_O.DEPTH_TO_SPACE, [(F32, (1, 2, 2, 4)), (_I, 2), (_B, 0)], 2),
    (_O.SPACE_TO_DEPTH, [_IMAGE, (_I, 2), (_B, 1)], 3),
    (_O.L2_NORMALIZATION, [_IMAGE, (_I, -1)], 1),
    (_O.L2_NORMALIZATION, [_IMAGE, (_I, 3)], 2),
    (_O.SOFTMAX, [_IMAGE, (_F, 1.0), (_I, -1)], 2),
    (
        _O.LOCAL_RESPONSE_NORMALIZATION,
        [_IMAGE, (_I, 1), (_F, 1.0), (_F, 1.0), (_F, 0.5), (_I, -1)],
        5,
    ),
    (_O.RESIZE_BILINEAR, [_IMAGE, (_I, 2), (_I, 2), (_B, 0), (_B, 0), (_B, 0)], 3),
    (_O.RESIZE_BILINEAR, [_IMAGE, (_I, 2), (_I, 2), (_B, 0), (_B, 1), (_B, 0)], 5),
    (_O.RESIZE_NEAREST_NEIGHBOR, [_IMAGE, (_I, 2), (_I, 2), (_B, 0), (_B, 0), (_B, 0)], 4),
    (_O.RESIZE_NEAREST_NEIGHBOR, [_IMAGE, (_I, 2), (_I, 2), (_B, 0), (_B, 1), (_B, 0)], 5),
]


def single(kind: int, inputs: list[tuple[OperandType, object]]) -> Model:
    builder = ModelBuilder()
    indexes = [
        builder.input(code, value) if isinstance(value, tuple) else builder.scalar(value, code)  # type: ignore[arg-type]
        for code, value in inputs
    ]
    builder.operation(kind, indexes, [builder.output(F32, (0, 0, 0, 0))])
    return builder.build()


@pytest.mark.parametrize(("kind", "inputs", "kept"), _TRAILING)
def test_trailing_arguments_that_say_the_default_go(
    kind: int, inputs: list[tuple[OperandType, object]], kept: int
) -> None:
    source = finish(single(kind, inputs))
    assert len(source.model.main.operations[0].inputs) == kept
    model, _ = hal_model(source)
    assert len(model.main.operands) == kept + 1
    assert len(source.model.main.operands) == len(inputs) + 1


def test_trailing_block_arguments_go() -> None:
    for kind, extra in ((_O.BATCH_TO_SPACE_ND, 0), (_O.SPACE_TO_BATCH_ND, 1)):
        builder = ModelBuilder()
        inputs = [builder.input(F32, (4, 4, 4, 2)), builder.constant(_T.TENSOR_INT32, [2, 2])]
        inputs += [builder.constant(_T.TENSOR_INT32, np.zeros((2, 2), np.int32))] * extra
        inputs.append(builder.scalar(False))
        builder.operation(kind, inputs, [builder.output(F32, (0, 0, 0, 0))])
        finished = finish(builder.build()).model.main.operations[0]
        assert len(finished.inputs) == len(inputs) - 1


def test_default_in_memory_stays() -> None:
    model = single(_O.SOFTMAX, [_IMAGE, (_F, 1.0), (_I, -1)])
    operands = list(model.main.operands)
    operands[2] = replace(
        operands[2],
        lifetime=OperandLifeTime.CONSTANT_REFERENCE,
        location=DataLocation(0, 0, len(pack("<i", -1))),
    )
    moved = replace(
        model, main=replace(model.main, operands=tuple(operands)), pools=(MemoryPool(16),)
    )
    assert len(finish(moved).model.main.operations[0].inputs) == 3


def test_architecture_hash_depends_on_shape_and_wiring_but_not_on_weights() -> None:
    def with_weight(value: float, dims: int = 2) -> bytes:
        builder = ModelBuilder()
        x, y = builder.input(F32, (dims,)), builder.output(F32, (dims,))
        weight = builder.constant(F32, [value] * dims)
        builder.operation(ADD, [x, weight, builder.scalar(0)], [y])
        return finish(builder.build()).architecture_hash

    assert with_weight(1) == with_weight(2)
    assert with_weight(1) != with_weight(1, dims=3)
    assert len(with_weight(1)) == 32
    assert finish(chain(EXP, ADD)).architecture_hash != finish(chain(ADD, EXP)).architecture_hash


def test_architecture_hash_is_taken_before_trailing_arguments_go() -> None:
    short, long = (
        finish(single(_O.SOFTMAX, [_IMAGE, (_F, 1.0), *rest])) for rest in ([], [(_I, -1)])
    )
    assert short.architecture_hash != long.architecture_hash
