"""Checks a request against its model, and the description of a buffer that a driver should allocate.

NNAPI: Validation.cpp validateRequestForModel, ValidateHal.cpp validateRequest. If the two
differ, the canonical reading counts (R6, R11). R2 and R12 concern how memory arrives, R13 (one range
for input and output) and R15 (omitted inputs) pass here and are left to buffers and operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from nnburst.hal.enums import OperandType
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import ELEMENT_BYTES, SCALARS, Model, Operand, is_extension
from nnburst.hal.types import BufferRole, Request, RequestArgument
from nnburst.hal.validation.values import Broken, check_range
from nnburst.hal.whole_graph import engine_of

Shape = tuple[int, ...]


class Dimensions(NamedTuple):
    """Dimensions of a valid request's arguments: the model's, completed by the request's.

    Inputs that are not omitted have no unknown extents; outputs may have some (0, or an empty tuple for a
    tensor).
    """

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]


class _Expected(msgspec.Struct, frozen=True):
    """The model's declaration of one argument, prepared for many requests."""

    dimensions: Shape
    element_bytes: int  # 0: opaque
    is_scalar: bool
    is_extension: bool
    unknown_rule: str  # broken if the dimensions stay unknown; empty if they may


class RequestValidator:
    """Checks requests for one model; immutable, so threads may share it."""

    def __init__(self, model: Model, *, allow_unspecified_output: bool = True) -> None:
        """Prepare checks for a valid model.

        Args:
            model: a model that `validate_model` has accepted.
            allow_unspecified_output: whether outputs may have unknown dimensions (not in executeFenced).
        """
        operands = model.main.operands
        self._inputs = [_expected(operands[i], "R9") for i in model.main.input_indexes]
        rule = "" if allow_unspecified_output else "R10"
        outputs = [_expected(operands[i], rule) for i in model.main.output_indexes]
        if engine_of(model) is not None:
            # DEVIATES: a file's declaration of an output may be wrong; the executor checks its room (R11).
            outputs = [msgspec.structs.replace(each, element_bytes=0) for each in outputs]
        self._outputs = outputs

    def validate(self, request: Request, pool_sizes: Sequence[int | None]) -> Dimensions:
        """Check one request.

        Args:
            request: a request of any origin; its own `pools` are ignored.
            pool_sizes: real bytes of each pool that `pool_index` refers to; None for a driver's buffer
                (token), which is always used whole.

        Returns:
            Dimensions of the arguments, in the model's order.

        Raises:
            InvalidArgument: a rule is broken ("validation:R8: input 2: …").
        """
        return Dimensions(
            _check_all("input", self._inputs, request.inputs, pool_sizes),
            _check_all("output", self._outputs, request.outputs, pool_sizes),
        )

    def merged_dimensions(self, request: Request) -> Dimensions:
        """Dimensions of the arguments of a request that `validate` has accepted."""
        return Dimensions(
            tuple(map(_merge, self._inputs, request.inputs)),
            tuple(map(_merge, self._outputs, request.outputs)),
        )


def validate_request(
    request: Request,
    model: Model,
    pool_sizes: Sequence[int | None],
    *,
    allow_unspecified_output: bool = True,
) -> None:
    """Check one request for a valid model; see `RequestValidator` for the arguments.

    Raises:
        InvalidArgument: a rule is broken.
    """
    validator = RequestValidator(model, allow_unspecified_output=allow_unspecified_output)
    validator.validate(request, pool_sizes)


def _expected(operand: Operand, unknown_rule: str) -> _Expected:
    if is_extension(operand.type):
        return _Expected(operand.dimensions, 0, False, True, unknown_rule)
    kind = OperandType(operand.type)
    element_bytes = ELEMENT_BYTES.get(kind, 0)
    return _Expected(operand.dimensions, element_bytes, kind in SCALARS, False, unknown_rule)


def _check_all(
    name: str,
    expected: Sequence[_Expected],
    arguments: Sequence[RequestArgument],
    pool_sizes: Sequence[int | None],
) -> tuple[Shape, ...]:
    if len(arguments) != len(expected):
        message = f"{len(arguments)} {name}s, the model has {len(expected)}"
        raise Broken("R1", message).at("request")
    merged = []
    for index, (known, argument) in enumerate(zip(expected, arguments, strict=True)):
        try:
            merged.append(_check(known, argument, pool_sizes))
        except Broken as broken:
            raise broken.at(f"{name} {index}") from None
    return tuple(merged)


