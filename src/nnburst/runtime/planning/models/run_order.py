"""Run order: the one order in which operations are numbered inside the framework (RT:M11).

It is not the client's order, and not the first that comes to mind: ready operations lie on a stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand, Operation

#: Operands that an operation must have written before others can read them.
WRITTEN: Final = frozenset({OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT})


class ReadyOperations:
    """Which operations become ready as others are done.

    Each use counts: an operation that reads the same operand twice waits for it twice.
    """

    def __init__(self, operands: Sequence[Operand], operations: Sequence[Operation]) -> None:
        """Count what each operation waits for.

        Attributes:
            first: operations that wait for nothing, ascending.
        """
        written = [operand.lifetime in WRITTEN for operand in operands]
        self._operations = operations
        self._missing = [0] * len(operations)
        self._readers: dict[int, list[int]] = {}
        for number, operation in enumerate(operations):
            for index in operation.inputs:
                if written[index]:
                    self._missing[number] += 1
                    self._readers.setdefault(index, []).append(number)
        self.first = [number for number, count in enumerate(self._missing) if not count]

    def done(self, number: int) -> list[int]:
        """Operations that become ready because operation `number` is done, in order."""
        ready = []
        for index in self._operations[number].outputs:
            for reader in self._readers.get(index, ()):
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    ready.append(reader)
        return ready


def run_order(operands: Sequence[Operand], operations: Sequence[Operation]) -> tuple[int, ...]:
    """The operation at each position of the run order.

    Raises:
        InvalidArgument: an operand index does not exist; or the operations have no order, because of a
            cycle or because what one reads is never written.
    """
    count = len(operands)
    for number, operation in enumerate(operations):
        for index in (*operation.inputs, *operation.outputs):
            if not 0 <= index < count:
                raise InvalidArgument(
                    f"validation:P2: operation {number}: operand {index} of {count}"
                )
    waiting = ReadyOperations(operands, operations)
    stack, order = list(waiting.first), []
    while stack:
        number = stack.pop()
        order.append(number)
        stack += waiting.done(number)
    if len(order) < len(operations):
        stuck = min(set(range(len(operations))) - set(order))
        raise InvalidArgument(
            f"operations: number {stuck} can never run: it reads what is never written, or what a"
            " cycle of operations writes (RT:M10)"
        )
    return tuple(order)
