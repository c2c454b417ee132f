"""What planning asks of a device, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nnburst.hal.capabilities import Capabilities
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.model import Model


class DeviceFacts(Protocol):
    """What a device reports of itself, asked for once (RT:D2)."""

    @property
    def name(self) -> str:
        """Unique among the devices."""
        ...

    @property
    def version_string(self) -> str:
        """Opaque; part of cache tokens (RT:K1)."""
        ...

    @property
    def feature_level(self) -> FeatureLevel:
        """Not above the runtime's (RT:D6)."""
        ...

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU device (RT:D3), which also takes the runtime's own features (RT:D5)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Its speed, as it reports it."""
        ...


class Candidate(DeviceFacts, Protocol):
    """A device that a plan may use."""

    def supported_operations(self, model: Model, pools: Sequence[int]) -> Sequence[bool]:
        """Which operations of the main subgraph it can run.

        Args:
            model: the client's model, a model that it refers to, or a slice of either.
            pools: which of the client model's pools each pool of `model` is.

        Any NnburstError, or another number of answers, counts as all False (RT:S2).
        """
        ...
