"""IBuffer: buffers that the driver manages."""

from __future__ import annotations

from nnburst.control.messages.message import Call, Handle, Result, Size, Token
from nnburst.hal.buffers import BufferDesc, BufferRole


class Allocate(Call, frozen=True):
    """IDevice::allocate: a buffer of the driver's for arguments of prepared models.

    Attributes:
        desc: what it is to hold.
        prepared_models: what the roles' `model_index` counts in.
        input_roles: as which inputs it will be used.
        output_roles: as which outputs.
    """

    desc: BufferDesc
    prepared_models: tuple[Handle, ...]
    input_roles: tuple[BufferRole, ...] = ()
    output_roles: tuple[BufferRole, ...] = ()


class Allocated(Result, frozen=True):
    """Answer to `Allocate`: the buffer's handle, and the token that requests name it by."""

    handle: Handle
    token: Token


class CopyTo(Call, frozen=True):
    """IBuffer::copyTo: copy a buffer's content into shared memory of `size` bytes, which is the fd."""

    handle: Handle
    size: Size

    @property
    def fd_count(self) -> int:
        """The memory."""
        return 1


class CopyFrom(Call, frozen=True):
    """IBuffer::copyFrom: fill a buffer from shared memory of `size` bytes, which is the fd.

    Attributes:
        handle: the buffer.
        size: of the memory.
        dimensions: of the content; empty if the buffer's are fully known.
    """

    handle: Handle
    size: Size
    dimensions: tuple[int, ...] = ()

    @property
    def fd_count(self) -> int:
        """The memory."""
        return 1
