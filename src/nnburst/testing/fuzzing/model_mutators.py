"""Makes invalid models out of valid ones, one broken rule at a time (validation:VM1 to VM21).

Every generator takes a valid model and yields changed copies of its main subgraph, each of which
a driver must refuse with INVALID_ARGUMENT; `suite_mutations` also changes the other subgraphs.
NNAPI: ValidateModel.cpp, with its exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import (
    SCALARS,
    DataLocation,
    Model,
    Operand,
    Operation,
    SymmPerChannelQuantParams,
    size_bytes,
)

_L = OperandLifeTime


class ModelMutation(NamedTuple):
    """A mutated model and, for reports, which mutation made it."""

    description: str
    model: Model


Mutations = Iterator[ModelMutation]


def listed(model: Model, index: int, lifetime: OperandLifeTime) -> Model:
    """List operand `index` among the inputs or outputs, as its lifetime demands, and nowhere else."""
    inputs = tuple(i for i in model.main.input_indexes if i != index)
    outputs = tuple(i for i in model.main.output_indexes if i != index)
    if lifetime == _L.SUBGRAPH_INPUT:
        inputs += (index,)
    if lifetime == _L.SUBGRAPH_OUTPUT:
        outputs += (index,)
    return with_main(model, input_indexes=inputs, output_indexes=outputs)


def operand_at(model: Model, index: int) -> Operand:
    """An operand of main."""
    return model.main.operands[index]


def with_main(model: Model, **changes: object) -> Model:
    """Replace fields of the model's main subgraph."""
    return replace(model, main=replace(model.main, **changes))


def with_operand(model: Model, index: int, operand: Operand) -> Model:
    """Replace the operand at `index`."""
    operands = model.main.operands
    return with_main(model, operands=(*operands[:index], operand, *operands[index + 1 :]))


def change(rule: str, model: Model, index: int, **changes: object) -> ModelMutation:
    """Make a mutation that replaces fields of one operand."""
    return ModelMutation(
        f"{rule} operand {index}: {changes}",
        with_operand(model, index, replace(operand_at(model, index), **changes)),
    )


def with_operation(model: Model, number: int, operation: Operation) -> Model:
    """Replace operation `number`."""
    operations = model.main.operations
    return with_main(model, operations=(*operations[:number], operation, *operations[number + 1 :]))


def added(model: Model, operand: Operand) -> tuple[Model, int]:
    """Add an operand, listed by its lifetime; returns the model and the operand's index."""
    index = len(model.main.operands)
    grown = with_main(model, operands=(*model.main.operands, operand))
    return listed(grown, index, operand.lifetime), index


def but(indexes: tuple[int, ...], removed: int) -> tuple[int, ...]:
    """The indexes without one of them."""
    return tuple(i for i in indexes if i != removed)


def recounted(model: Model) -> Model:
    """Count the consumers of every operand again."""
    uses = [0] * len(model.main.operands)
    for operation in model.main.operations:
        for index in operation.inputs:
            uses[index] += 1
    return with_main(
        model,
        operands=tuple(
            replace(o, number_of_consumers=n)
            for o, n in zip(model.main.operands, uses, strict=True)
        ),
    )


# -- Numbers of operands ---------------------------------------------------------------------------


_T = OperandType
_O = OperationType


def operand_counts(model: Model) -> Mutations:
    """VM18 to VM21: an operation with one input or output less or more."""
    for n, operation in enumerate(model.main.operations):
        for position in range(len(operation.inputs)):
            if not optional_input(operation, position):
                inputs = operation.inputs[:position] + operation.inputs[position + 1 :]
                changed = with_operation(model, n, replace(operation, inputs=inputs))
                yield ModelMutation(f"VM18 operation {n}, input {position}", recounted(changed))
        for position in range(len(operation.outputs)):
            outputs = operation.outputs[:position] + operation.outputs[position + 1 :]
            changed = with_operation(model, n, replace(operation, outputs=outputs))
            yield ModelMutation(f"VM19 operation {n}, output {position}", changed)
        extra = Operand(_T.INT32, lifetime=_L.SUBGRAPH_INPUT)
        if not _takes_more(operation):
            mutated, new = added(model, extra)
            changed = with_operation(
                mutated, n, replace(operation, inputs=(*operation.inputs, new))
            )
            yield ModelMutation(f"VM20 operation {n}", recounted(changed))
        mutated, new = added(model, replace(extra, lifetime=_L.SUBGRAPH_OUTPUT))
        outputs = (*operation.outputs, new)
        changed = with_operation(mutated, n, replace(operation, outputs=outputs))
        yield ModelMutation(f"VM21 operation {n}", changed)


