"""Failures name the operation even if the rule is one that operations share."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.executor.graph.declarations import F32, I32, Q8, QPC
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import SymmPerChannelQuantParams

PIXELS = np.zeros((1, 2, 2, 1))


@pytest.mark.parametrize("kind", [OperationType.ADD, OperationType.SUB, OperationType.DIV])
def test_unknown_activation_names_operation_and_operand(kind: OperationType) -> None:
    x = tensor(F32, [1.0])
    refuses(kind, [x, x, scalar(5)], [output(F32)], f"{kind.name}: operand 'activation' is 5")


def test_scales_without_multiplier_name_the_operation() -> None:
    x = tensor(Q8, [[1, 2]], 1e-12)
    softmax = OperationType.SOFTMAX
    refuses(softmax, [x, scalar(1.0)], [output(Q8, (), 1 / 256)], "SOFTMAX: scales give")


def test_shared_quantisation_rule_names_the_operation() -> None:
    inputs = [tensor(Q8, [1], 0.5), tensor(I32, [0])]
    rejects(OperationType.REVERSE, inputs, [output(Q8, (1,), 0.25)], "P4: REVERSE: operand 'input'")
    inputs = [scalar(0), tensor(Q8, [1], 0.5)]
    rejects(OperationType.PACK, inputs, [output(Q8, (1, 1), 0.25)], "P4: PACK: operand 'input'")


def test_shared_channel_rule_names_the_operation() -> None:
    params = SymmPerChannelQuantParams((0.5,), 3)
    image, weights = tensor(Q8, PIXELS, 0.5), tensor(QPC, PIXELS, extra_params=params)
    with pytest.raises(NnburstError, match=r"^validation:P4: CONV_2D: operand 'filter'"):
        numbers = [scalar(n) for n in (2, 1, 1, 0)]
        run(OperationType.CONV_2D, [image, weights, tensor(I32, [0]), *numbers], [output(Q8)])


def test_factor_that_overflows_a_shape_does_not_warn_at_prepare() -> None:
    inputs = [tensor(F32, PIXELS), scalar(3e38), scalar(1.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuses(OperationType.RESIZE_BILINEAR, inputs, [output(F32)], "operand 'width'")
