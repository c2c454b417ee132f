"""Slices: the part of a model that a device of an older version can be asked about (RT:S3 to S6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

from nnburst.compat.conversion import requirement
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.extensions import prefix_of
from nnburst.hal.model import DataLocation, Model, Operand, Operation, Subgraph
from nnburst.hal.validation import validate_model
from nnburst.runtime.planning.models.version import (
    ModelVersion,
    has_runtime_only_features,
    model_version,
    operation_versions,
)

_L = OperandLifeTime
_NEWEST: Final = max(FeatureLevel)
_GIVEN = frozenset({_L.CONSTANT_COPY, _L.CONSTANT_REFERENCE, _L.NO_VALUE})


class Slice(NamedTuple):
    """What a device is asked about.

    Attributes:
        model: a valid model of the device's version.
        operations: the whole model's number of each of its operations.
    """

    model: Model
    operations: Sequence[int]


class SliceableModel:
    """A model that devices of several versions are asked about; each slice is made once."""

    def __init__(self, model: Model, *, strict: bool = False) -> None:
        """Keep the model; versions are found when a device asks that is not of the newest.

        Args:
            model: valid, in run order, without unused operands.
            strict: a slice that is not valid although it should be is an error (RT:S6).
        """
        self._model = model
        self._strict = strict
        self._runtime_only = has_runtime_only_features(model)
        self._slices: dict[tuple[FeatureLevel, bool], Slice | None] = {}

    @property
    def number_of_operations(self) -> int:
        """Of the main subgraph."""
        return len(self._model.main.operations)

    def operation_version(self, number: int) -> ModelVersion:
        """What an operation of the main subgraph needs."""
        return self._versions[number]

    @cached_property
    def _versions(self) -> list[ModelVersion]:
        return operation_versions(self._model)

    @cached_property
    def _version(self) -> ModelVersion:
        return model_version(self._model, self._versions)

    def for_device(self, level: FeatureLevel, *, is_runtime: bool) -> Slice | None:
        """What a device of this level can be asked about; None if that is nothing (RT:S5).

        Raises:
            GeneralFailure: strict, and the slice is not valid.
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
        """Whether a slice is valid at a version, by what can be wrong with one.

        Its operations and operands fit the version one by one. Memory is kept whole, and there is no map of
        extensions.
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
            source: the whole.
            kept: numbers of the operations that stay, ascending.
        """
        self._source = source
        self._operands: list[Operand] = []
        self._numbers: dict[int, int] = {}
        self._stand_ins: dict[Operand, int] = {}
        operations = [source.operations[number] for number in kept]
        staying = set(kept)
        self._written = {index for operation in operations for index in operation.outputs}
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
        """An input in place of what an operation writes that is left out; equal ones share it."""
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
    """The operand with another count and lifetime; what is written lies nowhere."""
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
