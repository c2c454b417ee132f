"""Where a service is, as its actor answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """A service and the two ways to it.

    Attributes:
        node: Ray's id of the node.
        boot_id: of the kernel that runs it; two containers on one machine have the same one.
        address: of the driver's socket on that node.
        grpc: "HOST:PORT" of its front.
        pid: of its supervisor.
        actor_pid: of the actor that keeps it.
    """

    node: str
    boot_id: str
    address: str
    grpc: str
    pid: int
    actor_pid: int

    @property
    def may_be_here(self) -> bool:
        """Whether trying a burst makes sense; containers of one machine may still not reach each other."""
        return self.boot_id == boot_id()


def boot_id() -> str:
    """Of the kernel that runs this process."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
