"""From a model that was built by calls to the HAL's: values, pools, referenced models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.extensions import extension_code, number_of, prefix_of
from nnburst.hal.model import (
    DataLocation,
    ExtensionNameAndPrefix,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
)
from nnburst.hal.operand_types import is_extension
from nnburst.runtime.extensions.type_registry import TYPES
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.model_operand import BuiltModel, MemoryRange, ModelOperand

_L = OperandLifeTime
#: Constants start at multiples of this, so that their arrays are aligned.
_ALIGNMENT: Final = 16


class HalModelBuilder:
    """Collects what the operands of one model refer to.

    Attributes:
        memories: of the pools, in order.
        relaxed: of the main and each referenced model, whether float32 may be computed as float16.
    """

    def __init__(self) -> None:
        self._values = bytearray()
        self.memories: list[Memory] = []
        self.relaxed: list[bool] = []
        self._referenced: list[Subgraph] = []

    def build(
        self,
        operands: Sequence[ModelOperand],
        operations: Sequence[Operation],
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        relaxed: bool,
    ) -> Model:
        """The HAL's model with all operands, operations in the given order."""
        self.relaxed.append(relaxed)
        uses = Counter(index for operation in operations for index in operation.inputs)
        self._copy_large_values(operands)
        described = tuple(
            replace(
                operand.description,
                lifetime=operand.lifetime,
                location=self._location(operand),
                extra_params=operand.extra_params,
                number_of_consumers=uses[index],
            )
            for index, operand in enumerate(operands)
        )
        main = Subgraph(described, tuple(operations), tuple(inputs), tuple(outputs))
        codes = [
            code
            for graph in (main, *self._referenced)
            for code in (*(o.type for o in graph.operands), *(o.type for o in graph.operations))
        ]
        return Model(
            main=main,
            referenced=tuple(self._referenced),
            operand_values=bytes(self._values),
            pools=tuple(MemoryPool(memory.size, n) for n, memory in enumerate(self.memories)),
            relax_computation_float32_to_float16=relaxed,
            extension_name_to_prefix=TYPES.used_by(codes),
        )

    def _copy_large_values(self, operands: Sequence[ModelOperand]) -> None:
        """Move values whose pointer was kept to one new memory (RT:M10)."""
        large = [(o, o.value) for o in operands if isinstance(o.value, memoryview)]
        if not large:
            return
        memory = Memory.allocate(sum(_aligned(value.nbytes) for _, value in large))
        offset = 0
        for operand, value in large:
            memory.bytes[offset : offset + value.nbytes] = np.frombuffer(value, np.uint8)
            operand.give(_L.CONSTANT_REFERENCE, MemoryRange(memory, offset, value.nbytes))
            offset += _aligned(value.nbytes)

    def _location(self, operand: ModelOperand) -> DataLocation:
        value = operand.value
        if isinstance(value, MemoryRange):
            return DataLocation(self._pool(value.memory), value.offset, value.length)
        if isinstance(value, bytes):
            self._values.extend(b"\0" * (-len(self._values) % _ALIGNMENT))
            self._values.extend(value)
            return DataLocation(offset=len(self._values) - len(value), length=len(value))
        if isinstance(value, BuiltModel):
            return DataLocation(offset=self._flatten(value))
        return DataLocation()

    def _pool(self, memory: Memory) -> int:
        for index, known in enumerate(self.memories):
            if known is memory:
                return index
        self.memories.append(memory)
        return len(self.memories) - 1

    def _flatten(self, value: BuiltModel) -> int:
        """Add a referenced model and those that it refers to; one that is mentioned twice is there twice."""
        self._values.extend(b"\0" * (-len(self._values) % _ALIGNMENT))
        values, first = len(self._values), len(self._referenced)
        model = value.model
        self._values.extend(model.operand_values)
        pools = [self._pool(memory) for memory in value.memories]

        def moved(operand: Operand) -> Operand:
            at = operand.location
            if operand.lifetime == _L.CONSTANT_COPY:
                at = replace(at, offset=at.offset + values)
            elif operand.lifetime == _L.CONSTANT_REFERENCE:
                at = replace(at, pool_index=pools[at.pool_index])
            elif operand.lifetime == _L.SUBGRAPH:
                at = replace(at, offset=at.offset + first + 1)
            return replace(operand, location=at)

        for graph in (model.main, *model.referenced):
            self._referenced.append(replace(graph, operands=tuple(map(moved, graph.operands))))
        self.relaxed += value.relaxed
        return first


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def with_process_prefixes(model: Model) -> Model:
    """The model with the prefixes that stand for its extensions in this process.

    Raises:
        InvalidArgument: no device has one of them.
    """
    entries = model.extension_name_to_prefix
    if not entries:
        return model
    prefixes = {entry.prefix: TYPES.prefix(entry.name) for entry in entries}

    def code(code: int) -> int:
        known = is_extension(code) and prefixes.get(prefix_of(code))
        return extension_code(known, number_of(code)) if known else code

    def translated(graph: Subgraph) -> Subgraph:
        return replace(
            graph,
            operands=tuple(replace(o, type=code(o.type)) for o in graph.operands),
            operations=tuple(replace(o, type=code(o.type)) for o in graph.operations),
        )

    return replace(
        model,
        main=translated(model.main),
        referenced=tuple(map(translated, model.referenced)),
        extension_name_to_prefix=tuple(
            ExtensionNameAndPrefix(entry.name, prefixes[entry.prefix]) for entry in entries
        ),
    )


def pools_of(memories: Sequence[Memory]) -> list[Pool]:
    """Pools with the memories' present contents, for constants."""
    return [memory._constants() for memory in memories]
