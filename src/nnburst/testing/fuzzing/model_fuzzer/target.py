"""A small model staged on a device: its pools are there, and memory with a valid request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from nnburst.client.device import Device
from nnburst.client.memory.memory import Memory
from nnburst.client.memory.staging import Layout
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.closing import Closing
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.request import Request, RequestArgument
from nnburst.testing.models.small_models.source import Array, SmallModel


class Target(Closing):
    """A model on a device. A context manager that frees its memory. One thread at a time.

    Attributes:
        device: where it lies.
        name: of the model.
        model: with pools as the control channel carries them.
        pools: memory of the model's pools.
        memory: where the request's arguments lie.
        request: valid; its only pool is `memory`.
    """

    def __init__(self, device: Device, small: SmallModel) -> None:
        """Stage `small` on `device`."""
        self.device = device
        self.name = small.name
        self.pools = [_filled(device, data) for data in small.pools]
        described = tuple(MemoryPool(p.size, index) for index, p in enumerate(self.pools))
        self.model = replace(small.model, pools=described)
        self.memory, self.request = _staged(device, small.inputs, small.output_sizes)

    def prepare(self) -> PreparedModel:
        """The model, prepared."""
        return self.device.prepare(self.model, pools=self.pools)

    def close(self) -> None:
        """Free the memory."""
        for memory in (*self.pools, self.memory):
            memory.close()


def _filled(device: Device, data: bytes) -> Memory:
    memory = device.allocate(len(data))
    np.asarray(memory)[:] = np.frombuffer(data, np.uint8)
    return memory


def _staged(
    device: Device, inputs: Sequence[Array | None], output_sizes: Sequence[int]
) -> tuple[Memory, Request]:
    layout = Layout()
    places = [None if array is None else layout.place(array.nbytes) for array in inputs]
    rooms = [DataLocation(0, layout.place(size), size) for size in output_sizes]
    memory = device.allocate(max(layout.size, 1))
    view = np.asarray(memory)
    arguments = []
    for array, place in zip(inputs, places, strict=True):
        if array is None or place is None:
            arguments.append(RequestArgument(has_no_value=True))
            continue
        view[place : place + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        location = DataLocation(0, place, array.nbytes)
        arguments.append(RequestArgument(location=location, dimensions=array.shape))
    outputs = tuple(RequestArgument(location=room) for room in rooms)
    return memory, Request(tuple(arguments), outputs, (MemoryPool(memory.size),))
