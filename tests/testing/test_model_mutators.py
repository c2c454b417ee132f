"""The suite's mutations of models: all are refused, for hand-made models and the suite's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.signature import Signature
from nnburst.hal.validation import validate_model
from nnburst.testing.conformance import vectors
from nnburst.testing.conformance.campaign import find_files
from nnburst.testing.fuzzing.model_mutators import ALL, ModelMutation, suite_mutations
from testing.some_vectors import some_files

T = OperandType
O = OperationType  # noqa: E741
SIGNATURES: Mapping[OperationType, Signature] = {
    kind: definition.signature for kind, definition in REGISTRY.items()
}


def network() -> Model:
    """Two quantised additions and a SOFTMAX."""
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 3)
    y = builder.constant(T.TENSOR_QUANT8_ASYMM, [[1, 2, 3, 4]], 0.5, 3)
    act = builder.scalar(0)
    between = [builder.temporary(T.TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 3) for _ in range(2)]
    out = builder.output(T.TENSOR_QUANT8_ASYMM, (1, 4), 1 / 256)
    builder.operation(O.ADD, [x, y, act], [between[0]])
    builder.operation(O.ADD, [between[0], y, act], [between[1]])
    builder.operation(O.SOFTMAX, [between[1], builder.scalar(1.0)], [out])
    return builder.build()


def accepted(model: Model) -> Iterator[str]:
    """Descriptions of the mutations that validation lets through."""
    for mutation in suite_mutations(model):
        try:
            validate_model(mutation.model, SIGNATURES)
        except InvalidArgument:
            continue
        yield mutation.description


def test_every_mutation_of_a_network_is_refused() -> None:
    validate_model(network(), SIGNATURES)
    assert list(accepted(network())) == []


def test_every_kind_of_mutation_is_made() -> None:
    made = Counter(m.description.split()[0] for m in suite_mutations(network()))
    assert set(made) == {f"VM{n}" for n in range(1, 22)}
    assert made["VM3"] == 4 * len(network().main.operands)
    assert made["VM9"] == 2 * 6 + 1  # six operands are read, the output is not
    assert made["VM13"] == 3 + 3 + 2


@pytest.mark.parametrize("mutate", ALL)
def test_mutations_leave_the_model_alone_and_differ_from_it(mutate: object) -> None:
    model = network()
    for mutation in mutate(model):  # type: ignore[operator]
        assert isinstance(mutation, ModelMutation)
        assert mutation.model != model
    assert model == network()


@pytest.mark.parametrize(
    ("kind", "inputs", "skipped"),
    [
        (O.CONCATENATION, 3, {0, 1}),
        (O.CONCATENATION, 2, set()),
        (O.CONV_2D, 11, {10}),
        (O.CONV_2D, 8, {7}),
        (O.DEPTHWISE_CONV_2D, 9, {8}),
        (O.RESIZE_BILINEAR, 6, {3, 4, 5}),
        (O.SPACE_TO_BATCH_ND, 4, {3}),
        (O.SOFTMAX, 3, {2}),
        (O.SOFTMAX, 2, set()),
    ],
)
def test_inputs_that_may_be_left_out_are_not_removed(
    kind: OperationType, inputs: int, skipped: set[int]
) -> None:
    builder = ModelBuilder()
    given = [builder.input(T.TENSOR_FLOAT32, (1,)) for _ in range(inputs)]
    builder.operation(kind, given, [builder.output(T.TENSOR_FLOAT32, (1,))])
    removed = {
        int(m.description.split()[-1])
        for m in suite_mutations(builder.build())
        if m.description.startswith("VM18")
    }
    assert removed == set(range(inputs)) - skipped


@pytest.mark.shared
def test_every_mutation_of_one_vector_of_some_operations_is_refused(shared_dir: Path) -> None:
    assert refuse_every_mutation(some_files(shared_dir)) > 10


@pytest.mark.shared
@pytest.mark.campaign
def test_every_mutation_of_one_vector_of_each_operation_is_refused(shared_dir: Path) -> None:
    assert refuse_every_mutation(find_files([shared_dir / "vectors"])) > 100


def refuse_every_mutation(files: Sequence[Path]) -> int:
    """All of one vector of each operation in the files; how many operations those have."""
    seen: set[int] = set()
    for path in files:
        for vector in vectors.read(path):
            model = vectors.build(vector).model
            kinds = {o.type for o in model.main.operations}
            small = len(model.operand_values) <= 32768 and len(model.main.operands) < 70
            if vector.expect_failure or not small or kinds <= seen:
                continue
            seen |= kinds
            validate_model(model, SIGNATURES)
            assert list(accepted(model)) == [], vector.name
    return len(seen)


def accept_all_that_must_run(files: Sequence[Path]) -> int:
    """The number of vectors of the files that must run; each is accepted."""
    count = 0
    for path in files:
        for vector in vectors.read(path):
            if not vector.expect_failure:
                validate_model(vectors.build(vector).model, SIGNATURES)
                count += 1
    return count


@pytest.mark.shared
def test_some_vectors_that_must_run_are_not_refused(shared_dir: Path) -> None:
    assert accept_all_that_must_run(some_files(shared_dir)) > 200


@pytest.mark.shared
@pytest.mark.campaign
def test_no_vector_that_must_run_is_refused(shared_dir: Path) -> None:
    assert accept_all_that_must_run(find_files([shared_dir / "vectors"])) > 7000
