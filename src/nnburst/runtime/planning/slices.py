"""Makes the models that devices get: parts of a finished model that the device's version can express.

This module finds the version that a model needs, and whether only the framework can run the model (RT:D5). A
slice is the part of a model that a device of an older version can be asked about (RT:S3 to S6). `ModelMaker`
makes the models. It leaves out operands that no operation uses (RT:M10), and with them values, pools,
subgraphs and extensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from msgspec.structs import replace

from nnburst.compat import requirement
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.extensions import prefix_of
from nnburst.hal.model import (
    SCALARS,
    DataLocation,
    ExtensionNameAndPrefix,
    Model,
    Operand,
    Operation,
    Subgraph,
    is_extension,
)
from nnburst.hal.validation import validate_model
from nnburst.hal.validation.operation import CONTROL_FLOW
from nnburst.runtime.planning.finished_model import FinishedModel


class ModelVersion(NamedTuple):
    """The feature level that a model or a part needs, and whether only the framework can run it.

    Attributes:
        level: lowest feature level that can express the model or part.
        runtime_only: whether there is control flow with unknown sizes, which no driver takes.
    """

    level: FeatureLevel
    runtime_only: bool = False

    def fits(self, level: FeatureLevel, *, is_runtime: bool) -> bool:
        """Whether a driver of `level` (or the framework itself) takes this version."""
        return self.level <= level and (is_runtime or not self.runtime_only)

    def combined(self, others: Iterable[ModelVersion]) -> ModelVersion:
        """The version that satisfies this one and all others."""
        level, runtime_only = self
        for other in others:
            level = max(level, other.level)
            runtime_only = runtime_only or other.runtime_only
        return ModelVersion(level, runtime_only)


def has_unknown_size(operand: Operand) -> bool:
    """Whether an operand is a tensor without rank or with a 0 among its dimensions.

    For an extension's type only a 0 counts: without rank it may be a scalar, which the framework cannot see.
    """
    if operand.type in SCALARS:
        return False
    return 0 in operand.dimensions or not (operand.dimensions or is_extension(operand.type))


def has_unknown_sizes(operation: Operation, graph: Subgraph, model: Model) -> bool:
    """Whether an IF or WHILE has an operand of unknown size, inside or outside (RT:P6)."""
    if operation.type not in CONTROL_FLOW:
        return False
    operands = [graph.operands[i] for i in (*operation.inputs, *operation.outputs)]
    for outer in tuple(operands):
        if outer.type == OperandType.SUBGRAPH:
            inner = model.referenced[outer.location.offset]
            operands += [inner.operands[i] for i in (*inner.input_indexes, *inner.output_indexes)]
    return any(map(has_unknown_size, operands))


def has_runtime_only_features(model: Model) -> bool:
    """Whether any subgraph of a model has control flow with unknown sizes (RT:D5)."""
    return any(
        has_unknown_sizes(operation, graph, model)
        for graph in (model.main, *model.referenced)
        for operation in graph.operations
    )


def operation_versions(model: Model) -> list[ModelVersion]:
    """For each operation of a valid main subgraph, the version that it needs with operands and memory."""
    prefixes = frozenset(entry.prefix for entry in model.extension_name_to_prefix)
    pools = [requirement.memory(pool) for pool in model.pools]
    levels = [_operand_level(operand, pools) for operand in model.main.operands]
    return [
        ModelVersion(
            max(
                requirement.operation(operation, model.main, SIGNATURES, prefixes),
                *[levels[index] for index in (*operation.inputs, *operation.outputs)],
            ),
            has_unknown_sizes(operation, model.main, model),
        )
        for operation in model.main.operations
    ]


def model_version(model: Model, operations: Iterable[ModelVersion]) -> ModelVersion:
    """The version that a valid model needs.

    Args:
        model: the model.
        operations: the result of `operation_versions` for the model.
    """
    main = model.main
    shell = replace(
        model, main=Subgraph(main.operands, (), main.input_indexes, main.output_indexes)
    )
    around = ModelVersion(requirement.model(shell, SIGNATURES), has_runtime_only_features(model))
    return around.combined(operations)


def _operand_level(operand: Operand, pools: list[FeatureLevel]) -> FeatureLevel:
    since = requirement.operand(operand)
    if operand.lifetime == operand.lifetime.CONSTANT_REFERENCE:
        return max(since, pools[operand.location.pool_index])
    return since


# -- slices ----------------------------------------------------------------------------------------


_L = OperandLifeTime
_NEWEST: Final = max(FeatureLevel)
_GIVEN = frozenset({_L.CONSTANT_COPY, _L.CONSTANT_REFERENCE, _L.NO_VALUE})


class Slice(NamedTuple):
    """The part of a model that a device is asked about.

    Attributes:
        model: a valid model of the device's version.
        operations: for each operation, its number in the whole model.
    """

    model: Model
    operations: Sequence[int]


class SliceableModel:
    """A model that devices of several versions are asked about; each slice is made once."""

    def __init__(self, model: Model, *, strict: bool = False) -> None:
        """Keep the model; versions are found when the first device of an older level asks.

        Args:
            model: a valid model in run order, without unused operands.
            strict: whether an unexpectedly invalid slice is an error (RT:S6).
        """
        self._model = model
        self._strict = strict
        self._runtime_only = has_runtime_only_features(model)
        self._slices: dict[tuple[FeatureLevel, bool], Slice | None] = {}

    @property
    def number_of_operations(self) -> int:
        """The number of operations in the main subgraph."""
        return len(self._model.main.operations)

    def operation_version(self, number: int) -> ModelVersion:
        """The version that an operation of the main subgraph needs."""
        return self._versions[number]

    @cached_property
    def _versions(self) -> list[ModelVersion]:
        return operation_versions(self._model)

    @cached_property
    def _version(self) -> ModelVersion:
        return model_version(self._model, self._versions)

    def for_device(self, level: FeatureLevel, *, is_runtime: bool) -> Slice | None:
        """The slice that a device of this level can be asked about; None if no slice is possible (RT:S5).

        Raises:
            GeneralFailure: slicing is strict, and the slice is not valid.
        """
        key = (level, is_runtime)
        if key not in self._slices:
            self._slices[key] = self._slice(level, is_runtime=is_runtime)
        return self._slices[key]

    def _slice(self, level: FeatureLevel, *, is_runtime: bool) -> Slice | None:
        operations = self._model.main.operations
        if self._fits_whole(level, is_runtime=is_runtime):
            return Slice(self._model, range(len(operations)))
        kept = [n for n, v in enumerate(self._versions) if v.fits(level, is_runtime=is_runtime)]
        operands = self._model.main.operands
        runs_subgraphs = any(
            operands[index].type == OperandType.SUBGRAPH
            for number in kept
            for index in operations[number].inputs
        )
        if not kept or runs_subgraphs:
            return None
        main = _Slicer(self._model.main, kept).graph
        model = Model(main, (), self._model.operand_values, self._model.pools)
        if not main.output_indexes or not self._is_valid(model, level):
            return None
        return Slice(model, kept)

    def _fits_whole(self, level: FeatureLevel, *, is_runtime: bool) -> bool:
        if level == _NEWEST:
            return is_runtime or not self._runtime_only
        return self._version.fits(level, is_runtime=is_runtime)

    def _is_valid(self, model: Model, level: FeatureLevel) -> bool:
        """Whether a slice is valid at a version.

        Each operation and operand fits the version already. Pools, which a slice keeps whole, and extensions
        are checked; strict slicing checks everything.
        """
        kinds = [operand.type for operand in model.main.operands]
        kinds += [operation.type for operation in model.main.operations]
        valid = not any(map(prefix_of, kinds))
        valid = valid and all(requirement.memory(pool) <= level for pool in model.pools)
        if self._strict:
            try:
                validate_model(model, SIGNATURES, feature_level=level)
            except InvalidArgument as error:
                raise GeneralFailure(f"slice for {level.name} (strict slicing): {error}") from error
        return valid


class _Slicer:
    """Makes one slice (RT:S4).

    Attributes:
        graph: the slice.
    """

    def __init__(self, source: Subgraph, kept: Sequence[int]) -> None:
        """Slice a subgraph.

        Args:
            source: the whole subgraph.
            kept: numbers of the operations that stay, ascending.
        """
        self._source = source
        self._operands: list[Operand] = []
        self._numbers: dict[int, int] = {}
        self._stand_ins: dict[Operand, int] = {}
        operations = [source.operations[number] for number in kept]
        staying = set(kept)
        self._read = {index for operation in operations for index in operation.inputs}
        self._read_elsewhere = {
            index
            for number, operation in enumerate(source.operations)
            if number not in staying
            for index in operation.inputs
        }
        self._take([i for o in operations for i in o.inputs], _GIVEN)
        self._take(source.input_indexes, frozenset({_L.SUBGRAPH_INPUT}))
        self.graph = self._finished([self._operation(operation) for operation in operations])

    def _take(self, indexes: Sequence[int], lifetimes: frozenset[OperandLifeTime]) -> None:
        for index in indexes:
            operand = self._source.operands[index]
            if operand.lifetime in lifetimes and index in self._read:
                self._add(index, operand)

    def _add(self, index: int, operand: Operand) -> None:
        if index not in self._numbers:
            self._numbers[index] = len(self._operands)
            self._operands.append(operand)

    def _operation(self, operation: Operation) -> Operation:
        for index in operation.inputs:
            if index not in self._numbers:
                self._stand_in(index)
        for index in operation.outputs:
            self._add(index, self._output(index))
        return Operation(
            operation.type,
            tuple(self._numbers[i] for i in operation.inputs),
            tuple(self._numbers[i] for i in operation.outputs),
        )

    def _stand_in(self, index: int) -> None:
        """Replace the output of an operation that is left out by an input; equal operands share one input."""
        found = self._source.operands[index]
        operand = _with(found, 0, _L.SUBGRAPH_INPUT)
        self._numbers[index] = self._stand_ins.setdefault(operand, len(self._operands))
        if self._numbers[index] == len(self._operands):
            self._operands.append(operand)

    def _output(self, index: int) -> Operand:
        operand = self._source.operands[index]
        if index in self._read_elsewhere and index not in self._read:
            return _with(operand, operand.number_of_consumers, _L.SUBGRAPH_OUTPUT)
        return operand

    def _finished(self, operations: Sequence[Operation]) -> Subgraph:
        uses = [0] * len(self._operands)
        for operation in operations:
            for index in operation.inputs:
                uses[index] += 1
        operands = tuple(
            _with(operand, count, operand.lifetime)
            for operand, count in zip(self._operands, uses, strict=True)
        )

        def having(lifetime: OperandLifeTime) -> tuple[int, ...]:
            return tuple(n for n, operand in enumerate(operands) if operand.lifetime == lifetime)

        return Subgraph(
            operands, tuple(operations), having(_L.SUBGRAPH_INPUT), having(_L.SUBGRAPH_OUTPUT)
        )


def _with(operand: Operand, consumers: int, lifetime: OperandLifeTime) -> Operand:
    """The operand with another consumer count and lifetime, and without a location."""
    return Operand(
        operand.type,
        operand.dimensions,
        consumers,
        operand.scale,
        operand.zero_point,
        lifetime,
        operand.location if lifetime in _GIVEN else DataLocation(),
        operand.extra_params,
    )


# -- model maker -----------------------------------------------------------------------------------


#: Constants start at multiples of this, so that their arrays are aligned.
_ALIGNMENT: Final = 16


class ModelMaker:
    """Collects the operands, values and pools of one new model from a source model. Makes one model."""

    def __init__(self, source: Model) -> None:
        """Start without operands."""
        self._source = source
        self._values = bytearray()
        self._pools: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._referenced: list[Subgraph] = []

    @property
    def pools(self) -> tuple[int, ...]:
        """For each pool of the new model, its number among the source's pools."""
        return tuple(self._pools)

    def operand(self, operand: Operand, consumers: int, lifetime: OperandLifeTime) -> Operand:
        """Convert a source operand, with its value or subgraph, to an operand of the new model.

        Args:
            operand: the operand of the source.
            consumers: number of reads by the new subgraph's operations.
            lifetime: lifetime in the new subgraph.
        """
        at = operand.location
        if lifetime == _L.CONSTANT_COPY:
            self._values.extend(bytes(-len(self._values) % _ALIGNMENT))
            found = self._source.operand_values[at.offset : at.offset + at.length]
            at = DataLocation(0, len(self._values), at.length)
            self._values.extend(found)
        elif lifetime == _L.CONSTANT_REFERENCE:
            pool = self._pools.setdefault(at.pool_index, len(self._pools))
            at = DataLocation(pool, at.offset, at.length)
        elif lifetime == _L.SUBGRAPH:
            at = DataLocation(offset=self._subgraph(at.offset))
        return Operand(
            operand.type,
            operand.dimensions,
            consumers,
            operand.scale,
            operand.zero_point,
            lifetime,
            at,
            operand.extra_params,
        )

    def used_part(self, graph: Subgraph) -> Subgraph:
        """Convert a subgraph of the source, without unused operands."""
        used = {*graph.input_indexes, *graph.output_indexes}
        for operation in graph.operations:
            used.update(operation.inputs)
            used.update(operation.outputs)
        numbers = {old: new for new, old in enumerate(sorted(used))}
        operands = (graph.operands[old] for old in numbers)
        return Subgraph(
            tuple(self.operand(o, o.number_of_consumers, o.lifetime) for o in operands),
            tuple(
                Operation(
                    operation.type,
                    tuple([numbers[i] for i in operation.inputs]),
                    tuple([numbers[i] for i in operation.outputs]),
                )
                for operation in graph.operations
            ),
            tuple(numbers[i] for i in graph.input_indexes),
            tuple(numbers[i] for i in graph.output_indexes),
        )

    def build(self, main: Subgraph, *, relaxed: bool) -> Model:
        """Build the model with this main subgraph; all of its operands must be from `operand`."""
        model = Model(
            main,
            tuple(self._referenced),
            bytes(self._values),
            tuple(self._source.pools[index] for index in self._pools),
            relaxed,
        )
        if not self._source.extension_name_to_prefix:
            return model
        return replace(model, extension_name_to_prefix=self._used_extensions(model))

    def _subgraph(self, number: int) -> int:
        if number not in self._numbers:
            self._numbers[number] = len(self._referenced)
            self._referenced.append(self._source.referenced[number])
            self._referenced[self._numbers[number]] = self.used_part(
                self._source.referenced[number]
            )
        return self._numbers[number]

    def _used_extensions(self, model: Model) -> tuple[ExtensionNameAndPrefix, ...]:
        names = {entry.prefix: entry for entry in self._source.extension_name_to_prefix}
        used: dict[int, None] = {}
        for graph in (model.main, *model.referenced):
            used |= dict.fromkeys(prefix_of(operand.type) for operand in graph.operands)
            used |= dict.fromkeys(prefix_of(operation.type) for operation in graph.operations)
        return tuple(names[prefix] for prefix in used if prefix)


# -- hal model -------------------------------------------------------------------------------------


def hal_model(source: FinishedModel, subgraph: int = 0) -> tuple[Model, tuple[int, ...]]:
    """Make a model with `subgraph` as the main one; also return the client's pool number of each pool."""
    maker = ModelMaker(source.model)
    main = maker.used_part(source.subgraph(subgraph))
    return maker.build(main, relaxed=source.relaxed[subgraph]), maker.pools
