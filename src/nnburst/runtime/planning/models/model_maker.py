"""ModelMaker: the models that devices get, made of parts of a finished one.

Operands that nothing uses stay behind (RT:M10), and with them values, pools, subgraphs and extensions.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.extensions import prefix_of
from nnburst.hal.model import (
    DataLocation,
    ExtensionNameAndPrefix,
    Model,
    Operand,
    Operation,
    Subgraph,
)

_L = OperandLifeTime
#: Constants start at multiples of this, so that their arrays are aligned.
_ALIGNMENT: Final = 16


class ModelMaker:
    """Collects what one model needs of the model that it is made from. Makes one model."""

    def __init__(self, source: Model) -> None:
        """Start with nothing from `source`."""
        self._source = source
        self._values = bytearray()
        self._pools: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._referenced: list[Subgraph] = []

    @property
    def pools(self) -> tuple[int, ...]:
        """Which of the source's pools each pool of the model is."""
        return tuple(self._pools)

    def operand(self, operand: Operand, consumers: int, lifetime: OperandLifeTime) -> Operand:
        """A source operand as one of the new model, with what it refers to.

        Args:
            operand: of the source.
            consumers: how often the new subgraph's operations read it.
            lifetime: in the new subgraph.
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
        """A subgraph of the source without the operands that nothing uses."""
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
        """The model with this main subgraph, all of whose operands came from `operand`."""
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