#: (operation, number of inputs, position) of inputs that may be omitted.
_OPTIONAL: Final = frozenset(
    {
        *((kind, *at) for kind in (_O.CONV_2D, _O.AVERAGE_POOL_2D, _O.MAX_POOL_2D, _O.L2_POOL_2D)
          for at in ((11, 10), (8, 7))),
        (_O.DEPTHWISE_CONV_2D, 12, 11),
        (_O.DEPTHWISE_CONV_2D, 9, 8),
        *((kind, 3, 2) for kind in (_O.SPACE_TO_DEPTH, _O.DEPTH_TO_SPACE, _O.BATCH_TO_SPACE_ND)),
        (_O.SPACE_TO_BATCH_ND, 4, 3),
        (_O.L2_NORMALIZATION, 2, 1),
        (_O.LOCAL_RESPONSE_NORMALIZATION, 6, 5),
        (_O.SOFTMAX, 3, 2),
    }
)  # fmt: skip
_MORE: Final = frozenset(
    {(_O.L2_NORMALIZATION, 1), (_O.LOCAL_RESPONSE_NORMALIZATION, 5), (_O.SOFTMAX, 2)}
)


def optional_input(operation: Operation, position: int) -> bool:
    """Whether the operation is valid without its input at `position`, too."""
    count = len(operation.inputs)
    match operation.type:
        case _O.CONCATENATION:
            return count > 2 and position < count - 1
        case _O.PACK:
            return count > 2 and position > 0
        case _O.RESIZE_BILINEAR:
            return count >= 4 and position >= 3
        case _O.RESIZE_NEAREST_NEIGHBOR:
            return count >= 5 and position >= 3
    return (operation.type, count, position) in _OPTIONAL


def _takes_more(operation: Operation) -> bool:
    count = len(operation.inputs)
    resizes = operation.type in (_O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR)
    return (operation.type, count) in _MORE or (resizes and count < 6)


# -- The graph: order, indexes, inputs and outputs -------------------------------------------------


_TEMPORARIES: Final = frozenset({_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_OUTPUT})


def execution_order(model: Model) -> Mutations:
    """VM1 and VM2: a reader before its writer, a writer after its readers."""
    operations = model.main.operations
    for n, operation in enumerate(operations):
        rest = operations[:n] + operations[n + 1 :]
        if any(operand_at(model, i).lifetime in _TEMPORARIES for i in operation.inputs):
            yield ModelMutation(
                f"VM1 operation {n} first", with_main(model, operations=(operation, *rest))
            )
        if any(operand_at(model, i).number_of_consumers for i in operation.outputs):
            yield ModelMutation(
                f"VM2 operation {n} last", with_main(model, operations=(*rest, operation))
            )


def writers(model: Model) -> Mutations:
    """VM10 and VM15: an output written twice, an output that is read and never written."""
    for n, operation in enumerate(model.main.operations):
        for position, index in enumerate(operation.outputs):
            yield ModelMutation(
                f"VM10 operation {n} again, output {position}", _second_writer(model, n, position)
            )
            if operand_at(model, index).number_of_consumers:
                mutated, new = added(model, replace(operand_at(model, index), **_UNUSED))
                outputs = (*operation.outputs[:position], new, *operation.outputs[position + 1 :])
                yield ModelMutation(
                    f"VM15 operation {n}, output {position}",
                    with_operation(mutated, n, replace(operation, outputs=outputs)),
                )


_UNUSED: Final[dict[str, Any]] = {
    "number_of_consumers": 0,
    "lifetime": _L.TEMPORARY_VARIABLE,
    "location": DataLocation(),
}


