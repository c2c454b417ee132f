"""Dropping half of what a device supports, so that plans have several steps."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from nnburst.hal.model import Model


def without_half(name: str, model: Model, supported: Sequence[bool]) -> list[bool]:
    """The answer of device `name` less a pseudo-random half.

    Which half depends on the name, and on each operation with types and extents of its operands, so that the
    same operation is refused wherever it is.

    NNAPI: debug.nn.sample.supported, which hashes the same.
    """
    operands = model.main.operands
    kept = []
    for answer, operation in zip(supported, model.main.operations, strict=True):
        described = [
            (operands[index].type, operands[index].dimensions)
            for index in (*operation.inputs, *operation.outputs)
        ]
        odd = zlib.crc32(repr((name, operation.type, described)).encode()) & 1
        kept.append(answer and not odd)
    return kept
