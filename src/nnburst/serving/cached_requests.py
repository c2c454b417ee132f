"""Recognises requests that differ from earlier ones only in the bytes of tensors, and reuses their analysis.

Most clients send the same names, types and shapes over and over. A message without its tensors and its id has
some sixty bytes; if they equal those of an earlier message, they need not be parsed again. The cache belongs
to this process alone, and received bytes are compared with its copies.
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

#: Limits of the cache: kinds of requests, and bytes of their messages without tensors. Clients choose how
#: long these are, and must not fill the memory.
_MAX_REQUESTS: Final = 256
_MAX_BYTES: Final = 512 * 1024


class KnownRequest:
    """A kind of request without regions, sequence and parameters. Thread-safe.

    Attributes:
        network: the model version that it is for.
        wanted: the outputs that it asks for.
    """

    def __init__(
        self,
        network: Network,
        inputs: Sequence[tuple[int, Tensor, tuple[int, ...]]],
        wanted: Sequence[Wanted],
    ) -> None:
        """Store the analysis of a request.

        Args:
            network: the model version that it is for.
            inputs: for each input of the model, in order: the index among the raw contents, the tensor, and
                the array's shape.
            wanted: the outputs that it asks for.
        """
        self.network = network
        self.wanted = wanted
        self._inputs = inputs
        self._last: tuple[list[tuple[int, ...]], Message] | None = None

    def arrays(self, raw: Sequence[bytes]) -> list[Array]:
        """Make the input arrays, in the model's order.

        Raises:
            InvalidArgument: the number of raw contents or of bytes does not fit the inputs.
        """
        if len(raw) != len(self._inputs):
            raise InvalidArgument(
                f"raw_input_contents: {len(raw)} entries, expected {len(self._inputs)}"
            )
        return [tensor.array(shape, raw[number]) for number, tensor, shape in self._inputs]

    def answer(self, identity: str, values: Mapping[int, Value]) -> Message:
        """Make a ModelInferResponse from the last one for these shapes, with new values."""
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
    """The cache of the last few hundred kinds of requests to the served models. Thread-safe.

    Attributes:
        served: the models that the cache is for; other models need another cache.
    """

    def __init__(self, served: Served) -> None:
        """Start with an empty cache."""
        self.served = served
        self._known: Final[RequestCache[bytes, KnownRequest]] = RequestCache(
            _MAX_REQUESTS, most_bytes=_MAX_BYTES
        )

    def find(self, request: Message) -> tuple[KnownRequest | None, bytes, list[bytes]]:
        """Find an equal earlier request; also return the key (empty if not cacheable) and raw contents."""
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
        """Cache a request that was read, if it has nothing but raw contents."""
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
    """Make a ModelInferResponse, with outputs by value or in their regions.

    Raises:
        InvalidArgument: a region has not enough room.
    """
    response = service_pb2.ModelInferResponse(
        model_name=network.name, model_version=str(network.version), id=identity
    )
    write_outputs(response, wanted, network.outputs, values, regions)
    return response
