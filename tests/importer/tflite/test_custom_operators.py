"""Custom operators: claimed by an extension as an operation of its own, lowered to core ones, or refused."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Runner
from nnburst.executor.graph.declarations import F32, data, same_shape
from nnburst.executor.graph.extension import VendorExtension, install
from nnburst.executor.graph.operation import Node, Run
from nnburst.hal.enums import OperandLifeTime, OperationType
from nnburst.hal.model import ExtensionNameAndPrefix
from nnburst.hal.signature import Form, Role, Slot
from nnburst.importer.tflite.operator import Operator
from nnburst.testing.models.tflite_builder import TfliteBuilder

SCALING = VendorExtension("dev.nnburst.tests.scaling")
OPTIONS = 7
_BYTES = SCALING.operand_type(OPTIONS, "OPTIONS", np.uint8, is_tensor=True)


@SCALING.operation(
    3,
    "SCALE",
    forms=[
        Form(
            (data("input", "T"), Slot("options", "O", Role.DATA, nullable=True)),
            (data("output", "T"),),
        )
    ],
    rows=[{"T": F32, "O": _BYTES}],
    shape=same_shape,
)
def scale(node: Node) -> Run:
    """Multiply by the number in the options, by 2 without any."""
    x, out, options = node.tensor("input").array, node.output().array, node.find("options")
    factor = struct.unpack("<f", options.array.tobytes())[0] if options is not None else 2.0

    def run() -> None:
        np.multiply(x, np.float32(factor), out=out)

    return run


SCALING.claim("Scale", operation=3, options=OPTIONS)


@SCALING.lowers("Twice")
def twice(op: Operator) -> None:
    op.require(op.custom_options == b"", "options of Twice")
    x = op.input()
    op.emit(OperationType.ADD, [x, x, 0])


install(SCALING)


def network(name: str, options: bytes = b"") -> bytes:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (2, 3)), b.output("FLOAT32", (2, 3))
    b.custom_operator(name, [x], [y], options)
    return b.finish()


X = np.arange(6, dtype="<f4").reshape(2, 3)


def test_claimed_operator_becomes_the_extensions_operation_with_its_options_as_bytes() -> None:
    options = struct.pack("<f", 2.5)
    imported = nnburst.load(network("Scale", options), extensions=[SCALING])
    model = imported.model
    assert model.extension_name_to_prefix == (ExtensionNameAndPrefix(SCALING.name, 1),)
    [operation] = model.main.operations
    assert operation.type == 1 << 16 | 3
    given = model.main.operands[operation.inputs[1]]
    assert given.type == 1 << 16 | OPTIONS
    place = given.location
    assert model.operand_values[place.offset : place.offset + place.length] == options
    np.testing.assert_array_equal(Runner(imported).run([X])[0], X * 2.5)


def test_operator_without_options_gives_an_operand_without_value() -> None:
    imported = nnburst.load(network("Scale"), extensions=[SCALING])
    [operation] = imported.model.main.operations
    given = imported.model.main.operands[operation.inputs[1]]
    assert given.lifetime == OperandLifeTime.NO_VALUE
    np.testing.assert_array_equal(Runner(imported).run([X])[0], X * 2)


def test_operator_may_be_lowered_to_core_operations() -> None:
    imported = nnburst.load(network("Twice"), extensions=[SCALING])
    assert imported.model.extension_name_to_prefix == ()
    assert [o.type for o in imported.model.main.operations] == [OperationType.ADD]
    np.testing.assert_array_equal(Runner(imported).run([X])[0], X * 2)


def test_refusal_of_a_lowering_names_the_operator() -> None:
    with pytest.raises(
        nnburst.InvalidArgument, match=r"operator 0 \(CUSTOM 'Twice'\).*options of Twice"
    ):
        nnburst.load(network("Twice", b"x"), extensions=[SCALING], as_graph=False)


def test_operator_that_nothing_claims_is_refused_by_its_name() -> None:
    with pytest.raises(
        nnburst.InvalidArgument, match=r"operator 0 \(CUSTOM 'Thrice'\).*no operation"
    ):
        nnburst.load(network("Thrice"), extensions=[SCALING], as_graph=False)


def _twice_claimed() -> None:
    other = VendorExtension("dev.nnburst.tests.other")
    other.claim("Scale", operation=0)
    nnburst.load(network("Scale"), extensions=[SCALING, other])


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        (_twice_claimed, nnburst.InvalidArgument, "claimed by dev.nnburst.tests.scaling and"),
        (
            lambda: SCALING.claim("Twice", operation=0),
            nnburst.InvalidArgument,
            "'Twice' is claimed twice",
        ),
        (
            lambda: nnburst.load(network("Scale"), extensions=["no_such_module:X"]),
            nnburst.DeviceUnavailable,
            "no_such_module",
        ),
        (
            lambda: nnburst.load(network("Scale"), extensions=["struct:Struct"]),
            nnburst.DeviceUnavailable,
            "expected a VendorExtension",
        ),
    ],
)
def test_claims_that_do_not_fit_are_refused(
    wrong: Callable[[], None], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        wrong()
