"""IDevice: what a device is and can, and the launch of preparations."""

from __future__ import annotations

import contextlib

from nnburst.control.channel import Fds
from nnburst.control.messages.device import (
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    GetSupportedExtensions,
    GetSupportedOperations,
    NotifyPrepared,
    NumberOfCacheFiles,
    PrepareModel,
    PrepareModelFromCache,
    SupportedExtensions,
    SupportedOperations,
)
from nnburst.control.protocol import Reply
from nnburst.control.service import Answer
from nnburst.driver.calls.async_call import start
from nnburst.driver.calls.cached_preparation import CachedPreparation
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.calls.preparation import Preparation
from nnburst.driver.model.pools import adopt_pools, close_pools
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.hal.enums import Priority
from nnburst.hal.errors import InvalidArgument, ResourceExhausted


@answers(GetCapabilities)
def get_capabilities(session: ClientSession, _call: GetCapabilities, _fds: Fds) -> Answer:
    """The device's reported speed."""
    return DeviceCapabilities(session.device.capabilities), Fds()


@answers(GetNumberOfCacheFilesNeeded)
def get_number_of_cache_files_needed(
    session: ClientSession, _call: GetNumberOfCacheFilesNeeded, _fds: Fds
) -> Answer:
    """How many files of each kind a compilation is cached in."""
    cache = session.device.compilation_cache
    with contextlib.suppress(ResourceExhausted):
        # Who asks is about to cache, and has a model to hash first.
        session.scheduler.submit(cache.warm_up, Priority.MEDIUM, Work.INQUIRY)
    return NumberOfCacheFiles(*cache.files_needed), Fds()


@answers(GetSupportedExtensions)
def get_supported_extensions(
    session: ClientSession, _call: GetSupportedExtensions, _fds: Fds
) -> Answer:
    """The extensions that models may use."""
    return SupportedExtensions(session.device.supported_extensions()), Fds()


@answers(GetSupportedOperations, Work.INQUIRY)
def get_supported_operations(
    session: ClientSession, call: GetSupportedOperations, fds: Fds
) -> Answer:
    """Which operations of the main subgraph the device can run."""
    pools = adopt_pools(call.model.pools, fds, "M4")
    try:
        supported = session.device.supported_operations(call.model, pools)
    finally:
        close_pools(pools)
    return SupportedOperations(tuple(supported)), Fds()


@answers(PrepareModel, Work.INQUIRY)
def prepare_model(session: ClientSession, call: PrepareModel, fds: Fds) -> Answer:
    """Start the preparation of a model; `NotifyPrepared` reports the outcome."""
    if not call.callback:
        raise InvalidArgument("device:P1: callback: missing")

    def failed(reply: Reply) -> NotifyPrepared:
        return NotifyPrepared(call.callback, reply.status, reply.message)

    return start(session, Work.PREPARATION, lambda: Preparation(session, call, fds), failed)


@answers(PrepareModelFromCache, Work.INQUIRY)
def prepare_model_from_cache(
    session: ClientSession, call: PrepareModelFromCache, fds: Fds
) -> Answer:
    """Start the preparation of a cached model; `NotifyPrepared` reports the outcome."""
    if not call.callback:
        raise InvalidArgument("device:P1: callback: missing")

    def failed(reply: Reply) -> NotifyPrepared:
        return NotifyPrepared(call.callback, reply.status, reply.message)

    return start(session, Work.PREPARATION, lambda: CachedPreparation(session, call, fds), failed)
