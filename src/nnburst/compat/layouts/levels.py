"""Which feature levels share structs, and the errors for values of the wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument

T = TypeVar("T")

#: A struct of a version: which one, only the feature level shows.
HalStruct = Any

HIDL: Final = (FeatureLevel.V1_0, FeatureLevel.V1_1, FeatureLevel.V1_2, FeatureLevel.V1_3)


def is_aidl(level: FeatureLevel) -> bool:
    """Whether the level belongs to the AIDL interface, whose versions share their structs."""
    return level >= FeatureLevel.AIDL_V1


def latest(table: Mapping[FeatureLevel, T], level: FeatureLevel) -> T:
    """The entry of the highest level that is not above `level`; there must be one."""
    return table[max(known for known in table if known <= level)]


def pick(struct: type[HalStruct], fields: Mapping[str, object]) -> HalStruct:
    """A `struct` from those of the fields that it has."""
    return struct(**{name: fields[name] for name in struct.__struct_fields__})


def check_type(value: object, expected: type[Any], level: FeatureLevel) -> None:
    """Refuse a struct of another version.

    Raises:
        InvalidArgument: `value` is no `expected`.
    """
    if type(value) is not expected:
        found, wanted = (f"{t.__module__}.{t.__name__}" for t in (type(value), expected))
        raise InvalidArgument(f"value: {found} is not {level.name}'s {wanted}")


def check_range(name: str, values: tuple[int, ...], low: int, high: int) -> None:
    """Refuse integers that a version's field cannot hold.

    Raises:
        InvalidArgument: one is outside [low, high].
    """
    for value in values:
        if not low <= value <= high:
            raise InvalidArgument(f"{name}: {value} is outside the field's {low} to {high}")
