"""ModelOperand: an operand of a model that is being built, with its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import ExtraParams, Model, Operand
from nnburst.runtime.objects.memory import Memory

#: NNAPI: ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES.
MAX_IMMEDIATELY_COPIED: Final = 128


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A constant that lies in a memory."""

    memory: Memory
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A finished model as others refer to it.

    Attributes:
        model: with the client's numbers and order.
        relaxed: of the main and each referenced model, whether float32 may be computed as float16.
        memories: of its pools.
    """

    model: Model
    relaxed: tuple[bool, ...]
    memories: tuple[Memory, ...]


@dataclass(slots=True)
class ModelOperand:
    """An operand and where its value comes from.

    Attributes:
        description: type, dimensions and quantisation.
        lifetime: set by the calls that give values, and that list inputs and outputs.
        extra_params: per-channel scales or an extension's bytes.
        value: a small constant's bytes, a view of a large one, a range of a memory, or a model.
    """

    description: Operand
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    extra_params: ExtraParams = None
    value: bytes | memoryview | MemoryRange | BuiltModel | None = field(default=None, repr=False)

    def as_operand(self) -> Operand:
        """All that is known of it but its value."""
        return replace(self.description, extra_params=self.extra_params)

    def give(
        self, lifetime: OperandLifeTime, value: bytes | memoryview | MemoryRange | BuiltModel | None
    ) -> None:
        """Set its value; the last one counts."""
        self.lifetime, self.value = lifetime, value
