"""Valid values of every HAL version, built from the version's own structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nnburst.compat import aidl, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.layouts import Ashmem, HidlMemory, MappableFile, PaddedLocation
from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.limits import INT32_MAX, NO_TIMING
from nnburst.hal.model import (
    INTRODUCED,
    BufferToken,
    DataLocation,
    ExtensionNameAndPrefix,
    ExtensionParams,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
    size_bytes,
)
from nnburst.hal.signature import Form, Role, Signature, Slot, TypeRow
from nnburst.hal.types import (
    Capabilities,
    OperandPerformance,
    PerformanceInfo,
    RequestArgument,
    Timing,
)

L = OperandLifeTime
T = OperandType
OP = OperationType
FL = FeatureLevel

HIDL = (FL.V1_0, FL.V1_1, FL.V1_2, FL.V1_3)
LEVELS = tuple(FL)
POOL_SIZE = 256
PREFIX = 0x1234
EXTENSION = PREFIX << 16

_KINDS = {
    T.TENSOR_FLOAT32: FL.V1_0,
    T.TENSOR_QUANT8_ASYMM: FL.V1_0,
    T.TENSOR_FLOAT16: FL.V1_2,
    T.TENSOR_QUANT8_ASYMM_SIGNED: FL.V1_3,
}
_ROWS = tuple(TypeRow(since, {"T": kind}) for kind, since in _KINDS.items())


def _signature(kind: OperationType, since: FeatureLevel, operands: int) -> Signature:
    slots = [Slot(f"input{i}", "T") for i in range(operands)]
    if operands == 2:
        slots.append(Slot("activation", T.INT32, Role.CONTROL))
    return Signature(kind, since, (Form(tuple(slots), (Slot("out", "T"),)),), _ROWS, "For tests.")


#: Two or one data operands, an activation after two of them.
SIGNATURES: Mapping[OperationType, Signature] = {
    OP.ADD: _signature(OP.ADD, FL.V1_0, 2),
    OP.RELU: _signature(OP.RELU, FL.V1_0, 1),
    OP.SUB: _signature(OP.SUB, FL.V1_1, 2),
    OP.ABS: _signature(OP.ABS, FL.V1_2, 1),
    OP.HARD_SWISH: _signature(OP.HARD_SWISH, FL.V1_3, 1),
}


@dataclass
class Graph:
    """A subgraph under construction; operands are the fields of the canonical struct."""

    operands: list[dict[str, Any]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    values: bytearray = field(default_factory=bytearray)

    def operand(self, kind: int, dimensions: Sequence[int], lifetime: L, **fields: Any) -> int:
        """Add an operand and return its index; core quantised types get a scale."""
        quantized = kind in (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED)
        described = {"type": int(kind), "dimensions": tuple(dimensions), "lifetime": lifetime}
        self.operands.append({**described, "scale": 0.5 if quantized else 0.0, **fields})
        return len(self.operands) - 1

    def constant(self, kind: T, dimensions: Sequence[int], pool: int | None, **fields: Any) -> int:
        """Add a constant by copy, or in a pool."""
        length = size_bytes(kind, dimensions)
        if pool is not None:
            at = DataLocation(pool, 4, length)
            return self.operand(kind, dimensions, L.CONSTANT_REFERENCE, location=at, **fields)
        at = DataLocation(0, len(self.values), length)
        self.values.extend(bytes(length))
        return self.operand(kind, dimensions, L.CONSTANT_COPY, location=at, **fields)

    def indexes(self, lifetime: L) -> tuple[int, ...]:
        return tuple(i for i, o in enumerate(self.operands) if o["lifetime"] == lifetime)

    def build(self, level: FeatureLevel) -> dict[str, Any]:
        """The four fields of a subgraph, with the version's operands."""
        reads = [index for operation in self.operations for index in operation.inputs]
        operands = []
        for index, fields in enumerate(self.operands):
            described = dict(fields)
            if level >= FL.AIDL_V1:
                at = described.get("location", DataLocation())
                described["location"] = PaddedLocation(at.pool_index, at.offset, at.length)
            else:
                described["number_of_consumers"] = reads.count(index)
            struct = (
                aidl.Operand
                if level >= FL.AIDL_V1
                else Operand
                if level >= FL.V1_2
                else v1_0.Operand
            )
            operands.append(struct(**described))
        return {
            "operands": tuple(operands),
            "operations": tuple(self.operations),
            "input_indexes": self.indexes(L.SUBGRAPH_INPUT),
            "output_indexes": self.indexes(L.SUBGRAPH_OUTPUT),
        }


