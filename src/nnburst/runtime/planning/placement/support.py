"""Asking devices which operations they can run (RT:S1 to S3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from nnburst.hal.errors import NnburstError
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.slices import SliceableModel

_log: Final = logging.getLogger("nnburst.runtime")


def supported_operations(
    device: Candidate, model: SliceableModel, pools: Sequence[int]
) -> list[bool]:
    """For each operation of the main subgraph whether a device can run it.

    Args:
        device: asked about the whole model, or about its slice if the device is older.
        model: the model.
        pools: which of the client model's pools each of its pools is.
    """
    answer = [False] * model.number_of_operations
    part = model.for_device(device.feature_level, is_runtime=device.is_cpu)
    if part is None:
        return answer
    try:
        found = list(device.supported_operations(part.model, pools))
    except NnburstError as error:
        _log.warning("%s: supported operations: %s; it gets none", device.name, error)
        return answer
    if len(found) != len(part.operations):
        _log.warning(
            "%s: %d answers for %d operations; it gets none",
            device.name,
            len(found),
            len(part.operations),
        )
        return answer
    for number, supported in zip(part.operations, found, strict=True):
        answer[number] = bool(supported)
    return answer
