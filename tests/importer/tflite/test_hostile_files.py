"""Files that no honest tool writes: an answer or an error that names the reason, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.formats import budget
from nnburst.importer.tflite.file import TfliteFile
from nnburst.testing.fuzzing.file_fuzzers import MEMORY_AT_LEAST, MEMORY_PER_BYTE, fuzz_importer
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import (
    NETWORKS,
    dense_level,
    listed_level,
    sparsity,
    vector,
)

INTACT = NETWORKS["CONV_2D-channels-same-INT8"]()


def refuse(content: bytes) -> str:
    """The message with which `content` is refused, in the memory that a file may take."""
    tracemalloc.start()
    try:
        with pytest.raises(nnburst.InvalidArgument) as caught:
            nnburst.load(content, as_graph=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MEMORY_PER_BYTE * len(content) + 2 * budget.SPENT_AT_LEAST
    return str(caught.value)


@pytest.fixture
def frugal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less for small files, so that less work is needed to exceed it."""
    monkeypatch.setattr(budget, "SPENT_AT_LEAST", 2**22)


def test_allowance_leaves_room_for_what_is_not_counted() -> None:
    assert MEMORY_AT_LEAST == 2 * budget.SPENT_AT_LEAST


def test_mutated_files_are_read_or_refused_in_bounded_time_and_memory() -> None:
    report = fuzz_importer([build() for build in NETWORKS.values()], 1500, seed=7)
    assert report.failures == []
    assert report.outcomes["refused"] > 300
    assert report.outcomes["imported"] > 30


@given(st.integers(0, len(INTACT) - 1))
def test_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(nnburst.InvalidArgument):
        nnburst.load(INTACT[:length], as_graph=False)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(nnburst.InvalidArgument, match="not an intact"):
        nnburst.load(content[:4] + b"TFL3" + content[4:], as_graph=False)


def test_other_formats_are_refused_by_name() -> None:
    with pytest.raises(nnburst.InvalidArgument, match="bytes 4 to 8 are b'PK34'"):
        nnburst.load(b"\x08\0\0\0PK34" + bytes(20), as_graph=False)


def relu_file(change: Callable[[TfliteBuilder], None]) -> bytes:
    """One RELU from tensor 0 to tensor 1, changed."""
    b = TfliteBuilder()
    b.operator("RELU", [b.input("FLOAT32", (2, 3))], [b.output("FLOAT32", (2, 3))])
    change(b)
    return b.finish()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b.raw.operators[0].inputs.__setitem__(0, 9), "tensor 9 of 2"),
        (lambda b: b.raw.operators[0].inputs.__setitem__(0, -7), "tensor -7 of 2"),
        (lambda b: b.raw.operators[0].inputs.__setitem__(0, -1), "input 0 is missing"),
        (lambda b: b.raw.operators[0].inputs.__setitem__(0, 1), "is read but never written"),
        (lambda b: b.raw.operators[0].outputs.__setitem__(0, 0), "is written twice"),
        (lambda b: setattr(b.raw.operators[0], "opcodeIndex", 5), "operator code 5 of 1"),
        (lambda b: b.raw.outputs.__setitem__(0, 99), "tensor 99 of 2"),
        (lambda b: b.raw.inputs.append(0), "an input twice"),
        (lambda b: b.raw.outputs.clear(), "no outputs"),
        (lambda b: setattr(b.raw.tensors[0], "shape", [2, -3]), "extents below 1"),
        (lambda b: setattr(b.raw.tensors[0], "shape", [2] * 17), "rank 17"),
        (lambda b: setattr(b.raw.tensors[0], "shape", [2**30] * 4), "larger than an operand"),
        (lambda b: setattr(b.raw.tensors[0], "buffer", 77), None),
        (lambda b: b.model.subgraphs.clear(), "subgraph 0 of 0"),
        (lambda b: b.signature("x", {"y": 1}, {}), "not an input or output"),
        (lambda b: b.metadata("m", b"") or setattr(b.model.metadata[0], "buffer", 9), "buffer 9"),
    ],
)
def test_impossible_index_is_refused_by_name(
    change: Callable[[TfliteBuilder], None], reason: str | None
) -> None:
    content = relu_file(change)
    if reason is None:  # inputs do not look at their buffers
        nnburst.load(content)
    else:
        assert reason in refuse(content)


