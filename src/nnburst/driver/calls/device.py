"""Answers calls on the device (IDevice, IBuffer): prepares models and files, and makes buffers."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from nnburst.control.channel import Fds
from nnburst.control.messages import (
    Allocate,
    Allocated,
    CopyFrom,
    CopyTo,
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    GetServedModels,
    GetSupportedExtensions,
    GetSupportedOperations,
    NotifyPrepared,
    NumberOfCacheFiles,
    OpenServedModel,
    PrepareGraph,
    PrepareModel,
    PrepareModelFromCache,
    Reply,
    ServedModels,
    SupportedExtensions,
    SupportedOperations,
)
from nnburst.control.service import Answer, nothing
from nnburst.driver.calls.registry import answers, check_deadline, check_in_time, naming
from nnburst.driver.client_session import AsyncCall, ClientSession, ModelSession, start_async_call
from nnburst.driver.counters import ModelCounters
from nnburst.driver.model.buffers import DeviceBuffer, Role
from nnburst.driver.model.compilation_cache import CacheFiles
from nnburst.driver.model.execution import attributes_of
from nnburst.driver.model.pools import Pool, adopt_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.scheduler import Work
from nnburst.driver.served_models import describe
from nnburst.executor.base import DEFAULT_OPTIONS, DeviceMemory, MemoryUse, PrepareOptions
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus, Priority
from nnburst.hal.errors import (
    Closed,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.types import BufferRole
from nnburst.hal.validation import validate_memory_desc
from nnburst.hal.validation.values import (
    validate_cache_token,
    validate_duration,
    validate_execution_preference,
    validate_priority,
)


@answers(GetCapabilities)
def get_capabilities(session: ModelSession, _call: GetCapabilities, _fds: Fds) -> Answer:
    """Answer with the device's reported speed."""
    return DeviceCapabilities(session.device.capabilities), Fds()


@answers(GetNumberOfCacheFilesNeeded)
def get_number_of_cache_files_needed(
    session: ClientSession, _call: GetNumberOfCacheFilesNeeded, _fds: Fds
) -> Answer:
    """Answer with the number of files of each kind in which a compilation is cached."""
    cache = session.device.compilation_cache
    with contextlib.suppress(ResourceExhausted):
        # The client will cache, and hashes its model first; use that time to load what caching needs.
        session.scheduler.submit(cache.warm_up, Priority.MEDIUM, Work.INQUIRY)
    return NumberOfCacheFiles(*cache.files_needed), Fds()


@answers(GetSupportedExtensions)
def get_supported_extensions(
    session: ModelSession, _call: GetSupportedExtensions, _fds: Fds
) -> Answer:
    """Answer with the extensions that models may use."""
    return SupportedExtensions(session.device.supported_extensions()), Fds()


