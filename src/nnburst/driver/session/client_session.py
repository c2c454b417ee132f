"""What a worker keeps for the client that it serves."""

from __future__ import annotations

from typing import Final

from nnburst.control.connection import Connection
from nnburst.control.objects import ObjectTable
from nnburst.driver.counting.counter_page import CounterPage
from nnburst.driver.model.buffer_tracker import BufferTracker
from nnburst.driver.model.device import Device
from nnburst.driver.session.fence_waiter import FenceWaiter
from nnburst.driver.session.outbox import Outbox
from nnburst.driver.session.scheduler import Scheduler
from nnburst.hal.enums import Priority


class ClientSession:
    """One client's device, objects and upcalls. Thread-safe.

    Attributes:
        device: whose calls it makes.
        upcalls: the socket on which the driver calls the client.
        objects: what its handles stand for.
        buffers: those of them that requests name by tokens.
        scheduler: runs its work.
        outbox: notifications that it is yet to get.
        fences: waits for its sync fences.
        counter_page: where its executions are counted; None if there is no supervisor to read it.
    """

    def __init__(
        self, device: Device, upcalls: Connection, counter_page: CounterPage | None = None
    ) -> None:
        """Serve `device` to the client at the other end of `upcalls`."""
        self.counter_page: Final = counter_page
        self.device: Final = device
        self.upcalls: Final = upcalls
        self.objects: Final = ObjectTable()
        self.buffers: Final = BufferTracker(self.objects)
        self.scheduler: Final = Scheduler()
        self.outbox: Final = Outbox(upcalls)
        self.fences: Final = FenceWaiter()


def priority_of(target: object) -> Priority:
    """The priority of the prepared model that an object belongs to; MEDIUM if it has none."""
    priority = getattr(target, "priority", Priority.MEDIUM)
    return priority if isinstance(priority, Priority) else Priority.MEDIUM
