"""IBurstContext: bursts over message queues."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from nnburst.control.channel import Fds
from nnburst.control.limits import MAX_BURSTS
from nnburst.control.messages.burst import BurstClosed, FreeMemory, OpenBurst
from nnburst.control.messages.session import Opened
from nnburst.control.service import Answer, nothing
from nnburst.driver.burst.burst import BurstClient, BurstContext, get_memories, start_burst
from nnburst.driver.calls.registry import answers
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession


@answers(OpenBurst)
def open_burst(session: ClientSession, call: OpenBurst, fds: Fds) -> Answer:
    """Open a burst on a prepared model."""
    ticket = session.outbox.ticket()

    def closed(reason: str) -> None:
        ticket.post(BurstClosed(call.callback, reason))

    try:
        model = session.objects.acquire(call.handle, PreparedModel)
    except BaseException:
        ticket.cancel()
        raise

    def released() -> None:
        model.close()
        ticket.cancel()

    try:
        ask = partial(get_memories, session.upcalls, call.callback)
        client = BurstClient(ask, closed, released)
        context = start_burst(model.target, call, fds, client)
    except BaseException:
        released()
        raise
    return Opened(session.objects.add(_OpenBurst(context)), context.reply), Fds()


@answers(FreeMemory)
def free_memory(session: ClientSession, call: FreeMemory, _fds: Fds) -> Answer:
    """Forget a slot; answered when it is forgotten."""
    with session.objects.acquire(call.handle, _OpenBurst) as burst:
        burst.target.context.free_memory(call.slot)
    return nothing()


class _OpenBurst:
    """A burst; it holds its prepared model, which may be released before it, until its thread ends."""

    per_client: ClassVar = MAX_BURSTS

    def __init__(self, context: BurstContext) -> None:
        self.context = context

    def close(self) -> None:
        self.context.close()
