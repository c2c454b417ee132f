"""Which operations of a model can be run, by their declarations alone: no kernel is loaded."""

from __future__ import annotations

from nnburst.executor.graph.extension import with_local_codes
from nnburst.executor.graph.plan import match_operation
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operation, Subgraph


def supported_operations(model: Model) -> list[bool]:
    """Whether each operation of the main subgraph can be run; False for any doubt."""
    local = with_local_codes(model)
    support = _Support(local)
    return [support.of_operation(local.main, op) for op in local.main.operations]


class _Support:
    """Which parts of a model can be run; each subgraph is looked at once."""

    def __init__(self, model: Model) -> None:
        self._referenced = model.referenced
        self._known: dict[int, bool] = {}

    def of_operation(self, subgraph: Subgraph, operation: Operation) -> bool:
        """Whether an operation can be run, with all subgraphs that it runs."""
        try:
            match_operation(subgraph, operation)
            return all(
                self._of_graph(subgraph.operands[i].location.offset)
                for i in operation.inputs
                if subgraph.operands[i].lifetime == OperandLifeTime.SUBGRAPH
            )
        except (InvalidArgument, IndexError):
            return False

    def _of_graph(self, index: int) -> bool:
        if index not in self._known:
            self._known[index] = False  # as long as it is looked at: a cycle cannot be run
            graph = self._referenced[index]
            self._known[index] = all(self.of_operation(graph, o) for o in graph.operations)
        return self._known[index]
