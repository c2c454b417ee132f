"""How a model is prepared and executed, beyond model and request (AIDL version 4)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from nnburst.hal.enums import ExecutionPreference, MeasureTiming, Priority
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN
from nnburst.hal.model import ExtensionNameAndPrefix

#: The empty token: what is sent if nothing is cached.
NO_CACHE_TOKEN = bytes(BYTE_SIZE_OF_CACHE_TOKEN)


class NumberOfCacheFiles(NamedTuple):
    """How many files a driver wants for caching one model, 32 of a kind at most; 0 and 0 for no caching.

    Attributes:
        model_cache: files whose contents steer the driver, such as code.
        data_cache: files of constants.
    """

    model_cache: int
    data_cache: int


class TokenValuePair(msgspec.Struct, frozen=True):
    """A hint of a vendor: a token below one of its extensions' prefixes, and opaque bytes."""

    token: int
    value: bytes = b""


class ExecutionConfig(msgspec.Struct, frozen=True):
    """How executions run.

    Attributes:
        measure_timing: whether they are timed.
        loop_timeout_ns: how long a WHILE may run; None for the default.
        execution_hints: each token once.
        extension_name_to_prefix: one-to-one map of the extensions whose hints are given.
    """

    measure_timing: MeasureTiming = MeasureTiming.NO
    loop_timeout_ns: int | None = None
    execution_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


class PrepareModelConfig(msgspec.Struct, frozen=True):
    """How a model is prepared.

    Attributes:
        preference: what to optimise for.
        priority: among the prepared models of one client.
        deadline_ns: on CLOCK_BOOTTIME; None for none.
        model_cache: which of the message's descriptors are the model cache files, in order.
        data_cache: the same for the data cache.
        cache_token: 32 bytes that name the cache entry.
        compilation_hints: each token once.
        extension_name_to_prefix: one-to-one map of the extensions whose hints are given.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_ns: int | None = None
    model_cache: tuple[int, ...] = ()
    data_cache: tuple[int, ...] = ()
    cache_token: bytes = NO_CACHE_TOKEN
    compilation_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
