"""StepBuilder: a step as it grows, and its model once all steps are there (RT:P13 to P17)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nnburst.hal.enums import FeatureLevel, OperandLifeTime
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Operation, Subgraph
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.model_maker import ModelMaker
from nnburst.runtime.planning.models.run_order import run_order
from nnburst.runtime.planning.models.version import has_unknown_size
from nnburst.runtime.planning.plan import ExecutionStep, OperandPair

_L = OperandLifeTime


class StepBuilder:
    """Collects one step's operations and what crosses its boundary.

    Attributes:
        index: the step's position in the plan.
        source_model: number of the source model.
        subgraph: which subgraph that is.
        device: position of the device that executes.
        temps_written: temporaries of the source model that it writes.
    """

    def __init__(
        self, source: FinishedModel, index: int, source_model: int, subgraph: int, device: int
    ) -> None:
        """Start without operations."""
        self.index = index
        self.source_model = source_model
        self.subgraph = subgraph
        self.device = device
        self.temps_written: list[int] = []
        self._source = source
        self._graph = source.subgraph(subgraph)
        self._added: list[int] = []
        self._operations: list[Operation] = []
        self._numbers: dict[int, int] = {}
        self._consumers: list[int] = []
        self._model_inputs: list[OperandPair] = []
        self._model_outputs: list[OperandPair] = []
        self._temps_in: list[OperandPair] = []
        self._outputs_in: list[OperandPair] = []

    @property
    def temps_in(self) -> Sequence[OperandPair]:
        """Temporaries that others write."""
        return self._temps_in

    @property
    def outputs_in(self) -> Sequence[OperandPair]:
        """Outputs of the source model that others write."""
        return self._outputs_in

    @property
    def model_outputs(self) -> Sequence[OperandPair]:
        """Outputs of the source model that it writes."""
        return self._model_outputs

    def add(self, number: int) -> None:
        """Add an operation of the source model; what it reads is written before."""
        operation = self._graph.operations[number]
        inputs = tuple([self._read(index) for index in operation.inputs])
        outputs = tuple([self._write(index) for index in operation.outputs])
        self._added.append(number)
        self._operations.append(Operation(operation.type, inputs, outputs))

    def finish(
        self, device: Candidate, temps_out: Collection[int], downstream: Collection[int]
    ) -> ExecutionStep:
        """The step.

        Args:
            device: that executes it.
            temps_out: which of `temps_written` others read.
            downstream: model outputs of the source model that other steps read.

        Raises:
            GeneralFailure: RT:P16, it has no inputs or no outputs; RT:P17, it writes a temporary of unknown
                size and the device is below feature level 3.
        """
        out = tuple(OperandPair(i, self._numbers[i]) for i in sorted(temps_out))
        before = len(self._model_outputs)
        dynamic = tuple(
            before + position
            for position, pair in enumerate(out)
            if has_unknown_size(self._graph.operands[pair.source])
        )
        where = f"step {self.index} on {device.name}"
        if dynamic and device.feature_level < FeatureLevel.V1_2:
            operand = out[dynamic[0] - before].source
            raise GeneralFailure(
                f"{where}: temporary {operand} has an unknown size, which a device of feature level"
                f" {int(device.feature_level)} cannot report; level 3 can"
            )
        inputs = (*self._model_inputs, *self._temps_in, *self._outputs_in)
        outputs = (*self._model_outputs, *out)
        if not inputs or not outputs:
            missing = "outputs" if inputs else "inputs"
            raise GeneralFailure(f"{where}: the step has no {missing}, which no driver takes")
        maker = ModelMaker(self._source.model)
        main = self._step_graph(maker, inputs, outputs)
        return ExecutionStep(
            index=self.index,
            source_model=self.source_model,
            device=self.device,
            operations=tuple(self._added),
            model=maker.build(main, relaxed=self._source.relaxed[0]),
            pools=maker.pools,
            model_inputs=tuple(self._model_inputs),
            model_outputs=tuple(self._model_outputs),
            temps_in=tuple(self._temps_in),
            outputs_in=tuple(self._outputs_in),
            temps_out=out,
            downstream_outputs=tuple(
                n for n, pair in enumerate(self._model_outputs) if pair.source in downstream
            ),
            dynamic_outputs=dynamic,
        )

    def _step_graph(
        self, maker: ModelMaker, inputs: Sequence[OperandPair], outputs: Sequence[OperandPair]
    ) -> Subgraph:
        lifetimes: dict[int, OperandLifeTime] = {}
        lifetimes |= dict.fromkeys([pair.step for pair in inputs], _L.SUBGRAPH_INPUT)
        lifetimes |= dict.fromkeys([pair.step for pair in outputs], _L.SUBGRAPH_OUTPUT)
        source = self._graph.operands
        operands = tuple(
            [
                maker.operand(
                    source[index],
                    self._consumers[number],
                    lifetimes.get(number, source[index].lifetime),
                )
                for index, number in self._numbers.items()
            ]
        )
        # Trailing defaults are gone already: the source model has none, and steps add none.
        order = run_order(operands, self._operations)
        return Subgraph(
            operands,
            tuple([self._operations[number] for number in order]),
            tuple([pair.step for pair in inputs]),
            tuple([pair.step for pair in outputs]),
        )

    def _read(self, index: int) -> int:
        number = self._numbers.get(index)
        if number is None:
            number = self._add_operand(index)
            lifetime = self._graph.operands[index].lifetime
            if lifetime == _L.TEMPORARY_VARIABLE:
                self._temps_in.append(OperandPair(index, number))
            elif lifetime == _L.SUBGRAPH_INPUT:
                self._model_inputs.append(OperandPair(index, number))
            elif lifetime == _L.SUBGRAPH_OUTPUT:
                self._outputs_in.append(OperandPair(index, number))
        self._consumers[number] += 1
        return number

    def _write(self, index: int) -> int:
        number = self._add_operand(index)
        if self._graph.operands[index].lifetime == _L.SUBGRAPH_OUTPUT:
            self._model_outputs.append(OperandPair(index, number))
        else:
            self.temps_written.append(index)
        return number

    def _add_operand(self, index: int) -> int:
        number = len(self._consumers)
        self._numbers[index] = number
        self._consumers.append(0)
        return number
