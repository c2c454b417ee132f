"""Between HIDL versions: what fits without loss, and what is lost (and logged) if it does not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.strategies import FL, HIDL, SIGNATURES, L, T, all_capabilities, models, requests
from hal.validation_models import brancher
from nnburst.compat import convert, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.convert import compliant_with, convert_to, noncompliant_operations
from nnburst.compat.layouts import HidlMemory
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import Extension
from nnburst.hal.model import BufferToken, DataLocation, Operand, Operation
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import (
    Capabilities,
    OperandPerformance,
    PerformanceInfo,
    RequestArgument,
    non_extension_operand_performance,
    update,
)

A, B, C = (PerformanceInfo(x, x) for x in (1.0, 2.0, 3.0))


def capabilities(*updates: tuple[T, PerformanceInfo], scalar: Any = A, tensor: Any = A) -> Any:
    """All of float speed A, quantised B; then changed."""
    table: tuple[OperandPerformance, ...] = non_extension_operand_performance(B)
    for kind, info in ((T.FLOAT32, A), (T.TENSOR_FLOAT32, A), *updates):
        table = update(table, kind, info)
    return Capabilities(scalar, tensor, table, B, B)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (capabilities(), {1, 2}),
        (capabilities(scalar=C, tensor=C), {2}),
        (capabilities(scalar=C), set()),
        (capabilities(tensor=C), set()),
        (capabilities((T.FLOAT32, C)), set()),
        (capabilities((T.TENSOR_FLOAT32, C)), set()),
        *[
            (capabilities((kind, C)), set())
            for kind in (T.INT32, T.UINT32, T.TENSOR_INT32, T.OEM, T.TENSOR_OEM_BYTE)
        ],
        (capabilities((T.TENSOR_QUANT8_ASYMM, C)), set()),
        (capabilities((T.TENSOR_FLOAT16, C)), {1, 2}),
    ],
)
def test_capabilities_fit_few_numbers_only_where_they_agree(value: Any, fits: set[int]) -> None:
    found = {int(level) for level in HIDL if compliant_with(value, FL.V1_3, level)}
    assert found == fits | {3, 4}


def test_every_status_of_1_0_fits_it_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    for status in ErrorStatus:
        if status == ErrorStatus.DEAD_OBJECT:
            continue
        fits = status <= 4
        assert compliant_with(status, FL.V1_3, FL.V1_0) is fits
        caplog.clear()
        made = convert_to(status, FL.V1_3, FL.V1_0)
        assert made == (status if fits else ErrorStatus.GENERAL_FAILURE)
        assert len(caplog.records) == (not fits)


def mixed_model() -> Any:
    """1.3: operation 0 is of 1.0, 1 reads a float16, 2 is of 1.1, 3 of 1.3."""
    builder = ModelBuilder()
    single, half = builder.input(T.TENSOR_FLOAT32, (2,)), builder.input(T.TENSOR_FLOAT16, (2,))
    act = builder.scalar(0)
    for code, inputs, kind in (
        (OperationType.ADD, [single, single, act], T.TENSOR_FLOAT32),
        (OperationType.RELU, [half], T.TENSOR_FLOAT16),
        (OperationType.SUB, [single, single, act], T.TENSOR_FLOAT32),
        (OperationType.HARD_SWISH, [single], T.TENSOR_FLOAT32),
    ):
        builder.operation(code, inputs, [builder.output(kind, (2,))])
    return builder.build()


@pytest.mark.parametrize(
    ("level", "left_out"),
    [(FL.V1_0, {1, 2, 3}), (FL.V1_1, {1, 3}), (FL.V1_2, {3}), (FL.V1_3, set())],
)
def test_operations_that_do_not_fit_are_named(level: FL, left_out: set[int]) -> None:
    canonical = mixed_model()
    assert noncompliant_operations(canonical, level, SIGNATURES) == left_out
    hal = convert.unvalidated_to_hal(canonical, FL.V1_3)
    assert compliant_with(hal, FL.V1_3, level, signatures=SIGNATURES) == (not left_out)


def test_operation_that_no_version_accepts_fits_no_version() -> None:
    model = mixed_model()
    wrong = ModelBuilder()
    x = wrong.input(T.TENSOR_FLOAT32, (2,))
    wrong.operation(OperationType.ADD, [x], [wrong.output(T.TENSOR_FLOAT32, (2,))])
    broken = wrong.build()
    assert noncompliant_operations(broken, FL.V1_3, SIGNATURES) == {0}
    outside = Operation(OperationType.ADD, (99,), ())
    changed = type(model)(type(model.main)(model.main.operands, (outside,), (), ()))
    assert noncompliant_operations(changed, FL.V1_3, SIGNATURES) == {0}


def test_constants_in_hardware_buffers_need_1_2() -> None:
    at = DataLocation(0, 0, 8)
    constant = Operand(T.TENSOR_FLOAT32, (2,), 1, lifetime=L.CONSTANT_REFERENCE, location=at)
    out = Operand(T.TENSOR_FLOAT32, (2,), lifetime=L.SUBGRAPH_OUTPUT)
    relu = Operation(OperationType.RELU, (0,), (1,))
    pools = (HidlMemory("hardware_buffer", 8),)
    model = v1_2.Model((constant, out), (relu,), (), (1,), pools=pools)
    fits = [compliant_with(model, FL.V1_2, level, signatures=SIGNATURES) for level in HIDL]
    assert fits == [False, False, True, True]


def test_relaxed_flag_counts_nowhere() -> None:
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, (2,))
    builder.operation(OperationType.RELU, [x], [builder.output(T.TENSOR_FLOAT32, (2,))])
    model = builder.build(relax_computation_float32_to_float16=True)
    hal = convert.unvalidated_to_hal(model, FL.V1_1)
    assert isinstance(hal, v1_1.Model)
    assert hal.relax_computation_float32_to_float16
    assert compliant_with(hal, FL.V1_1, FL.V1_0, signatures=SIGNATURES)


@pytest.mark.parametrize(
    ("pool", "fits"),
    [
        (HidlMemory("ashmem", 4, (0,)), [1, 2, 3, 4]),
        (HidlMemory("mmap_fd", 4, (0,), (1, 0, 0)), [1, 2, 3, 4]),
        (HidlMemory("hardware_buffer", 4), [3, 4]),
        (HidlMemory("hardware_buffer_blob", 4), [3, 4]),
        (HidlMemory("unheard_of", 4), []),
        (BufferToken(token=7), [4]),
    ],
)
def test_requests_fit_by_their_memory(pool: Any, fits: list[int]) -> None:
    request = v1_3.Request((RequestArgument(),), (), (pool,))
    assert [int(level) for level in HIDL if compliant_with(request, FL.V1_3, level)] == fits


@pytest.mark.every_day("1", "4")
@pytest.mark.parametrize("source", HIDL)
@given(data=st.data())
def test_newer_versions_say_all_that_older_ones_do(source: FL, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from([level for level in HIDL if level >= source]))
    for strategy in (models, requests, all_capabilities):
        value = data.draw(strategy(source))
        assert compliant_with(value, source, target, signatures=SIGNATURES)
        newer = convert_to(value, source, target, signatures=SIGNATURES)
        assert convert_to(newer, target, source, signatures=SIGNATURES) == value


@pytest.mark.every_day("1", "4")
@pytest.mark.parametrize("source", HIDL)
@given(data=st.data())
def test_every_valid_value_converts_to_every_version(source: FL, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from(HIDL))
    logger = logging.getLogger("nnburst.compat.convert")
    for strategy in (models, requests, all_capabilities):
        value = data.draw(strategy(source))
        records: list[logging.LogRecord] = []
        handler = logging.Handler()
        handler.emit = records.append  # type: ignore[method-assign]
        logger.addHandler(handler)
        try:
            convert_to(value, source, target, signatures=SIGNATURES)
        finally:
            logger.removeHandler(handler)
        fits = compliant_with(value, source, target, signatures=SIGNATURES)
        assert [record.levelno for record in records] == ([] if fits else [logging.ERROR])


def test_loss_is_logged_as_an_error_that_names_value_and_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hal = convert.unvalidated_to_hal(brancher(), FL.V1_3)
    made = convert_to(hal, FL.V1_3, FL.V1_0, signatures=SIGNATURES)
    assert isinstance(made, v1_0.Model)
    assert made.operations == brancher().main.operations
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "Model of V1_3 does not fit V1_0: converting with loss"


def test_driver_buffers_become_memory_of_no_kind(caplog: pytest.LogCaptureFixture) -> None:
    request = v1_3.Request((), (), (BufferToken(token=7), HidlMemory("ashmem", 4, (0,))))
    made = convert_to(request, FL.V1_3, FL.V1_0)
    assert made == v1_0.Request((), (), (HidlMemory("", 0), HidlMemory("ashmem", 4, (0,))))
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("value", "source", "target", "message"),
    [
        (A, FL.V1_3, FL.V1_0, "compliance"),
        (Extension("a.b"), FL.V1_3, FL.V1_0, "compliance"),
        (ErrorStatus.NONE, FL.AIDL_V1, FL.V1_0, "source"),
        (ErrorStatus.NONE, FL.V1_3, FL.AIDL_V1, "target"),
        (v1_0.Request((), ()), FL.V1_3, FL.V1_0, "is not V1_3's"),
        (v1_0.Model((), (), (), ()), FL.V1_0, FL.V1_1, "signatures"),
    ],
)
def test_questions_without_answer_are_refused(
    value: Any, source: FL, target: FL, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        compliant_with(value, source, target)


def test_operands_of_unknown_type_fit_no_version() -> None:
    source = Operand(99, (2,), 1, lifetime=L.SUBGRAPH_INPUT)
    out = Operand(T.TENSOR_FLOAT32, (2,), lifetime=L.SUBGRAPH_OUTPUT)
    model = v1_2.Model((source, out), (Operation(OperationType.RELU, (0,), (1,)),), (0,), (1,))
    assert not compliant_with(model, FL.V1_2, FL.V1_3, signatures=SIGNATURES)
