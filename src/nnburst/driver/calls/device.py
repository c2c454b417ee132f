"""IDevice: what a device is and can, and preparations: what callers wait for, and what comes after."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

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
from nnburst.control.model_id import model_id
from nnburst.control.protocol import Reply
from nnburst.control.service import Answer
from nnburst.driver.calls.checks import check_deadline, check_in_time, naming
from nnburst.driver.calls.registry import answers
from nnburst.driver.counting.model_counters import ModelCounters
from nnburst.driver.model.cache.cache_files import CacheFiles
from nnburst.driver.model.hints import attributes_of
from nnburst.driver.model.pools import adopt_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.outbox import AsyncCall, start_async_call
from nnburst.driver.session.scheduler import Work
from nnburst.executor.base import PrepareOptions
from nnburst.hal.enums import ErrorStatus, Priority
from nnburst.hal.errors import InvalidArgument, MissedDeadline, NnburstError, ResourceExhausted
from nnburst.hal.validation.values import (
    validate_cache_token,
    validate_duration,
    validate_execution_preference,
    validate_priority,
)


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
    return _start_preparation(session, call.callback, lambda: Preparation(session, call, fds))


@answers(PrepareModelFromCache, Work.INQUIRY)
def prepare_model_from_cache(
    session: ClientSession, call: PrepareModelFromCache, fds: Fds
) -> Answer:
    """Start the preparation of a cached model; `NotifyPrepared` reports the outcome."""
    return _start_preparation(session, call.callback, lambda: CachedPreparation(session, call, fds))


def _start_preparation(
    session: ClientSession, callback: int, check: Callable[[], AsyncCall]
) -> Answer:
    if not callback:
        raise InvalidArgument("device:P1: callback: missing")

    def failed(reply: Reply) -> NotifyPrepared:
        return NotifyPrepared(callback, reply.status, reply.message)

    return start_async_call(session.outbox, session.scheduler, Work.PREPARATION, check, failed)


class Preparation:
    """A model to be prepared that has passed device:P2 to P8; P9 is the scheduler's.

    Attributes:
        priority: among the client's models.
    """

    def __init__(self, session: ClientSession, call: PrepareModel, fds: Fds) -> None:
        """Check what a call brings, in the order of the HAL.

        Args:
            session: whose call it is.
            call: hostile until checked here.
            fds: the model's pools, then its cache files.

        Raises:
            InvalidArgument: the model breaks a rule of validation (device:P2), there is no such preference or
                priority (device:P3, P4), deadline, token or hints make no sense (device:P5), or an operation
                is not supported (device:P8).
            MissedDeadline: device:P6: the deadline has passed (PERSISTENT).
            GeneralFailure: device:P7: a pool cannot be mapped.
        """
        self._session = session
        self._call = call
        device = session.device
        with naming("P2"):
            pools = adopt_pools(call.model.pools, fds, "M4")
        try:
            with naming("P2"):
                device.check(call.model, pools)
            with naming("P3"):
                self._preference = validate_execution_preference(call.preference)
            with naming("P4"):
                self.priority = validate_priority(call.priority)
            with naming("P5"):
                validate_duration("deadline", call.deadline_ns)
                validate_cache_token(call.token)
                self._attributes = attributes_of(call.hints)
            check_deadline("P6", call.deadline_ns)
            with naming("P7"):
                self._views = [pool.readable for pool in pools]
            device.check_supported(call.model)
        finally:
            close_pools(pools)  # the views keep the mappings
        self._files = CacheFiles(fds, len(pools), call.model_cache, call.data_cache)

    def run(self) -> NotifyPrepared:
        """Prepare the model; the notification has its handle.

        Raises:
            MissedDeadline: it passed before the model was prepared (TRANSIENT).
            ResourceExhausted: the client holds as many objects as it may.
            NnburstError: the executor's reason.
        """
        try:
            prepared = self._prepare()
        finally:
            self._files.close()
        return opened(self._session, self._call.callback, prepared)

    def _prepare(self) -> PreparedModel:
        call, device = self._call, self._session.device
        check_in_time(call.deadline_ns)
        prepared = device.prepare_checked(
            call.model,
            self._views,
            PrepareOptions(self._preference, self.priority, call.num_threads, self._attributes),
        )
        device.compilation_cache.save(prepared, call.token, self._files.model, self._files.data)
        return in_time(prepared, call.deadline_ns)

    def cancel(self) -> None:
        """Let go of the cache files; beside them only mappings are held."""
        self._files.close()


def opened(session: ClientSession, callback: int, prepared: PreparedModel) -> NotifyPrepared:
    """The notification of a prepared model, which its client owns from here on.

    Raises:
        ResourceExhausted: the client holds as many objects as it may.
    """
    fields = {"num_threads": prepared.num_threads}
    if session.counter_page is not None:
        page = session.counter_page
        prepared.counters = ModelCounters(page, page.known(model_id(prepared.model)))
    handle = session.objects.add(prepared)
    return NotifyPrepared(callback, ErrorStatus.NONE, handle=handle, fields=fields)


def in_time(prepared: PreparedModel, deadline_ns: int | None) -> PreparedModel:
    """`prepared` itself; closed if its deadline has passed (MissedDeadline, TRANSIENT)."""
    try:
        check_in_time(deadline_ns)
    except MissedDeadline:
        prepared.close()
        raise
    return prepared


class CachedPreparation:
    """A model to be prepared from cache files that have passed device:P5 and P6.

    Attributes:
        priority: the model's is not known yet.
    """

    priority: Final = Priority.MEDIUM

    def __init__(self, session: ClientSession, call: PrepareModelFromCache, fds: Fds) -> None:
        """Check what a call brings.

        Raises:
            InvalidArgument: device:P5: deadline, token, hints, number of files or a descriptor make no sense.
            MissedDeadline: device:P6: the deadline has passed (PERSISTENT).
            GeneralFailure: the device caches nothing.
        """
        self._session = session
        self._call = call
        with naming("P5"):
            validate_duration("deadline", call.deadline_ns)
            self._attributes = attributes_of(call.hints)
        self._files = CacheFiles(fds, 0, call.model_cache, call.data_cache)
        try:
            session.device.compilation_cache.check(call.token, self._files.model, self._files.data)
            check_deadline("P6", call.deadline_ns)
        except BaseException:
            self._files.close()
            raise

    def run(self) -> NotifyPrepared:
        """Prepare the model; the notification has its handle.

        Raises:
            MissedDeadline: it passed before the model was prepared (TRANSIENT).
            GeneralFailure: the files are not what this driver wrote for this token.
            NnburstError: the executor's reason.
        """
        call, files = self._call, self._files
        cache = self._session.device.compilation_cache
        try:
            check_in_time(call.deadline_ns)
            prepared = cache.load(call.token, files.model, files.data, self._attributes)
        except NnburstError:
            self._note(hit=False)
            raise
        finally:
            files.close()
        self._note(hit=True)
        return opened(self._session, call.callback, in_time(prepared, call.deadline_ns))

    def _note(self, *, hit: bool) -> None:
        if self._session.counter_page is not None:
            self._session.counter_page.note_cache(hit=hit)

    def cancel(self) -> None:
        """Let go of the files."""
        self._files.close()