def _check(known: _Expected, argument: RequestArgument, pool_sizes: Sequence[int | None]) -> Shape:
    if argument.has_no_value:
        at = argument.location
        if at.pool_index or at.offset or at.length or argument.dimensions:
            raise Broken("R3", "an omitted argument has a location or dimensions")
        return known.dimensions
    _check_location(argument, pool_sizes)
    _check_dimensions(known, argument.dimensions)
    dimensions = _merge(known, argument)
    if known.is_extension:
        return dimensions
    unknown = not known.is_scalar and (not dimensions or 0 in dimensions)
    if unknown and known.unknown_rule:
        raise Broken(known.unknown_rule, f"dimensions {list(dimensions)} are not all known")
    size = 0 if unknown else known.element_bytes * math.prod(dimensions)
    if size and argument.location.length not in (0, size):
        raise Broken(
            "R11", f"length is {argument.location.length}, expected {size} from type and dimensions"
        )
    return dimensions


def _check_location(argument: RequestArgument, pool_sizes: Sequence[int | None]) -> None:
    at = argument.location
    if not 0 <= at.pool_index < len(pool_sizes):
        raise Broken("R4", f"pool_index is {at.pool_index} of {len(pool_sizes)} pools")
    size = pool_sizes[at.pool_index]
    if size is None:
        if at.offset or at.length:
            raise Broken("R5", "a driver buffer is used whole: offset and length must be 0")
        return
    if at.offset < 0 or at.length < 0 or at.offset + at.length > size:
        raise Broken(
            "R5", f"offset {at.offset} and length {at.length} lie outside the pool's {size} bytes"
        )
    if not at.length:
        raise Broken("R6", "length is 0")


def _check_dimensions(known: _Expected, given: Shape) -> None:
    if not given:
        return
    if known.is_scalar:
        raise Broken("R14", f"a scalar takes no dimensions, got {list(given)}")
    if known.dimensions and len(given) != len(known.dimensions):
        raise Broken("R7", f"rank is {len(given)}, the model declares {len(known.dimensions)}")
    if len(given) > MAX_RANK:
        # DEVIATES: no limit in the original; arrays of higher rank cannot be computed with.
        raise Broken("R7", f"rank is {len(given)}, expected at most {MAX_RANK}")
    for index, extent in enumerate(given):
        wanted = known.dimensions[index] if known.dimensions else 0
        if not 0 <= extent <= UINT32_MAX or (wanted and extent != wanted):
            raise Broken("R8", f"dimension {index} is {extent}, expected {wanted or 'a uint32'}")


def _merge(known: _Expected, argument: RequestArgument) -> Shape:
    """The request's dimensions if it has any, else the model's (R8: they must not contradict the model's)."""
    return argument.dimensions or known.dimensions


P = TypeVar("P")


# -- Rules D1 to D12: the roles of a driver-managed buffer (IDevice::allocate) ---------------------
# NNAPI: Validation.cpp validateMemoryDesc, combineDimensions.


def validate_memory_desc(
    dimensions: Sequence[int],
    prepared_models: Sequence[P],
    input_roles: Sequence[BufferRole],
    output_roles: Sequence[BufferRole],
    get_model: Callable[[P], Model | None],
) -> Operand:
    """Check the arguments of allocate and combine their descriptions of the buffer.

    Args:
        dimensions: wanted dimensions (BufferDesc); empty or 0 if left open.
        prepared_models: the models that the roles' `model_index` refers to; one object for each model.
        input_roles: uses as input.
        output_roles: uses as output.
        get_model: returns the model of a prepared one; None if it belongs to another device.

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
    """The description of a buffer by the roles that were added so far."""

    def __init__(self, dimensions: Shape) -> None:
        self._dimensions = dimensions
        self._first: Operand | None = None
        self._uses: set[tuple[int, str, int]] = set()

    def add(self, use: tuple[int, str, int], operand: Operand) -> None:
        """Add one role: its model, direction and index, and the operand there."""
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
        """An operand with the type, quantisation and dimensions of all roles."""
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
    """Combine the dimensions of two descriptions of the same data; 0 and () mean unknown.

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