def test_subgraph_that_calls_itself_does_not_recurse() -> None:
    b = TfliteBuilder()
    condition, value = b.input("BOOL", (1,)), b.input("FLOAT32", (1,))
    number, branch = b.subgraph()
    inner = [branch.input("BOOL", (1,)), branch.input("FLOAT32", (1,))]
    for part, tensors in ((b, [condition, value]), (branch, inner)):
        part.operator(
            "IF",
            [tensors[0], *tensors],
            [part.output("FLOAT32", (1,))],
            "IfOptions",
            thenSubgraphIndex=number,
            elseSubgraphIndex=number,
        )
    assert len(nnburst.load(b.finish()).model.referenced) == 1  # the driver refuses the cycle


#: Entries of a vector that a hostile file repeats: 4 bytes of the file each.
MANY = 10_000


def with_repeated(content: bytes, table: Any, field: str) -> bytes:
    """`content` with the first entry of a vector of tables `MANY` times.

    Offsets only point forward: the vector comes behind the file, and behind that a copy of the file,
    which holds the table that all entries point to.
    """
    slot = {"Tensors": 4, "Operators": 10, "Buffers": 12, "Metadata": 16, "SignatureDefs": 18}[
        field
    ]
    table = table._tab
    at = table.Pos + table.Offset(slot)
    first = table.Indirect(table.Vector(table.Offset(slot)))
    data = bytearray(content) + b"\0" * (-len(content) % 4)
    data[at : at + 4] = (len(data) - at).to_bytes(4, "little")
    behind = len(data) + 4 + 4 * MANY
    places = np.arange(len(data) + 4, behind, 4)
    return bytes(
        data
        + MANY.to_bytes(4, "little")
        + (behind + first - places).astype("<u4").tobytes()
        + content
    )


@pytest.mark.usefixtures("frugal")
def test_one_operator_in_many_places_is_paid_for() -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1,)), b.output("FLOAT32", (1,))
    start, first = b.subgraph()
    first.operator("VAR_HANDLE", [], [first.tensor("RESOURCE", ())], "VarHandleOptions")
    b.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=start)
    b.operator("RELU", [x], [y])
    content = b.finish()
    nnburst.load(content)
    subgraph = TfliteFile(content).subgraph(0)
    assert "times its size" in refuse(with_repeated(content, subgraph, "Operators"))


@pytest.mark.campaign
@pytest.mark.usefixtures("frugal")
def test_many_inputs_are_paid_for() -> None:
    content = relu_file(lambda b: b.raw.inputs.extend(range(2, MANY)))
    subgraph = TfliteFile(content).subgraph(0)
    assert "times its size" in refuse(with_repeated(content, subgraph, "Tensors"))


def test_many_signatures_of_many_inputs_do_not_multiply() -> None:
    def change(b: TfliteBuilder) -> None:
        for index in range(2, 500):
            b.raw.inputs.append(b.tensor("FLOAT32", (1,), name=f"i{index}"))
        b.signature("", {}, {})

    content = relu_file(change)
    many = with_repeated(content, TfliteFile(content).model, "SignatureDefs")
    assert len(nnburst.load(many).signatures) == MANY


@pytest.mark.usefixtures("frugal")
def test_one_metadata_buffer_in_many_entries_is_paid_for() -> None:
    content = relu_file(lambda b: b.metadata("m", bytes(10_000)))
    nnburst.load(content)
    model = TfliteFile(content).model
    assert "times its size" in refuse(with_repeated(content, model, "Metadata"))


def test_many_constants_of_one_buffer_are_paid_for() -> None:
    b = TfliteBuilder()
    x = b.input("FLOAT32", (1, 100_000))
    shared = np.zeros(100_000, "<f4").tobytes()
    buffer = b.buffer(shared)
    for rows in range(1, 200):  # another shape of the same bytes each time
        y = b.tensor("FLOAT32", (1, 100_000))
        weights = b.tensor("FLOAT32", (1,) * (rows % 14) + (100_000,), buffer=buffer)
        b.operator("MAXIMUM", [x, weights], [y], "MaximumMinimumOptions")  # of any rank
        x = y
    b.raw.outputs.append(x)
    content = b.finish()
    pools = nnburst.load(content).pools
    assert sum(pool.nbytes for pool in pools) <= 14 * len(shared) + 64 * 14


