"""Small values between the versions: what is lost, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.strategies import FL, LEVELS, T, float32s
from nnburst.compat import aidl, convert, enums, requirement, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.layouts import (
    Ashmem,
    HidlMemory,
    MappableFile,
    MappedFile,
    OpaqueMemory,
    PaddedLocation,
)
from nnburst.compat.model import ExecutionOutcome, result_to_aidl, result_to_canonical
from nnburst.compat.timing import (
    Clocks,
    deadline_from_aidl,
    deadline_from_hidl,
    deadline_to_aidl,
    deadline_to_hidl,
    duration_from_hidl,
    duration_to_hidl,
)
from nnburst.hal.enums import (
    DeviceStatus,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    MeasureTiming,
    OperandLifeTime,
    Priority,
)
from nnburst.hal.errors import InvalidArgument, MissedDeadline
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation
from nnburst.hal.limits import NO_TIMING, UINT64_MAX
from nnburst.hal.model import BufferToken, DataLocation, MemoryPool, Operand, Operation
from nnburst.hal.types import (
    UNLISTED,
    BufferDesc,
    BufferRole,
    Capabilities,
    ExecutionConfig,
    ExecutionTiming,
    OperandPerformance,
    OutputShape,
    PerformanceInfo,
    PrepareModelConfig,
    Timing,
    TokenValuePair,
    lookup,
)

A, B, C = (PerformanceInfo(x, x) for x in (1.0, 2.0, 3.0))
LATE = [status for status in ErrorStatus if status > 4]


@pytest.mark.parametrize("status", LATE)
@pytest.mark.parametrize("level", [FL.V1_0, FL.V1_1, FL.V1_2])
def test_newer_statuses_become_general_failure_before_1_3(status: ErrorStatus, level: FL) -> None:
    assert convert.to_hal(status, level) is ErrorStatus.GENERAL_FAILURE
    with pytest.raises(InvalidArgument, match="unknown to"):
        convert.to_canonical(status, level)


@pytest.mark.parametrize("level", [level for level in LEVELS if level >= FL.V1_3])
def test_only_dead_object_is_lost_since_1_3(level: FL) -> None:
    lost = [status for status in ErrorStatus if convert.to_hal(status, level) != status]
    assert lost == [ErrorStatus.DEAD_OBJECT]


@pytest.mark.parametrize(
    ("value", "level"),
    [
        (DeviceType.UNKNOWN, FL.V1_2),
        (DeviceType.CPU, FL.V1_1),
        (DeviceStatus.BUSY, FL.AIDL_V1),
        (ExecutionPreference.LOW_POWER, FL.V1_0),
        (Priority.HIGH, FL.V1_2),
        (MeasureTiming.YES, FL.V1_1),
        (bytes([*bytes(31), 1]), FL.V1_1),
        (ExecutionTiming(5, 6), FL.V1_1),
        (OutputShape((1,), True), FL.V1_1),
        (Extension("a.b"), FL.V1_1),
        (BufferRole(0, 0, 1.0), FL.V1_2),
        (BufferDesc((1,)), FL.V1_2),
        (ExecutionConfig(execution_hints=(TokenValuePair(1),)), FL.AIDL_V3),
    ],
)
def test_what_an_older_version_cannot_say_is_refused(value: object, level: FL) -> None:
    with pytest.raises(InvalidArgument, match=rf"unknown to {level.name}|needs "):
        convert.to_hal(value, level)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (BufferRole(0, 0, 0.0), "S8"),
        (ExecutionTiming(7, 6), "S5"),
        (ExecutionTiming(-1, 6), "S6"),
        (Extension("noname"), "S4"),
        (Extension("a.b", (ExtensionOperandTypeInformation(1, True, 0),)), "S4"),
        (bytes(31), "S11"),
        (ExecutionConfig(execution_hints=(TokenValuePair(1), TokenValuePair(1))), "S7"),
        (ExecutionConfig(loop_timeout_ns=-1), "S6"),
        (PrepareModelConfig(deadline_ns=-5), "S6"),
        (PrepareModelConfig(cache_token=b""), "S11"),
        (Capabilities(A, A, (), A, PerformanceInfo(0.0, 1.0)), "S3"),
    ],
)
def test_invalid_canonical_values_are_refused(value: object, rule: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^validation:{rule}:"):
        convert.to_hal(value, FL.AIDL_V4)


@pytest.mark.parametrize(
    ("value", "level", "message"),
    [
        (v1_0.Capabilities(A, B), FL.V1_1, "is not V1_1's"),
        (v1_1.Capabilities(A, B, C), FL.V1_0, "is not V1_0's"),
        (Timing(3, 2), FL.V1_2, "S5"),
        (Timing(3, 2), FL.AIDL_V1, "is not AIDL_V1's"),
        (aidl.Timing(-2, 5), FL.AIDL_V1, "S6"),
        (aidl.ExecutionConfig(loop_timeout_duration_ns=-2), FL.AIDL_V4, "S6"),
        (aidl.ExecutionConfig(execution_hints=(TokenValuePair(-1),)), FL.AIDL_V4, "hint token"),
        (aidl.PrepareModelConfig(deadline_ns=-2), FL.AIDL_V4, "S6"),
        (v1_3.BufferRole(0, 0, 1.5), FL.V1_3, "S8"),
        (BufferRole(-1, 0), FL.AIDL_V1, "role"),
        (OutputShape((-1,), True), FL.V1_2, "dimensions"),
        (OutputShape((2**31,), True), FL.AIDL_V1, "dimensions"),
        (Capabilities(A, A, (OperandPerformance(T.OEM, A),), A, A), FL.AIDL_V1, "OEM"),
        (Capabilities(A, A, (OperandPerformance(99, A),), A, A), FL.V1_3, "S3"),
        (object(), FL.V1_3, "has no versions"),
    ],
)
def test_invalid_values_of_a_version_are_refused(value: Any, level: FL, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        convert.to_canonical(value, level)
    assert not convert.valid(value, level)


def test_parts_of_others_convert_unvalidated_only() -> None:
    parts = (
        Operand(T.INT32),
        Operation(0, (), ()),
        DataLocation(),
        MemoryPool(4),
        A,
        OperandLifeTime.NO_VALUE,
    )
    for part in parts:
        made = convert.unvalidated_to_hal(part, FL.V1_3)
        assert convert.unvalidated_to_canonical(made, FL.V1_3) == part
        with pytest.raises(InvalidArgument, match="unvalidated"):
            convert.to_hal(part, FL.V1_3)


@given(float32s, float32s, float32s)
def test_numbers_of_1_1_fill_the_table(single: float, quantized: float, relaxed: float) -> None:
    infos = [PerformanceInfo(x, x) for x in (single, quantized, relaxed)]
    made = convert.to_canonical(v1_1.Capabilities(*infos), FL.V1_1)
    listed = {entry.type: entry.info for entry in made.operand_performance}
    assert listed == {
        **dict.fromkeys((T.FLOAT32, T.TENSOR_FLOAT32), infos[0]),
        **dict.fromkeys(
            (T.INT32, T.UINT32, T.TENSOR_INT32, T.TENSOR_QUANT8_ASYMM, T.OEM, T.TENSOR_OEM_BYTE),
            infos[1],
        ),
    }
    assert made.relaxed_float32_to_float16_performance_scalar == infos[2]
    assert made.relaxed_float32_to_float16_performance_tensor == infos[2]
    assert made.if_performance == made.while_performance == UNLISTED


def test_relaxed_performance_of_1_0_is_that_of_float() -> None:
    made = convert.to_canonical(v1_0.Capabilities(A, B), FL.V1_0)
    assert made.relaxed_float32_to_float16_performance_scalar == A
    assert made.relaxed_float32_to_float16_performance_tensor == A


def test_older_capabilities_take_two_entries_and_the_relaxed_tensor_number() -> None:
    table = tuple(
        OperandPerformance(kind, info) for kind, info in ((3, A), (5, B), (14, C), (10000, C))
    )
    full = Capabilities(C, B, table, C, C)
    assert convert.to_hal(full, FL.V1_0) == v1_0.Capabilities(A, B)
    assert convert.to_hal(full, FL.V1_1) == v1_1.Capabilities(A, B, B)
    of_1_2 = convert.to_hal(full, FL.V1_2)
    assert of_1_2 == v1_2.Capabilities(C, B, (table[0], table[1], table[3]))
    assert convert.to_hal(full, FL.V1_3) == full
    of_aidl = convert.to_hal(full, FL.AIDL_V1)
    assert [entry.type for entry in of_aidl.operand_performance] == [3, 5, 14]
    assert lookup(of_aidl.operand_performance, T.OEM) == UNLISTED


@pytest.mark.parametrize(
    ("nanoseconds", "microseconds"),
    [(None, NO_TIMING), (0, 0), (1, 1), (1000, 1), (1001, 2), (UINT64_MAX * 1000, UINT64_MAX - 1)],
)
def test_nanoseconds_round_up_to_microseconds_and_stay_below_none(
    nanoseconds: int | None, microseconds: int
) -> None:
    made = convert.to_hal(ExecutionTiming(None, nanoseconds), FL.V1_2)
    assert made == Timing(NO_TIMING, microseconds)


def test_durations_too_long_for_aidl_become_its_longest() -> None:
    assert convert.to_hal(ExecutionTiming(None, 2**64), FL.AIDL_V1).time_in_driver_ns == 2**63 - 1


_CLOCKS = Clocks(boot=5_000, steady=1_000)


@given(st.integers(1_000, UINT64_MAX))
def test_deadlines_ahead_survive_the_change_of_clocks(steady: int) -> None:
    hidl = v1_3.OptionalTimePoint(steady)
    boot = deadline_from_hidl(hidl, _CLOCKS)
    assert boot == steady + 4_000
    assert deadline_to_hidl(boot, _CLOCKS) == hidl


def test_deadlines_that_have_passed_become_now_and_far_ones_the_latest() -> None:
    assert deadline_from_hidl(v1_3.OptionalTimePoint(3), _CLOCKS) == _CLOCKS.boot
    assert deadline_to_hidl(3, _CLOCKS) == v1_3.OptionalTimePoint(_CLOCKS.steady)
    assert deadline_to_hidl(2**65, _CLOCKS) == v1_3.OptionalTimePoint(UINT64_MAX)
    assert deadline_to_aidl(2**65) == 2**63 - 1


def test_no_deadline_stays_none_everywhere() -> None:
    assert deadline_from_hidl(v1_3.OptionalTimePoint()) is None
    assert deadline_to_hidl(None) == v1_3.OptionalTimePoint()
    assert deadline_from_aidl(-1) is None
    assert deadline_to_aidl(None) == -1
    assert duration_from_hidl(duration_to_hidl(None)) is None


def test_real_clocks_are_read_by_default() -> None:
    before = Clocks.now()
    boot = deadline_from_hidl(v1_3.OptionalTimePoint(0))
    assert boot is not None
    assert before.boot <= boot <= Clocks.now().boot


@pytest.mark.parametrize("nanoseconds", [-2, -(2**63)])
def test_negative_deadlines_are_refused(nanoseconds: int) -> None:
    for converts in (deadline_from_aidl, deadline_to_aidl, deadline_to_hidl, duration_to_hidl):
        with pytest.raises(InvalidArgument, match="S6"):
            converts(nanoseconds)


@pytest.mark.parametrize(
    ("memory", "level", "message"),
    [
        (HidlMemory("ashmem", 4, ()), FL.V1_0, "M3"),
        (HidlMemory("ashmem", 4, (0,), (1,)), FL.V1_0, "M3"),
        (HidlMemory("mmap_fd", 4, (0,), (1, 2)), FL.V1_0, "M3"),
        (HidlMemory("mmap_fd", 4, (0,), (1, 2**31, 0)), FL.V1_0, "ints"),
        (HidlMemory("ashmem", 4, (0,)), FL.AIDL_V1, "M3"),
        (Ashmem(0, 4), FL.V1_3, "M3"),
        (Ashmem(-1, 4), FL.AIDL_V1, "memory"),
        (MappableFile(4, 1, 0, -1), FL.AIDL_V1, "memory"),
        (BufferToken(token=1), FL.V1_2, "M3"),
        (BufferToken(token=2**31), FL.AIDL_V1, "token"),
    ],
)
def test_memory_of_no_such_kind_is_refused(memory: Any, level: FL, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        convert.unvalidated_to_canonical(memory, level)


def test_offset_of_a_file_is_split_into_two_ints() -> None:
    pool = MappedFile(9, 2, protection=3, offset=0x1_8000_0002)
    made = convert.unvalidated_to_hal(pool, FL.V1_0)
    assert made == HidlMemory("mmap_fd", 9, (2,), (3, 0x80000002 - 2**32, 1))
    assert convert.unvalidated_to_canonical(made, FL.V1_0) == pool


def test_hardware_buffers_pass_between_hidl_versions_only() -> None:
    memory = HidlMemory("hardware_buffer_blob", 9, (1, 2), (3, 4, 5))
    opaque = convert.unvalidated_to_canonical(memory, FL.V1_2)
    assert isinstance(opaque, OpaqueMemory)
    assert convert.unvalidated_to_hal(opaque, FL.V1_3) == memory
    with pytest.raises(InvalidArgument, match="M3"):
        convert.unvalidated_to_hal(opaque, FL.AIDL_V1)


def test_padding_is_kept_in_aidl_and_left_out_in_hidl() -> None:
    padded = PaddedLocation(1, 2, 3, 4)
    assert convert.unvalidated_to_canonical(padded, FL.AIDL_V1) == padded
    assert convert.unvalidated_to_hal(padded, FL.AIDL_V1) == padded
    assert convert.unvalidated_to_hal(padded, FL.V1_3) == DataLocation(1, 2, 3)
    assert convert.unvalidated_to_canonical(PaddedLocation(1, 2, 3), FL.AIDL_V1) == DataLocation(
        1, 2, 3
    )


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (requirement.preference(ExecutionPreference.FAST_SINGLE_ANSWER), FL.V1_0),
        (requirement.preference(ExecutionPreference.SUSTAINED_SPEED), FL.V1_1),
        (requirement.priority(Priority.MEDIUM), FL.V1_0),
        (requirement.priority(Priority.LOW), FL.V1_3),
        (requirement.measure(MeasureTiming.NO), FL.V1_0),
        (requirement.timing(ExecutionTiming()), FL.V1_0),
        (requirement.cache_token(bytes(32)), FL.V1_0),
        (requirement.cache_token(bytes([1])), FL.V1_2),
        (requirement.time_limit(None), FL.V1_0),
        (requirement.time_limit(0), FL.V1_3),
        (requirement.sync_fence(None), FL.V1_0),
        (requirement.sync_fence(3), FL.V1_3),
        (requirement.hints(()), FL.V1_0),
        (requirement.hints((TokenValuePair(1),)), FL.AIDL_V4),
        (requirement.memory(MemoryPool(1)), FL.V1_0),
        (requirement.memory(MappedFile(1, protection=1)), FL.V1_0),
        (requirement.memory(OpaqueMemory(1, name="x")), FL.V1_2),
        (requirement.memory(BufferToken(token=1)), FL.V1_3),
        (requirement.execution_config(ExecutionConfig()), FL.V1_0),
        (requirement.prepare_model_config(PrepareModelConfig(priority=Priority.LOW)), FL.V1_3),
        *[(requirement.operand_type(t), FL.V1_0) for t in (*range(6), 10000, 10001)],
        *[(requirement.operand_type(t), FL.V1_2) for t in (*range(6, 14), 0x10000, -1)],
        *[(requirement.operand_type(t), FL.V1_3) for t in (14, 15)],
    ],
)
def test_versions_that_values_need(found: FL, level: FL) -> None:
    assert found == level


@pytest.mark.parametrize(
    ("status", "sufficient"),
    [(ErrorStatus.NONE, True), (ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, False)],
)
def test_output_that_is_too_small_is_a_result_in_aidl(
    status: ErrorStatus, sufficient: bool
) -> None:
    outcome = ExecutionOutcome(status, (OutputShape((3,), sufficient),), ExecutionTiming(1, 2))
    result = result_to_aidl(outcome)
    assert result.output_sufficient_size is sufficient
    assert result.timing == aidl.Timing(1, 2)
    assert result_to_canonical(result, FL.AIDL_V1) == outcome


def test_other_statuses_are_exceptions_in_aidl() -> None:
    with pytest.raises(MissedDeadline) as raised:
        result_to_aidl(ExecutionOutcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT))
    assert raised.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_durations_of_1_3_survive() -> None:
    for nanoseconds in (0, UINT64_MAX):
        hidl = v1_3.OptionalTimeoutDuration(nanoseconds)
        assert duration_to_hidl(duration_from_hidl(hidl)) == hidl
    assert duration_to_hidl(UINT64_MAX + 1).nanoseconds == UINT64_MAX
    with pytest.raises(InvalidArgument, match="duration"):
        duration_from_hidl(v1_3.OptionalTimeoutDuration(UINT64_MAX + 1))


def test_codes_that_no_version_has_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="99 is unknown"):
        enums.to_canonical(OperandLifeTime, 99, FL.V1_3)
    for code in (16, 9999, 10002):
        with pytest.raises(InvalidArgument, match="O1"):
            requirement.operand_type(code)


def test_tokens_have_no_form_before_1_3() -> None:
    token = BufferToken(token=5)
    assert convert.unvalidated_to_hal(token, FL.V1_3) == token
    with pytest.raises(InvalidArgument, match="R2"):
        convert.unvalidated_to_hal(token, FL.V1_2)