@answers(GetSupportedOperations, Work.INQUIRY)
def get_supported_operations(
    session: ModelSession, call: GetSupportedOperations, fds: Fds
) -> Answer:
    """Answer with whether the device can run each operation of the main subgraph."""
    pools = adopt_pools(call.model.pools, fds)
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
    """A model to be prepared whose call has passed device:P2 to P8; the scheduler checks P9.

    Attributes:
        priority: among the client's models.
    """

    def __init__(self, session: ModelSession, call: PrepareModel, fds: Fds) -> None:
        """Check a call's arguments, in the order of the HAL.

        Args:
            session: the session of the client that calls.
            call: hostile until checked here.
            fds: the model's pools, then its cache files.

        Raises:
            InvalidArgument: the model breaks a rule of validation (device:P2), there is no such preference or
                priority (device:P3, P4), deadline, token or hints are invalid (device:P5), or an operation is
                not supported (device:P8).
            MissedDeadline: device:P6: the deadline has passed (PERSISTENT).
            GeneralFailure: device:P7: a pool cannot be mapped.
        """
        self._session = session
        self._call = call
        device = session.device
        with naming("P2"):
            pools = adopt_pools(call.model.pools, fds)
        try:
            with naming("P2"):
                device.check(call.model, pools)
            with naming("P3"):
                self._preference = validate_execution_preference(call.preference)
            with naming("P4"):
                self.priority = validate_priority(call.priority)
            with naming("P5"):
                validate_duration("deadline", call.deadline_ns)
                if call.model_cache or call.data_cache:
                    validate_cache_token(call.token)
                self._attributes = attributes_of(call.hints)
            check_deadline("P6", call.deadline_ns)
            with naming("P7"):
                self._views = [pool.readable for pool in pools]
            device.check_supported(call.model, self._views)
        finally:
            close_pools(pools)  # the views keep the mappings
        self._files = CacheFiles(fds, len(pools), call.model_cache, call.data_cache)

    def run(self) -> NotifyPrepared:
        """Prepare the model; returns the notification with its handle.

        Raises:
            MissedDeadline: the deadline passed before the model was prepared (TRANSIENT).
            ResourceExhausted: the client has as many objects as it may have.
            NnburstError: the executor raised it.
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
            PrepareOptions(
                self._preference,
                self.priority,
                call.num_threads,
                self._attributes,
                call.deadline_ns,
            ),
        )
        device.compilation_cache.save(prepared, call.token, self._files.model, self._files.data)
        return in_time(prepared, call.deadline_ns)

    def cancel(self) -> None:
        """Close the cache files; apart from them this has only mappings."""
        self._files.close()


def opened(session: ModelSession, callback: int, prepared: PreparedModel) -> NotifyPrepared:
    """Make the notification of a prepared model, which its client owns from here on.

    Raises:
        ResourceExhausted: the client has as many objects as it may have.
    """
    fields = {"num_threads": prepared.num_threads}
    if session.counter_page is not None:
        prepared.counters = ModelCounters.of(prepared.model, session.counter_page)
    handle = session.objects.add(prepared)
    return NotifyPrepared(callback, ErrorStatus.NONE, handle=handle, fields=fields)


def in_time(prepared: PreparedModel, deadline_ns: int | None) -> PreparedModel:
    """Return `prepared`; if its deadline has passed, close it and raise MissedDeadline (TRANSIENT)."""
    try:
        check_in_time(deadline_ns)
    except MissedDeadline:
        prepared.close()
        raise
    return prepared


class CachedPreparation:
    """A model to be prepared from cache files whose call has passed device:P5 and P6.

    Attributes:
        priority: a fixed one: the model's own priority is not known yet.
    """

    priority: Final = Priority.MEDIUM

    def __init__(self, session: ClientSession, call: PrepareModelFromCache, fds: Fds) -> None:
        """Check a call's arguments.

        Raises:
            InvalidArgument: device:P5: deadline, token, hints, number of files or a descriptor is invalid.
            MissedDeadline: device:P6: the deadline has passed (PERSISTENT).
            GeneralFailure: the device does not cache.
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
        """Prepare the model; returns the notification with its handle.

        Raises:
            MissedDeadline: the deadline passed before the model was prepared (TRANSIENT).
            GeneralFailure: this driver did not write these files for this token.
            NnburstError: the executor raised it.
        """
        call, files = self._call, self._files
        cache = self._session.device.compilation_cache
        try:
            check_in_time(call.deadline_ns)
            prepared = cache.load(
                call.token, files.model, files.data, self._attributes, call.deadline_ns
            )
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
        """Close the files."""
        self._files.close()


# -- buffer ----------------------------------------------------------------------------------------


@answers(Allocate)
def allocate(session: ClientSession, call: Allocate, _fds: Fds) -> Answer:
    """Allocate a buffer."""
    with ExitStack() as used:
        models = [_model(session, handle, used) for handle in call.prepared_models]
        operand = validate_memory_desc(
            call.desc.dimensions,
            models,
            call.input_roles,
            call.output_roles,
            lambda prepared: prepared.model,
        )
        roles = frozenset(
            (
                *_roles("input", call.input_roles, models),
                *_roles("output", call.output_roles, models),
            )
        )

        uses = [
            MemoryUse(models[role.model_index].executor_prepared, is_output, role.io_index)
            for is_output, roles_ in ((False, call.input_roles), (True, call.output_roles))
            for role in roles_
        ]

        def allocate_room(dimensions: Sequence[int], size: int) -> DeviceMemory | None:
            return session.device.allocate(operand, dimensions, size, uses)

        def make(token: int, forget: Callable[[], None]) -> DeviceBuffer:
            return DeviceBuffer(token, operand, roles, forget, allocate_room)

        handle, token = session.buffers.add(make)
    return Allocated(handle, token), Fds()


