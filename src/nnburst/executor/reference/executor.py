"""Prepares models for a driver in numpy, keeps their layouts, and caches them.

A prepared model keeps layouts for the latest combinations of input shapes. Constants that a DEQUANTIZE
operation would make real in every run are made real once, when the model is prepared.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Cached,
    Executor,
    Prepared,
    PrepareOptions,
)
from nnburst.executor.graph.binding import Layout, bind, infer, lay_out
from nnburst.executor.graph.extension import described_extensions
from nnburst.executor.graph.operation import Binding, OperationFailed
from nnburst.executor.graph.plan import Graph, Plan, Step, supported_operations
from nnburst.executor.graph.tensor import Array, Tensor, TensorType, read_only
from nnburst.executor.reference.execution import ReferenceExecution
from nnburst.hal.enums import OperandLifeTime, OperationType
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.extensions import Extension
from nnburst.hal.model import DataLocation, MemoryPool, Model, Operand, Subgraph
from nnburst.hal.types import NumberOfCacheFiles

_ALIGNMENT = 64


class _Packer:
    """Collects the bytes of constants, one after the other, each aligned."""

    def __init__(self) -> None:
        self.content = bytearray()

    def add(self, array: Array) -> DataLocation:
        self.content += bytes(-len(self.content) % _ALIGNMENT)
        location = DataLocation(0, len(self.content), array.nbytes)
        self.content += array.tobytes()
        return location


def to_cache(model: Model, plan: Plan) -> Cached:
    """A copy of `model` with the constants of its plan, which no other process can change.

    Constants that lay in the model stay there; those of all its pools move to the one pool of the new
    model. Another process may write to that pool, so values from it are checked whenever they are used.
    """
    values, pool = _Packer(), _Packer()

    def packed(subgraph: Subgraph, graph: Graph) -> Subgraph:
        operands = tuple(
            _operand(operand, graph.constants[index].array, values, pool)
            if index in graph.constants
            else operand
            for index, operand in enumerate(subgraph.operands)
        )
        return msgspec.structs.replace(subgraph, operands=operands)

    made = msgspec.structs.replace(
        model,
        main=packed(model.main, plan.main),
        referenced=tuple(map(packed, model.referenced, plan.referenced)),
    )
    pools = (MemoryPool(len(pool.content)),) if pool.content else ()
    made = msgspec.structs.replace(made, operand_values=bytes(values.content), pools=pools)
    return Cached(made, constants=bytes(pool.content))


def _operand(operand: Operand, array: Array, values: _Packer, pool: _Packer) -> Operand:
    if operand.lifetime == OperandLifeTime.SUBGRAPH:
        return operand
    where = values if operand.lifetime == OperandLifeTime.CONSTANT_COPY else pool
    return msgspec.structs.replace(operand, location=where.add(array))


def folded(plan: Plan) -> Plan:
    """A plan without the DEQUANTIZE operations whose input is a constant: their outputs are constants.

    An output of a subgraph that one of them writes is still computed.
    """
    return plan.with_graphs(_folded(plan.main), tuple(map(_folded, plan.referenced)))


def _folded(graph: Graph) -> Graph:
    made: dict[int, Tensor] = {}
    steps = []
    for step in graph.steps:
        value = None if step.outputs[0] in graph.outputs else _value(graph, step)
        if value is None:
            steps.append(step)
        else:
            made[step.outputs[0]] = value
    if not made:
        return graph
    return graph.with_steps(
        tuple(_with_constants(step, made) for step in steps), {**graph.constants, **made}
    )


def _value(graph: Graph, step: Step) -> Tensor | None:
    if step.type is not OperationType.DEQUANTIZE or not step.constants:
        return None
    given = [graph.constants[step.inputs[0]]]
    declared = [graph.declared[step.outputs[0]]]
    try:
        [meta] = infer(step, given, declared, [False])
        out = Tensor(meta, np.empty(meta.dimensions, meta.dtype))
        bind(step, given, [out], declared, Binding(constants=step.constants))()
    except OperationFailed:
        return None  # the error is raised when an execution is bound, as without folding
    return Tensor(meta, read_only(out.array))


def _with_constants(step: Step, made: dict[int, Tensor]) -> Step:
    more = frozenset(at for at, index in enumerate(step.inputs) if index in made)
    return replace(step, constants=step.constants | more) if more else step


log = logging.getLogger("nnburst.executor")

#: The most layouts of one prepared model, one for each combination of input shapes.
_MAX_LAYOUTS: Final = 64

_Shapes = tuple[tuple[int, ...] | None, ...]


class ReferencePrepared(Prepared):
    """A model ready to be executed. `bind` may be called from several threads at once."""

    def __init__(self, model: Model, pools: Sequence[Bytes]) -> None:
        """Unpack a validated model, and lay it out if it declares all shapes of its inputs."""
        self._model = model
        self._unfolded = Plan(model, pools)
        self._plan = folded(self._unfolded)
        self._layouts: dict[tuple[_Shapes, _Shapes], Layout] = {}
        graph = self._plan.main
        given = {i: graph.declared[i] for i in graph.inputs}
        if all(t.is_scalar or (t.dimensions and all(t.dimensions)) for t in given.values()):
            # Shapes that do not fit make an execution fail, not the model (NNAPI: they are looked
            # at when it runs).
            with contextlib.suppress(OperationFailed):
                self._lay_out(dict(given), {i: graph.declared[i] for i in graph.outputs})

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> ReferenceExecution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        try:
            with np.errstate(all="ignore"):
                return self._bind(inputs, outputs)
        except NnburstError:
            raise
        except MemoryError as error:
            raise ResourceExhausted("out of memory") from error
        except Exception as error:
            log.exception("binding a request raised: answered with GENERAL_FAILURE")
            raise GeneralFailure(f"{type(error).__name__}: {error}") from error

    def to_cache(self) -> Cached:
        """The model, with its constants."""
        return to_cache(self._model, self._unfolded)

    def close(self) -> None:
        """Drop constants and layouts."""
        self._layouts.clear()

    def _bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> ReferenceExecution:
        graph = self._plan.main
        if len(inputs) != len(graph.inputs) or len(outputs) != len(graph.outputs):
            raise InvalidArgument(
                f"validation:R1: {len(inputs)} inputs and {len(outputs)} outputs given,"
                f" the model has {len(graph.inputs)} and {len(graph.outputs)}"
            )
        given = {
            index: None if a.buffer is None else _typed(graph.declared[index], a)
            for index, a in zip(graph.inputs, inputs, strict=True)
        }
        declared = {
            index: _typed(graph.declared[index], a)
            for index, a in zip(graph.outputs, outputs, strict=True)
        }
        layout = self._lay_out(given, declared)
        return ReferenceExecution(self._plan, layout, given, (inputs, outputs), declared)

    def _lay_out(
        self, given: Mapping[int, TensorType | None], declared: Mapping[int, TensorType]
    ) -> Layout:
        key = (
            tuple(None if t is None else t.dimensions for t in given.values()),
            tuple(t.dimensions for t in declared.values()),
        )
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts.setdefault(key, lay_out(self._plan.main, given, declared))
        return layout


class ReferenceExecutor(Executor):
    """Computes every operation in numpy. Thread-safe."""

    name = "reference"
    cache_files = NumberOfCacheFiles(1, 1)  # one for the model, one for constants

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extensions that are installed, all of whose types and operations can be run."""
        return described_extensions()

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False for any doubt."""
        return supported_operations(model)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], _options: PrepareOptions = DEFAULT_OPTIONS
    ) -> ReferencePrepared:
        """Prepare a validated model; see `nnburst.executor.base.Executor`.

        Options make no difference: there is one way to compute, on the caller's thread.
        """
        try:
            with np.errstate(all="ignore"):  # operands' values may overflow a shape rule
                return ReferencePrepared(model, pools)
        except NnburstError:
            raise
        except MemoryError as error:
            raise ResourceExhausted("out of memory") from error
        except Exception as error:
            log.exception("preparing a model raised: answered with GENERAL_FAILURE")
            raise GeneralFailure(f"{type(error).__name__}: {error}") from error

    def prepare_from_cache(
        self, cached: Cached, _options: PrepareOptions = DEFAULT_OPTIONS
    ) -> ReferencePrepared:
        """Prepare a cached model again; it has been validated before."""
        constants = [np.frombuffer(cached.constants, np.uint8)] if cached.model.pools else []
        return self.prepare(cached.model, constants)


def _typed(meta: TensorType, argument: Argument) -> TensorType:
    return TensorType(
        meta.type, argument.dimensions, meta.scale, meta.zero_point, meta.extra_params
    )
