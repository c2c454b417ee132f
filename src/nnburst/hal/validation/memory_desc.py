"""Rules D1 to D12: what a driver-managed buffer is wanted for (IDevice::allocate).

NNAPI: Validation.cpp validateMemoryDesc, combineDimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from nnburst.hal.buffers import BufferRole
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import Model, Operand
from nnburst.hal.operand_types import SCALARS, is_extension
from nnburst.hal.validation.broken import Broken, check_range

P = TypeVar("P")
Shape = tuple[int, ...]


def validate_memory_desc(
    dimensions: Sequence[int],
    prepared_models: Sequence[P],
    input_roles: Sequence[BufferRole],
    output_roles: Sequence[BufferRole],
    get_model: Callable[[P], Model | None],
) -> Operand:
    """Check the arguments of allocate and combine what they have about the buffer.

    Args:
        dimensions: wanted dimensions (BufferDesc); empty or 0 if left open.
        prepared_models: what the roles' `model_index` counts in; the same object is the same model.
        input_roles: uses as input.
        output_roles: uses as output.
        get_model: the model behind a prepared one; None if it is not of this device.

    Returns:
        An operand with the type and quantisation of all roles and the combined dimensions.

    Raises:
        InvalidArgument: a rule is broken ("validation:D7: input role 1: …").
    """
    if not prepared_models:
        raise Broken("D1", "models is empty, expected at least one prepared model").at(
            "memory description"
        )
    if not input_roles and not output_roles:
        raise Broken("D2", "no roles are given, expected at least one").at("memory description")
    models = [None if p is None else get_model(p) for p in prepared_models]
    wanted = _Wanted(tuple(dimensions))
    for where, kind, role in _roles(input_roles, output_roles):
        try:
            operand = _operand(kind, role, models)
            wanted.add((id(prepared_models[role.model_index]), kind, role.io_index), operand)
        except Broken as broken:
            raise broken.at(where) from None
    return wanted.operand()


class _Wanted:
    """What the roles seen so far have about the buffer."""

    def __init__(self, dimensions: Shape) -> None:
        self._dimensions = dimensions
        self._first: Operand | None = None
        self._uses: set[tuple[int, str, int]] = set()

    def add(self, use: tuple[int, str, int], operand: Operand) -> None:
        """Take in one role: its model, direction and index, and the operand there."""
        if use in self._uses:
            raise Broken("D6", "the same use is listed twice")
        self._uses.add(use)
        self._first = self._first or operand
        _check_same(self._first, operand)
        if len(self._dimensions) > MAX_RANK:
            # DEVIATES: no limit in the original; a product of so many extents can take hours.
            raise Broken("D11", f"rank is {len(self._dimensions)}, expected at most {MAX_RANK}")
        for extent in self._dimensions:
            check_range("D11", "a dimension", extent, 0, UINT32_MAX)
        self._dimensions = combine_dimensions(self._dimensions, operand.dimensions)
        if self._dimensions and not is_extension(operand.type) and operand.type in SCALARS:
            raise Broken("D12", f"a scalar takes no dimensions, got {list(self._dimensions)}")

    def operand(self) -> Operand:
        """Type, quantisation and dimensions that hold for all roles."""
        first = self._first
        assert first is not None
        return Operand(
            type=first.type,
            dimensions=self._dimensions,
            scale=first.scale,
            zero_point=first.zero_point,
            extra_params=first.extra_params,
        )


def combine_dimensions(a: Shape, b: Shape) -> Shape:
    """What two descriptions of the same data give together; 0 and an empty tuple stand for unknown.

    Raises:
        Broken: D11, they contradict each other.
    """
    if not a or not b:
        return a or b
    if len(a) != len(b) or any(x != y and x and y for x, y in zip(a, b, strict=False)):
        raise Broken("D11", f"dimensions {list(a)} and {list(b)} contradict each other")
    return tuple(x or y for x, y in zip(a, b, strict=True))


def _roles(
    inputs: Sequence[BufferRole], outputs: Sequence[BufferRole]
) -> Iterator[tuple[str, str, BufferRole]]:
    for kind, roles in (("input", inputs), ("output", outputs)):
        for index, role in enumerate(roles):
            yield f"{kind} role {index}", kind, role


def _operand(kind: str, role: BufferRole, models: Sequence[Model | None]) -> Operand:
    if not 0 <= role.model_index < len(models):
        raise Broken("D3", f"model_index is {role.model_index} of {len(models)} models")
    model = models[role.model_index]
    if model is None:
        raise Broken("D3", f"model {role.model_index} is not of this device")
    indexes = model.main.input_indexes if kind == "input" else model.main.output_indexes
    if not 0 <= role.io_index < len(indexes):
        raise Broken("D4", f"io_index is {role.io_index} of {len(indexes)} {kind}s")
    if not 0 < role.probability <= 1:
        raise Broken("D5", f"probability is {role.probability}, expected (0, 1]")
    return model.main.operands[indexes[role.io_index]]


def _check_same(a: Operand, b: Operand) -> None:
    rules = {"D7": "type", "D8": "scale", "D9": "zero_point"}
    if not is_extension(a.type):
        rules["D10"] = "extra_params"
    for rule, name in rules.items():
        if getattr(a, name) != getattr(b, name):
            raise Broken(rule, f"{name} is {getattr(b, name)}, elsewhere {getattr(a, name)}")