def _second_writer(model: Model, number: int, kept: int) -> Model:
    """A copy of an operation at the end that shares one output and has new ones otherwise."""
    operation = model.main.operations[number]
    outputs = []
    for position, index in enumerate(operation.outputs):
        if position == kept:
            outputs.append(index)
        else:
            model, new = added(model, replace(operand_at(model, index), **_UNUSED))
            outputs.append(new)
    copy = replace(operation, outputs=tuple(outputs))
    return recounted(with_main(model, operations=(*model.main.operations, copy)))


def operation_types(model: Model) -> Mutations:
    """VM12: operations that do not exist."""
    for n, operation in enumerate(model.main.operations):
        for code in (106, 9999, 10001):
            yield ModelMutation(
                f"VM12 operation {n} as {code}",
                with_operation(model, n, replace(operation, type=code)),
            )


def operation_indexes(model: Model) -> Mutations:
    """VM13 and VM14: operands that do not exist."""
    count = len(model.main.operands)
    for n, operation in enumerate(model.main.operations):
        for field, rule in (("inputs", "VM13"), ("outputs", "VM14")):
            indexes: tuple[int, ...] = getattr(operation, field)
            for position in range(len(indexes)):
                changed = (*indexes[:position], count, *indexes[position + 1 :])
                yield ModelMutation(
                    f"{rule} operation {n}, {field} {position}",
                    with_operation(model, n, replace(operation, **{field: changed})),
                )


#: Operations whose last outputs may be omitted; WHILE has any number of outputs.
_VARYING_OUTPUTS: Final = frozenset(
    {
        _O.SPLIT, _O.WHILE, _O.UNIDIRECTIONAL_SEQUENCE_LSTM, _O.UNIDIRECTIONAL_SEQUENCE_RNN,
        _O.BIDIRECTIONAL_SEQUENCE_LSTM, _O.BIDIRECTIONAL_SEQUENCE_RNN,
    }
)  # fmt: skip


def removed_operands(model: Model) -> Mutations:
    """VM16: a used operand removed everywhere. Larger indexes stay, as in the original."""
    for index in range(len(model.main.operands)):
        users = [o for o in model.main.operations if index in (*o.inputs, *o.outputs)]
        if not users or any(o.type in _VARYING_OUTPUTS and index in o.outputs for o in users):
            continue
        if any(optional_input(o, p) for o in users for p, i in enumerate(o.inputs) if i == index):
            continue
        operands = model.main.operands
        changed = with_main(
            model,
            operands=operands[:index] + operands[index + 1 :],
            operations=tuple(
                replace(o, inputs=but(o.inputs, index), outputs=but(o.outputs, index))
                for o in model.main.operations
            ),
            input_indexes=but(model.main.input_indexes, index),
            output_indexes=but(model.main.output_indexes, index),
        )
        yield ModelMutation(f"VM16 without operand {index}", changed)


def removed_operations(model: Model) -> Mutations:
    """VM17: an operation removed, whose inputs are no longer consumed."""
    operations = model.main.operations
    for n in range(len(operations)):
        rest = operations[:n] + operations[n + 1 :]
        yield ModelMutation(
            f"VM17 without operation {n}", recounted(with_main(model, operations=rest))
        )


# -- Operands --------------------------------------------------------------------------------------


def operand_types(model: Model) -> Mutations:
    """VM3: types that do not exist."""
    for index, _ in enumerate(model.main.operands):
        for code in (-1, 16, 9999, 10002):
            yield change("VM3", model, index, type=code)


def ranks(model: Model) -> Mutations:
    """VM4: scalars with a dimension."""
    for index, operand in enumerate(model.main.operands):
        if operand.type in SCALARS - {_T.SUBGRAPH, _T.OEM}:
            yield change("VM4", model, index, dimensions=(0,))


