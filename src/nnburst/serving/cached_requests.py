"""Requests like earlier ones: what was found about one holds for all that differ only in bytes of tensors.

Most clients send the same names, types and shapes over and over. A message without its tensors and its id is
some sixty bytes, and those that equal an earlier one's need not be read again. As in a burst, what is
remembered belongs to this process alone, and bytes that came are compared with its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tritonclient.grpc import service_pb2

from nnburst.client.request_cache import RequestCache
from nnburst.hal.errors import InvalidArgument
from nnburst.serving.models import Served
from nnburst.serving.network import Network
from nnburst.serving.regions import UserRegions
from nnburst.serving.tensors import Array, Message, Tensor, Value, Wanted, write_outputs

#: Kinds of requests that are remembered, and the bytes of their messages without tensors: clients decide
#: how long these are, and cannot fill the memory with them.
_MAX_REQUESTS: Final = 256
_MAX_BYTES: Final = 512 * 1024


class KnownRequest:
    """A request that is served without regions, sequence and parameters. Thread-safe.

    Attributes:
        network: what it is for.
        wanted: the outputs that it asks for.
    """

    def __init__(
        self,
        network: Network,
        inputs: Sequence[tuple[int, Tensor, tuple[int, ...]]],
        wanted: Sequence[Wanted],
    ) -> None:
        """Remember it.

        Args:
            network: what it is for.
            inputs: in the model's order: the number of its raw contents, the tensor, and the array's shape.
            wanted: the outputs that it asks for.
        """
        self.network = network
        self.wanted = wanted
        self._inputs = inputs
        self._last: tuple[list[tuple[int, ...]], Message] | None = None

    def arrays(self, raw: Sequence[bytes]) -> list[Array]:
        """The inputs in the model's order.

        Raises:
            InvalidArgument: there are more or fewer raw contents than inputs, or bytes than a shape has.
        """
        if len(raw) != len(self._inputs):
            raise InvalidArgument(
                f"raw_input_contents: {len(raw)} entries, expected {len(self._inputs)}"
            )
        return [tensor.array(shape, raw[number]) for number, tensor, shape in self._inputs]

    def answer(self, identity: str, values: Mapping[int, Value]) -> Message:
        """A ModelInferResponse: the last one for these shapes, with values of its own."""
        shapes = [values[each.index][0] for each in self.wanted]
        last = self._last
        if last is None or last[0] != shapes:
            blank = response_for(self.network, "", self.wanted, values, None)
            blank.ClearField("raw_output_contents")
            self._last = last = (shapes, blank)
        response = service_pb2.ModelInferResponse()
        response.CopyFrom(last[1])
        response.id = identity
        response.raw_output_contents.extend([values[each.index][1] for each in self.wanted])
        return response


class KnownRequests:
    """The last few hundred kinds of requests to what is served. Thread-safe.

    Attributes:
        served: what they are for; of anything else nothing is known.
    """

    def __init__(self, served: Served) -> None:
        """Begin with none."""
        self.served = served
        self._known: Final[RequestCache[bytes, KnownRequest]] = RequestCache(
            _MAX_REQUESTS, most_bytes=_MAX_BYTES
        )

    def find(self, request: Message) -> tuple[KnownRequest | None, bytes, list[bytes]]:
        """An earlier request like it, its key (empty if it cannot be remembered), and its raw contents."""
        if request.parameters or not request.raw_input_contents:
            return None, b"", []
        raw = list(request.raw_input_contents)
        identity = request.id
        request.ClearField("raw_input_contents")
        request.ClearField("id")
        key = request.SerializeToString()
        request.id = identity
        known = self._known.find(key)
        if known is None:
            request.raw_input_contents.extend(raw)
        return known, key, raw

    def add(
        self,
        key: bytes,
        request: Message,
        network: Network,
        arrays: Sequence[Array],
        wanted: Sequence[Wanted],
    ) -> None:
        """Remember a request that was read, if it has nothing but raw contents."""
        places = (*request.inputs, *request.outputs)
        if not key or any(given.parameters for given in places):
            return
        numbers = {given.name: number for number, given in enumerate(request.inputs)}
        inputs = [
            (numbers[tensor.name], tensor, array.shape)
            for tensor, array in zip(network.inputs, arrays, strict=True)
        ]
        self._known.add(key, KnownRequest(network, inputs, wanted), len(key))


def response_for(
    network: Network,
    identity: str,
    wanted: Sequence[Wanted],
    values: Mapping[int, Value],
    regions: UserRegions | None,
) -> Message:
    """A ModelInferResponse with outputs by value, or in their regions.

    Raises:
        InvalidArgument: a region has not enough room.
    """
    response = service_pb2.ModelInferResponse(
        model_name=network.name, model_version=str(network.version), id=identity
    )
    write_outputs(response, wanted, network.outputs, values, regions)
    return response
