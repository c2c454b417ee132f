"""Every operator: imported, valid, and computing what LiteRT's reference kernels compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Peer, Runner, random_values
from nnburst.executor.built_in import litert
from nnburst.importer.tflite import operators
from nnburst.importer.tflite.file import TfliteFile
from nnburst.importer.tflite.operator import TABLE
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_network_gives_what_litert_gives(name: str) -> None:
    content = NETWORKS[name]()
    runner, peer = Runner(nnburst.load(content)), Peer(content)
    random = np.random.default_rng(1)
    for _ in range(3):
        values = [random_values(array, random) for array in runner.inputs]
        found, expected = runner.run(values), peer.run(values)
        for ours, theirs in zip(found, expected, strict=True):
            difference = ours.astype(np.float64) - theirs.reshape(ours.shape)
            if ours.dtype.kind == "f":
                scale = max(1.0, float(np.abs(theirs).max()))
                assert np.abs(difference).max() <= 1e-5 * scale
            else:
                assert np.abs(difference).max() <= (1 if theirs.dtype.itemsize == 1 else 0)


def test_every_operator_of_the_table_is_in_a_network() -> None:
    assert operators.__all__  # importing them has filled the table
    used = set()
    for build in NETWORKS.values():
        file = TfliteFile(build())
        for number in range(file.model.SubgraphsLength()):
            graph = file.subgraph(number)
            raws = file.entries(graph.OperatorsLength(), graph.Operators)
            used |= {file.operator_name(raw) for raw in raws}
    # These two differ from LiteRT's reference kernels, or have none there; see below.
    assert TABLE.keys() - used == {"ELU", "LOCAL_RESPONSE_NORMALIZATION"}


def one_operator(operator: str, options: str = "", **fields: float) -> Runner:
    """A network of one operator on 2×5 numbers."""
    builder = TfliteBuilder()
    x, y = builder.input("FLOAT32", (1, 2, 2, 5)), builder.output("FLOAT32", (1, 2, 2, 5))
    builder.operator(operator, [x], [y], options, **fields)
    return Runner(nnburst.load(builder.finish()))


def test_elu_is_the_exponential_below_zero() -> None:
    x = np.linspace(-3, 3, 20, dtype=np.float32).reshape(1, 2, 2, 5)
    [found] = one_operator("ELU").run([x])
    np.testing.assert_allclose(found, np.where(x < 0, np.expm1(x), x), rtol=1e-6)


def test_local_response_normalization_looks_at_neighbours_on_both_sides() -> None:
    # LiteRT's reference kernel leaves the last neighbour out, its fast one and NNAPI do not.
    x = np.linspace(-3, 3, 20, dtype=np.float32).reshape(1, 2, 2, 5)
    runner = one_operator(
        "LOCAL_RESPONSE_NORMALIZATION",
        "LocalResponseNormalizationOptions",
        radius=1,
        bias=1.0,
        alpha=0.5,
        beta=0.75,
    )
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0)] * 3 + [(1, 1)])
    sums = squares[..., :-2] + squares[..., 1:-1] + squares[..., 2:]
    np.testing.assert_allclose(runner.run([x])[0], x * (1 + 0.5 * sums) ** -0.75, rtol=1e-5)


def strided_slice(
    begin: list[int], end: list[int], out: tuple[int, ...], strides: int = 1, **masks: int
) -> bytes:
    """A STRIDED_SLICE of 2×3×4 numbers."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (2, 3, 4)), b.output("FLOAT32", out)
    bounds = [b.constant("INT32", np.array(v, "<i4")) for v in (begin, end, [strides] * 3)]
    b.operator("STRIDED_SLICE", [x, *bounds], [y], "StridedSliceOptions", **masks)
    return b.finish()


@pytest.mark.parametrize(
    ("begin", "end", "out", "masks"),
    [
        ([0, -1, 0], [0, 0, 0], (2, 4), {"beginMask": 5, "endMask": 5, "shrinkAxisMask": 2}),
        ([0, -3, 0], [0, 0, 0], (2, 4), {"beginMask": 5, "endMask": 5, "shrinkAxisMask": 2}),
        ([0, 1, 0], [0, 9, 0], (2, 4), {"beginMask": 5, "endMask": 7, "shrinkAxisMask": 2}),
        ([0, 2, 0], [0, 1, 0], (2, 4), {"beginMask": 7, "endMask": 5, "shrinkAxisMask": 2}),
        ([-1, 0, -2], [0, 0, 0], (3,), {"beginMask": 2, "endMask": 2, "shrinkAxisMask": 5}),
        ([0, -1, 0], [2, 1, 4], (2, 4), {"shrinkAxisMask": 2, "offset": True}),
        ([0, -1, 0], [2, 0, 4], (1, 2), {"shrinkAxisMask": 2, "strides": 2}),
    ],
)
def test_strided_slice_takes_a_dropped_dimension_by_its_begin(
    begin: list[int], end: list[int], out: tuple[int, ...], masks: dict[str, int]
) -> None:
    content = strided_slice(begin, end, out, **masks)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    [found], [expected] = Runner(nnburst.load(content)).run([x]), Peer(content).run([x])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("begin", "masks", "reason"),
    [
        (3, {}, "element 3 of 3 in dimension 1"),
        (-4, {}, "element -4 of 3 in dimension 1"),
        (1, {"strides": -1}, "dimension 1 taken backwards and dropped"),
    ],
)
def test_strided_slice_that_drops_a_dimension_without_such_an_element_is_refused(
    begin: int, masks: dict[str, int], reason: str
) -> None:
    content = strided_slice([0, begin, 0], [2, begin + 1, 4], (2, 4), shrinkAxisMask=2, **masks)
    with pytest.raises(nnburst.InvalidArgument, match=reason):
        nnburst.load(content, as_graph=False)


