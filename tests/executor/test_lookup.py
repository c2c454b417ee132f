"""Tables of 8-bit kernels."""

from __future__ import annotations

import numpy as np
import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.graph.declarations import F32, Q8, Q8S
from nnburst.executor.graph.operation import REGISTRY, Node
from nnburst.executor.reference.quantized import Quantization, look_up, look_up_pair
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Operand


@pytest.fixture
def node() -> Node:
    """Any node: it only gives scratch memory."""
    operand = Operand(type=int(F32))
    match = REGISTRY[OperationType.ABS].signature.match([operand], [operand])
    return Node(OperationType.ABS, match, [None])


def test_every_byte_finds_its_entry_whether_signed_or_not(node: Node) -> None:
    table = np.arange(256, dtype=np.uint8)[::-1].copy()
    octets = np.arange(256, dtype=np.uint8)
    for source in (octets, octets.view(np.int8)):
        result = np.zeros(256, np.uint8)
        look_up(node, table, source, result)()
        np.testing.assert_array_equal(result, 255 - octets)


def test_every_pair_of_bytes_finds_its_entry_and_broadcasts(node: Node) -> None:
    table = np.arange(65536, dtype=np.float32).reshape(256, 256)
    octets = np.arange(256, dtype=np.uint8)
    result = np.zeros((256, 256), np.float32)
    look_up_pair(node, table, octets.reshape(256, 1).view(np.int8), octets, result)()
    np.testing.assert_array_equal(result, table)


def test_bytes_that_change_between_runs_are_read_anew(node: Node) -> None:
    source, result = np.zeros(3, np.uint8), np.zeros(3, np.uint8)
    run = look_up(node, np.arange(256, dtype=np.uint8), source, result)
    for value in (0, 255, 128):
        source.fill(value)
        run()
        np.testing.assert_array_equal(result, [value] * 3)


@pytest.mark.parametrize(
    ("kind", "zero_point", "first", "last"), [(Q8, 3, -3, 252), (Q8S, -3, 3, 2)]
)
def test_centred_values_are_in_byte_order(
    kind: OperandType, zero_point: int, first: int, last: int
) -> None:
    centred = Quantization(kind, 0.5, zero_point).centred()
    assert (centred[0], centred[-1]) == (first, last)


def test_saturation_stores_in_the_range_of_the_type() -> None:
    values = np.array([-1000, 5, 1000])
    np.testing.assert_array_equal(Quantization(Q8, 1.0, 0).saturate(values), [0, 5, 255])
    signed = Quantization(Q8S, 1.0, 0).saturate(values)
    np.testing.assert_array_equal(signed, [-128, 5, 127])
    assert signed.dtype == np.int8
