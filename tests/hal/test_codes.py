"""The numbers of the vocabulary, as the HAL wrote them down: they are on the wire and in files."""

from __future__ import annotations

import pytest

from nnburst.hal import limits
from nnburst.hal.enums import (
    DeviceStatus,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    FeatureLevel,
    FusedActivationFunc,
    MeasureTiming,
    OperandLifeTime,
    OperandType,
    OperationType,
    PaddingScheme,
    Priority,
)
from nnburst.hal.model import INTRODUCED

#: Names in the order of their codes, which begin with 0.
V1_0_TYPES = "FLOAT32 INT32 UINT32 TENSOR_FLOAT32 TENSOR_INT32 TENSOR_QUANT8_ASYMM"
V1_2_TYPES = (
    "BOOL TENSOR_QUANT16_SYMM TENSOR_FLOAT16 TENSOR_BOOL8 FLOAT16 TENSOR_QUANT8_SYMM_PER_CHANNEL"
    " TENSOR_QUANT16_ASYMM TENSOR_QUANT8_SYMM"
)
V1_3_TYPES = "TENSOR_QUANT8_ASYMM_SIGNED SUBGRAPH"
V1_0_OPERATIONS = (
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE"
    " EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D"
    " LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU1 RELU6"
    " RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH"
)
V1_1_OPERATIONS = (
    "BATCH_TO_SPACE_ND DIV MEAN PAD SPACE_TO_BATCH_ND SQUEEZE STRIDED_SLICE SUB TRANSPOSE"
)


def test_operand_types_have_the_codes_of_the_order_in_which_they_came() -> None:
    names = f"{V1_0_TYPES} {V1_2_TYPES} {V1_3_TYPES}".split()
    assert {kind.name: kind.value for kind in OperandType} == {
        **{name: code for code, name in enumerate(names)},
        "OEM": 10000,
        "TENSOR_OEM_BYTE": 10001,
    }


@pytest.mark.parametrize(
    ("names", "level"),
    [
        (f"{V1_0_TYPES} OEM TENSOR_OEM_BYTE", FeatureLevel.V1_0),
        (V1_2_TYPES, FeatureLevel.V1_2),
        (V1_3_TYPES, FeatureLevel.V1_3),
    ],
)
def test_operand_types_are_as_old_as_the_version_that_introduced_them(
    names: str, level: FeatureLevel
) -> None:
    assert {INTRODUCED[OperandType[name]] for name in names.split()} == {level}
    assert sum(since == level for since in INTRODUCED.values()) == len(names.split())


def test_operations_of_each_version_end_where_its_range_ends() -> None:
    names = f"{V1_0_OPERATIONS} {V1_1_OPERATIONS}".split()
    assert [OperationType(code).name for code in range(38)] == names
    last = {28: "TANH", 37: "TRANSPOSE", 94: "RESIZE_NEAREST_NEIGHBOR", 101: "RANK"}
    assert {code: OperationType(code).name for code in last} == last
    assert sorted(kind.value for kind in OperationType) == [*range(106), 10000]
    assert OperationType(10000).name == "OEM_OPERATION"


def test_other_enumerations_have_the_codes_of_the_hal() -> None:
    assert [d.name for d in DeviceType] == ["UNKNOWN", "OTHER", "CPU", "GPU", "ACCELERATOR"]
    assert list(DeviceType) == [0, 1, 2, 3, 4]
    assert [p.name for p in ExecutionPreference] == [
        "LOW_POWER",
        "FAST_SINGLE_ANSWER",
        "SUSTAINED_SPEED",
    ]
    assert list(ExecutionPreference) == list(Priority) == [0, 1, 2]
    assert [p.name for p in Priority] == ["LOW", "MEDIUM", "HIGH"]
    assert {s.name: s.value for s in ErrorStatus} == {
        "NONE": 0,
        "DEVICE_UNAVAILABLE": 1,
        "GENERAL_FAILURE": 2,
        "OUTPUT_INSUFFICIENT_SIZE": 3,
        "INVALID_ARGUMENT": 4,
        "MISSED_DEADLINE_TRANSIENT": 5,
        "MISSED_DEADLINE_PERSISTENT": 6,
        "RESOURCE_EXHAUSTED_TRANSIENT": 7,
        "RESOURCE_EXHAUSTED_PERSISTENT": 8,
        "DEAD_OBJECT": 10000,
    }
    assert {lifetime.name: lifetime.value for lifetime in OperandLifeTime} == {
        "TEMPORARY_VARIABLE": 0,
        "SUBGRAPH_INPUT": 1,
        "SUBGRAPH_OUTPUT": 2,
        "CONSTANT_COPY": 3,
        "CONSTANT_REFERENCE": 4,
        "NO_VALUE": 5,
        "SUBGRAPH": 6,
        "POINTER": 7,
    }
    assert [f.name for f in FusedActivationFunc] == ["NONE", "RELU", "RELU1", "RELU6"]
    assert {p.name: p.value for p in PaddingScheme} == {"SAME": 1, "VALID": 2}
    assert [s.name for s in DeviceStatus] == ["AVAILABLE", "BUSY", "OFFLINE", "UNKNOWN"]
    assert {m.name: m.value for m in MeasureTiming} == {"NO": 0, "YES": 1}


def test_limits_are_those_of_the_hal() -> None:
    assert limits.BYTE_SIZE_OF_CACHE_TOKEN == 32
    assert limits.MAX_NUMBER_OF_CACHE_FILES == 32
    assert limits.OPERAND_TYPE_BASE_MAX == 0xFFFF
    assert limits.DEFAULT_LOOP_TIMEOUT_NS == 2_000_000_000
    assert limits.MAX_LOOP_TIMEOUT_NS == 15_000_000_000
    assert limits.NO_TIMING == 2**64 - 1
