"""IBurst of AIDL."""

from __future__ import annotations

from contextlib import ExitStack

from nnburst.control.channel import Fds
from nnburst.control.messages.aidl_burst import BurstExecute, OpenAidlBurst, ReleaseMemoryResource
from nnburst.control.messages.session import Opened
from nnburst.control.service import Answer, nothing
from nnburst.driver.burst.aidl_burst import AidlBurst
from nnburst.driver.calls.registry import answers
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work


@answers(OpenAidlBurst)
def open_aidl_burst(session: ClientSession, call: OpenAidlBurst, _fds: Fds) -> Answer:
    """Open a burst on a prepared model."""
    with ExitStack() as cleanup:
        model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel)).target
        burst = AidlBurst(model, session.buffers, cleanup.pop_all())
    return Opened(session.objects.add(burst)), Fds()


@answers(BurstExecute, Work.EXECUTION)
def burst_execute(session: ClientSession, call: BurstExecute, fds: Fds) -> Answer:
    """Execute once and answer with the outcome."""
    with session.objects.acquire(call.handle, AidlBurst) as burst:
        return burst.target.execute(call, fds), Fds()


@answers(ReleaseMemoryResource)
def release_memory_resource(
    session: ClientSession, call: ReleaseMemoryResource, _fds: Fds
) -> Answer:
    """Forget a memory identifier."""
    with session.objects.acquire(call.handle, AidlBurst) as burst:
        burst.target.release(call.memory_identifier)
    return nothing()
