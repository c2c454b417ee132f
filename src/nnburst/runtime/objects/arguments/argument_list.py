"""ArgumentList: the inputs or the outputs of an execution, as the application sets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nnburst.hal.errors import BadState, InvalidArgument, UnexpectedNull
from nnburst.hal.model import Operand
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.memory.roles import Role
from nnburst.runtime.objects.arguments.argument_info import (
    ArgumentInfo,
    as_bytes,
    checked_length,
    described,
)
from nnburst.runtime.objects.buffers import Readable, byte_view
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.operand_description import OperandDescription
from nnburst.runtime.planning.plan import Direction


class ArgumentList:
    """Each argument once, in any order.

    Attributes:
        were_set: whether one was tried to be set, and was fit to be.
    """

    def __init__(
        self, executable: Executable, direction: Direction, check: Callable[[str], None]
    ) -> None:
        """Of executions of `executable`; `check` refuses, by the argument's name, what comes too late."""
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
        """Those that are set."""
        return [info for info in self._infos if info is not None]

    @property
    def missing(self) -> str | None:
        """The first that is not set, for a message."""
        if None not in self._infos:
            return None
        return self._name(self._infos.index(None))

    def clear(self) -> None:
        """Let go of all."""
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
        """Set one that lies in the application's memory; see `Execution.set_input`."""
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
        """Set one that lies in a memory; see `Execution.set_input_from_memory`."""
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
