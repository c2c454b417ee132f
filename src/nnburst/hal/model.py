"""The HAL's model: operands, operations, subgraphs, constants and pools.

These structs are also the control channel's messages; there is no second set. They carry no
behaviour: validation lives in `nnburst.hal.validation`, construction in `nnburst.hal.model_builder`.
"""

from __future__ import annotations

import msgspec

from nnburst.hal.enums import OperandLifeTime


class DataLocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where data lies: a pool (or `operand_values`), and a byte range in it."""

    pool_index: int = 0
    offset: int = 0
    length: int = 0


class SymmPerChannelQuantParams(msgspec.Struct, frozen=True, tag="channel_quant"):
    """Scales of TENSOR_QUANT8_SYMM_PER_CHANNEL, one per index of dimension `channel_dim`."""

    scales: tuple[float, ...]
    channel_dim: int


class ExtensionParams(msgspec.Struct, frozen=True, tag="extension"):
    """Opaque bytes that belong to an extension operand."""

    data: bytes


ExtraParams = SymmPerChannelQuantParams | ExtensionParams | None


class Operand(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operand of a subgraph.

    Attributes:
        type: an `OperandType`, or a larger value that belongs to an extension.
        dimensions: row-major extents; 0 is unknown; empty is a scalar, or a tensor of unknown rank.
        number_of_consumers: how often operations of this subgraph read it.
        scale: quantisation step, a float32 value.
        zero_point: stored value that stands for 0.
        lifetime: where its value comes from.
        location: for constants and SUBGRAPH; all zero otherwise.
        extra_params: per-channel quantisation or extension bytes.
    """

    type: int
    dimensions: tuple[int, ...] = ()
    number_of_consumers: int = 0
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()
    extra_params: ExtraParams = None


class Operation(msgspec.Struct, frozen=True):
    """One operation: its type and the indexes of its operands."""

    type: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Subgraph(msgspec.Struct, frozen=True):
    """Operands and operations in execution order, and which operands are inputs and outputs."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


class MemoryPool(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """A pool of shared memory: its size in bytes and which of the message's fds it is."""

    size: int
    fd_index: int = 0


class BufferToken(MemoryPool, frozen=True, kw_only=True):
    """A driver's buffer in a request, named by its token; `size` is 0 and no descriptor goes along.

    Also the member of 1.3's and AIDL's unions.
    """

    size: int = 0
    fd_index: int = -1
    token: int


class ExtensionNameAndPrefix(msgspec.Struct, frozen=True):
    """Prefix under which a model uses an extension."""

    name: str
    prefix: int


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """A network (1.3 layout, which the older ones embed into).

    Attributes:
        main: the subgraph that is executed.
        referenced: subgraphs used by IF and WHILE, numbered from 0.
        operand_values: values of CONSTANT_COPY operands.
        pools: memory that CONSTANT_REFERENCE operands lie in.
        relax_computation_float32_to_float16: float32 may be computed as float16.
        extension_name_to_prefix: one-to-one map of the extensions used.
    """

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[MemoryPool, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
