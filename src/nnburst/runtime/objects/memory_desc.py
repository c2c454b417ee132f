"""Describes the uses of a memory, and makes a memory that fits them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from nnburst.hal.errors import (
    BadState,
    GeneralFailure,
    InvalidArgument,
    NnburstError,
    UnexpectedNull,
)
from nnburst.hal.model import Operand
from nnburst.hal.validation.request import combine_dimensions
from nnburst.hal.validation.values import Broken
from nnburst.runtime.devices.device import Device, Use
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.extensions import TYPES
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.memory import Memory, MemoryRoles, Role, new_pool
from nnburst.runtime.objects.operands import is_scalar_operand
from nnburst.runtime.planning.plan import Direction
from nnburst.runtime.runtime_object import RuntimeObject

logger = logging.getLogger("nnburst.runtime")


class MemoryDesc(RuntimeObject):
    """The uses of a memory (NNAPI: ANeuralNetworksMemoryDesc). Not thread-safe until it is finished.

    NNAPI: RT:M14 to M16, MemoryBuilder in Memory.cpp.
    """

    def __init__(self) -> None:
        super().__init__()
        self._roles: Final[list[Role]] = []
        self._executables: Final[list[Executable]] = []
        self._operand: Operand | None = None
        self._dimensions: tuple[int, ...] = ()
        self._completed = False

    def add_input_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """Add a use: the memory will be an input.

        Args:
            compilation: a finished compilation.
            index: index of the input.
            frequency: probability that an execution uses the memory so, in (0, 1].

        Raises:
            UnexpectedNull: `compilation` is None.
            BadState: the descriptor is finished.
            InvalidArgument: an argument breaks RT:M14; BAD_DATA.
        """
        self._add(compilation, Direction.INPUT, index, frequency)

    def add_output_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """Add a use: the memory will be an output. Arguments and errors are those of `add_input_role`."""
        self._add(compilation, Direction.OUTPUT, index, frequency)

    def _add(
        self, compilation: Compilation, direction: Direction, index: int, frequency: float
    ) -> None:
        if compilation is None:
            raise UnexpectedNull("compilation: it is None")
        self._check_building("role")
        name = direction.value.lower()
        try:
            executable = compilation._finished_executable
        except NnburstError as error:
            raise InvalidArgument(f"compilation: {error}") from None
        role = Role(executable, direction, index)
        if any(role.key == known.key for known in self._roles):
            raise InvalidArgument(f"role: {name} {index} of this compilation is there already")
        operand = compilation._operand(direction, index)
        dimensions = self._combined(operand)
        if not 0 < frequency <= 1:
            raise InvalidArgument(f"frequency: {frequency}, expected more than 0, 1 at most")
        self._roles.append(role)
        self._executables.append(executable)
        self._operand, self._dimensions = self._operand or operand, dimensions

    def _combined(self, operand: Operand) -> tuple[int, ...]:
        first = self._operand or operand
        for name in ("type", "scale", "zero_point", "extra_params"):
            if getattr(first, name) != getattr(operand, name):
                raise InvalidArgument(
                    f"role: {name} is {getattr(operand, name)}, that of other roles {getattr(first, name)}"
                )
        if is_scalar_operand(operand, TYPES) and self._dimensions:
            raise InvalidArgument("role: a scalar, although dimensions were set")
        return self._combine("role", operand.dimensions)

    def _combine(self, what: str, dimensions: tuple[int, ...]) -> tuple[int, ...]:
        try:
            return combine_dimensions(self._dimensions, dimensions)
        except Broken as broken:
            raise broken.at(what) from None

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions that the uses and `set_dimensions` give together; 0 is unknown."""
        return self._dimensions

    def set_dimensions(self, dimensions: Sequence[int] | None) -> None:
        """Set dimensions that the uses leave open.

        Args:
            dimensions: row-major extents; 0 leaves one open.

        Raises:
            UnexpectedNull: `dimensions` is None.
            BadState: the descriptor is finished.
            InvalidArgument: RT:M15: they contradict the uses, or the operand is a scalar; BAD_DATA.
        """
        if dimensions is None:
            raise UnexpectedNull("dimensions: None")
        self._check_building("dimensions")
        wanted = tuple(int(extent) for extent in dimensions)
        if wanted and self._operand is not None and is_scalar_operand(self._operand, TYPES):
            raise InvalidArgument("dimensions: a scalar has none")
        self._dimensions = self._combine("dimensions", wanted)

    def finish(self) -> None:
        """Complete the descriptor; after that it cannot change.

        Raises:
            BadState: the descriptor is finished.
            InvalidArgument: the descriptor has no use; BAD_DATA.
        """
        self._check_building("finish")
        if not self._roles:
            raise InvalidArgument("finish: the descriptor has no role")
        self._completed = True

    def create_memory(self) -> Memory:
        """Make a memory for these uses (NNAPI: ANeuralNetworksMemory_createFromDesc).

        If all uses are on one device, that device allocates it. Otherwise, or if that fails and no
        compilation lists its devices, it is plain shared memory. The caller closes it.

        Raises:
            BadState: the descriptor is not finished.
            GeneralFailure: RT:Y6: no memory can be allocated; OP_FAILED.
        """
        self._check_open()
        if not self._completed:
            raise BadState("create_memory: the descriptor is not finished")
        assert self._operand is not None
        operand = _with_dimensions(self._operand, self._dimensions)
        roles = MemoryRoles(tuple(self._roles), operand)
        size = TYPES.size_bytes(operand)
        device, uses = self._allocator()
        is_explicit = any(executable.is_explicit for executable in self._executables)
        failure: NnburstError = GeneralFailure("create_memory: no one device has all of its uses")
        if device is not None:
            try:
                buffer = device.allocate(uses, self._dimensions)
                if buffer is not None:
                    return Memory(size, None, roles, buffer)
                if size:
                    return Memory(size, new_pool(size), roles)
                failure = GeneralFailure("create_memory: its size is not known")
            except NnburstError as error:
                failure = error
        if is_explicit or not size:
            raise failure
        logger.warning("no device allocates a memory, it becomes plain shared memory: %s", failure)
        return Memory(size, new_pool(size), roles)

    def _allocator(self) -> tuple[Device | None, list[Use]]:
        """The device if all uses are on one, and the uses there (RT:R24)."""
        found = [use for role in self._roles for use in _uses(role)]
        devices = {id(device): device for device, _ in found}
        if len(devices) != 1:
            return None, []
        unique = {
            (id(part), direction, index): (part, direction, index)
            for _, (part, direction, index) in found
        }
        return next(iter(devices.values())), list(unique.values())

    def _summary(self) -> str:
        return f"{len(self._roles)} roles, {'finished' if self._completed else 'not finished'}"

    def _check_building(self, what: str) -> None:
        self._check_open()
        if self._completed:
            raise BadState(f"{what}: the descriptor is finished")


def _uses(role: Role) -> list[tuple[Device, Use]]:
    executable = role.compilation
    assert isinstance(executable, Executable)
    return executable.uses(role.direction, role.index)


def _with_dimensions(operand: Operand, dimensions: tuple[int, ...]) -> Operand:
    return Operand(
        type=operand.type,
        dimensions=dimensions,
        scale=operand.scale,
        zero_point=operand.zero_point,
        extra_params=operand.extra_params,
    )