_SCALES: Final = {
    _T.TENSOR_INT32: -1.0,
    **dict.fromkeys(
        (
            _T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED, _T.TENSOR_QUANT8_SYMM,
            _T.TENSOR_QUANT16_ASYMM, _T.TENSOR_QUANT16_SYMM,
        ),
        0.0,
    ),
}  # fmt: skip
_ZERO_POINTS: Final = {
    _T.TENSOR_QUANT8_ASYMM: (-1, 256),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: (-129, 128),
    _T.TENSOR_QUANT8_SYMM: (-129, -1, 1, 128),
    _T.TENSOR_QUANT16_ASYMM: (-1, 65536),
    _T.TENSOR_QUANT16_SYMM: (-32769, -1, 1, 32768),
}


def quantization(model: Model) -> Mutations:
    """VM5 and VM6: scales and zero points that the type forbids."""
    for index, operand in enumerate(model.main.operands):
        if operand.type in (_T.OEM, _T.TENSOR_OEM_BYTE):
            continue
        kind = _T(operand.type)
        yield change("VM5", model, index, scale=_SCALES.get(kind, 1.0))
        for zero_point in _ZERO_POINTS.get(kind, (1,)):
            yield change("VM6", model, index, zero_point=zero_point)


def lifetimes(model: Model) -> Mutations:
    """VM7 and VM8: lifetimes that the graph contradicts, with and without the index lists."""
    for index, operand in enumerate(model.main.operands):
        for lifetime in _wrong_lifetimes(model, operand):
            changed = _relocated(operand, lifetime)
            mutated = with_operand(model, index, changed)
            yield ModelMutation(
                f"VM7 operand {index} as {lifetime.name}", listed(mutated, index, lifetime)
            )
        unlisted = {
            _L.CONSTANT_COPY: _L.SUBGRAPH_INPUT,
            _L.CONSTANT_REFERENCE: _L.SUBGRAPH_INPUT,
            _L.SUBGRAPH_INPUT: _L.CONSTANT_COPY,
            _L.SUBGRAPH_OUTPUT: _L.TEMPORARY_VARIABLE,
            _L.TEMPORARY_VARIABLE: _L.SUBGRAPH_OUTPUT,
        }.get(operand.lifetime)
        if unlisted is not None and (unlisted != _L.CONSTANT_COPY or _fits(model, operand)):
            changed = _relocated(operand, unlisted)
            yield ModelMutation(
                f"VM8 operand {index} as {unlisted.name}", with_operand(model, index, changed)
            )


def _wrong_lifetimes(model: Model, operand: Operand) -> list[OperandLifeTime]:
    if operand.lifetime in _TEMPORARIES:
        return [_L.SUBGRAPH_INPUT] + [_L.CONSTANT_COPY] * _fits(model, operand)
    if operand.is_constant or operand.lifetime == _L.SUBGRAPH_INPUT:
        return [_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_OUTPUT]
    return []


def _fits(model: Model, operand: Operand) -> bool:
    return 0 < size_bytes(_T(operand.type), operand.dimensions) <= len(model.operand_values)


def _relocated(operand: Operand, lifetime: OperandLifeTime) -> Operand:
    length = size_bytes(_T(operand.type), operand.dimensions)
    location = DataLocation(length=length if lifetime == _L.CONSTANT_COPY else 0)
    return replace(operand, lifetime=lifetime, location=location)


def consumers(model: Model) -> Mutations:
    """VM9: one consumer more or less."""
    for index, operand in enumerate(model.main.operands):
        count = operand.number_of_consumers
        for wrong in (count - 1, count + 1) if count else (1,):
            yield change("VM9", model, index, number_of_consumers=wrong)


# -- Operand types ---------------------------------------------------------------------------------


#: Quantised types; the others have scale 0.
_SCALED: Final = frozenset({
    _T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED, _T.TENSOR_QUANT8_SYMM,
    _T.TENSOR_QUANT16_ASYMM, _T.TENSOR_QUANT16_SYMM,
})  # fmt: skip


def operand_retypes(model: Model) -> Mutations:
    """VM11: a used operand gets every other type that the operations do not accept."""
    for index, operand in enumerate(model.main.operands):
        users = [o for o in model.main.operations if index in (*o.inputs, *o.outputs)]
        for kind in _T:
            if kind in (operand.type, _T.OEM, _T.TENSOR_OEM_BYTE) or not users:
                continue
            if not any(_takes_either(operation, index, kind) for operation in users):
                changed = with_operand(model, index, _retyped(operand, kind))
                yield ModelMutation(f"VM11 operand {index} as {kind.name}", changed)


