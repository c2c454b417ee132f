"""The optional part of the contract with an executor: keeping what preparation made for other processes.

    CachingPrepared.to_cache()                -> Cached       once a model is prepared
    CachingExecutor.prepare_from_cache(made)  -> Prepared     in a later process, instead of `prepare`

An executor that lacks it is served like any other; its driver reports that it caches nothing. Files,
descriptors and their integrity are the driver's business: an executor only sees bytes.

What is kept is for the same version only: `Executor.engine_version` is a part of the device's version string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from nnburst.executor.base import DEFAULT_OPTIONS, Bytes, Prepared, PrepareOptions
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.extensions import Extension
from nnburst.hal.model import Model

Octets = bytes | bytearray


class Cached(msgspec.Struct, frozen=True):
    """What an executor wants back in order to prepare a model without compiling it.

    Attributes:
        model: what requests are validated against; also whatever of it the executor needs again.
        program: the executor's own bytes. They steer it (NNAPI calls their file security-sensitive), so
            they come back exactly as they were or not at all.
        constants: values only: other bytes of the same length may change what executions compute, and
            nothing else, since no driver can promise more about the file that they lie in.
    """

    model: Model
    program: bytes = b""
    constants: Octets = b""


@runtime_checkable
class CachingPrepared(Protocol):
    """A prepared model that can be kept."""

    def to_cache(self) -> Cached | None:
        """What to keep of it; None if this model cannot be cached. Called once, before `bind`."""


@runtime_checkable
class CachingExecutor(Protocol):
    """An executor whose prepared models can be kept. Thread-safe."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """(1, 0) if there are never constants, else (1, 1); the same at every start."""

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Prepare what `to_cache` returned, in this or an earlier process of the same version.

        Args:
            cached: see `Cached`; the executor may keep its bytes and overwrite `constants`.
            options: what the model was prepared with.

        Raises:
            NnburstError: it cannot be prepared so; its client will have it compiled.
        """


class FallbackExecutor(CachingExecutor, Protocol):
    """An executor that takes the models, or parts of models, that the engine of another one does not run."""

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions that it runs; see `Executor.extensions`."""

    def supported(self, model: Model) -> list[bool]:
        """See `Executor.supported`."""

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """See `Executor.prepare`."""


def without_constants(model: Model) -> Model:
    """The model without constants: enough to validate requests, as long as no constant is read."""
    return msgspec.structs.replace(model, operand_values=b"", pools=())
