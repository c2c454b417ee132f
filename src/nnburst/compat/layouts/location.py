"""DataLocation: AIDL's has padding, which its canonical form keeps."""

from __future__ import annotations

from nnburst.compat.layouts.levels import HalStruct, check_range, check_type, is_aidl
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.model import DataLocation

_INT64_MAX = 2**63 - 1


class PaddedLocation(DataLocation, frozen=True):
    """A location with bytes behind the data that may be used with it.

    AIDL's DataLocation; canonical if `padding` is not 0.
    """

    padding: int = 0


def to_canonical(location: DataLocation, level: FeatureLevel) -> DataLocation:
    """From a version's location.

    Raises:
        InvalidArgument: of another version, or a number does not fit the version's field.
    """
    check_type(location, PaddedLocation if is_aidl(level) else DataLocation, level)
    _check(location, level)
    if isinstance(location, PaddedLocation) and not location.padding:
        return DataLocation(location.pool_index, location.offset, location.length)
    return location


def to_hal(location: DataLocation, level: FeatureLevel) -> HalStruct:
    """Into a version's location; HIDL has no padding, so it is left out there.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    _check(location, level)
    pool, offset, length = location.pool_index, location.offset, location.length
    if is_aidl(level):
        return PaddedLocation(pool, offset, length, padding(location))
    return DataLocation(pool, offset, length)


def padding(location: DataLocation) -> int:
    """Bytes behind the data; 0 if the location leaves it out."""
    return location.padding if isinstance(location, PaddedLocation) else 0


def _check(location: DataLocation, level: FeatureLevel) -> None:
    bounds = (INT32_MAX, _INT64_MAX) if is_aidl(level) else (UINT32_MAX, UINT32_MAX)
    check_range("location.pool_index", (location.pool_index,), 0, bounds[0])
    check_range("location", (location.offset, location.length, padding(location)), 0, bounds[1])