@answers(CopyTo)
def copy_to(session: ClientSession, call: CopyTo, fds: Fds) -> Answer:
    """Copy a buffer's content to the client's memory."""
    with session.objects.acquire(call.handle, DeviceBuffer) as buffer:
        target = _adopt(call.size, fds)
        try:
            buffer.target.copy_to(lambda: target.writable, target.size)
        finally:
            target.close()
    return nothing()


@answers(CopyFrom)
def copy_from(session: ClientSession, call: CopyFrom, fds: Fds) -> Answer:
    """Fill a buffer from the client's memory; after a failure it is uninitialised."""
    with session.objects.acquire(call.handle, DeviceBuffer) as buffer:
        try:
            source = _adopt(call.size, fds)
        except BaseException:
            buffer.target.invalidate()
            raise
        try:
            buffer.target.copy_from(lambda: source.readable, source.size, call.dimensions)
        finally:
            source.close()
    return nothing()


def _adopt(size: int, fds: Fds) -> Pool:
    """Adopt the client's memory for a copy; GENERAL_FAILURE if it cannot be mapped (device:§6)."""
    try:
        return Pool(SharedMemory.adopt(fds.take(0), size), size)
    except InvalidArgument as error:
        raise GeneralFailure(f"the memory cannot be mapped: {error}") from error


def _model(session: ClientSession, handle: int, used: ExitStack) -> PreparedModel:
    try:
        reference = session.objects.acquire(handle, PreparedModel)
    except (Closed, InvalidArgument) as error:
        raise InvalidArgument(f"validation:D3: {error}") from error
    return used.enter_context(reference).target


def _roles(kind: str, roles: Sequence[BufferRole], models: Sequence[PreparedModel]) -> list[Role]:
    return [(weakref.ref(models[role.model_index]), kind, role.io_index) for role in roles]


@answers(GetServedModels)
def get_served_models(session: ClientSession, _call: GetServedModels, _fds: Fds) -> Answer:
    """Answer with the networks that are served by name."""
    return ServedModels(session.served_models.names), Fds()


@answers(OpenServedModel)
def open_served_model(session: ClientSession, call: OpenServedModel, _fds: Fds) -> Answer:
    """Open a network that is served; prepare it if it is not prepared yet."""
    served = session.served_models.open(
        call.name, call.version, session.device, session.counter_page
    )
    fds = Fds() if served.initial is None else Fds([os.dup(served.initial.fd)])
    try:
        handle = session.objects.add(served.prepared)
    except BaseException:
        fds.close()
        raise
    return msgspec.structs.replace(served.description, handle=handle), fds


@answers(PrepareGraph, Work.PREPARATION)
def prepare_graph(session: ClientSession, call: PrepareGraph, fds: Fds) -> Answer:
    """Prepare a whole model file as one operation, which the executor's engine computes directly."""
    from nnburst.importer.load import load_graph  # which few clients need

    if len(set(call.files)) < len(call.files):
        raise InvalidArgument(f"files: {list(call.files)}, expected different names")
    device = session.device
    with ExitStack() as stack:
        pools = []
        for index in range(len(fds)):
            pools.append(Pool(SharedMemory.adopt(fds.take(index))))
            stack.callback(pools[-1].close)
        # TRUST: the file is copied before it is read; other files when the executor prepares the graph
        content = bytes(pools[0].readable)
        others = [pool.readable for pool in pools[1:]]
    network = load_graph(content, dict(zip(call.files, others, strict=True)))
    views = [pool.data for pool in network.pools]
    device.check(network.model, views)
    device.check_supported(network.model, views)
    options = msgspec.structs.replace(DEFAULT_OPTIONS, num_threads=call.num_threads)
    prepared = device.prepare_checked(network.model, views, options)
    if session.counter_page is not None:
        prepared.counters = ModelCounters.of(prepared.model, session.counter_page)
    description = describe(network, prepared, device.supported_extensions())
    handle = session.objects.add(prepared)
    return msgspec.structs.replace(description, handle=handle), Fds()