@pytest.mark.parametrize("kind", ["FLOAT32", "INT32"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((1,), (1, 1, 1), (2, 3, 4)),
        ((2, 1, 4), (4,), (3, 1)),
        ((2, 3, 4), (1,), (1,)),
        ((3, 1), (2, 3, 4), (1, 3, 4)),
    ],
)
def test_select_v2_broadcasts_what_is_smaller(
    kind: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    b = TfliteBuilder()
    condition = b.tensor("BOOL", shapes[0])
    b.operator("GREATER", [b.input(kind, shapes[0]), b.input(kind, shapes[0])], [condition])
    operands = [condition, *(b.input(kind, shape) for shape in shapes[1:])]
    b.operator("SELECT_V2", operands, [b.output(kind, (2, 3, 4))])
    content = b.finish()
    imported = nnburst.load(content, as_graph=False)
    runners = [Runner(imported), Runner(imported, litert())]
    peer, random = Peer(content), np.random.default_rng(3)
    for _ in range(3):
        values = [random_values(array, random) for array in runners[0].inputs]
        (expected,) = peer.run(values)
        for runner in runners:
            (found,) = runner.run(values)
            assert found.tobytes() == expected.tobytes()


def constant(b: TfliteBuilder, *values: object) -> int:
    return b.constant("INT32", np.array(values[0] if len(values) == 1 else values, "<i4"))


def gather_of_a_single_index(b: TfliteBuilder) -> None:
    x, y = b.input("FLOAT32", (2, 3, 4)), b.output("FLOAT32", (2, 4))
    b.operator("GATHER", [x, constant(b, 2)], [y], "GatherOptions", axis=-2)


def transposed_by_axes_from_the_end(b: TfliteBuilder) -> None:
    x, y = b.input("FLOAT32", (2, 3, 4)), b.output("FLOAT32", (4, 2, 3))
    b.operator("TRANSPOSE", [x, constant(b, -1, -3, -2)], [y])


def pack_of_single_numbers(b: TfliteBuilder) -> None:
    x = [b.input("INT32", ()) for _ in range(3)]
    b.operator("PACK", x, [b.output("INT32", (3,))], "PackOptions", axis=-1, valuesCount=3)


def fully_connected_vector(b: TfliteBuilder) -> None:
    x, y = b.input("FLOAT32", (4,)), b.output("FLOAT32", (3,))
    w = b.constant("FLOAT32", np.arange(12, dtype="<f4").reshape(3, 4))
    b.operator("FULLY_CONNECTED", [x, w, -1], [y], "FullyConnectedOptions", keepNumDims=True)


def strided_slice_of_the_first_axes(b: TfliteBuilder) -> None:
    x, y = b.input("FLOAT32", (4, 3, 2)), b.output("FLOAT32", (2, 3, 2))
    bounds = [constant(b, [n]) for n in (3, -5, -2)]
    b.operator("STRIDED_SLICE", [x, *bounds], [y], "StridedSliceOptions")


def largest_of_equal_numbers(b: TfliteBuilder) -> None:
    x = b.tensor("INT32", (2, 6))
    b.operator("MINIMUM", [b.input("INT32", (2, 6)), constant(b, 2)], [x])
    b.operator(
        "TOPK_V2", [x, constant(b, 4)], [b.output("INT32", (2, 4)), b.output("INT32", (2, 4))]
    )


@pytest.mark.parametrize(
    "build",
    [
        gather_of_a_single_index,
        transposed_by_axes_from_the_end,
        pack_of_single_numbers,
        fully_connected_vector,
        strided_slice_of_the_first_axes,
        largest_of_equal_numbers,
    ],
)
def test_form_that_nnapi_writes_otherwise_runs_by_operations(
    build: Callable[[TfliteBuilder], None],
) -> None:
    b = TfliteBuilder()
    build(b)
    content, random = b.finish(), np.random.default_rng(5)
    imported, peer = nnburst.load(content, as_graph=False), Peer(content)
    for runner in (Runner(imported), Runner(imported, litert())):
        for _ in range(5):
            values = [random_values(array, random) for array in runner.inputs]
            for found, expected in zip(runner.run(values), peer.run(values), strict=True):
                np.testing.assert_allclose(
                    found, expected.reshape(found.shape), rtol=1e-6, atol=1e-5
                )
