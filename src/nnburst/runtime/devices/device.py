"""Device: what the framework needs of whatever executes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from nnburst.client.execution.buffer import Buffer
from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.enums import DeviceType, ExecutionPreference, Priority
from nnburst.hal.extensions import Extension
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.model import Model
from nnburst.runtime.argument import PreparedPart
from nnburst.runtime.planning.candidate import DeviceFacts
from nnburst.runtime.planning.plan import Direction

#: A use of a buffer: what a device has prepared, and which of its inputs or outputs.
Use = tuple[PreparedPart, Direction, int]


class CacheRequest(NamedTuple):
    """Where one part of a plan is cached.

    Attributes:
        directory: of the files.
        token: 32 bytes that name the part (RT:K1).
    """

    directory: str
    token: bytes


class Device(DeviceFacts, Protocol):
    """A driver, an engine, or the CPU. Thread-safe."""

    @property
    def type(self) -> DeviceType:
        """Kind of hardware."""

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Those that it has."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """In how many files it caches a compilation."""

    def supports_extension(self, name: str) -> bool:
        """Whether it has an extension."""

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> Sequence[bool]:
        """Which operations of the main subgraph it can run."""

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        deadline_ns: int | None = None,
        cache: CacheRequest | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> PreparedPart:
        """Prepare a model or a step."""

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer | None:
        """A buffer of its own; None if plain shared memory is what it allocates."""

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until it is there."""

    def close(self) -> None:
        """Give it up."""
