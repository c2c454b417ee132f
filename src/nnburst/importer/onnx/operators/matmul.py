"""Translates ONNX's matrix products to FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nnburst.formats.protobuf import Malformed
from nnburst.hal.enums import OperationType
from nnburst.importer.onnx.node import (
    Node,
    Quantization,
    dequantized,
    operator,
    parameters,
    quantized_type,
    weights,
)
from nnburst.importer.onnx.operators.activation import add, mul
from nnburst.importer.onnx.operators.convolution import as_integers, integer_bias, real_bias
from nnburst.importer.onnx.operators.elementwise import expanded
from nnburst.importer.onnx.operators.shape import seen, transposed, with_neighbours
from nnburst.importer.onnx.tensor import QuantizedConstant, Tensor, identity, operand_type
from nnburst.importer.subgraph import MOST_AXES
from nnburst.importer.tensors import TensorType

_O = OperationType


@operator("MatMul")
def _mat_mul(node: Node) -> None:
    x, y = node.input(0), node.input(1)
    node.require_kind(x, "f")
    node.put(product(node, x, y, None, node.quantization))


def product(
    node: Node, x: Tensor, y: Tensor, bias: Tensor | None, into: Quantization | None
) -> Tensor:
    """The product of matrices, as numpy's; FULLY_CONNECTED if the second one is known."""
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
    """A vector as a matrix of one column."""
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
    """Rows of a tensor times a known matrix (inputs × outputs), in whatever order its rows are."""
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
    """BATCH_MATMUL, which does not broadcast."""
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
    """Alpha A B + beta C: the factors are multiplied into known operands."""
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
    """Whether it is known and has a number for each column, which every row gets."""
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
    """Inputs: a, its scale and zero point; b, likewise; scale and zero point of y."""
    into = parameters(node, 6, 7)
    x = dequantized(node.input(0), parameters(node, 1, 2))
    y = dequantized(node.input(3), parameters(node, 4, 5))
    node.require(x is not None and y is not None, "the integers stand for other numbers")
    assert x is not None
    assert y is not None
    node.require(y.is_known, "both quantised matrices are computed, expected one constant")
    node.put(product(node, x, y, None, into))
    as_integers(node, into)
