"""Translates what transformers have of ONNX's operators: attention, and positions by rotation."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.importer.onnx.node import Node, operator
from nnburst.importer.onnx.operators.activation import add, chosen, mul, softmax, sub
from nnburst.importer.onnx.operators.elementwise import unary
from nnburst.importer.onnx.operators.matmul import product
from nnburst.importer.onnx.operators.shape import seen, transposed
from nnburst.importer.onnx.operators.slicing import concatenated, sliced, taken
from nnburst.importer.onnx.tensor import Tensor, constant

#: What is taken from a score that does not count, by the bytes of its type; softmax makes it 0.
_MUCH: Final = {2: 3e4, 4: 1e9}


def _window(x: Tensor, start: int, stop: int) -> list[slice]:
    """A window of the last axis."""
    return [*(slice(0, extent, 1) for extent in x.shape[:-1]), slice(start, stop, 1)]


@operator("RotaryEmbedding")
def _rotary_embedding(node: Node) -> None:
    """Turns pairs of a token's numbers: inputs x, cosines, sines, and optionally each token's row of both."""
    node.require_attributes("interleaved", "num_heads", "rotary_embedding_dim")
    x = node.real()
    heads = node.integer("num_heads")
    node.require(
        x.rank == 4 or (x.rank == 3 and heads > 0 and x.shape[2] % heads == 0),
        f"the input is {list(x.shape)} of {heads} heads",
    )
    # Three axes are batch, tokens, heads · width; four are batch, heads, tokens, width.
    parts = x if x.rank == 4 else seen(node, x, (*x.shape[:2], heads, x.shape[2] // heads))
    width = node.integer("rotary_embedding_dim") or parts.shape[-1]
    node.require(
        width % 2 == 0 and width <= parts.shape[-1], f"{width} of {parts.shape[-1]} are turned"
    )
    cosine, sine = (_factors(node, at, 1 if x.rank == 4 else 2) for at in (1, 2))
    keeps = width < parts.shape[-1]
    turned = sliced(node, parts, _window(parts, 0, width)) if keeps else parts
    half = width // 2
    if node.integer("interleaved"):
        pairs = seen(node, turned, (*turned.shape[:-1], half, 2))
        one, other = (
            seen(node, sliced(node, pairs, _window(pairs, at, at + 1)), (*turned.shape[:-1], half))
            for at in (0, 1)
        )
    else:
        one, other = (sliced(node, turned, _window(turned, at, at + half)) for at in (0, half))
    real = sub(node, mul(node, one, cosine), mul(node, other, sine))
    imaginary = add(node, mul(node, one, sine), mul(node, other, cosine))
    if node.integer("interleaved"):
        columns = [seen(node, each, (*each.shape, 1)) for each in (real, imaginary)]
        found = seen(node, concatenated(node, columns, real.rank), turned.shape)
    else:
        found = concatenated(node, [real, imaginary], real.rank - 1)
    if keeps:
        rest = sliced(node, parts, _window(parts, width, parts.shape[-1]))
        found = concatenated(node, [found, rest], found.rank - 1)
    node.put(seen(node, found, x.shape))


def _factors(node: Node, position: int, heads: int) -> Tensor:
    """Cosines or sines of each token, the same for all heads, which are that axis."""
    table = node.real(position)
    places = node.optional(3)
    if places is not None:
        node.require(table.rank == 2, f"input {position} has {table.rank} axes, expected 2")
        table = taken(node, table, places, 0)
    node.require(table.rank == 3, f"input {position} has {table.rank} axes, expected 3")
    shape = list(table.shape)
    shape.insert(heads, 1)
    return seen(node, table, shape)


@operator("Attention")
def _attention(node: Node) -> None:
    """softmax(q · k / √width + mask) · v; inputs q, k, v, mask, past keys, past values."""
    node.require_attributes(
        "is_causal",
        "kv_num_heads",
        "q_num_heads",
        "qk_matmul_output_mode",
        "scale",
        "softcap",
        "softmax_precision",
    )
    q, k, v = (node.real(at) for at in range(3))
    is_flat = q.rank == 3
    if is_flat:
        q = _by_heads(node, q, node.integer("q_num_heads"))
        k, v = (_by_heads(node, each, node.integer("kv_num_heads")) for each in (k, v))
    node.require(
        q.rank == k.rank == v.rank == 4 and q.shape[1] % k.shape[1] == 0,
        f"queries {list(q.shape)}, keys {list(k.shape)}, values {list(v.shape)}",
    )
    node.require(node.optional(6) is None, "keys of different lengths (nonpad_kv_seqlen)")
    node.require(not node.is_used(3), "the scores are wanted (qk_matmul_output)")
    if node.optional(4) is not None:
        node.require(not node.integer("is_causal"), "is_causal beside past keys")
        k = concatenated(node, [node.real(4), k], 2)
        v = concatenated(node, [node.real(5), v], 2)
    for at, present in ((1, k), (2, v)):
        if node.is_used(at):
            node.put(present, at)
    batch, heads, rows, width = q.shape
    shared, columns = k.shape[1:3]
    scale = node.real_number("scale", 0.0) or 1 / math.sqrt(width)
    # Heads that share keys are rows of one product.
    rows_of = (batch, shared, heads // shared * rows, width)
    scores = product(
        node,
        seen(node, mul(node, q, scale), rows_of),
        transposed(k, (0, 1, 3, 2)),
        None,
        None,
    )
    scores = seen(node, scores, (batch, heads, rows, columns))
    cap = node.real_number("softcap", 0.0)
    if cap:
        scores = mul(node, unary(node, OperationType.TANH, mul(node, scores, 1 / cap)), cap)
    counts, bias = _counting(node, rows, columns), _added(node)
    if counts is not None:
        never = mul(node, add(node, counts, -1.0), _MUCH[q.dtype.itemsize])
        bias = never if bias is None else add(node, bias, never)
    weights = softmax(node, scores if bias is None else add(node, scores, bias))
    if counts is not None:
        weights = mul(node, weights, counts)  # 0 for a row that sees nothing
    found = product(node, seen(node, weights, (*rows_of[:3], columns)), v, None, None)
    found = seen(node, found, (batch, heads, rows, v.shape[3]))
    if is_flat:
        found = seen(node, transposed(found, (0, 2, 1, 3)), (batch, rows, heads * v.shape[3]))
    node.put(found)


def _by_heads(node: Node, x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, heads · width) as (batch, heads, tokens, width)."""
    node.require(
        x.rank == 3 and heads > 0 and x.shape[2] % heads == 0,
        f"an input is {list(x.shape)} of {heads} heads",
    )
    return transposed(seen(node, x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def _added(node: Node) -> Tensor | None:
    """The mask of numbers that is added to scores; None without one."""
    mask = node.optional(3)
    return None if mask is None or mask.dtype.kind == "b" else node.real(3)


def _counting(node: Node, rows: int, columns: int) -> Tensor | None:
    """1 for scores that count, 0 for others; None if all do."""
    mask = node.optional(3)
    dtype = node.input().dtype
    found: Tensor | None = None
    if mask is not None:
        node.require(mask.shape[-1] == columns, f"a mask {list(mask.shape)} of {columns} keys")
        if mask.dtype.kind == "b" and mask.is_known:
            found = constant(mask.array().astype(dtype))
        elif mask.dtype.kind == "b":
            found = chosen(node, mask, constant(np.ones(mask.shape, dtype)), 0.0)
    if node.integer("is_causal"):
        causal = np.tri(rows, columns, dtype=dtype)
        if found is not None and found.is_known:
            return constant(found.array() * causal)
        return constant(causal) if found is None else mul(node, found, constant(causal))
    return found
