"""Defines vendor extensions: operand types and operations beyond NNAPI's own, declared in the same way.

    FIBONACCI = VendorExtension("com.example.fibonacci")
    INT64 = FIBONACCI.operand_type(0, "INT64", np.int64, is_tensor=False)

    @FIBONACCI.operation(0, "FIBONACCI", forms=…, rows=…, shape=rule)
    def fibonacci(node: Node) -> Run: ...

A driver finds an extension by the entry-point group `nnburst.extensions` when a model first names it, or by
`install`. In this process, types and operations get codes below a prefix of their own ("local codes"). A
model's prefixes are translated to local codes once; from then on an extension's operation is planned, checked
and run like any other.

NNAPI: nn/extensions, which leaves all this to each driver.
"""

from __future__ import annotations

import importlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec

from nnburst.executor.graph.operation import (
    REGISTRY,
    Kernel,
    OperationDefinition,
    ShapeRule,
)
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandType, OperationType
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.extensions import (
    GROUP,
    CustomOperator,
    Extension,
    ExtensionCode,
    ExtensionOperandType,
    ExtensionOperandTypeInformation,
    Lowering,
    extension_code,
    number_of,
    prefix_of,
)
from nnburst.hal.model import Model, Subgraph, checked_dtype, is_extension
from nnburst.hal.signature import Check, Form, Signature, TypeRow
from nnburst.hal.utils import check_integer
from nnburst.hal.validation.values import validate_extensions

if TYPE_CHECKING:
    import numpy.typing as npt

logger = logging.getLogger("nnburst.executor")

K = TypeVar("K", bound=Kernel)
L = TypeVar("L", bound=Lowering)

#: Local prefix of all extensions that this process does not have; no type or operation is registered below
#: it.
_UNKNOWN: Final = 0x7FFF
_local_prefixes: Final = itertools.count(1)
_installed: Final[dict[str, VendorExtension]] = {}
_by_prefix: Final[dict[int, VendorExtension]] = {}


class VendorExtension:
    """An extension's types and operations. Defined while its module is imported, unchanged afterwards.

    Attributes:
        name: in reverse-domain order, unique ("com.example.fibonacci").
        custom_operators: custom operators of files that the extension claims, by their names in the files.
    """

    def __init__(self, name: str) -> None:
        """Begin an extension without types and operations.

        Args:
            name: in reverse-domain order, unique.

        Raises:
            InvalidArgument: validation:S4: `name` is not of the form vendor.extension.
        """
        validate_extensions([Extension(name)])
        self.name = name
        self.custom_operators: dict[str, CustomOperator] = {}
        self._prefix = next(_local_prefixes)
        self._types: dict[int, ExtensionOperandType] = {}
        self._operations: dict[int, OperationDefinition] = {}

    def __repr__(self) -> str:
        return f"<nnburst.VendorExtension {self.name}: {len(self._operations)} operations>"

    @property
    def local_prefix(self) -> int:
        """The prefix of the extension's codes in this process."""
        return self._prefix

    @property
    def description(self) -> Extension:
        """The extension as a device reports it."""
        return Extension(
            self.name,
            tuple(
                ExtensionOperandTypeInformation(number, kind.is_tensor, kind.dtype.itemsize)
                for number, kind in sorted(self._types.items())
            ),
        )

    def operand_type(
        self, number: int, name: str, dtype: npt.DTypeLike, *, is_tensor: bool
    ) -> OperandType:
        """Define an operand type.

        Args:
            number: the type's number in the extension, 16 bits.
            name: for messages.
            dtype: numpy's type of an element.
            is_tensor: whether operands of this type have dimensions.

        Returns:
            The type's code in this process, for signatures. It has a name and a value, as a member of
            `OperandType` does, and is typed as one.

        Raises:
            InvalidArgument: validation:S4: the number is taken or does not fit 16 bits; or `dtype` is not of
                elements of a fixed size, or `is_tensor` no bool.
        """
        number, dtype = check_integer("number", number), checked_dtype(dtype)
        if not isinstance(is_tensor, bool):
            raise InvalidArgument(f"is_tensor is {is_tensor!r}, expected True or False")
        code = extension_code(self._prefix, number)
        kind = ExtensionOperandType.make(code, name, dtype, is_tensor=is_tensor)
        known = ExtensionOperandTypeInformation(number, is_tensor, kind.dtype.itemsize)
        described = Extension(self.name, (*self.description.operand_types, known))
        validate_extensions([described])
        self._types[number] = kind
        return cast("OperandType", kind)

    def operation(
        self,
        number: int,
        name: str,
        *,
        forms: Iterable[Form],
        rows: Iterable[Mapping[str, OperandType | frozenset[OperandType]]],
        shape: ShapeRule | None,
        summary: str = "",
        check: Check | None = None,
        half: bool = False,
        zero_sized: bool = False,
        omitted_status: ErrorStatus = ErrorStatus.GENERAL_FAILURE,
    ) -> Callable[[K], K]:
        """Define the decorated kernel as an operation.

        Args:
            number: the operation's number in the extension, 16 bits.
            name: for messages.
            forms: the accepted operand lists (see `nnburst.hal.signature`).
            rows: the accepted combinations of types, by the names that the forms use.
            shape: types of the outputs; None if they depend on data.
            summary: one sentence of description.
            check: rules that counts and types cannot express.
            half: see `OperationDefinition`.
            zero_sized: see `OperationDefinition`.
            omitted_status: see `OperationDefinition`.

        Raises:
            InvalidArgument: the number is taken or does not fit 16 bits.
        """
        number = check_integer("number", number)
        if number in self._operations or number_of(number) != number:
            raise InvalidArgument(
                f"{self.name}: operation {number} is taken, or not in 0 to 2**16 - 1"
            )
        code = ExtensionCode(extension_code(self._prefix, number), name)
        since = FeatureLevel.V1_2
        signature = Signature(
            cast("OperationType", code),
            since,
            tuple(forms),
            tuple(TypeRow(since, row) for row in rows),
            summary,
            check,
        )

        def define(kernel: K) -> K:
            self._operations[number] = OperationDefinition(
                signature, shape, kernel, half, zero_sized, omitted_status
            )
            return kernel

        return define

    def claim(self, name: str, *, operation: int, options: int | None = None) -> None:
        """Let custom operators called `name` in .tflite files be an operation of this extension.

        Args:
            name: the custom code.
            operation: number of the operation, whose inputs are the operator's.
            options: number of an operand type of one byte an element: the operator's options are one more
                input of it, without a value if the file has none. They are dropped if it is None.

        Raises:
            InvalidArgument: the name is claimed already.
        """
        self._claim(name, CustomOperator(operation, options))

    def lowers(self, name: str) -> Callable[[L], L]:
        """Let the decorated function translate custom operators called `name` to core operations.

        It is called with an `nnburst.importer.tflite.operator.Operator`, and refuses by its `require`.

        Raises:
            InvalidArgument: the name is claimed already.
        """

        def define(lowering: L) -> L:
            self._claim(name, CustomOperator(lowering=lowering))
            return lowering

        return define

    def _claim(self, name: str, what: CustomOperator) -> None:
        if name in self.custom_operators:
            raise InvalidArgument(f"{self.name}: custom operator {name!r} is claimed twice")
        self.custom_operators[name] = what

    def find_type(self, number: int) -> OperandType | None:
        """Operand type `number`; None if unknown."""
        return cast("OperandType | None", self._types.get(number))

    def find_operation(self, number: int) -> OperationDefinition | None:
        """Operation `number`; None if unknown."""
        return self._operations.get(number)