def shapes(level: FeatureLevel) -> st.SearchStrategy[tuple[int, ...]]:
    """Dimensions of a tensor that is no constant: 0 is unknown; before 1.2 the rank is known."""
    least = 0 if level >= FL.V1_2 else 1
    return st.lists(st.integers(0, 9), min_size=least, max_size=4).map(tuple)


@st.composite
def _main(draw: st.DrawFn, level: FeatureLevel, pool_count: int) -> Graph:
    graph = Graph()
    kind = draw(st.sampled_from([k for k, since in _KINDS.items() if since <= level]))
    known = [graph.operand(kind, draw(shapes(level)), L.SUBGRAPH_INPUT)]
    for _ in range(draw(st.integers(0, 2))):
        pool = draw(st.sampled_from([None, *range(pool_count)]))
        known.append(graph.constant(kind, (draw(st.integers(1, 5)),), pool))
    activation = graph.constant(T.INT32, (), None)
    codes = [code for code, s in SIGNATURES.items() if s.since <= level]
    for number in range(count := draw(st.integers(1, 4))):
        code = draw(st.sampled_from(codes))
        width = len(SIGNATURES[code].forms[0].inputs)
        ins = draw(st.lists(st.sampled_from(known), min_size=min(width, 2), max_size=min(width, 2)))
        lifetime = L.SUBGRAPH_OUTPUT if number == count - 1 else L.TEMPORARY_VARIABLE
        out = graph.operand(kind, draw(shapes(level)), lifetime)
        graph.operations.append(
            Operation(code, tuple(ins[:1] if width == 1 else [*ins, activation]), (out,))
        )
        known.append(out)
    if level >= FL.V1_2 and draw(st.booleans()):
        _add_extension(draw, graph)
    return graph


def _add_extension(draw: st.DrawFn, graph: Graph) -> None:
    params = draw(st.none() | st.builds(ExtensionParams, st.binary(max_size=4)))
    source = graph.operand(EXTENSION | 7, (3,), L.SUBGRAPH_INPUT, extra_params=params)
    scales = SymmPerChannelQuantParams((0.5, 0.25), 0)
    weights = graph.constant(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3), None, extra_params=scales)
    absent = graph.operand(T.TENSOR_FLOAT32, (), L.NO_VALUE)
    out = graph.operand(EXTENSION | 8, (), L.SUBGRAPH_OUTPUT)
    graph.operations.append(Operation(EXTENSION | 1, (source, weights, absent), (out,)))


def _branch(values: bytearray) -> Graph:
    graph = Graph(values=values)
    source = graph.operand(T.TENSOR_FLOAT32, (2,), L.SUBGRAPH_INPUT)
    out = graph.operand(T.TENSOR_FLOAT32, (2,), L.SUBGRAPH_OUTPUT)
    graph.operations.append(Operation(OP.RELU, (source,), (out,)))
    return graph


def _add_if(graph: Graph) -> list[Graph]:
    condition = graph.operand(T.TENSOR_BOOL8, (1,), L.SUBGRAPH_INPUT)
    branches = [
        graph.operand(T.SUBGRAPH, (), L.SUBGRAPH, location=DataLocation(offset=i)) for i in (0, 1)
    ]
    source = graph.operand(T.TENSOR_FLOAT32, (2,), L.SUBGRAPH_INPUT)
    out = graph.operand(T.TENSOR_FLOAT32, (2,), L.SUBGRAPH_OUTPUT)
    graph.operations.append(Operation(OP.IF, (condition, *branches, source), (out,)))
    return [_branch(graph.values), _branch(graph.values)]


@st.composite
def pools(draw: st.DrawFn, level: FeatureLevel, fd: int, tokens: bool = False) -> Any:
    """Memory of the version, at least POOL_SIZE bytes; with `tokens` also driver buffers."""
    size = draw(st.integers(POOL_SIZE, 2**31))
    protection, offset = draw(st.integers(0, 3)), draw(st.integers(0, INT32_MAX))
    high = draw(st.integers(-INT32_MAX - 1, INT32_MAX))
    choices: list[Any] = (
        [Ashmem(fd, size), MappableFile(size, protection, fd, offset)]
        if level >= FL.AIDL_V1
        else [
            HidlMemory("ashmem", size, (fd,)),
            HidlMemory("mmap_fd", size, (fd,), (protection, -offset - 1, high)),
        ]
    )
    if tokens and level >= FL.V1_3:
        choices.append(BufferToken(token=draw(st.integers(1, INT32_MAX))))
    return draw(st.sampled_from(choices))


