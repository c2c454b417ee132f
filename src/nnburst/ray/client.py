"""Executes a model on any host of a cluster: by a burst on this machine, else by gRPC."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from nnburst.client.connect import connect
from nnburst.hal.errors import (
    DeadObject,
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.model import refuse_masked
from nnburst.hal.utils import Closing
from nnburst.importer.load import load_from
from nnburst.ray.service import Place

Array = np.ndarray[Any, Any]


class BurstWay(Closing):
    """A burst, which remembers its requests. One thread at a time.

    Attributes:
        place: the host.
    """

    def __init__(
        self,
        place: Place,
        _model: str,
        source: str,
        timeout: float,
        _credentials: Any,  # noqa: ANN401
    ) -> None:
        """Connect, prepare the model, open the burst.

        Raises:
            NnburstError: any of it failed; another container's driver is one that does not connect.
        """
        self.place = place
        network = load_from(source)
        self._device = connect(place.address, timeout=timeout)
        try:
            self._burst = self._device.prepare(network).open_burst()
        except BaseException:
            self._device.close()
            raise

    def infer(self, inputs: Sequence[Array], timeout: float) -> list[Array]:
        """Execute once."""
        return cast("list[Array]", self._burst.execute(inputs, timeout=timeout).outputs)

    def close(self) -> None:
        """Leave the driver."""
        self._device.close()


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
        for at, (name, array) in enumerate(zip(self._inputs, inputs, strict=True)):
            refuse_masked(f"inputs[{at}]", array)
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


logger = logging.getLogger(__name__)


#: Seconds between looks for a host if none answers.
_PAUSE: Final = 0.05


class Route(enum.Enum):
    """The way by which a client reaches hosts; BEST is a burst if one can be opened, else gRPC."""

    BEST = "best"
    BURST = "burst"
    GRPC = "grpc"


class Client(Closing):
    """Executes a model on one host at a time, and on another one when that is lost. Thread-safe.

    Nothing is repeated: the call during which a driver, a host or a node is lost raises, and the next one
    goes to whatever host answers.
    """

    def __init__(
        self,
        places: Callable[[], Iterable[Sequence[Place]]],
        model: str,
        source: str,
        *,
        route: Route = Route.BEST,
        credentials: Any = None,  # noqa: ANN401 - grpc.ChannelCredentials
    ) -> None:
        """Use `Hosts.client`; the first call connects.

        Args:
            places: where services are now, in groups; a further group is asked for only if no host of those
                before it serves.
            model: name of the model.
            source: what `nnburst serve` was given for it, which a burst needs here, too.
            route: BURST or GRPC force one way.
            credentials: of gRPC; None is plain text.
        """
        self._places = places
        self._model = model
        self._source = source
        self._route = route
        self._credentials = credentials
        self._lock = threading.Lock()
        self._way: BurstWay | GrpcWay | None = None
        self._lost: str | None = None

    def __repr__(self) -> str:
        return f"<nnburst.ray.Client of {self._model!r} on {self.place}>"

    @property
    def place(self) -> Place | None:
        """The host of the latest call; None before the first and after a loss."""
        way = self._way
        return way.place if way is not None else None

    @property
    def uses_burst(self) -> bool | None:
        """Whether the latest call went by a burst; None if there is no host."""
        way = self._way
        return isinstance(way, BurstWay) if way is not None else None

    def infer(self, inputs: Sequence[Array], timeout: float = 30.0) -> list[Array]:
        """Execute once.

        Args:
            inputs: arrays in the model's order.
            timeout: seconds, the search for a host included.

        Returns:
            The outputs, which are the caller's.

        Raises:
            DeadObject: the driver, its host or its node was lost meanwhile.
            DeviceUnavailable: no host answered in time.
            MissedDeadline: the execution did not end in time.
            InvalidArgument: the arrays do not fit.
        """
        began = time.monotonic()
        with self._lock:
            way = self._way or self._find_way(began + timeout)
            try:
                return way.infer(inputs, max(0.001, began + timeout - time.monotonic()))
            except (DeadObject, DeviceUnavailable):
                self._lose()
                raise
            except MissedDeadline:
                # A node that is lost without a word looks the same; a burst's driver would be seen to die.
                if isinstance(way, GrpcWay):
                    self._lose()
                raise

    def infer_many(
        self, batch: Sequence[Sequence[Array]], timeout: float = 30.0
    ) -> list[list[Array]]:
        """Execute once for each of `batch`, in order, with one timeout for all; raises like `infer`.

        If one fails, the results before it are lost.
        """
        deadline = time.monotonic() + timeout
        found: list[list[Array]] = []
        for inputs in batch:
            left = deadline - time.monotonic()
            if left <= 0:
                raise MissedDeadline(
                    f"timeout: {len(found)} of {len(batch)} are done after {timeout:g} s"
                )
            found.append(self.infer(inputs, left))
        return found

    async def infer_async(
        self,
        inputs: Sequence[Array],
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `infer`
    ) -> list[Array]:
        """Execute once, in a thread; the event loop goes on meanwhile. Raises like `infer`."""
        return await asyncio.to_thread(self.infer, inputs, timeout)

    def close(self) -> None:
        """Disconnect from the host; twice is fine. A later call would connect again."""
        with self._lock:
            self._lose()
            self._lost = None

    def _lose(self) -> None:
        way, self._way = self._way, None
        if way is not None:
            self._lost = way.place.address
            way.close()

    def _find_way(self, deadline: float) -> BurstWay | GrpcWay:
        """The best way that can be had now; waits for one until the deadline."""
        reason = "none answers"
        while True:
            for place, kind in self._ways():
                left = deadline - time.monotonic()
                try:
                    self._way = kind(
                        place, self._model, self._source, max(0.1, left), self._credentials
                    )
                except (NnburstError, OSError) as error:
                    reason = str(error)
                    logger.debug("%s does not serve by %s: %s", place, kind.__name__, error)
                else:
                    self._lost = None
                    return self._way
            if time.monotonic() + _PAUSE > deadline:
                raise DeviceUnavailable(f"no host serves {self._model!r} in time: {reason}")
            time.sleep(_PAUSE)

    def _ways(self) -> Iterator[tuple[Place, type[BurstWay | GrpcWay]]]:
        """Hosts and the ways to them, the best first among those that answer together."""
        for answered in self._places():
            for place in self._in_order(answered):
                for kind in self._kinds(place):
                    yield place, kind

    def _in_order(self, places: Sequence[Place]) -> list[Place]:
        """Those of this machine first, the one that was just lost last, else by chance."""
        return sorted(
            random.sample(list(places), len(places)),
            key=lambda place: (place.address == self._lost, not place.may_be_here),
        )

    def _kinds(self, place: Place) -> list[type[BurstWay | GrpcWay]]:
        if self._route is Route.BURST:
            return [BurstWay]
        if self._route is Route.GRPC or not place.may_be_here:
            return [GrpcWay]
        return [BurstWay, GrpcWay]
