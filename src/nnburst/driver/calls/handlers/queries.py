"""IDevice: what a device is and can, the same at every start."""

from __future__ import annotations

import contextlib

from nnburst.control.channel import Fds
from nnburst.control.messages.device import (
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    NumberOfCacheFiles,
)
from nnburst.control.service import Answer
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.hal.enums import Priority
from nnburst.hal.errors import ResourceExhausted


@answers(GetCapabilities)
def get_capabilities(session: ClientSession, _call: GetCapabilities, _fds: Fds) -> Answer:
    """How fast the device says it is."""
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
