"""What crosses the steps' boundaries, once all steps are there (RT:P14, P15, P18)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nnburst.hal.enums import OperandLifeTime
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import IfStep, SourceOperand, WhileStep
from nnburst.runtime.planning.steps.partitioner import RawStep
from nnburst.runtime.planning.steps.step_builder import StepBuilder

_CONSTANTS = frozenset({OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_REFERENCE})


class Boundaries:
    """Who reads what others write.

    Attributes:
        temps_out: of each execution step, by index, the temporaries that others read.
        downstream: of each source model, its outputs that an execution step reads which does not write them.
        boundary_constants: constants that interpreted control flow reads, each once.
    """

    def __init__(
        self, source: FinishedModel, steps: Sequence[RawStep], source_models: Sequence[int]
    ) -> None:
        """Look through all steps."""
        self.temps_out: defaultdict[int, set[int]] = defaultdict(set)
        self.downstream: defaultdict[int, set[int]] = defaultdict(set)
        writers = {
            SourceOperand(step.source_model, index): step.index
            for step in steps
            if isinstance(step, StepBuilder)
            for index in step.temps_written
        }
        constants: dict[SourceOperand, None] = {}
        for step in steps:
            if isinstance(step, StepBuilder):
                reads = [pair.source for pair in step.temps_in]
                self.downstream[step.source_model] |= {pair.source for pair in step.outputs_in}
            elif isinstance(step, IfStep | WhileStep):
                reads = _read_outside(step)
            else:
                continue
            for index in reads:
                operand = SourceOperand(step.source_model, index)
                if operand in writers:
                    self.temps_out[writers[operand]].add(index)
                graph = source.subgraph(source_models[operand.source_model])
                if graph.operands[index].lifetime in _CONSTANTS:
                    constants[operand] = None
        self.boundary_constants = tuple(constants)


def _read_outside(step: IfStep | WhileStep) -> list[int]:
    condition = [step.condition] if isinstance(step, IfStep) else []
    return [*condition, *step.outer_inputs]
