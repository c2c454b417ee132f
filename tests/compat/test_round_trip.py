"""HAL → canonical → HAL loses nothing, in any version, for anything that is valid there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.strategies import (
    FL,
    LEVELS,
    SIGNATURES,
    all_capabilities,
    models,
    requests,
    timings,
)
from nnburst.compat import aidl, convert, v1_3
from nnburst.compat.enums import is_known
from nnburst.hal.enums import (
    DeviceStatus,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    MeasureTiming,
    Priority,
)
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation
from nnburst.hal.model import ExtensionNameAndPrefix
from nnburst.hal.types import BufferDesc, BufferRole, OutputShape, TokenValuePair

each_level = pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)


def round_trip(value: Any, level: FL) -> Any:
    canonical = convert.to_canonical(value, level, signatures=SIGNATURES)
    return convert.to_hal(canonical, level, signatures=SIGNATURES)


@pytest.mark.every_day("V1_0", "V1_3", "AIDL_V4")
@each_level
@given(data=st.data())
def test_models_survive(level: FL, data: st.DataObject) -> None:
    model = data.draw(models(level))
    assert round_trip(model, level) == model


@pytest.mark.every_day("V1_0", "V1_3", "AIDL_V4")
@each_level
@given(data=st.data())
def test_models_survive_every_later_hidl_version(level: FL, data: st.DataObject) -> None:
    model = data.draw(models(level))
    canonical = convert.to_canonical(model, level, signatures=SIGNATURES)
    for later in range(level, (FL.AIDL_V4 if level >= FL.AIDL_V1 else FL.V1_3) + 1):
        newer = convert.to_hal(canonical, FL(later), signatures=SIGNATURES)
        assert convert.to_canonical(newer, FL(later), signatures=SIGNATURES) == canonical


@pytest.mark.every_day("V1_0", "V1_3", "AIDL_V4")
@each_level
@given(data=st.data())
def test_requests_survive(level: FL, data: st.DataObject) -> None:
    request = data.draw(requests(level))
    assert round_trip(request, level) == request


@pytest.mark.every_day("V1_0", "V1_3", "AIDL_V4")
@each_level
@given(data=st.data())
def test_capabilities_survive(level: FL, data: st.DataObject) -> None:
    capabilities = data.draw(all_capabilities(level))
    assert round_trip(capabilities, level) == capabilities


@pytest.mark.parametrize("level", [level for level in LEVELS if level >= FL.V1_2])
@given(data=st.data())
def test_timings_survive(level: FL, data: st.DataObject) -> None:
    timing = data.draw(timings(level))
    assert round_trip(timing, level) == timing


@each_level
@pytest.mark.parametrize(
    "kind",
    [ErrorStatus, DeviceStatus, DeviceType, ExecutionPreference, Priority, MeasureTiming],
    ids=lambda kind: kind.__name__,
)
def test_enumerations_survive(level: FL, kind: type[Any]) -> None:
    known = [member for member in kind if is_known(member, level)]
    assert [round_trip(member, level) for member in known] == known


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.floats(2**-20, 1.0, width=32))
def test_buffer_roles_survive(model: int, index: int, chance: float) -> None:
    hidl, canonical = v1_3.BufferRole(model, index, chance), BufferRole(model, index, chance)
    assert convert.to_canonical(hidl, FL.V1_3) == canonical
    assert round_trip(hidl, FL.V1_3) == hidl
    assert round_trip(canonical, FL.AIDL_V1) == canonical


@pytest.mark.parametrize(
    "value",
    [
        BufferDesc((1, 0, 2)),
        OutputShape((3, 4), False),
        Extension("com.example.x", (ExtensionOperandTypeInformation(0xFFFF, True, 8),)),
        bytes(range(32)),
    ],
)
def test_what_all_versions_share_survives(value: object) -> None:
    for level in (FL.V1_3, FL.AIDL_V1, FL.AIDL_V4):
        assert round_trip(value, level) == value


_hints = st.lists(
    st.builds(TokenValuePair, st.integers(0, 2**31 - 1), st.binary(max_size=3)),
    max_size=3,
    unique_by=lambda hint: hint.token,
).map(tuple)
_extensions = st.sampled_from([(), (ExtensionNameAndPrefix("a.b", 0x7FFF),)])
_limits = st.integers(-1, 2**63 - 1)


@given(st.builds(aidl.ExecutionConfig, st.booleans(), _limits, _hints, _extensions))
def test_execution_configurations_survive(config: aidl.ExecutionConfig) -> None:
    assert round_trip(config, FL.AIDL_V4) == config


@given(
    st.builds(
        aidl.PrepareModelConfig,
        st.sampled_from(ExecutionPreference),
        st.sampled_from(Priority),
        _limits,
        st.lists(st.integers(0, 9), max_size=2).map(tuple),
        st.lists(st.integers(0, 9), max_size=2).map(tuple),
        st.binary(min_size=32, max_size=32),
        _hints,
        _extensions,
    )
)
def test_preparation_configurations_survive(config: aidl.PrepareModelConfig) -> None:
    assert round_trip(config, FL.AIDL_V4) == config
