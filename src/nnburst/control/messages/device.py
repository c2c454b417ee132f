"""IDevice: what a device is and can, and how it prepares models."""

from __future__ import annotations

import msgspec

from nnburst.control.messages.message import (
    CacheFiles,
    Call,
    Callback,
    Count,
    Handle,
    Result,
    Upcall,
)
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.configs import NO_CACHE_TOKEN
from nnburst.hal.enums import ErrorStatus, ExecutionPreference, Priority
from nnburst.hal.extensions import Extension
from nnburst.hal.extensions.attributes import Hints
from nnburst.hal.model import Model


class GetCapabilities(Call, frozen=True):
    """IDevice::getCapabilities."""


class DeviceCapabilities(Result, frozen=True):
    """Answer to `GetCapabilities`."""

    capabilities: Capabilities


class GetSupportedExtensions(Call, frozen=True):
    """IDevice::getSupportedExtensions."""


class SupportedExtensions(Result, frozen=True):
    """Answer to `GetSupportedExtensions`."""

    extensions: tuple[Extension, ...]


class GetNumberOfCacheFilesNeeded(Call, frozen=True):
    """IDevice::getNumberOfCacheFilesNeeded."""


class NumberOfCacheFiles(Result, frozen=True):
    """Answer to `GetNumberOfCacheFilesNeeded`; both 0 if nothing is cached."""

    model_cache: CacheFiles
    data_cache: CacheFiles


class GetSupportedOperations(Call, frozen=True):
    """Which operations of the main subgraph the device can run; one fd for each pool of the model."""

    model: Model

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.model.pools)


class SupportedOperations(Result, frozen=True):
    """Answer to `GetSupportedOperations`, one for each operation of the main subgraph."""

    supported: tuple[bool, ...]


class PrepareModel(Call, frozen=True):
    """Prepare a model; `NotifyPrepared` reports the outcome.

    One fd for each pool of the model, in order; then the model cache files, then the data cache files.

    Attributes:
        model: the model.
        callback: what `NotifyPrepared` names; 0 means no callback (device:P1).
        preference: an ExecutionPreference; a plain number here, so that S1 names what is wrong with it.
        priority: a Priority; likewise with S2.
        deadline_ns: CLOCK_BOOTTIME at which the prepared model is useless; a plain number here, for P5.
        num_threads: threads that executions may use; 0 leaves it to the device.
        model_cache: how many model cache files come along.
        data_cache: how many data cache files come along.
        token: 32 bytes that name the cache entry; it does not count without cache files.
        hints: for vendor extensions of the device; sent only if there is one.
    """

    model: Model
    callback: Callback
    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM
    deadline_ns: int | None = None
    num_threads: Count = 0
    model_cache: CacheFiles = 0
    data_cache: CacheFiles = 0
    token: bytes = NO_CACHE_TOKEN
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """Pools and cache files."""
        return len(self.model.pools) + self.model_cache + self.data_cache


class PrepareModelFromCache(Call, frozen=True):
    """Prepare a model from its cache files alone; attributes as in `PrepareModel`."""

    callback: Callback
    model_cache: CacheFiles
    data_cache: CacheFiles
    token: bytes
    deadline_ns: int | None = None
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """The cache files."""
        return self.model_cache + self.data_cache


class NotifyPrepared(Upcall, frozen=True):
    """IPreparedModelCallback::notify (upcall); comes exactly once for each `callback`.

    Attributes:
        callback: of the call.
        status: how it went.
        reason: for people, if it failed.
        handle: the prepared model; None unless `status` is NONE.
        fields: numbers about it.
    """

    callback: Callback
    status: ErrorStatus
    reason: str = ""
    handle: Handle | None = None
    fields: dict[str, int] = msgspec.field(default_factory=dict)
