"""Calls on memories and their descriptions."""

from __future__ import annotations

from nnburst.capi import addresses
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.memory_desc import MemoryDesc


def memory_desc_create() -> MemoryDesc:
    """See the table."""
    return MemoryDesc()


def memory_desc_add_input_role(
    description: MemoryDesc, compilation: Compilation, index: int, frequency: float
) -> None:
    """See the table."""
    description.add_input_role(compilation, index, frequency)


def memory_desc_add_output_role(
    description: MemoryDesc, compilation: Compilation, index: int, frequency: float
) -> None:
    """See the table."""
    description.add_output_role(compilation, index, frequency)


def memory_desc_set_dimensions(description: MemoryDesc, rank: int, dimensions: int) -> None:
    """See the table."""
    description.set_dimensions(addresses.numbers("dimensions", dimensions, rank))


def memory_desc_finish(description: MemoryDesc) -> None:
    """See the table."""
    description.finish()


def memory_create_from_desc(description: MemoryDesc) -> Memory:
    """See the table."""
    return description.create_memory()


def memory_create_from_fd(size: int, protect: int, fd: int, offset: int) -> Memory:
    """See the table."""
    return Memory.from_fd(size, fd, prot=protect, offset=offset)


def memory_copy(source: Memory, destination: Memory) -> None:
    """See the table."""
    Memory.copy(source, destination)
