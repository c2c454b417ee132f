"""IDevice."""

from __future__ import annotations

from nnburst.control.channel import Fds
from nnburst.control.messages import (
    GetSupportedOperations,
    Opened,
    PrepareModel,
    SupportedOperations,
)
from nnburst.control.service import Answer
from nnburst.driver.client_session import ClientSession
from nnburst.driver.handlers.registry import answers
from nnburst.driver.pools import adopt_pools, close_pools
from nnburst.driver.scheduler import Work
from nnburst.hal.validation.values import validate_execution_preference, validate_priority


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
    """Prepare a model."""
    preference = validate_execution_preference(call.preference)
    priority = validate_priority(call.priority)
    pools = adopt_pools(call.model.pools, fds, "M4")
    try:
        prepared = session.device.prepare(
            call.model, pools, preference, priority, call.num_threads
        )
    finally:
        close_pools(pools)
    fields = {"num_threads": prepared.num_threads}
    return Opened(session.objects.add(prepared), fields), Fds()
