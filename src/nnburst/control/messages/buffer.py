"""IBuffer: buffers that the driver manages."""

from __future__ import annotations

from nnburst.control.messages.message import Handle, Message, Size, Token
from nnburst.hal.buffers import BufferDesc, BufferRole


class Allocate(Message, frozen=True):
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


class Allocated(Message, frozen=True):
    """Answer to `Allocate`: the buffer's handle, and the token that requests name it by."""

    handle: Handle
    token: Token


class CopyTo(Message, frozen=True):
    """IBuffer::copyTo: copy a buffer's content into shared memory of `size` bytes, which is the fd."""

    handle: Handle
    size: Size

    @property
    def fd_count(self) -> int:
        """The memory."""
        return 1


class CopyFrom(Message, frozen=True):
    """IBuffer::copyFrom: fill a buffer from shared memory of `size` bytes, which is the fd.

    Attributes:
        handle: the buffer.
        size: of the memory.
        dimensions: of the content; empty where the buffer's are fully known.
    """

    handle: Handle
    size: Size
    dimensions: tuple[int, ...] = ()

    @property
    def fd_count(self) -> int:
        """The memory."""
        return 1
