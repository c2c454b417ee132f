"""What a memory from a descriptor is for: which inputs and outputs of which compilations."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnburst.hal.enums import OperandType
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import is_extension, size_bytes
from nnburst.runtime.planning.plan import Direction


@dataclass(frozen=True, slots=True)
class Role:
    """One use: an input or an output of a compilation.

    Attributes:
        compilation: identity of the compilation.
        direction: input or output.
        index: which of its inputs or outputs.
    """

    compilation: object
    direction: Direction
    index: int

    @property
    def key(self) -> tuple[int, Direction, int]:
        """What distinguishes it from others."""
        return id(self.compilation), self.direction, self.index

    def __str__(self) -> str:
        return f"{self.direction.value.lower()} {self.index} of this compilation"


@dataclass(frozen=True)
class MemoryRoles:
    """All uses of one memory.

    Attributes:
        roles: keeps the compilations alive.
        operand: type and quantisation of all, and the dimensions that they give together.
    """

    roles: tuple[Role, ...]
    operand: Operand
    keys: frozenset[tuple[int, Direction, int]] = field(init=False)

    def __post_init__(self) -> None:
        """Collect the keys."""
        object.__setattr__(self, "keys", frozenset(role.key for role in self.roles))

    def size_bytes(self, dimensions: tuple[int, ...]) -> int:
        """Bytes that an operand with these dimensions has; 0 if they are not known in full."""
        if is_extension(self.operand.type):
            return 0
        return size_bytes(OperandType(self.operand.type), dimensions)

    def same_operand(self, other: MemoryRoles) -> bool:
        """Whether type and quantisation are the same."""
        a, b = self.operand, other.operand
        return (a.type, a.scale, a.zero_point, a.extra_params) == (
            b.type,
            b.scale,
            b.zero_point,
            b.extra_params,
        )
