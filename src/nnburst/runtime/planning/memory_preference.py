"""How a memory for a main input or output is best aligned and padded (RT:P19)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from nnburst.hal.enums import FeatureLevel
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.plan import CompoundPlan, StepRole


class MemoryPreference(NamedTuple):
    """What a device likes best.

    Attributes:
        alignment: of the address, in bytes; a power of two.
        padding: bytes that the length should be a multiple of; a power of two.
    """

    alignment: int
    padding: int


_LEAST: Final = MemoryPreference(16, 1)


def of_device(device: Candidate) -> MemoryPreference:
    """A device's preference; drivers below AIDL have no padding."""
    knows_padding = device.is_cpu or device.feature_level >= FeatureLevel.AIDL_V1
    return MemoryPreference(64, 64 if knows_padding else 1)


def of_roles(
    plan: CompoundPlan, devices: Sequence[Candidate], roles: Iterable[StepRole]
) -> MemoryPreference:
    """The least that suits every role."""
    used = {step.index: step.device for step in plan.execution_steps}
    found = [_LEAST, *(of_device(devices[used[role.step]]) for role in roles)]
    return MemoryPreference(max(p.alignment for p in found), max(p.padding for p in found))
