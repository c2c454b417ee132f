"""OperandDescription: type, dimensions and quantisation of an operand, as the framework's calls take them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import SCALARS, is_extension, size_bytes
from nnburst.hal.validation.broken import Broken
from nnburst.hal.validation.operand import Surroundings, validate_operand_type
from nnburst.runtime.extensions.type_registry import TypeRegistry

#: Nothing that a value refers to: only type, dimensions and quantisation are looked at.
_AROUND = Surroundings(0, (), 0, frozenset(), FeatureLevel.AIDL_V4)


@dataclass(frozen=True, slots=True)
class OperandDescription:
    """What an operand looks like (NNAPI: ANeuralNetworksOperandType).

    Attributes:
        type: an `OperandType`, or the code of an extension's type.
        dimensions: row-major extents; 0 is unknown, empty a scalar or a tensor of unknown rank. None stands
            for the C interface's null pointer that comes with a count, which is refused.
        scale: quantisation step.
        zero_point: stored value that stands for 0.
    """

    type: int
    dimensions: Sequence[int] | None = ()
    scale: float = 0.0
    zero_point: int = 0

    def checked(self, what: str, types: TypeRegistry) -> Operand:
        """The operand that this describes, without a value.

        Args:
            what: name of the operand, for messages.
            types: the extensions' types.

        Raises:
            InvalidArgument: RT:M3: the type is unknown, or dimensions or quantisation do not fit it.
        """
        if self.dimensions is None:
            raise InvalidArgument(f"{what}: dimensions are null although their count is not 0")
        try:
            operand = Operand(
                type=operator.index(self.type),
                dimensions=tuple(map(operator.index, self.dimensions)),
                scale=float(self.scale),
                zero_point=operator.index(self.zero_point),
            )
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{what}: {error}") from None
        try:
            if is_extension(operand.type):
                _check_extension_operand(operand, types)
            else:
                kind = validate_operand_type(operand, _AROUND)
                if kind is not None and size_bytes(kind, operand.dimensions) > UINT32_MAX:
                    raise Broken("O5", f"{list(operand.dimensions)} needs more than 2^32 bytes")  # noqa: TRY301
        except Broken as broken:
            raise broken.at(what) from None
        return operand


def _check_extension_operand(operand: Operand, types: TypeRegistry) -> None:
    known = types.find_operand_type(operand.type)
    if known is None:
        raise Broken("M9", f"type {operand.type:#x} belongs to no extension that a device has")
    validate_operand_type(operand, _AROUND._replace(prefixes=types.prefixes))
    if not known.is_tensor and operand.dimensions:
        raise Broken(
            "O2", f"a scalar of type {operand.type:#x} has {len(operand.dimensions)} dimensions"
        )
    if types.size_bytes(operand) > UINT32_MAX:
        raise Broken("O5", f"{list(operand.dimensions)} needs more than 2^32 bytes")


def is_fully_specified(operand: Operand, types: TypeRegistry) -> bool:
    """Whether its dimensions are all known (scalars have none)."""
    if is_scalar_operand(operand, types):
        return True
    return bool(operand.dimensions) and 0 not in operand.dimensions


def is_scalar_operand(operand: Operand, types: TypeRegistry) -> bool:
    """Whether it is a scalar, of the core or of an extension."""
    if is_extension(operand.type):
        known = types.find_operand_type(operand.type)
        return known is not None and not known.is_tensor
    return operand.type in SCALARS
