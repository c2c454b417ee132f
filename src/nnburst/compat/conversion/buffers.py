"""BufferRole: HIDL calls it frequency, AIDL probability; both mean the same.

NNAPI: 1.3 and aidl Conversions.cpp convert(BufferRole), convert(BufferDesc).
"""

from __future__ import annotations

from nnburst.compat.layouts import v1_3
from nnburst.compat.layouts.levels import check_range, check_type, is_aidl
from nnburst.hal.buffers import BufferDesc, BufferRole
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.limits import INT32_MAX, UINT32_MAX


def role_to_canonical(role: v1_3.BufferRole | BufferRole, level: FeatureLevel) -> BufferRole:
    """From a version's role.

    Raises:
        InvalidArgument: of another version, or a number does not fit the version's field.
    """
    check_type(role, BufferRole if is_aidl(level) else v1_3.BufferRole, level)
    _check("role", (role.model_index, role.io_index), level)
    if isinstance(role, BufferRole):
        return role
    return BufferRole(role.model_index, role.io_index, role.frequency)


def role_to_hal(role: BufferRole, level: FeatureLevel) -> v1_3.BufferRole | BufferRole:
    """Into a version's role.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    _check("role", (role.model_index, role.io_index), level)
    if is_aidl(level):
        return role
    return v1_3.BufferRole(role.model_index, role.io_index, role.probability)


def check_desc(desc: BufferDesc, level: FeatureLevel) -> BufferDesc:
    """The description, which is the same struct in all versions.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    _check("dimensions", desc.dimensions, level)
    return desc


def _check(name: str, numbers: tuple[int, ...], level: FeatureLevel) -> None:
    check_range(name, numbers, 0, INT32_MAX if is_aidl(level) else UINT32_MAX)
