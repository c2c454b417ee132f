"""How an extension's types are numbered: a model's prefix above the extension's own 16 bits.

HIDL and canonical have 16 bits of prefix, AIDL 15 (its types are positive int32). Prefix 0 is the
core's.

NNAPI: ExtensionTypeEncoding, OperandTypeRange, OperationTypeRange.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nnburst.compat.layouts.levels import is_aidl
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.operand_types import is_extension

TYPE_BITS: Final = 16
PREFIX_BITS: Final = 16
AIDL_PREFIX_BITS: Final = 15

_TYPE_MAX: Final = 2**TYPE_BITS - 1


class ExtensionType(NamedTuple):
    """Both halves of an extension's operand or operation type."""

    prefix: int
    type: int


def prefix_bits(level: FeatureLevel) -> int:
    """Bits of a prefix in that version."""
    return AIDL_PREFIX_BITS if is_aidl(level) else PREFIX_BITS


def encode(prefix: int, type_within: int, level: FeatureLevel = FeatureLevel.V1_3) -> int:
    """The code (uint32) of an extension's type.

    Raises:
        InvalidArgument: the prefix is 0 or has too many bits, or the type has.
    """
    highest = 2 ** prefix_bits(level) - 1
    if not 0 < prefix <= highest:
        raise InvalidArgument(f"prefix: {prefix}, expected 1 to {highest} in {level.name}")
    if not 0 <= type_within <= _TYPE_MAX:
        raise InvalidArgument(f"type_within: {type_within}, expected 0 to {_TYPE_MAX}")
    return prefix << TYPE_BITS | type_within


def decode(code: int) -> ExtensionType:
    """The halves of an extension's code, read as uint32: 0xAAAABBBB is prefix 0xAAAA, type 0xBBBB.

    Raises:
        InvalidArgument: the code is a core type's, or has more than 32 bits.
    """
    if not is_extension(code) or not -(2**31) <= code <= UINT32_MAX:
        raise InvalidArgument(f"code: {code:#x} belongs to no extension")
    return ExtensionType((code & UINT32_MAX) >> TYPE_BITS, code & _TYPE_MAX)
