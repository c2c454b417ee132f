"""What holds for every object behind a handle."""

from __future__ import annotations

from nnburst.control.channel import Fds
from nnburst.control.messages.session import Release
from nnburst.control.service import Answer, nothing
from nnburst.driver.calls.registry import answers
from nnburst.driver.session.client_session import ClientSession
from nnburst.tracing.slices import Layer, Phase, trace


@answers(Release)
def release(session: ClientSession, call: Release, _fds: Fds) -> Answer:
    """Drop a handle; what still uses the object finishes first."""
    with trace(Layer.DRIVER, Phase.TERMINATION, "release"):
        session.objects.release(call.handle)
    return nothing()