@st.composite
def models(draw: st.DrawFn, level: FeatureLevel) -> Any:
    """A valid model of the version."""
    pool_count = draw(st.integers(0, 2))
    graph = draw(_main(level, pool_count))
    referenced = _add_if(graph) if level >= FL.V1_3 and draw(st.booleans()) else []
    fields: dict[str, Any] = {
        "operand_values": bytes(graph.values),
        "pools": tuple(draw(pools(level, fd)) for fd in range(pool_count)),
    }
    if level >= FL.V1_1:
        fields["relax_computation_float32_to_float16"] = draw(st.booleans())
    if level >= FL.V1_2:
        fields["extension_name_to_prefix"] = (ExtensionNameAndPrefix("com.example.test", PREFIX),)
    if level < FL.V1_3:
        return {FL.V1_0: v1_0, FL.V1_1: v1_1, FL.V1_2: v1_2}[level].Model(
            **graph.build(level), **fields
        )
    version, subgraph = (aidl, aidl.Subgraph) if level >= FL.AIDL_V1 else (v1_3, Subgraph)
    main, *others = (subgraph(**g.build(level)) for g in (graph, *referenced))
    return version.Model(main=main, referenced=tuple(others), **fields)


@st.composite
def requests(draw: st.DrawFn, level: FeatureLevel) -> Any:
    """A request of the version that is valid by itself."""
    given = [draw(pools(level, fd, tokens=True)) for fd in range(draw(st.integers(1, 3)))]
    is_aidl = level >= FL.AIDL_V1
    struct = aidl.Request if is_aidl else v1_3.Request if level >= FL.V1_3 else v1_0.Request
    sides = [draw(st.lists(_arguments(given, is_aidl), max_size=3)) for _ in range(2)]
    return struct(tuple(sides[0]), tuple(sides[1]), tuple(given))


@st.composite
def _arguments(draw: st.DrawFn, given: list[Any], is_aidl: bool) -> Any:
    struct = aidl.RequestArgument if is_aidl else RequestArgument
    if draw(st.booleans()):
        return struct(has_no_value=True)
    pool = draw(st.integers(0, len(given) - 1))
    bounds = (0, 0, 0)
    if not isinstance(given[pool], BufferToken):
        bounds = (draw(st.integers(0, 99)), draw(st.integers(1, 99)), draw(st.integers(0, 50)))
    at = PaddedLocation(pool, *bounds) if is_aidl else DataLocation(pool, *bounds[:2])
    return struct(location=at, dimensions=tuple(draw(st.lists(st.integers(1, 9), max_size=3))))


float32s = st.floats(2**-20, 2**20, width=32)
performances = st.builds(PerformanceInfo, float32s, float32s)


@st.composite
def all_capabilities(draw: st.DrawFn, level: FeatureLevel) -> Any:
    """Valid capabilities of the version."""
    infos = [draw(performances) for _ in range(4)]
    if level == FL.V1_0:
        return v1_0.Capabilities(*infos[:2])
    if level == FL.V1_1:
        return v1_1.Capabilities(*infos[:3])
    known = [t for t in T if INTRODUCED[t] <= level and t != T.SUBGRAPH]
    if level >= FL.AIDL_V1:
        known = [t for t in known if t < T.OEM]
    types = sorted(draw(st.sets(st.sampled_from(known))))
    table = tuple(OperandPerformance(t, draw(performances)) for t in types)
    if level == FL.V1_2:
        return v1_2.Capabilities(*infos[:2], table)
    return Capabilities(*infos[:2], table, *infos[2:])


@st.composite
def timings(draw: st.DrawFn, level: FeatureLevel) -> Any:
    """A valid timing of the version."""
    longest, none = (2**63 - 1, -1) if level >= FL.AIDL_V1 else (NO_TIMING - 1, NO_TIMING)
    device, driver = sorted(draw(st.tuples(*[st.integers(0, longest)] * 2)))
    device, driver = (t if draw(st.booleans()) else none for t in (device, driver))
    return (aidl.Timing if level >= FL.AIDL_V1 else Timing)(device, driver)


def flt_max() -> float:
    """Largest float32, from another source than the code under test."""
    return float(np.finfo(np.float32).max)
