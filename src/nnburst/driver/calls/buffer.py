"""IDevice::allocate and IBuffer: buffers that the driver manages."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from nnburst.control.channel import Fds
from nnburst.control.messages.buffer import Allocate, Allocated, CopyFrom, CopyTo
from nnburst.control.service import Answer, nothing
from nnburst.driver.calls.registry import answers
from nnburst.driver.model.buffers import DeviceBuffer, Role
from nnburst.driver.model.pools import Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.buffers import BufferRole
from nnburst.hal.errors import Closed, GeneralFailure, InvalidArgument
from nnburst.hal.validation import validate_memory_desc


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

        def make(token: int, forget: Callable[[], None]) -> DeviceBuffer:
            return DeviceBuffer(token, operand, roles, forget)

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
    """Fill a buffer from the client's memory; if that fails it holds nothing."""
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
    """The memory of a copy; GENERAL_FAILURE if it cannot be mapped (device:§6)."""
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