def install(extension: VendorExtension) -> None:
    """Make an extension known to the executors of this process; installing it again has no effect.

    Raises:
        InvalidArgument: another one has its name.
    """
    if _installed.setdefault(extension.name, extension) is not extension:
        raise InvalidArgument(f"extension {extension.name} is registered twice")
    _by_prefix[extension.local_prefix] = extension


def install_from(target: str) -> None:
    """Import an extension and install it.

    Args:
        target: `module:attribute` of a `VendorExtension`.

    Raises:
        DeviceUnavailable: it cannot be imported, or is not one.
        InvalidArgument: another one has its name.
    """
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise DeviceUnavailable(f"extension: {target!r} cannot be imported: {error}") from error
    if not isinstance(found, VendorExtension):
        raise DeviceUnavailable(
            f"extension: {target!r} is a {type(found).__name__}, expected a VendorExtension"
        )
    install(found)


def described_extensions() -> tuple[Extension, ...]:
    """All extensions of this process, by name; those of entry points are imported."""
    for name in _entry_points():
        _find(name)
    return tuple(_installed[name].description for name in sorted(_installed))


def find_operand_type(code: int) -> OperandType | None:
    """The type behind a local code; None if unknown."""
    if is_extension(code):
        extension = _by_prefix.get(prefix_of(code))
        return None if extension is None else extension.find_type(number_of(code))
    try:
        return OperandType(code)
    except ValueError:
        return None


def find_definition(code: int) -> OperationDefinition | None:
    """The operation behind a local code; None if unknown."""
    if is_extension(code):
        extension = _by_prefix.get(prefix_of(code))
        return None if extension is None else extension.find_operation(number_of(code))
    return REGISTRY.get(cast("OperationType", code))


def with_local_codes(model: Model) -> Model:
    """The model with local codes for the types and operations of extensions.

    Each model chooses its own prefixes (NNAPI: extensionNameToPrefix): the same extension may have another
    one in another model.
    """
    graphs = (model.main, *model.referenced)
    if not any(_uses_extensions(graph) for graph in graphs):
        return model
    local = {}
    for entry in model.extension_name_to_prefix:
        extension = _find(entry.name)
        local[entry.prefix] = _UNKNOWN if extension is None else extension.local_prefix
    return msgspec.structs.replace(
        model,
        main=_translated(model.main, local),
        referenced=tuple(_translated(graph, local) for graph in model.referenced),
        extension_name_to_prefix=(),
    )


def _uses_extensions(subgraph: Subgraph) -> bool:
    codes = [operand.type for operand in subgraph.operands]
    return any(map(is_extension, codes)) or any(is_extension(o.type) for o in subgraph.operations)


def _translated(subgraph: Subgraph, local: Mapping[int, int]) -> Subgraph:
    def code(code: int) -> int:
        if not is_extension(code):
            return code
        return extension_code(local.get(prefix_of(code), _UNKNOWN), number_of(code))

    replace = msgspec.structs.replace
    return replace(
        subgraph,
        operands=tuple(replace(operand, type=code(operand.type)) for operand in subgraph.operands),
        operations=tuple(replace(op, type=code(op.type)) for op in subgraph.operations),
    )


def _find(name: str) -> VendorExtension | None:
    """The extension called `name`, imported by its entry point if that is needed."""
    if name not in _installed and (target := _entry_points().get(name)):
        try:
            install_from(target)
        except (DeviceUnavailable, InvalidArgument) as error:
            logger.warning("%s; it is left out", error)
    return _installed.get(name)


def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points  # importing it takes 10 ms, which few drivers need

    return {point.name: point.value for point in entry_points(group=GROUP)}
