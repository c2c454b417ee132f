"""Rules S1 to S11 (and M6's names): small values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, OperandType, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.types import Capabilities, OperandPerformance, PerformanceInfo, Timing
from nnburst.hal.validation import values

FINE = PerformanceInfo(1.0, 0.5)


def capabilities(*types: int, info: PerformanceInfo = FINE, **fields: PerformanceInfo) -> None:
    table = tuple(OperandPerformance(code, info) for code in types)
    names = ("relaxed_float32_to_float16_performance_scalar", "if_performance",
             "relaxed_float32_to_float16_performance_tensor", "while_performance")  # fmt: skip
    infos = dict.fromkeys(names, FINE) | fields
    values.validate_capabilities(Capabilities(operand_performance=table, **infos))


def extensions(*named: tuple[str, list[tuple[int, int]]]) -> None:
    values.validate_extensions(
        Extension(name, tuple(ExtensionOperandTypeInformation(t, True, size) for t, size in types))
        for name, types in named
    )


def duration(nanoseconds: int | None) -> None:
    values.validate_duration("deadline", nanoseconds)


def tokens(*listed: int) -> None:
    values.validate_unique_tokens("hints", listed)


def device_type(code: int, level: FeatureLevel = FeatureLevel.V1_2) -> None:
    values.validate_device_type(code, level)


Check = Callable[..., object]
#: rule -> check, argument lists that pass, argument lists that do not
TABLE: dict[str, tuple[Check, list[tuple], list[tuple]]] = {
    "S1": (values.validate_execution_preference, [(0,), (1,), (2,)], [(-1,), (3,)]),
    "S2": (values.validate_priority, [(0,), (1,), (2,)], [(-1,), (3,)]),
    "S3": (
        capabilities,
        [(), (0, 3, 10001)],
        [(3, 0), (3, 3), (99,), (OperandType.SUBGRAPH,), (0x10001,)],
    ),
    "S4": (
        extensions,
        [(), (("a.b", [(0, 1), (65535, 4)]), ("a.c", []))],
        [
            (("a", []),),
            (("a.b", []), ("a.b", [])),
            (("a.b", [(0, 0)]),),
            (("a.b", [(0, -1)]),),
            (("a.b", [(0, 1), (0, 1)]),),
            (("a.b", [(65536, 1)]),),
            (("a.b", [(-1, 1)]),),
        ],
    ),
    "S5": (
        values.validate_timing,
        [(Timing(),), (Timing(1, 1),), (Timing(9, NO_TIMING),), (Timing(NO_TIMING, 0),)],
        [(Timing(2, 1),)],
    ),
    "S6": (duration, [(None,), (0,), (2**63,)], [(-1,)]),
    "S7": (tokens, [(), (1, 2)], [(1, 2, 1)]),
    "S8": (values.validate_probability, [(1.0,), (1e-9,)], [(0.0,), (1.1,), (float("nan"),)]),
    "S9": (
        device_type,
        [(1,), (4,), (0, FeatureLevel.V1_1)],
        [(0,), (5,), (-1, FeatureLevel.V1_0)],
    ),
    "S10": (values.validate_sync_fence, [(0,), (3,)], [(-1,)]),
    "S11": (values.validate_cache_token, [(bytes(32),)], [(b"",), (bytes(31),), (bytes(33),)]),
}
GOOD = [
    pytest.param(check, given, marks=pytest.mark.rule(rule, "accepts"))
    for rule, (check, good, _) in TABLE.items()
    for given in good
]
BAD = [
    pytest.param(rule, check, given, marks=pytest.mark.rule(rule, "rejects"))
    for rule, (check, _, bad) in TABLE.items()
    for given in bad
]


@pytest.mark.parametrize(("check", "given"), GOOD)
def test_valid_value_passes(check: Check, given: tuple) -> None:
    check(*given)


@pytest.mark.parametrize(("rule", "check", "given"), BAD)
def test_invalid_value_is_refused_by_its_rule(rule: str, check: Check, given: tuple) -> None:
    with pytest.raises(InvalidArgument, match=f"^validation:{rule}: "):
        check(*given)


@pytest.mark.parametrize(
    "bad",
    [
        PerformanceInfo(0.0, 1.0),
        PerformanceInfo(1.0, 0.0),
        PerformanceInfo(-0.5, 1.0),
        PerformanceInfo(1.0, float("nan")),
    ],
)
@pytest.mark.parametrize(
    "field",
    [
        "relaxed_float32_to_float16_performance_scalar",
        "relaxed_float32_to_float16_performance_tensor",
        "if_performance",
        "while_performance",
        "info",
    ],
)
def test_performance_must_be_positive_everywhere(field: str, bad: PerformanceInfo) -> None:
    with pytest.raises(InvalidArgument, match=r"^validation:S3: .* must be positive"):
        capabilities(3, **{field: bad})


def test_codes_come_back_as_enums() -> None:
    assert values.validate_execution_preference(2) is ExecutionPreference.SUSTAINED_SPEED
    assert values.validate_priority(0) is Priority.LOW
    assert values.validate_device_type(2, FeatureLevel.V1_3) is DeviceType.CPU


def test_long_names_are_judged_in_linear_time_and_quoted_short() -> None:
    with pytest.raises(InvalidArgument) as caught:
        extensions(("." * 200_000 + "!", []))
    assert len(str(caught.value)) < 200
