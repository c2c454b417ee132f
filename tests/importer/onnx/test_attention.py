"""Operators of transformers by operations: within 1e-3 of the range of onnxruntime's results."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from importer.onnx.graphs import Array, model, node, value
from importer.tflite.running import Runner

pytest.importorskip("onnxruntime", reason="computes what is expected")

import nnburst
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.models.transformers import TransformerSize, encoder

Shape = tuple[int, ...]


def network(
    operator: str,
    given: dict[str, Array],
    constants: dict[str, Array] | None = None,
    outputs: str = "y",
    *,
    order: str = "",
    **attributes: Any,
) -> Any:
    """One node; `order` names its inputs if they are not those given."""
    kinds = {"float32": "f4", "int64": "i8", "bool": "?"}
    return model(
        [node(operator, order or " ".join([*given, *(constants or {})]), outputs, **attributes)],
        [value(name, kinds[str(array.dtype)], array.shape) for name, array in given.items()],
        [value(name, "f4", None) for name in outputs.split() if name != "_"],
        constants or {},
        opset=23,
    )


def farthest(made: Any, given: dict[str, Array]) -> float:
    """The largest difference from onnxruntime over the range of its numbers."""
    content = made.SerializeToString()
    session = import_module("onnxruntime").InferenceSession(
        content, providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, given)
    imported = nnburst.load(content, as_graph=False)
    narrow = [a.astype(np.int32) if a.dtype == np.int64 else a for a in given.values()]
    found = Runner(imported).run(narrow)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
    return max(
        float(np.abs(one - other).max() / np.ptp(other))
        for one, other in zip(found, expected, strict=True)
    )


def gaussian(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 5, 16), (2, 7, 4, 8), (3, 1, 6)])
@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
def test_normalization_is_onnxruntimes(operator: str, shape: Shape) -> None:
    given = {"x": 3 * gaussian(*shape) + 1}
    constants = {"scale": gaussian(shape[-1], seed=1)}
    if operator == "LayerNormalization":
        constants["bias"] = gaussian(shape[-1], seed=2)
    assert farthest(network(operator, given, constants), given) < 1e-5


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_onnxruntimes(approximate: str) -> None:
    given = {"x": 4 * gaussian(3, 50)}
    assert farthest(network("Gelu", given, approximate=approximate), given) < 1e-5


def test_gelu_as_exporters_write_it_with_erf_is_onnxruntimes() -> None:
    x = 4 * gaussian(3, 50)
    numbers = {
        name: np.array(number, np.float32)
        for name, number in (("root", 2**0.5), ("one", 1), ("half", 0.5))
    }
    made = model(
        [
            node("Div", "x root", "a"),
            node("Erf", "a", "b"),
            node("Add", "b one", "c"),
            node("Mul", "x c", "d"),
            node("Mul", "d half", "y"),
        ],
        [value("x", "f4", x.shape)],
        [value("y", "f4", None)],
        numbers,
        opset=20,
    )
    assert farthest(made, {"x": x}) < 1e-5


def angles(rows: int, width: int) -> dict[str, Array]:
    turned = np.outer(np.arange(rows), 1 / 100 ** (np.arange(width // 2) / (width // 2)))
    return {"cosines": np.cos(turned).astype("<f4"), "sines": np.sin(turned).astype("<f4")}


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [8, 4])
@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (2, 5, 24)])
@pytest.mark.parametrize("places", ["given", "known"])
def test_rotary_embedding_is_onnxruntimes(
    shape: Shape, turned: int, interleaved: int, places: str
) -> None:
    rows = np.random.default_rng(1).integers(0, 20, (2, 5))
    given, constants = {"x": gaussian(*shape)}, angles(20, turned)
    (given if places == "given" else constants)["places"] = rows
    more = {"num_heads": 3} if len(shape) == 3 else {}
    if turned != 8:
        more |= {"rotary_embedding_dim": turned, "num_heads": 3}
    made = network(
        "RotaryEmbedding",
        given,
        constants,
        order="x cosines sines places",
        interleaved=interleaved,
        **more,
    )
    assert farthest(made, given) < 1e-5


def test_rotary_embedding_of_rows_that_are_given_is_onnxruntimes() -> None:
    found = angles(10, 8)
    given = {"x": gaussian(2, 3, 5, 8), **{n: a.reshape(2, 5, 4) for n, a in found.items()}}
    assert farthest(network("RotaryEmbedding", given), given) < 1e-5


def heads(tokens: int, count: int, *, flat: bool, seed: int, width: int = 8) -> Array:
    shape = (2, tokens, count * width) if flat else (2, count, tokens, width)
    return gaussian(*shape, seed=seed)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("shared", [4, 2, 1])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"is_causal": 1}, {"scale": 0.1}, {"softcap": 2.0}],
    ids=lambda given: next(iter(given), "plain"),
)
def test_attention_is_onnxruntimes(flat: bool, shared: int, attributes: dict[str, Any]) -> None:
    given = {
        name: heads(tokens, count, flat=flat, seed=seed)
        for seed, (name, tokens, count) in enumerate(
            (("q", 5, 4), ("k", 6, shared), ("v", 6, shared))
        )
    }
    more = {"q_num_heads": 4, "kv_num_heads": shared} if flat else {}
    assert farthest(network("Attention", given, **attributes, **more), given) < 1e-5


@pytest.mark.parametrize("kind", ["bool", "float32"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (2, 1, 5, 6), (2, 4, 5, 6)])
def test_attention_with_a_mask_is_onnxruntimes(
    shape: Shape, known: bool, causal: int, kind: str
) -> None:
    given = {
        name: heads(tokens, 4, flat=False, seed=seed)
        for seed, (name, tokens) in enumerate((("q", 5), ("k", 6), ("v", 6)))
    }
    mask: Array = gaussian(*shape, seed=3)
    if kind == "bool":
        mask = mask > -0.5
        mask[..., 2, :] = False  # a row that sees nothing is 0
        mask[..., 3, :4] = False
    constants = {"mask": mask} if known else {}
    given |= {} if known else {"mask": mask}
    assert farthest(network("Attention", given, constants, is_causal=causal), given) < 1e-5


def test_attention_over_past_keys_gives_the_present_ones() -> None:
    given = {
        "q": heads(1, 4, flat=False, seed=0),
        "k": heads(1, 2, flat=False, seed=1),
        "v": heads(1, 2, flat=False, seed=2),
        "past_k": heads(7, 2, flat=False, seed=3),
        "past_v": heads(7, 2, flat=False, seed=4),
    }
    given["mask"] = np.zeros((1, 8), np.float32)
    made = network(
        "Attention", given, outputs="y present_k present_v", order="q k v mask past_k past_v"
    )
    assert farthest(made, given) < 1e-5


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("Attention", {}, "of 0 heads"),
        ("Attention", {"window": 3}, "attribute window"),
        ("RotaryEmbedding", {}, "of 0 heads"),
    ],
)
def test_what_operations_do_not_carry_is_refused_with_its_reason_and_is_a_whole_graph(
    operator: str, attributes: dict[str, Any], reason: str
) -> None:
    given = {"q": gaussian(2, 5, 24), "k": gaussian(2, 5, 4), "v": gaussian(2, 5, 4)}
    content = network(operator, given, **attributes).SerializeToString()
    with pytest.raises(InvalidArgument, match=reason) as refused:
        nnburst.load(content, as_graph=False)
    assert operator in str(refused.value)
    assert nnburst.load(content).refusal


def test_encoder_by_operations_is_onnxruntimes() -> None:
    size = TransformerSize(2, 64, 2, 97, 64)
    content = encoder(size)
    ids = np.random.default_rng(0).integers(0, 97, (1, 16))
    mask = np.ones_like(ids)
    mask[0, 12:] = 0
    session = import_module("onnxruntime").InferenceSession(
        content, providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"ids": ids, "mask": mask})
    shapes = {"ids": ids.shape, "mask": ids.shape}
    imported = nnburst.load(content, shapes=shapes, as_graph=False)
    (found,) = Runner(imported).run([ids.astype(np.int32), mask.astype(np.int32)])
    assert np.abs(found - expected).max() < 1e-5 * np.ptp(expected)
