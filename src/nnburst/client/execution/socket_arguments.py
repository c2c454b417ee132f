"""SocketArguments: the arguments of one execution over the socket, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.memory.arguments import Array, Parameter, check_count
from nnburst.client.memory.memory import Memory, find_memory
from nnburst.client.memory.staging import Layout
from nnburst.hal.timing import OutputShape


@dataclass(slots=True)
class ArgumentPlace:
    """Where one input or output lies: in a pool or buffer of the caller's, or (None) in the private pool."""

    parameter: Parameter
    array: Array | None
    length: int
    memory: Memory | Buffer | None = None
    offset: int = 0
    dimensions: tuple[int, ...] = ()
    omitted: bool = False


class SocketArguments:
    """The arguments of one execution, and where they lie. `PlacedRequest` gives them memory.

    Attributes:
        prepared: what is executed.
        inputs: where each input lies.
        outputs: where each output lies.
    """

    def __init__(
        self,
        prepared: Prepared,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None,
    ) -> None:
        """Check all arrays and buffers; without `outputs`, each gets a new array.

        Raises:
            InvalidArgument: one does not fit, or is a buffer of another device.
            Closed: the device or a buffer is closed.
        """
        prepared.session.check_open()  # a closed device counts before anything else
        check_count("inputs", inputs, prepared.inputs)
        given = [None] * len(prepared.outputs) if outputs is None else outputs
        check_count("outputs", given, prepared.outputs)
        self.prepared = prepared
        self.inputs = [
            _input_place(parameter, value)
            for parameter, value in zip(prepared.inputs, inputs, strict=True)
        ]
        self.outputs = [
            _output_place(parameter, value)
            for parameter, value in zip(prepared.outputs, given, strict=True)
        ]
        for place in (*self.inputs, *self.outputs):
            if isinstance(place.memory, Buffer):
                place.memory._check_session(prepared.session, place.parameter.name)

    def grow(self, shapes: Sequence[OutputShape]) -> bool:
        """Offer more room if the driver asked for it; False if that cannot help."""
        short = [
            (place, shape)
            for place, shape in zip(self.outputs, shapes, strict=False)
            if not shape.is_sufficient
        ]
        for place, shape in short:
            more = place.parameter.more_room(place.length, shape)
            if place.array is not None or place.memory is not None or more is None:
                return False
            place.length = more
        return bool(short)

    def lay_out(self) -> int:
        """Give everything outside of the caller's pools an offset in the private one; its size."""
        layout = Layout()
        for place in (*self.inputs, *self.outputs):
            if place.memory is None and not place.omitted:
                place.offset = layout.place(place.length)
        return layout.size

    @property
    def arrays(self) -> tuple[list[Array | None], list[Array | None]]:
        """The inputs' arrays and the outputs', as they were given."""
        return [place.array for place in self.inputs], [place.array for place in self.outputs]

    def fail(self) -> None:
        """Note that it has failed: buffers that it was to write hold nothing any more."""
        for place in self.outputs:
            if isinstance(place.memory, Buffer):
                place.memory._holds(None)


def _input_place(parameter: Parameter, value: Array | Buffer | None) -> ArgumentPlace:
    if value is None:
        return ArgumentPlace(parameter, None, 0, omitted=True)
    if isinstance(value, Buffer):
        return ArgumentPlace(parameter, None, 0, value, dimensions=value._input_extents(parameter))
    array = parameter.check_input(value)
    memory, offset = find_memory(array) or (None, 0)
    return ArgumentPlace(parameter, array, array.nbytes, memory, offset, parameter.extents(array))


def _output_place(parameter: Parameter, value: Array | Buffer | None) -> ArgumentPlace:
    if value is None:
        return ArgumentPlace(parameter, None, parameter.first_room)
    if isinstance(value, Buffer):
        value._open_handle  # noqa: B018 - one that is closed is refused before anything is sent
        return ArgumentPlace(parameter, None, 0, value)
    array = parameter.check_output(value)
    memory, offset = find_memory(array) or (None, 0)
    return ArgumentPlace(parameter, array, array.nbytes, memory, offset)
