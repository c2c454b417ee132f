"""Rules M, O and P: for each a model that it accepts and one, barely different, that it rejects."""

from __future__ import annotations

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
    probe,
    recounted,
    with_graph,
    with_operand,
    with_operation,
)
from hal.validation_pairs import (
    EXTENSION,
    F32,
    INF,
    NAN,
    OP,
    PAIRS,
    Q8S,
    body_changed,
    branch_changed,
    copied,
    declared,
    extended,
    quantized_branch,
)
from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import (
    DataLocation,
    Model,
    Operand,
)
from nnburst.hal.validation import validate_model
from nnburst.hal.validation.model import MAX_SUBGRAPH_DEPTH

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
