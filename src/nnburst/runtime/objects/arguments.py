"""Keeps the inputs and outputs of an execution as the application has set them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.client.memory import find_memory
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import BadState, GeneralFailure, InvalidArgument, UnexpectedNull
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import Operand
from nnburst.runtime.argument import Argument, Bytes, Outcome, checked_outcome
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.extensions import TYPES
from nnburst.runtime.objects.memory import Memory, Role
from nnburst.runtime.objects.operands import (
    OperandDescription,
    Readable,
    byte_view,
    is_fully_specified,
    is_scalar_operand,
)
from nnburst.runtime.planning.plan import Direction

_CORE_SCALARS: Final = (OperandType.OEM,)


@dataclass(slots=True)
class ArgumentInfo:
    """An argument as the application has set it, and the place of its bytes.

    Attributes:
        operand: the model's operand, with the dimensions that the argument's type gave it.
        view: bytes of a pointer argument.
        memory: memory of a memory argument.
        offset: offset in the memory.
        length: number of bytes in the memory; 0 for the whole memory.
    """

    operand: Operand
    view: Bytes | None = None
    memory: Memory | None = None
    offset: int = 0
    length: int = 0

    @property
    def is_fully_specified(self) -> bool:
        """Whether the dimensions were known when the argument was set."""
        return is_fully_specified(self.operand, TYPES)

    @property
    def is_in_place(self) -> bool:
        """Whether every computation may use the bytes in place, without a copy."""
        return self.memory is None or (self.memory.is_shared and not self.memory._is_described)

    @property
    def is_fixed(self) -> bool:
        """Whether drivers may use the bytes in place later: in shared memory, in a buffer, or omitted."""
        if self.memory is None:
            return self.view is None or find_memory(self.view) is not None
        return self.memory.is_shared or self.memory._buffer is not None

    def check_initialized(self, index: int) -> None:
        """Check that an input in a device's memory holds a value of the argument's dimensions (RT:E5).

        Raises:
            GeneralFailure: it holds none, or one of other dimensions.
        """
        memory = self.memory
        if memory is None or not memory._is_described:
            return
        if not memory.is_initialized:
            raise GeneralFailure(f"input {index}: its memory holds nothing")
        if memory.dimensions != self.operand.dimensions:
            raise GeneralFailure(
                f"input {index}: its memory holds {list(memory.dimensions)}, the argument has"
                f" {list(self.operand.dimensions)}"
            )

    def as_argument(self, *, is_output: bool = False) -> Argument:
        """The argument as devices take it; staged memory is read now, unless it is only written.

        Raises:
            Unmappable: the memory cannot be read.
        """
        if self.memory is None:
            return Argument(self.view, self.operand.dimensions)
        if self.memory._buffer is not None:
            return Argument(None, self.operand.dimensions, self.memory._buffer)
        content = self.memory._room if is_output else self.memory.read
        return Argument(content(self.offset, self.length), self.operand.dimensions)

    def write_back(self, argument: Argument) -> None:
        """Write the results back into staged memory.

        Raises:
            Unmappable: the memory cannot be written.
        """
        if self.memory is not None and argument.bytes is not None:
            self.memory.write(self.offset, argument.bytes)


def input_arguments(infos: Sequence[ArgumentInfo]) -> list[Argument]:
    """The inputs as devices take them.

    Raises:
        GeneralFailure: a device's memory holds no value of the argument's dimensions.
        Unmappable: a staged memory cannot be read.
    """
    inputs = []
    for index, info in enumerate(infos):
        info.check_initialized(index)
        inputs.append(info.as_argument())
    return inputs


def output_arguments(infos: Sequence[ArgumentInfo]) -> list[Argument]:
    """The outputs as devices take them."""
    return [info.as_argument(is_output=True) for info in infos]


def described(
    operand: Operand, description: OperandDescription | None, what: str, *, may_be_unknown: bool
) -> Operand:
    """The model's operand with the dimensions of an argument's type (RT:E2).

    Raises:
        InvalidArgument: the type is not valid, contradicts the model, or leaves open dimensions that must
            be known.
    """
    if description is None:
        if not may_be_unknown and not is_fully_specified(operand, TYPES):
            raise InvalidArgument(
                f"{what}: the model leaves dimensions {list(operand.dimensions)} open, and no type is given"
            )
        return operand
    given = description.checked(f"{what}: type", TYPES)
    if not may_be_unknown and not is_fully_specified(given, TYPES):
        raise InvalidArgument(
            f"{what}: type: dimensions {list(given.dimensions)} are not all known"
        )
    known = operand.dimensions
    if known and len(known) != len(given.dimensions):
        raise InvalidArgument(
            f"{what}: type: rank {len(given.dimensions)}, the model declares {len(known)}"
        )
    for axis, (a, b) in enumerate(zip(known, given.dimensions, strict=False)):
        if a not in (0, b):
            raise InvalidArgument(f"{what}: type: dimension {axis} is {b}, the model declares {a}")
    if is_scalar_operand(operand, TYPES) and given.dimensions:
        raise InvalidArgument(f"{what}: type: a scalar has no dimensions")
    return replace(operand, dimensions=given.dimensions)


def exact_length(operand: Operand) -> int:
    """The exact number of bytes of an argument without padding; 0 if it is not known."""
    if operand.type in _CORE_SCALARS or not is_fully_specified(operand, TYPES):
        return 0
    return TYPES.size_bytes(operand)


def checked_length(operand: Operand, length: int, what: str, *, padding: bool) -> int:
    """The bytes of `length` that a computation uses: the operand's size, or all if that is not known.

    Raises:
        InvalidArgument: RT:E2: there are too few bytes, or too many without padding.
    """
    if not 0 <= length <= UINT32_MAX:
        raise InvalidArgument(f"{what}: length: {length}, expected 0 to {UINT32_MAX}")
    needed = exact_length(operand)
    if needed > length:
        raise InvalidArgument(f"{what}: length: {length}, the operand has {needed} bytes")
    if needed and needed < length and not padding:
        raise InvalidArgument(
            f"{what}: length: {length}, the operand has {needed} bytes and padding is not enabled"
        )
    return length


def as_bytes(view: memoryview) -> Bytes:
    """The bytes of a view that is not empty, in place."""
    found: Bytes = np.frombuffer(view, np.uint8)
    return found


def checked(outcome: Outcome, outputs: Sequence[ArgumentInfo]) -> Outcome:
    """The outcome; OP_FAILED if it reports an impossible shape of an output (RT:R10)."""
    return checked_outcome(
        outcome,
        [info.operand.dimensions for info in outputs],
        [not is_scalar_operand(info.operand, TYPES) for info in outputs],
        [_element_size(info.operand) for info in outputs],
    )


def _element_size(operand: Operand) -> int:
    return TYPES.size_bytes(replace(operand, dimensions=(1,) if operand.dimensions else ()))


class ArgumentList:
    """The inputs or the outputs of an execution, each set once, in any order.

    Attributes:
        were_set: whether a valid argument was given, even if setting it failed.
    """

    def __init__(
        self, executable: Executable, direction: Direction, check: Callable[[str], None]
    ) -> None:
        """Take arguments for `executable`; `check(name)` raises if the argument may no longer be set."""
        interface = executable.interface
        self._executable: Final = executable
        self._direction: Final = direction
        self._check: Final = check
        self._operands: Final = (
            interface.inputs if direction == Direction.INPUT else interface.outputs
        )
        self._infos: list[ArgumentInfo | None] = [None] * len(self._operands)
        self.were_set = False

    @property
    def given(self) -> list[ArgumentInfo]:
        """The arguments that are set."""
        return [info for info in self._infos if info is not None]

    @property
    def missing(self) -> str | None:
        """The name of the first argument that is not set, for a message; None if all are set."""
        if None not in self._infos:
            return None
        return self._name(self._infos.index(None))

    def clear(self) -> None:
        """Remove all arguments."""
        self._infos = [None] * len(self._infos)

    def set_pointer(
        self,
        index: int,
        data: Readable | None,
        description: OperandDescription | None,
        length: int | None,
        *,
        padding: bool,
    ) -> None:
        """Set an argument in the application's memory; see `Execution.set_input`."""
        what = self._name(index)
        if data is None and length:
            raise UnexpectedNull(f"{what}: data is None, length {length}")
        operand = self._operand(index, what)
        is_output = self._direction == Direction.OUTPUT
        may_be_unknown = is_output or data is None
        operand = described(operand, description, what, may_be_unknown=may_be_unknown)
        self._check_unset(index, what)
        self.were_set = True
        if data is None:
            info = ArgumentInfo(operand)
        else:
            view = byte_view(what, data, writable=is_output)
            if not view.nbytes:
                raise InvalidArgument(f"{what}: length: 0, although data is given")
            used = checked_length(operand, view.nbytes, what, padding=padding)
            info = ArgumentInfo(operand, as_bytes(view), length=used)
        self._infos[index] = info

    def set_memory(
        self,
        index: int,
        memory: Memory,
        offset: int,
        length: int,
        description: OperandDescription | None,
        *,
        padding: bool,
    ) -> None:
        """Set an argument in a memory object; see `Execution.set_input_from_memory`."""
        what = self._name(index)
        if memory is None:
            raise UnexpectedNull(f"{what}: memory is None")
        operand = self._operand(index, what)
        may_be_unknown = self._direction == Direction.OUTPUT
        operand = described(operand, description, what, may_be_unknown=may_be_unknown)
        role = Role(self._executable, self._direction, index)
        dimensions = None if description is None else operand.dimensions
        memory._check_argument(role, dimensions, offset, length)
        self._check_unset(index, what)
        self.were_set = True
        if not memory._is_described:
            length = checked_length(operand, length, what, padding=padding)
        self._infos[index] = ArgumentInfo(operand, memory=memory, offset=offset, length=length)

    def _name(self, index: int) -> str:
        return f"{self._direction.value.lower()} {index}"

    def _operand(self, index: int, what: str) -> Operand:
        self._check(what)
        if not isinstance(index, int) or not 0 <= index < len(self._operands):
            raise InvalidArgument(f"{what}: index: {index} of {len(self._operands)}")
        return self._operands[index]

    def _check_unset(self, index: int, what: str) -> None:
        if self._infos[index] is not None:
            raise BadState(f"{what}: it is set already")
