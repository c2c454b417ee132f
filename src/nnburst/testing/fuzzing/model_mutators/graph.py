"""VM1, VM2, VM10 and VM12 to VM17: operations and operands that do not fit together."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperationType
from nnburst.hal.model import (
    DataLocation,
    Model,
)
from nnburst.testing.fuzzing.model_mutators.counts import optional_input
from nnburst.testing.fuzzing.model_mutators.edit import (
    ModelMutation,
    Mutations,
    added,
    but,
    operand_at,
    recounted,
    with_main,
    with_operation,
)

_L = OperandLifeTime
_O = OperationType

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


#: Operations whose last outputs may be left out; WHILE gives as many as are asked for.
_VARYING_OUTPUTS: Final = frozenset(
    {
        _O.SPLIT, _O.WHILE, _O.UNIDIRECTIONAL_SEQUENCE_LSTM, _O.UNIDIRECTIONAL_SEQUENCE_RNN,
        _O.BIDIRECTIONAL_SEQUENCE_LSTM, _O.BIDIRECTIONAL_SEQUENCE_RNN,
    }
)  # fmt: skip


def removed_operands(model: Model) -> Mutations:
    """VM16: a used operand struck out everywhere. Larger indexes stay, as in the original."""
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
    """VM17: an operation struck out, its inputs no longer consumed."""
    operations = model.main.operations
    for n in range(len(operations)):
        rest = operations[:n] + operations[n + 1 :]
        yield ModelMutation(
            f"VM17 without operation {n}", recounted(with_main(model, operations=rest))
        )