def test_sparse_constant_of_enormous_shape_is_refused() -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1, 2**15)), b.output("FLOAT32", (1, 2**14))
    listed = listed_level(vector("Int32Vector", [0] * (2**14 + 1)), vector("Int32Vector", []))
    how = sparsity([0, 1], [], [dense_level(2**14), listed])
    weights = b.constant("FLOAT32", np.ones(1, "<f4"), shape=(2**14, 2**15), sparsity=how)
    b.operator("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
    assert "times its size" in refuse(b.finish())


@pytest.mark.parametrize(
    ("segments", "indexes"),
    [
        ([0, 2, 2, 6], [2, 3, 0, 1, 2, 3, 2, 3]),
        ([0, 2, 2, 6, 9], [2, 3, 0, 1, 2, 3, 2, 3]),
        ([0, 2, 1, 6, 8], [2, 3, 0, 1, 2, 3, 2, 3]),
        ([0, 2, 2, 6, 8], [2, 3, 0, 1, 2, 3, 2, 4]),
        ([0, 2, 2, 6, 8], [2, 3, 0, 1, 2, 3, 2, -1]),
        ([-2, 2, 2, 6, 8], [2, 3, 0, 1, 2, 3, 2, 3]),
        ([0, 2, 2, 6, 7], [2, 3, 0, 1, 2, 3, 2]),
        ([], []),
    ],
)
def test_sparse_tree_that_does_not_fit_is_refused(segments: list[int], indexes: list[int]) -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1, 4)), b.output("FLOAT32", (1, 4))
    listed = listed_level(vector("Int32Vector", segments), vector("Int32Vector", indexes))
    how = sparsity([0, 1], [], [dense_level(4), listed])
    weights = b.constant("FLOAT32", np.ones(8, "<f4"), shape=(4, 4), sparsity=how)
    b.operator("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
    assert "sparse" in refuse(b.finish())


def densified(shape: tuple[int, ...], values: int, levels: list[Any]) -> bytes:
    """A sparse constant of ones that is added to an input."""
    b = TfliteBuilder()
    x, y, dense = b.input("FLOAT32", shape), b.output("FLOAT32", shape), b.tensor("FLOAT32", shape)
    how = sparsity(list(range(len(levels))), [], levels)
    sparse = b.constant("FLOAT32", np.ones(values, "<f4"), shape=shape, sparsity=how)
    b.operator("DENSIFY", [sparse], [dense], "DensifyOptions")
    b.operator("ADD", [x, dense], [y], "AddOptions")
    return b.finish()


def int32_level(segments: list[int], indexes: list[int]) -> Any:
    return listed_level(vector("Int32Vector", segments), vector("Int32Vector", indexes))


def test_sparse_level_whose_places_do_not_fit_32_bits_is_refused() -> None:
    """A node at position 130,000 with 2**17 children each: the product is more than 2**32."""
    far = listed_level(
        vector("Int32Vector", [130_000, 130_001]), vector("Uint8Vector", [0] * 130_001)
    )
    levels = [far, dense_level(2**17), int32_level([0, 1], [0])]
    assert "a level of 131072" in refuse(densified((1, 2**17, 1), 8, levels))


@pytest.mark.parametrize("turn", [[2**31 - 1, -(2**31), -1, 0], [-1, 0], [2**31 - 1, 2**31 - 1]])
def test_sparse_segments_whose_differences_wrap_are_refused(turn: list[int]) -> None:
    levels = [int32_level([1, 2], [0, 0]), int32_level([0, *turn], [0, 0])]
    assert "segments of a sparse level" in refuse(densified((64, 64), 1, levels))


def test_enormous_state_is_refused() -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (2, 3)), b.output("FLOAT32", (2, 4))
    inputs = [b.constant("FLOAT32", np.ones(n, "<f4")) for n in ((4, 3), (4, 4), (4,))]
    state = b.tensor("FLOAT32", (2, 2**24), isVariable=True)
    b.operator("RNN", [x, *inputs, state], [y], "RNNOptions")
    assert "times its size" in refuse(b.finish())
