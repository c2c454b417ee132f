"""IDevice."""

from __future__ import annotations

from nnburst.control.channel import Fds
from nnburst.control.messages.device import (
    GetSupportedOperations,
    NotifyPrepared,
    PrepareModel,
    SupportedOperations,
)
from nnburst.control.protocol import Reply
from nnburst.control.service import Answer
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.calls.launching import launch
from nnburst.driver.calls.preparation import Preparation
from nnburst.driver.model.pools import adopt_pools, close_pools
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.hal.errors import InvalidArgument


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
    """Launch the preparation of a model; `NotifyPrepared` says how it went."""
    if not call.callback:
        raise InvalidArgument("device:P1: callback: missing")

    def failed(reply: Reply) -> NotifyPrepared:
        return NotifyPrepared(call.callback, reply.status, reply.message)

    return launch(session, Work.PREPARATION, lambda: Preparation(session, call, fds), failed)
