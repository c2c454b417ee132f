"""Models and requests between the versions: versions needed, what is refused, what is left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compat.strategies import (
    EXTENSION,
    FL,
    LEVELS,
    OP,
    PREFIX,
    SIGNATURES,
    L,
    T,
    models,
    requests,
)
from hal.validation_models import brancher, looper, with_graph, with_operand
from nnburst.compat import aidl, convert, requirement, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.layouts import HidlMemory, MappedFile, OpaqueMemory, PaddedLocation
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.model import (
    BufferToken,
    DataLocation,
    ExtensionNameAndPrefix,
    MemoryPool,
    Model,
    Operand,
)
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.validation.operation import Signatures

F32 = T.TENSOR_FLOAT32


def one_operation(
    code: int, kind: int = F32, dimensions: tuple[int, ...] = (2,), **built: Any
) -> Model:
    """A model of one operation that reads an input."""
    builder = ModelBuilder()
    scale = 0.5 if "QUANT8" in T(kind).name else 0.0
    x = builder.input(kind, dimensions, scale)
    inputs = [x]
    if code in (OP.ADD, OP.SUB):
        inputs = [x, x, builder.scalar(0)]
    builder.operation(code, inputs, [builder.output(kind, dimensions, scale)])
    return builder.build(**built)


def vendor_model(prefix: int = PREFIX) -> Model:
    """A model of one extension operation."""
    builder = ModelBuilder()
    code = prefix << 16
    x = builder.input(code | 1, ())
    builder.operation(code | 2, [x], [builder.output(code | 1, ())])
    return builder.build(extension_name_to_prefix=[ExtensionNameAndPrefix("a.b", prefix)])


OEM = one_operation(OP.RELU)
OEM = with_graph(OEM, operations=(replace(OEM.main.operations[0], type=OP.OEM_OPERATION),))

#: Models with the first version that can express them.
NEEDS = {
    "1.0 operation": (one_operation(OP.ADD), FL.V1_0),
    "relaxed": (one_operation(OP.ADD, relax_computation_float32_to_float16=True), FL.V1_0),
    "oem operation": (OEM, FL.V1_0),
    "1.1 operation": (one_operation(OP.SUB), FL.V1_1),
    "1.2 operation": (one_operation(OP.ABS), FL.V1_2),
    "1.2 types": (one_operation(OP.ADD, T.TENSOR_FLOAT16), FL.V1_2),
    "unknown rank": (one_operation(OP.ADD, F32, ()), FL.V1_2),
    "declared extension": (
        one_operation(OP.ADD, extension_name_to_prefix=[ExtensionNameAndPrefix("a.b", 1)]),
        FL.V1_2,
    ),
    "extension operation": (vendor_model(), FL.V1_2),
    "1.3 operation": (one_operation(OP.HARD_SWISH), FL.V1_3),
    "1.3 types": (one_operation(OP.ADD, T.TENSOR_QUANT8_ASYMM_SIGNED), FL.V1_3),
    "control flow": (brancher(), FL.V1_3),
}


def to(model: Model, level: FL, signatures: Signatures | None = SIGNATURES) -> Any:
    return convert.to_hal(model, level, signatures=signatures)


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_model_converts_to_exactly_the_versions_that_can_say_it(name: str, level: FL) -> None:
    model, since = NEEDS[name]
    assert requirement.model(model, SIGNATURES) == since
    if level < since or (name == "oem operation" and level >= FL.AIDL_V1):
        with pytest.raises(InvalidArgument):
            to(model, level)
    else:
        made = to(model, level)
        back = convert.to_canonical(made, level, signatures=SIGNATURES)
        if level == FL.V1_0:  # whose models have no such flag
            back = replace(back, relax_computation_float32_to_float16=name == "relaxed")
        assert back == model


def test_structs_of_each_version_are_made() -> None:
    model = one_operation(OP.ADD)
    made = [type(to(model, level)) for level in LEVELS]
    assert made[:4] == [v1_0.Model, v1_1.Model, v1_2.Model, v1_3.Model]
    assert set(made[4:]) == {aidl.Model}


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_consumers_are_counted_anew_on_the_way_to_hal(level: FL) -> None:
    wrong = with_operand(one_operation(OP.ADD), 0, number_of_consumers=77)
    assert to(wrong, level) == to(one_operation(OP.ADD), level)


@pytest.mark.parametrize("level", [FL.V1_0, FL.V1_1, FL.V1_2, FL.V1_3])
def test_wrong_consumers_from_hal_are_a_general_failure(level: FL) -> None:
    model = to(one_operation(OP.ADD), level)
    graph = model.main if level == FL.V1_3 else model
    operands = (replace(graph.operands[0], number_of_consumers=1), *graph.operands[1:])
    wrong: Any = replace(graph, operands=operands)
    if level == FL.V1_3:
        wrong = replace(model, main=wrong)
    with pytest.raises(GeneralFailure, match="O23"):
        convert.unvalidated_to_canonical(wrong, level)


@given(data=st.data())
def test_model_is_of_its_own_version_only(data: st.DataObject) -> None:
    level, other = (data.draw(st.sampled_from(LEVELS)) for _ in range(2))
    model = data.draw(models(level))
    own = type(model) is type(to(one_operation(OP.ADD), other))
    assert own or not convert.valid(model, other, signatures=SIGNATURES)
    assert convert.valid(model, level, signatures=SIGNATURES)


def test_models_are_not_validated_without_signatures() -> None:
    with pytest.raises(InvalidArgument, match="signatures"):
        to(one_operation(OP.ADD), FL.V1_0, None)


def test_pointers_must_be_flushed_into_memory_first() -> None:
    model = with_operand(one_operation(OP.ADD), 1, lifetime=OperandLifeTime.POINTER)
    for level in LEVELS:
        with pytest.raises(InvalidArgument, match="O21"):
            convert.unvalidated_to_hal(model, level)


def test_loop_over_operands_of_unknown_size_is_for_runtimes_only() -> None:
    for level in (FL.V1_3, FL.AIDL_V4):
        with pytest.raises(InvalidArgument, match="P12"):
            to(looper((0,)), level)
    assert to(brancher((0,)), FL.V1_3)


@pytest.mark.parametrize(
    ("pool", "rule"),
    [
        (OpaqueMemory(8, name="hardware_buffer"), "M3"),
        (OpaqueMemory(8, name="unheard of"), "M3"),
        (BufferToken(token=3), "M3"),
        (MemoryPool(0), "M4"),
        (MemoryPool(8, -1), "M4"),
        (MappedFile(8, protection=4), "M4"),
        (MappedFile(8, protection=1, offset=-1), "M4"),
    ],
)
def test_models_over_memory_that_cannot_be_mapped_are_refused(pool: MemoryPool, rule: str) -> None:
    with pytest.raises(InvalidArgument, match=rule):
        to(one_operation(OP.ADD, pools=[pool]), FL.V1_3)


def test_models_have_no_padding() -> None:
    model = to(one_operation(OP.ADD), FL.AIDL_V1)
    graph = model.main
    index = next(i for i, o in enumerate(graph.operands) if o.lifetime == L.CONSTANT_COPY)
    operands = list(graph.operands)
    operands[index] = replace(operands[index], location=PaddedLocation(0, 0, 4, 4))
    padded = replace(model, main=replace(graph, operands=tuple(operands)))
    with pytest.raises(InvalidArgument, match="O20"):
        convert.to_canonical(padded, FL.AIDL_V1, signatures=SIGNATURES)


@pytest.mark.parametrize(
    "operand",
    [
        aidl.Operand(-1),
        aidl.Operand(EXTENSION | 2**31),
        aidl.Operand(T.OEM),
        aidl.Operand(T.TENSOR_OEM_BYTE, (1,)),
        aidl.Operand(F32, (-1,)),
        aidl.Operand(F32, (1,), location=PaddedLocation(offset=-1)),
        aidl.Operand(F32, (1,), location=PaddedLocation(padding=-1)),
        aidl.Operand(F32, (1,), lifetime=OperandLifeTime.POINTER),
    ],
)
def test_operands_that_aidl_has_not_are_refused(operand: aidl.Operand) -> None:
    with pytest.raises(InvalidArgument):
        convert.unvalidated_to_canonical(operand, FL.AIDL_V1)


def test_lifetime_that_a_version_has_not_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="SUBGRAPH is unknown to V1_2"):
        convert.unvalidated_to_canonical(Operand(T.SUBGRAPH, lifetime=L.SUBGRAPH), FL.V1_2)


def test_prefixes_of_16_bits_convert_to_hidl_but_not_to_aidl() -> None:
    model = vendor_model(0x8001)
    assert convert.to_canonical(to(model, FL.V1_2), FL.V1_2, signatures=SIGNATURES) == model
    with pytest.raises(InvalidArgument, match="extension_name_to_prefix"):
        to(model, FL.AIDL_V1)


def test_extra_parameters_are_left_out_where_a_version_has_none_only_unvalidated() -> None:
    with pytest.raises(InvalidArgument, match="extension type"):
        to(vendor_model(), FL.V1_1)
    made = convert.unvalidated_to_hal(vendor_model(), FL.V1_1)
    assert not hasattr(made.operands[0], "extra_params")


def ask(length: int = 4, **fields: Any) -> Request:
    """A request of one input and one output of `length` bytes in a pool of 16."""
    argument = RequestArgument(location=DataLocation(0, 0, length), **fields)
    return Request((argument,), (argument,), (MemoryPool(16),))


@pytest.mark.parametrize(
    ("request_", "level", "rule"),
    [
        (ask(17), FL.V1_0, "R5"),
        (ask(0), FL.V1_0, "R6"),
        (ask(4, has_no_value=True), FL.V1_0, "R3"),
        (replace(ask(), pools=()), FL.V1_0, "R4"),
        (replace(ask(), pools=(BufferToken(token=0),)), FL.V1_3, "R2"),
        (replace(ask(), pools=(BufferToken(token=1),)), FL.V1_3, "R5"),
        (replace(ask(0), pools=(BufferToken(token=1),)), FL.V1_2, "needs V1_3"),
        (replace(ask(), pools=(OpaqueMemory(16, name="hardware_buffer"),)), FL.V1_3, "R2"),
        (ask(4, dimensions=(0,)), FL.V1_1, "needs V1_2"),
    ],
)
def test_requests_are_refused(request_: Request, level: FL, rule: str) -> None:
    with pytest.raises(InvalidArgument, match=rule):
        convert.to_hal(request_, level)


def test_padding_of_a_request_lies_within_the_pool() -> None:
    def padded(padding: int) -> aidl.Request:
        argument = aidl.RequestArgument(location=PaddedLocation(0, 4, 8, padding))
        pool = convert.unvalidated_to_hal(MemoryPool(16), FL.AIDL_V1)
        return aidl.Request((argument,), (), (pool,))

    assert convert.valid(padded(4), FL.AIDL_V1)
    with pytest.raises(InvalidArgument, match="R5"):
        convert.to_canonical(padded(5), FL.AIDL_V1)


def test_model_of_a_request_decides_whether_its_outputs_are_unknown() -> None:
    known, unknown = one_operation(OP.RELU, F32, (1,)), one_operation(OP.RELU, F32, (0,))
    assert convert.to_hal(ask(), FL.V1_0, model=known)
    sized = replace(ask(), inputs=(replace(ask().inputs[0], dimensions=(1,)),))
    with pytest.raises(InvalidArgument, match="needs V1_2"):
        convert.to_hal(sized, FL.V1_1, model=unknown)
    assert convert.to_hal(sized, FL.V1_2, model=unknown)
    with pytest.raises(InvalidArgument, match="R11"):
        convert.to_hal(ask(8), FL.V1_2, model=known)


@given(data=st.data())
def test_request_is_of_its_own_version_only(data: st.DataObject) -> None:
    request = data.draw(requests(FL.V1_3))
    assert convert.valid(request, FL.V1_3)
    assert not convert.valid(request, FL.V1_2)
    assert not convert.valid(request, FL.AIDL_V1)


def test_request_with_unknown_memory_names_is_not_valid() -> None:
    request = v1_0.Request((), (), (HidlMemory("bogus", 4),))
    assert convert.unvalidated_to_canonical(request, FL.V1_0)
    with pytest.raises(InvalidArgument, match="R2"):
        convert.to_canonical(request, FL.V1_0)
