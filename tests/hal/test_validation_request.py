"""Rules R1 to R15: requests against an adder with known, unknown and scalar arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.validation_models import L, T, adder, plus
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import DataLocation, ExtensionNameAndPrefix, Model, Operand
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.validation import RequestValidator, validate_request

POOLS = [64, 16]


def at(offset: int, length: int, *dimensions: int, pool: int = 0) -> RequestArgument:
    return RequestArgument(False, DataLocation(pool, offset, length), dimensions)


OMITTED = RequestArgument(True)


def accepting(kind: int, dimensions: tuple[int, ...], **fields: object) -> Model:
    """An adder with one more input of a type."""
    return plus(adder(), Operand(kind, dimensions, lifetime=L.SUBGRAPH_INPUT, **fields))


KNOWN = adder()  # input and output float32 [2]
OPEN = adder((0,))  # one unknown dimension each
RANKLESS = adder(())  # unknown rank
SCALAR = accepting(T.INT32, ())
EXTENSION = accepting(0x00030001, ())
OPAQUE = accepting(T.TENSOR_OEM_BYTE, (3,))
OEM = accepting(T.OEM, ())
GOOD = Request((at(0, 8),), (at(8, 8),))


def inputs(*arguments: RequestArgument) -> Request:
    return Request(arguments, GOOD.outputs)


def outputs(*arguments: RequestArgument) -> Request:
    return Request((at(0, 8, 2),), arguments)


#: rule -> (model, accepted request, rejected request)
TRIPLES: dict[str, list[tuple[Model, Request, Request]]] = {
    "R1": [
        (KNOWN, GOOD, inputs()),
        (KNOWN, GOOD, inputs(at(0, 8), at(0, 8))),
        (KNOWN, GOOD, outputs()),
        (KNOWN, GOOD, outputs(at(0, 8), at(0, 8))),
    ],
    "R3": [
        (KNOWN, inputs(OMITTED), inputs(RequestArgument(True, location)))
        for location in (DataLocation(1, 0, 0), DataLocation(0, 1, 0), DataLocation(0, 0, 1))
    ]
    + [(KNOWN, outputs(OMITTED), outputs(RequestArgument(True, dimensions=(2,))))],
    "R4": [
        (KNOWN, inputs(at(0, 8, pool=1)), inputs(at(0, 8, pool=2))),
        (KNOWN, inputs(at(0, 8, pool=1)), inputs(at(0, 8, pool=-1))),
        (KNOWN, inputs(at(0, 8, pool=1)), inputs(at(0, 8, pool=UINT32_MAX))),
    ],
    "R5": [
        (KNOWN, inputs(at(56, 8)), inputs(at(57, 8))),
        (KNOWN, inputs(at(8, 8, pool=1)), inputs(at(9, 8, pool=1))),
        (KNOWN, inputs(at(56, 8)), inputs(at(UINT32_MAX, 8))),
        (KNOWN, inputs(at(56, 8)), inputs(at(2**32 - 8, 2**32 - 8))),
        (KNOWN, inputs(at(56, 8)), inputs(at(-8, 8))),
        (KNOWN, inputs(at(56, 8)), inputs(at(8, -8))),
        (KNOWN, inputs(at(0, 8)), inputs(at(-1, 8))),
        (KNOWN, inputs(at(0, 8)), inputs(at(8, -1))),
        (KNOWN, outputs(at(56, 8)), outputs(at(60, 8))),
    ],
    "R6": [
        (KNOWN, GOOD, inputs(at(0, 0))),
        (OPEN, outputs(at(0, 1)), outputs(at(0, 0))),
    ],
    "R7": [
        (KNOWN, inputs(at(0, 8, 2)), inputs(at(0, 8, 2, 1))),
        (OPEN, outputs(at(0, 8, 0)), outputs(at(0, 8, 0, 0))),
        (
            RANKLESS,
            outputs(at(0, 4, *[1] * MAX_RANK)),
            outputs(at(0, 4, *[1] * (MAX_RANK + 1))),
        ),
    ],
    "R8": [
        (KNOWN, inputs(at(0, 8, 2)), inputs(at(0, 12, 3))),
        (KNOWN, inputs(at(0, 8, 2)), inputs(at(0, 8, 0))),
        (KNOWN, outputs(at(0, 8, 2)), outputs(at(0, 8, 1))),
        (OPEN, outputs(at(0, 8, 2)), outputs(at(0, 8, -1))),
        (OPEN, outputs(at(0, 8, 2)), outputs(at(0, 8, 2**32))),
    ],
    "R9": [
        (OPEN, Request((at(0, 8, 2),), (at(8, 8),)), Request((at(0, 8),), (at(8, 8),))),
        (OPEN, Request((at(0, 8, 2),), (at(8, 8),)), Request((at(0, 8, 0),), (at(8, 8),))),
        (RANKLESS, Request((at(0, 8, 2),), (at(8, 8),)), Request((at(0, 8),), (at(8, 8),))),
        (
            RANKLESS,
            Request((at(0, 8, 1, 2),), (at(8, 8),)),
            Request((at(0, 8, 1, 0),), (at(8, 8),)),
        ),
    ],
    "R11": [
        (KNOWN, GOOD, inputs(at(0, 4))),
        (KNOWN, GOOD, inputs(at(0, 12))),
        (KNOWN, GOOD, outputs(at(8, 7))),
        (OPEN, outputs(at(8, 4, 1)), outputs(at(8, 8, 1))),
        (OPEN, outputs(at(8, 4, 1)), outputs(at(8, 8, UINT32_MAX))),
        (SCALAR, inputs(at(0, 8), at(8, 4)), inputs(at(0, 8), at(8, 8))),
        (OPAQUE, inputs(at(0, 8), at(8, 3)), inputs(at(0, 8), at(8, 4))),
    ],
    "R14": [(SCALAR, inputs(at(0, 8), at(8, 4)), inputs(at(0, 8), at(8, 4, 1)))],
}

CASES = [
    pytest.param(rule, *triple, id=f"{rule}-{n}", marks=pytest.mark.rule(rule))
    for rule, triples in TRIPLES.items()
    for n, triple in enumerate(triples)
]


@pytest.mark.parametrize(("rule", "model", "accepted", "rejected"), CASES)
def test_rule_accepts_one_request_and_rejects_the_other(
    rule: str, model: Model, accepted: Request, rejected: Request
) -> None:
    validate_request(accepted, model, POOLS)
    with pytest.raises(InvalidArgument) as caught:
        validate_request(rejected, model, POOLS)
    assert str(caught.value).startswith(f"validation:{rule}: ")


def test_message_names_rule_and_argument() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^validation:R5: input 0: offset 57 and length 8 lie outside"
    ):
        validate_request(inputs(at(57, 8)), KNOWN, POOLS)
    with pytest.raises(
        InvalidArgument, match=r"^validation:R1: request: 0 outputs, the model has 1"
    ):
        validate_request(outputs(), KNOWN, POOLS)


@pytest.mark.rule("R10")
@pytest.mark.parametrize("model", [OPEN, RANKLESS])
def test_unspecified_outputs_are_refused_only_on_request(model: Model) -> None:
    request = Request((at(0, 8, 2),), (at(8, 8),))
    validate_request(request, model, POOLS)
    with pytest.raises(InvalidArgument, match=r"^validation:R10: output 0: dimensions"):
        validate_request(request, model, POOLS, allow_unspecified_output=False)
    specified = Request(request.inputs, (at(8, 8, 2),))
    validate_request(specified, model, POOLS, allow_unspecified_output=False)


@pytest.mark.rule("R15", "accepts")
def test_omitted_inputs_and_outputs_need_no_dimensions() -> None:
    validate_request(Request((OMITTED,), (OMITTED,)), RANKLESS, [], allow_unspecified_output=False)


@pytest.mark.rule("R13", "accepts")
def test_input_and_output_may_name_one_range() -> None:
    validate_request(Request((at(0, 8),), (at(0, 8),)), KNOWN, POOLS)


def test_extension_arguments_have_any_length_and_dimensions() -> None:
    merged = RequestValidator(EXTENSION).validate(inputs(at(0, 8), at(8, 5, 9, 0)), POOLS)
    assert merged.inputs == ((2,), (9, 0))
    validate_request(inputs(at(0, 8), at(8, 5)), EXTENSION, POOLS)
    entries = (ExtensionNameAndPrefix("a.b", 3),)
    assert EXTENSION.extension_name_to_prefix != entries  # the model's own validity is not asked


@pytest.mark.parametrize("length", [1, 5])
def test_oem_scalars_have_any_length(length: int) -> None:
    validate_request(inputs(at(0, 8), at(8, length)), OEM, POOLS)


def test_driver_buffers_are_used_whole() -> None:
    validate_request(Request((at(0, 0),), (at(8, 8, pool=1),)), KNOWN, [None, 16])
    for argument in (at(0, 8), at(4, 0)):
        with pytest.raises(InvalidArgument, match=r"^validation:R5: input 0: a driver buffer"):
            validate_request(inputs(argument), KNOWN, [None, 16])


def test_pool_sizes_count_and_not_those_in_the_request() -> None:
    with pytest.raises(InvalidArgument, match=r"^validation:R5: input 0: .* the pool's 4 bytes"):
        validate_request(inputs(at(0, 8)), KNOWN, [4])


def test_validator_returns_the_merged_dimensions() -> None:
    validator = RequestValidator(RANKLESS)
    request = Request((at(0, 8, 1, 2),), (at(8, 8),))
    merged = validator.validate(request, POOLS)
    assert merged == validator.merged_dimensions(request) == (((1, 2),), ((),))
    assert RequestValidator(OPEN).validate(outputs(at(0, 8)), POOLS) == (((2,),), ((0,),))
    assert RequestValidator(OPEN).validate(outputs(at(0, 8, 2)), POOLS).outputs == ((2,),)
    assert RequestValidator(KNOWN).validate(inputs(OMITTED), POOLS).inputs == ((2,),)


LOCATIONS = st.builds(
    DataLocation,
    st.integers(0, 3),
    st.integers(0, 70) | st.integers(0, UINT32_MAX),
    st.integers(0, 70) | st.integers(0, UINT32_MAX),
)
EXTENTS = st.lists(st.sampled_from([0, 1, 2, 3, 65536, UINT32_MAX]), max_size=3).map(tuple)
ARGUMENTS = st.builds(RequestArgument, st.booleans(), LOCATIONS, EXTENTS)


@given(st.sampled_from([KNOWN, OPEN, RANKLESS]), ARGUMENTS, ARGUMENTS)
def test_accepted_requests_stay_inside_their_pools(
    model: Model, given_in: RequestArgument, given_out: RequestArgument
) -> None:
    request = Request((given_in,), (given_out,))
    try:
        merged = RequestValidator(model).validate(request, POOLS)
    except InvalidArgument:
        return
    for argument, dimensions in zip(
        (given_in, given_out), (merged.inputs[0], merged.outputs[0]), strict=True
    ):
        location = argument.location
        if argument.has_no_value:
            assert location == DataLocation()
            continue
        assert location.length > 0
        assert location.offset + location.length <= POOLS[location.pool_index]
        if dimensions and 0 not in dimensions:
            size = 4
            for extent in dimensions:
                size *= extent
            assert location.length == size
    assert given_in.has_no_value or (merged.inputs[0] and 0 not in merged.inputs[0])
