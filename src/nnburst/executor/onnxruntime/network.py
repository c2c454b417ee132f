"""Lowers a whole model to an ONNX graph: infers shapes by the declared rules, then lowers every operation."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

import nnburst.executor.onnxruntime.operations
import nnburst.executor.operations  # noqa: F401 - both fill their registries
from nnburst.executor.base import Bytes
from nnburst.executor.graph.plan import Step
from nnburst.executor.graph.tensor import Tensor
from nnburst.executor.graph.translation import (
    REFUSALS,
    OperandValues,
    Translation,
    real_numbers,
    real_type,
    require,
    require_fit,
)
from nnburst.executor.onnxruntime.graph import ELEMENTS, OnnxGraph, StoredValue, WrittenGraph
from nnburst.executor.onnxruntime.lowering import LOWERINGS, OnnxLowering
from nnburst.executor.onnxruntime.reals import over_reals
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import Model

log = logging.getLogger("nnburst.executor")


class Claims(msgspec.Struct, frozen=True):
    """The operations of a model that the engine runs, found without running it.

    Attributes:
        lowered: for each operation, whether the engine runs it.
        refusals: the reason why the engine does not run an operation, by the operation's number.
    """

    lowered: tuple[bool, ...]
    refusals: Mapping[int, str]


#: Raises one of REFUSALS for an operation that is not to be lowered.
Check = Callable[[OnnxLowering], None]


def survey(model: Model, *, reals: bool = False, check: Check | None = None) -> Claims:
    """Find the operations of a validated model's main subgraph that can be lowered.

    The bytes of its pools are not known. So operands that steer an operation must be small constants.

    Args:
        model: the model to compute.
        reals: whether float16 and 8-bit integers are computed as real numbers (`over_reals`).
        check: checks each operation that has a lowering.
    """
    try:
        translation = _OnnxTranslation(model, None, OnnxGraph(), reals=reals, check=check)
    except (NnburstError, *REFUSALS) as error:
        log.debug("onnxruntime runs no operation of the model: %s", error)
        count = len(model.main.operations)
        return Claims((False,) * count, dict.fromkeys(range(count), str(error)))
    lowered = tuple(translation.step(n) for n in range(len(translation.graph.steps)))
    return Claims(lowered, translation.refusals)


def lower(
    model: Model,
    pools: Sequence[Bytes],
    *,
    by_cpu: bool = True,
    whole: bool = False,
    normalizes: bool = False,
    reals: bool = False,
    check: Check | None = None,
) -> WrittenGraph | None:
    """Lower a validated model to an ONNX graph; None if an operation cannot be lowered.

    Args:
        model: the model to compute.
        pools: bytes of its pools.
        by_cpu: see `OnnxGraph`.
        whole: see `OnnxGraph`.
        normalizes: see `OnnxGraph`.
        reals: see `survey`.
        check: see `survey`.
    """
    writer = OnnxGraph(by_cpu, whole, normalizes)
    try:
        translation = _OnnxTranslation(model, pools, writer, reals=reals, check=check)
        if all(translation.step(n) for n in range(len(translation.graph.steps))):
            return translation.finish()
    except (NnburstError, *REFUSALS) as error:
        log.debug("onnxruntime does not run the model: %s", error)
    return None


class _OnnxTranslation(Translation):
    """The main graph while it is lowered to ONNX."""

    def __init__(
        self,
        model: Model,
        pools: Sequence[Bytes] | None,
        writer: OnnxGraph,
        *,
        reals: bool,
        check: Check | None,
    ) -> None:
        rewritten = over_reals(model, pools) if reals else None
        self._stored = {} if rewritten is None else rewritten.stored
        self._refused = frozenset() if rewritten is None else rewritten.refused
        super().__init__(model if rewritten is None else rewritten.model, pools)
        self._writer = writer
        self._check = check
        self._values: OperandValues[StoredValue] = OperandValues(
            self.stored, self._real, relaxed=model.relax_computation_float32_to_float16
        )
        for index in self.graph.inputs:
            self._feed(index)

    def _real(self, stored: Tensor) -> StoredValue:
        """Add real weights, whose numbers are computed when the graph is written."""
        return self._writer.constant(functools.partial(real_numbers, stored), real_type(stored))

    def _lower(self, number: int, step: Step) -> None:
        require(number not in self._refused, f"{step.type.name} of 8-bit integers")
        self.require_known(number, lowered=step.type in LOWERINGS or number in self.weights)
        if number in self.weights:
            return  # each operation that reads these weights adds them
        results = [self.types[i] for i in step.outputs]
        op = OnnxLowering(step, self.node(step), self._writer, self._values, results)
        if self._check is not None:
            self._check(op)
        made = LOWERINGS[step.type](op)
        made = made if isinstance(made, list) else [made]
        for index, value in zip(step.outputs, made, strict=True):
            require_fit(value.meta, self.types[index])
            stored = self._stored.get(index)
            self._values[index] = value if stored is None else self._writer.rounded(value, stored)

    def _stand_in(self, step: Step) -> None:
        for index in step.outputs:
            if index in self.types:
                self._feed(index)

    def _feed(self, index: int) -> None:
        """Make an operand an input of the graph, if the engine can read its type."""
        meta = self.types[index]
        stored = self._stored.get(index)
        if stored is not None and 0 not in meta.dimensions:
            self._values[index] = self._writer.stored_input(meta, stored)
        elif meta.type in ELEMENTS and 0 not in meta.dimensions:
            self._values[index] = self._writer.input(meta)

    def finish(self) -> WrittenGraph:
        """Finish the graph."""
        for index in self.graph.inputs:
            require(self.types[index].type in ELEMENTS, "an input that the engine does not take")
        return self._writer.finish([self._output(index) for index in self.graph.outputs])

    def _output(self, index: int) -> StoredValue:
        stored, value = self._stored.get(index), self._values[index]
        return value if stored is None else self._writer.as_stored(value, stored)
