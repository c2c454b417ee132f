"""Translates ONNX's matrix products, attention and rotary embeddings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.formats.protobuf import Malformed
from nnburst.hal.enums import OperationType
from nnburst.importer.onnx.folding import charge
from nnburst.importer.onnx.node import (
    Node,
    Quantization,
    dequantized,
    operator,
    parameters,
    quantized_type,
    weights,
)
from nnburst.importer.onnx.operators.activation import add, chosen, mul, softmax, sub
from nnburst.importer.onnx.operators.convolution import as_integers, integer_bias, real_bias
from nnburst.importer.onnx.operators.elementwise import expanded, unary
from nnburst.importer.onnx.operators.shape import seen, transposed, with_neighbours
from nnburst.importer.onnx.operators.slicing import concatenated, sliced, taken
from nnburst.importer.onnx.tensor import QuantizedConstant, Tensor, constant, identity, operand_type
from nnburst.importer.subgraph import MOST_AXES
from nnburst.importer.tensors import TensorType

_O = OperationType

#: Number subtracted from a masked score, by the bytes of its type; softmax then gives 0.
_MUCH: Final = {2: 3e4, 4: 1e9}


@operator("MatMul")
def _mat_mul(node: Node) -> None:
    x, y = node.input(0), node.input(1)
    node.require_kind(x, "f")
    node.put(product(node, x, y, None, node.quantization))


def product(
    node: Node, x: Tensor, y: Tensor, bias: Tensor | None, into: Quantization | None
) -> Tensor:
    """Multiply matrices as numpy does; by FULLY_CONNECTED if the second one is known."""
    if min(x.rank, y.rank) < 1 or x.shape[-1] != y.shape[max(y.rank - 2, 0)]:
        raise Malformed(f"the product of {list(x.shape)} and {list(y.shape)}")
    if y.rank == 1:
        column = product(node, x, seen_as_column(node, y), bias, into)
        return seen(node, column, x.shape[:-1])
    if x.rank == 1:
        row = product(node, seen(node, x, (1, *x.shape)), y, bias, into)
        return seen(node, row, (*y.shape[:-2], y.shape[-1]))
    if y.is_known and math.prod(y.shape[:-2]) == 1:
        matrix = y if y.rank == 2 else _as_matrix(y)
        found = fully_connected(node, x, matrix, bias, into)
        more = y.rank - x.rank
        return found if more <= 0 else seen(node, found, (1,) * more + found.shape)
    node.require(bias is None, "a product of computed matrices has a bias, expected none")
    return _batched(node, node.graph.real(x), node.graph.real(y))


def seen_as_column(node: Node, y: Tensor) -> Tensor:
    """Turn a vector into a matrix of one column."""
    if y.quantized is not None:
        q = y.quantized
        made = QuantizedConstant(q.stored.reshape(-1, 1), q.scale, q.zero_point, 0)
        return Tensor((y.elements, 1), y.dtype, quantized=made)
    return seen(node, y, (y.elements, 1))


def _as_matrix(y: Tensor) -> Tensor:
    shape = y.shape[-2:]
    if y.quantized is not None:
        q = y.quantized
        axis = max(q.axis - (y.rank - 2), 0)
        made = QuantizedConstant(q.stored.reshape(shape), q.scale, q.zero_point, axis)
        return Tensor(shape, y.dtype, quantized=made)
    return replace(y, shape=shape, constant=y.array().reshape(shape))


def fully_connected(
    node: Node, x: Tensor, matrix: Tensor, bias: Tensor | None, into: Quantization | None
) -> Tensor:
    """Multiply rows of a tensor by a known matrix (inputs × outputs), in any order of its rows."""
    size, outputs = matrix.shape
    order = identity(x.rank) if x.is_known else with_neighbours(x.order, [x.rank - 1])
    if order[-1] != x.rank - 1:
        order = (*(axis for axis in order if axis != x.rank - 1), x.rank - 1)
    rows = x.elements // size
    quantized = (
        into is not None and not x.is_known and x.is_quantized_real and matrix.quantized is not None
    )
    if quantized:
        assert into is not None
        assert matrix.quantized is not None
        kind = x.computed().type.type
        stored = operand_type(matrix.quantized.stored.dtype)
        quantized = kind == into.type == stored and matrix.quantized.scale.size == 1
    x = x if quantized else node.graph.real(x)
    value = node.graph.stored(x, order, (rows, size))
    if quantized:
        assert into is not None
        assert matrix.quantized is not None
        filters, scales = weights(node.graph, matrix.quantized, (1, 0), 1)
        offsets = integer_bias(node, bias, outputs, value.type.scale, scales)
        result = quantized_type(into, (rows, outputs))
    else:
        filters = node.graph.stored(matrix, (1, 0))
        offsets = real_bias(node, bias, outputs, value.type)
        result = TensorType(value.type.type, (rows, outputs))
    made = node.emit(_O.FULLY_CONNECTED, [value, filters, offsets, 0], result)
    return Tensor((*x.shape[:-1], outputs), x.dtype, value=made, order=order)


def _batched(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Multiply by BATCH_MATMUL, which does not broadcast."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    rows, size, columns = x.shape[-2], x.shape[-1], y.shape[-1]
    rank = len(batch) + 2
    node.require_kind(x, "f")
    if rank == 2:
        left, right = node.graph.stored(x), node.graph.stored(y)
        made = node.emit(
            _O.BATCH_MATMUL,
            [left, right, False, False],
            TensorType(left.type.type, (rows, columns)),
        )
        return Tensor((rows, columns), x.dtype, value=made, order=identity(2))
    x = expanded(node, x, (*batch, rows, size))
    y = expanded(node, y, (*batch, size, columns))
    dims = batch if rank <= MOST_AXES else (math.prod(batch),)
    left = node.graph.stored(x, None, (*dims, rows, size))
    right = node.graph.stored(y, None, (*dims, size, columns))
    result = TensorType(left.type.type, (*dims, rows, columns))
    made = node.emit(_O.BATCH_MATMUL, [left, right, False, False], result)
    return Tensor((*batch, rows, columns), x.dtype, value=made, order=identity(rank))


@operator("Gemm")
def _gemm(node: Node) -> None:
    """Gemm is alpha A B + beta C: the factors are multiplied into known operands."""
    x, y, c = node.input(0), node.input(1), node.optional(2)
    node.require_kind(x, "f")
    node.require(x.rank == 2 and y.rank == 2, f"matrices {list(x.shape)} and {list(y.shape)}")
    alpha, beta = node.real_number("alpha", 1.0), node.real_number("beta", 1.0)
    if node.integer("transA"):
        x = transposed(node.graph.real(x), (1, 0))
    if node.integer("transB"):
        y = _turned(y)
    if c is not None and beta != 1.0:
        c = (
            mul(node, node.graph.real(c), beta)
            if not c.is_known
            else replace(
                c, constant=(c.array() * np.asarray(beta, c.dtype)).astype(c.dtype), quantized=None
            )
        )
    vector = c is not None and _is_row(c, y.shape[1]) and alpha == 1.0 and y.is_known
    bias = _as_vector(c) if vector and c is not None else None
    into = node.quantization if c is None or vector else None
    found = product(node, x, y, bias, into if alpha == 1.0 else None)
    if alpha != 1.0:
        found = mul(node, found, alpha)
    if c is not None and not vector:
        found = add(node, found, node.graph.real(c))
    node.put(found)


def _is_row(c: Tensor, columns: int) -> bool:
    """Whether c is known and has one number for each column, the same in every row."""
    return c.is_known and c.elements == columns and c.shape[-1:] in ((), (columns,))


def _as_vector(c: Tensor) -> Tensor:
    if c.quantized is not None:
        q = c.quantized
        made = QuantizedConstant(q.stored.reshape(-1), q.scale, q.zero_point, 0)
        return Tensor((c.elements,), c.dtype, quantized=made)
    return replace(c, shape=(c.elements,), constant=c.array().reshape(-1))


def _turned(y: Tensor) -> Tensor:
    if y.quantized is not None:
        q = y.quantized
        made = QuantizedConstant(q.stored.T, q.scale, q.zero_point, 1 - q.axis)
        return Tensor((y.shape[1], y.shape[0]), y.dtype, quantized=made)
    return transposed(y, (1, 0))


@operator("QLinearMatMul")
def _qlinear_mat_mul(node: Node) -> None:
    """Inputs are a, its scale and zero point; the same of b; scale and zero point of y."""
    into = parameters(node, 6, 7)
    x = dequantized(node.input(0), parameters(node, 1, 2))
    y = dequantized(node.input(3), parameters(node, 4, 5))
    node.require(x is not None and y is not None, "the integers stand for other numbers")
    assert x is not None
    assert y is not None
    node.require(y.is_known, "both quantised matrices are computed, expected one constant")
    node.put(product(node, x, y, None, into))
    as_integers(node, into)


def _window(x: Tensor, start: int, stop: int) -> list[slice]:
    """Slice a tensor along its last axis."""
    return [*(slice(0, extent, 1) for extent in x.shape[:-1]), slice(start, stop, 1)]


@operator("RotaryEmbedding")
def _rotary_embedding(node: Node) -> None:
    """Rotate pairs of a token's numbers. Inputs: x, cosines, sines; optionally each token's row in both."""
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
    """Cosines or sines of each token, with an axis of extent 1 for the heads, which share them."""
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
        weights = mul(node, weights, counts)  # 0 for a row whose scores are all masked
    found = product(node, seen(node, weights, (*rows_of[:3], columns)), v, None, None)
    found = seen(node, found, (batch, heads, rows, v.shape[3]))
    if is_flat:
        found = seen(node, transposed(found, (0, 2, 1, 3)), (batch, rows, heads * v.shape[3]))
    node.put(found)


def _by_heads(node: Node, x: Tensor, heads: int) -> Tensor:
    """Reshape (batch, tokens, heads · width) to (batch, heads, tokens, width)."""
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
    """The mask with 1 for scores that count and 0 for others; None if all count."""
    mask = node.optional(3)
    dtype = node.input().dtype
    found: Tensor | None = None
    if mask is not None:
        node.require(mask.shape[-1] == columns, f"a mask {list(mask.shape)} of {columns} keys")
        if mask.dtype.kind == "b" and mask.is_known:
            found = constant(mask.array().astype(dtype))
        elif mask.dtype.kind == "b":
            charge(node, mask.shape, dtype.itemsize)
            found = chosen(node, mask, constant(np.ones(mask.shape, dtype)), 0.0)
    if node.integer("is_causal"):
        charge(node, (rows, columns), dtype.itemsize)
        causal = np.tri(rows, columns, dtype=dtype)
        if found is not None and found.is_known:
            charge(node, np.broadcast_shapes(found.shape, causal.shape), dtype.itemsize)
            return constant(found.array() * causal)
        return constant(causal) if found is None else mul(node, found, constant(causal))
    return found
