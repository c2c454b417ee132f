"""Machines and C libraries that there are wheels for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Target:
    """One wheel.

    Attributes:
        platform: what the wheel calls it, and what it is audited for.
        zig: what zig calls it; behind the dot is the oldest glibc.
    """

    platform: str
    zig: str

    @property
    def is_musl(self) -> bool:
        """Whether its C library is musl."""
        return self.platform.startswith("musllinux")

    @property
    def machine(self) -> str:
        """The processor, as `uname -m` has it."""
        return self.zig.partition("-")[0]


#: glibc 2.17 is older than any system with Python 3.11; processors are the first of their kind.
TARGETS: Final = (
    Target("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17"),
    Target("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl"),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl"),
)