_CASTABLE: Final = frozenset(
    {
        _T.TENSOR_FLOAT16, _T.TENSOR_FLOAT32, _T.TENSOR_INT32, _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
    }
)  # fmt: skip
_FLOATS: Final = frozenset({_T.TENSOR_FLOAT16, _T.TENSOR_FLOAT32})
_BYTES: Final = frozenset({_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED})
_PER_CHANNEL: Final = _T.TENSOR_QUANT8_SYMM_PER_CHANNEL
_FILTERS: Final = _BYTES | {_PER_CHANNEL}
_ANY_TENSOR: Final = frozenset(kind for kind in _T if kind not in SCALARS)
#: (operation, "inputs" or "outputs", position) -> other types that the operation accepts there; position -1
#: is any.
_ALTERNATIVES: Final = {
    (_O.LSH_PROJECTION, "inputs", 1): _ANY_TENSOR,
    (_O.RANK, "inputs", 0): _ANY_TENSOR,
    (_O.QUANTIZE, "inputs", 0): _FLOATS,
    (_O.QUANTIZE, "outputs", 0): _BYTES,
    (_O.DEQUANTIZE, "inputs", 0): _BYTES | {_T.TENSOR_QUANT8_SYMM, _PER_CHANNEL},
    (_O.DEQUANTIZE, "outputs", 0): _FLOATS,
    (_O.RANDOM_MULTINOMIAL, "inputs", 0): _FLOATS,
    (_O.AXIS_ALIGNED_BBOX_TRANSFORM, "inputs", 1): _BYTES,
    **{
        (kind, "inputs", 1): _FILTERS
        for kind in (
            _O.CONV_2D, _O.DEPTHWISE_CONV_2D, _O.GROUPED_CONV_2D, _O.TRANSPOSE_CONV_2D,
        )
    },
    **{
        (kind, field, -1): _CASTABLE
        for kind in (_O.CAST, _O.ARGMAX, _O.ARGMIN)
        for field in ("inputs", "outputs")
    },
}  # fmt: skip


def _takes_either(operation: Operation, index: int, kind: OperandType) -> bool:
    for (code, field, position), kinds in _ALTERNATIVES.items():
        indexes: tuple[int, ...] = getattr(operation, field)
        at = indexes if position < 0 else indexes[position : position + 1]
        if operation.type == code and kind in kinds and index in at:
            return True
    return False


def _retyped(operand: Operand, kind: OperandType) -> Operand:
    """The operand with another type, and with dimensions and quantisation that this type allows."""
    dimensions = () if kind in SCALARS else operand.dimensions or (1,)
    params = None
    if kind == _PER_CHANNEL:
        dimensions = (dimensions[0] or 1, *dimensions[1:])
        params = SymmPerChannelQuantParams((1.0,) * dimensions[0], 0)
    return replace(
        operand,
        type=int(kind),
        dimensions=dimensions,
        scale=1.0 if kind in _SCALED else 0.0,
        zero_point=0,
        extra_params=params,
    )


# -- All mutations ---------------------------------------------------------------------------------


__all__ = ["suite_mutations", "ALL", "ModelMutation", "Mutations"]

ALL: Final[Sequence[Callable[[Model], Mutations]]] = (
    execution_order,
    operand_types,
    ranks,
    quantization,
    lifetimes,
    consumers,
    writers,
    operand_retypes,
    operation_types,
    operation_indexes,
    removed_operands,
    removed_operations,
    operand_counts,
)


def suite_mutations(model: Model) -> Mutations:
    """VM1 to VM21 on the main subgraph, and on every other one (the original leaves those alone)."""
    for mutate in ALL:
        yield from mutate(model)
    for number, graph in enumerate(model.referenced):
        before, after = model.referenced[:number], model.referenced[number + 1 :]
        for mutate in ALL:
            for description, mutated in mutate(replace(model, main=graph)):
                referenced = (*before, mutated.main, *after)
                yield ModelMutation(
                    f"{description}, in referenced[{number}]", replace(model, referenced=referenced)
                )
