"""A host anywhere, by KServe v2 over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from nnburst.hal.closing import Closing
from nnburst.hal.errors import (
    DeadObject,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.ray.place import Place

Array = np.ndarray[Any, Any]

#: Seconds that a front has to answer what it serves; one whose node is lost may not refuse, and never answer.
_OPENING: Final = 2.0
#: Bytes of a message; the front has the limit that counts.
_MESSAGE: Final = 1 << 30
_ERRORS: Final[dict[grpc.StatusCode, type[NnburstError]]] = {
    grpc.StatusCode.UNAVAILABLE: DeadObject,
    grpc.StatusCode.CANCELLED: DeadObject,
    grpc.StatusCode.DEADLINE_EXCEEDED: MissedDeadline,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: InvalidArgument,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
}


class GrpcWay(Closing):
    """A channel to one front. Thread-safe.

    Attributes:
        place: the host.
    """

    def __init__(
        self,
        place: Place,
        model: str,
        _source: str,
        timeout: float,
        credentials: Any,  # noqa: ANN401
    ) -> None:
        """Connect, and ask what the model's tensors are.

        Raises:
            NnburstError: the front does not answer in time, or does not serve the model.
        """
        self.place = place
        self._model = model
        options = [
            ("grpc.max_receive_message_length", _MESSAGE),
            ("grpc.max_send_message_length", _MESSAGE),
            ("grpc.use_local_subchannel_pool", 1),  # no other channel's pause after a failure
            ("grpc.keepalive_time_ms", 30_000),
        ]
        if credentials is None:
            self._channel = grpc.insecure_channel(place.grpc, options)
        else:
            self._channel = grpc.secure_channel(place.grpc, credentials, options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        timeout = min(timeout, _OPENING)
        try:
            ready = self._call(
                self._stub.ModelReady, service_pb2.ModelReadyRequest(name=model), timeout
            )
            if not ready.ready:
                raise DeadObject(f"model {model!r} is not ready at {place.grpc}")  # noqa: TRY301
            described = self._call(
                self._stub.ModelMetadata, service_pb2.ModelMetadataRequest(name=model), timeout
            )
        except BaseException:
            self._channel.close()
            raise
        self._inputs = [tensor.name for tensor in described.inputs]
        self._outputs = [tensor.name for tensor in described.outputs]

    def infer(self, inputs: Sequence[Array], timeout: float) -> list[Array]:
        """Execute once."""
        if len(inputs) != len(self._inputs):
            raise InvalidArgument(f"inputs: {len(inputs)} given, the model has {len(self._inputs)}")
        request = service_pb2.ModelInferRequest(model_name=self._model)
        for name, array in zip(self._inputs, inputs, strict=True):
            datatype = np_to_triton_dtype(array.dtype)
            request.inputs.add(name=name, datatype=datatype, shape=array.shape)
            request.raw_input_contents.append(array.tobytes())
        response = self._call(self._stub.ModelInfer, request, timeout)
        found = {
            output.name: np.frombuffer(raw, triton_to_np_dtype(output.datatype))
            .reshape(tuple(output.shape))
            .copy()
            for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }
        return [found[name] for name in self._outputs]

    def close(self) -> None:
        """Leave the front."""
        self._channel.close()

    def _call(self, method: Any, request: Any, timeout: float) -> Any:  # noqa: ANN401 - generated
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            kind = _ERRORS.get(error.code(), GeneralFailure)
            raise kind(f"{self.place.grpc}: {error.details()}") from None
        except ValueError as error:  # the channel was closed by another thread
            raise DeadObject(f"{self.place.grpc}: {error}") from None
