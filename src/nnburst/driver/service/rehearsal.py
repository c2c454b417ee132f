"""Rehearses calls in a worker before its client comes, so that the client's first calls are fast.

A forked process shares its parent's pages until one of them writes, so a first call spends most of its
milliseconds on copies of pages; and an engine's first execution allocates memory that later ones use. So a
worker sends itself a Hello, opens each network that it serves, and runs it once, on zeros. All objects of the
rehearsal are released, and its executions are not counted. If that was quick it is repeated, since CPython
makes its code faster once that has run some times.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from nnburst.control.channel import Channel
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    GetMemories,
    Hello,
    Memories,
    Message,
    Nothing,
    OpenBurst,
    Opened,
    OpenedServedModel,
    OpenServedModel,
    Release,
    Reply,
    Result,
    ServedName,
    Welcome,
    decode_reply,
    decode_upcall,
    encode,
)
from nnburst.control.service import Service
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import FeatureLevel, MeasureTiming
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.model import DataLocation
from nnburst.hal.types import Request, RequestArgument
from nnburst.serialize import REQUEST_DATUM, RESULT_DATUM, serialize_request

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Result)

#: Seconds that a call and an execution of a rehearsal may take.
_TIMEOUT: Final = 20.0
#: Elements of a rehearsal's rings.
_ELEMENTS: Final = 1024


def rehearse(serve: Callable[[Channel], Service[Message]], networks: Sequence[ServedName]) -> bool:
    """Make rehearsal calls to a worker that has no client yet.

    Args:
        serve: makes the service that answers the calls of a channel, on the thread that receives them.
        networks: the networks to open and run once.

    Returns:
        Whether every call was answered as expected.
    """
    (near, far), (upcalls, theirs) = _pair(), _pair()
    with contextlib.ExitStack() as cleanup:
        visitor = _Visitor(cleanup, Channel(near), Channel(far), serve)
        answers = Channel(upcalls)
        cleanup.callback(answers.close)
        try:
            with theirs:
                hello = Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4)
                visitor.call(hello, Welcome, [theirs.fileno()])
            for network in networks:
                visitor.visit(network, answers)
        except (NnburstError, TimeoutError) as error:  # clients get it as their answer
            logger.debug("a rehearsal ends early: %s", error)
        except Exception:
            logger.exception("a rehearsal raised: the worker waits for its client without it")
        else:
            return True
    return False


class _Visitor:
    """A client within the worker's own process."""

    def __init__(
        self,
        cleanup: contextlib.ExitStack,
        near: Channel,
        far: Channel,
        serve: Callable[[Channel], Service[Message]],
    ) -> None:
        self._channel = far
        self._service = serve(near)
        cleanup.callback(near.close)
        cleanup.callback(far.close)

    def call(self, message: Message, expected: type[R], fds: Sequence[int] = ()) -> R:
        """Make a call and have the worker answer it; descriptors in the answer are closed."""
        self._channel.send(1, encode(message), fds)
        job = self._service.accept(_TIMEOUT)
        if job is not None:
            job()
        incoming = self._channel.receive(_TIMEOUT)
        incoming.fds.close()
        reply = decode_reply(incoming.body)
        if not isinstance(reply.result, expected):
            raise GeneralFailure(f"{type(message).__name__}: {reply.message}")
        return reply.result

    def visit(self, network: ServedName, upcalls: Channel) -> None:
        """Open a network, if it can be prepared, and run it once, if all its shapes are known."""
        try:
            model = self.call(OpenServedModel(network.name, network.version), OpenedServedModel)
        except NnburstError as error:
            logger.debug("%s@%d is not rehearsed: %s", network.name, network.version, error)
            return
        with self._released(model.handle):
            request, size = _request(model)
            if request is not None:
                self._run(model.handle, request, size, upcalls)

    def _run(self, model: int, request: Request, size: int, upcalls: Channel) -> None:
        with (
            MessageQueue.create(REQUEST_DATUM, _ELEMENTS, ends=False) as requests,
            MessageQueue.create(RESULT_DATUM, _ELEMENTS, ends=False) as results,
            SharedMemory.create(size, name="pool") as pool,
        ):
            message = OpenBurst(
                handle=model,
                callback=1,
                request_channel=msgspec.Raw(msgspec.msgpack.encode(requests.descriptor)),
                result_channel=msgspec.Raw(msgspec.msgpack.encode(results.descriptor)),
            )
            fds = [requests.memories[0].fd, results.memories[0].fd]
            burst = self.call(message, Opened, fds)
            with self._released(burst.handle):
                requests.write(serialize_request(request, [0], MeasureTiming.NO), _TIMEOUT)
                asked = upcalls.receive(_TIMEOUT)
                if isinstance(decode_upcall(asked.body), GetMemories):
                    upcalls.send(asked.id, encode(Reply(result=Memories((size,)))), [pool.fd])
                    results.read(1, _TIMEOUT)

    @contextlib.contextmanager
    def _released(self, handle: int) -> Iterator[None]:
        try:
            yield
        finally:
            self.call(Release(handle), Nothing)


def _request(model: OpenedServedModel) -> tuple[Request | None, int]:
    """Make a request of zeros, and the size of its pool in bytes; None and 0 if a shape is unknown."""
    places: list[RequestArgument] = []
    end = 0
    for argument in (*model.inputs, *model.outputs):
        extents = () if argument.is_scalar else argument.operand.dimensions
        size = int(argument.data_type[2:])
        for extent in extents:
            size *= extent
        if not size or not (extents or argument.is_scalar):
            return None, 0
        places.append(RequestArgument(location=DataLocation(0, end, size)))
        end += size + -size % 64
    count = len(model.inputs)
    return Request(tuple(places[:count]), tuple(places[count:])), end


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
