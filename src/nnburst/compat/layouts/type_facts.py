"""The originals' questions about operand types, under their names.

NNAPI: LegacyUtils.h (R: Utils.h). DEVIATES: what aborts the process there raises InvalidArgument.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import is_extension, is_scalar, size_bytes


def is_extension_operand_type(kind: int) -> bool:
    """Whether an operand type belongs to an extension."""
    return is_extension(kind)


def is_extension_operation_type(kind: int) -> bool:
    """Whether an operation type belongs to an extension."""
    return is_extension(kind)


def non_extension_operand_type_is_scalar(kind: int) -> bool:
    """Whether a core type is a scalar.

    Raises:
        InvalidArgument: `kind` is not a core type.
    """
    return is_scalar(_core(kind))


def non_extension_size_of_data(kind: int, dimensions: Sequence[int]) -> int:
    """Bytes of the data; 0 if a dimension or the rank is unknown.

    Raises:
        InvalidArgument: `kind` is not a core type, or the size does not fit uint32.
    """
    size = size_bytes(_core(kind), dimensions)
    if size > UINT32_MAX:
        raise InvalidArgument(
            f"validation:O5: dimensions: {size} bytes, at most {UINT32_MAX} are possible"
        )
    return size


def non_extension_operand_size_of_data(operand: Operand) -> int:
    """`non_extension_size_of_data` of an operand's type and dimensions."""
    return non_extension_size_of_data(operand.type, operand.dimensions)


def non_extension_operand_size_of_data_overflows_uint32(
    kind: int, dimensions: Sequence[int]
) -> bool:
    """Whether the data would have more than 2**32 - 1 bytes.

    Raises:
        InvalidArgument: `kind` is not a core type.
    """
    return size_bytes(_core(kind), dimensions) > UINT32_MAX


def tensor_has_unspecified_dimensions(kind: int, dimensions: Sequence[int]) -> bool:
    """Whether a tensor's rank or one of its dimensions is unknown.

    A type of an extension counts as a tensor: only the extension defines its scalars.

    Raises:
        InvalidArgument: `kind` is a core scalar.
    """
    if not is_extension(kind) and is_scalar(_core(kind)):
        raise InvalidArgument(f"kind: {OperandType(kind).name} is not a tensor")
    return not dimensions or 0 in dimensions


def _core(kind: int) -> OperandType:
    try:
        return OperandType(kind)
    except ValueError:
        raise InvalidArgument(f"kind: {kind:#x} is not a core operand type") from None
