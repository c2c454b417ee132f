"""What the reference executor keeps of a prepared model: the model, with its constants packed."""

from __future__ import annotations

import msgspec

from nnburst.executor.caching import Cached
from nnburst.executor.graph.plan import Graph, Plan
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import DataLocation, MemoryPool, Model, Operand, Subgraph

_ALIGNMENT = 64


class _Packer:
    """Bytes of constants, one after the other, each aligned."""

    def __init__(self) -> None:
        self.content = bytearray()

    def add(self, array: Array) -> DataLocation:
        self.content += bytes(-len(self.content) % _ALIGNMENT)
        location = DataLocation(0, len(self.content), array.nbytes)
        self.content += array.tobytes()
        return location


def to_cache(model: Model, plan: Plan) -> Cached:
    """`model` with constants from its plan, which cannot be changed any more.

    Those that lay in the model still do, and come back as they were; those that lay in its pools are the
    one pool of the new model. Nothing that others can write steers the executor, there or here: what comes
    from a pool is checked when it is used.
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
