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
        """The vendor extensions that it has."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """How many files it caches a compilation in."""

    def supports_extension(self, name: str) -> bool:
        """Whether it has the extension called `name`."""

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> Sequence[bool]:
        """Which operations of the main subgraph it can run, in their order; `pools` are the model's."""

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
        """Prepare a model or a step.

        Args:
            model: what to prepare.
            pools: the model's pools, in order.
            preference: what to optimise for.
            priority: among the models of this program.
            deadline_ns: moment on CLOCK_BOOTTIME at which to give up; None for no limit.
            cache: files to keep the compilation in; None for no caching.
            attributes: of vendor extensions; unknown ones are ignored.

        Raises:
            NnburstError: why it cannot be prepared.
        """

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer | None:
        """A buffer of its own for these uses; None if it allocates plain shared memory only.

        Raises:
            NnburstError: why it cannot be allocated.
        """

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until its driver is there, `timeout` seconds at most.

        Raises:
            NnburstError: it is not there in time.
        """

    def close(self) -> None:
        """End its driver or connection, if it has one; twice is fine."""
