"""Answers `grpc.health.v1`: Check and Watch. No thread waits for a caller, also not for one of Watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import grpc
from grpc_health.v1 import health_pb2

from nnburst.serving import direct_calls
from nnburst.serving.callers import Context
from nnburst.serving.direct_calls import Receiver, Send, Sender, answer, refuse
from nnburst.serving.tensors import Message

HEALTH: Final = "grpc.health.v1.Health"
#: Greatest size of a message that is answered in grpcio's thread.
_LARGE: Final = 4096
#: Greatest length of a name that is watched: that of a model's name.
_LONGEST: Final = 128
#: Greatest number of changes that wait for a caller of Watch; one who takes nothing misses the oldest.
_MOST_CHANGES: Final = 64

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class ReportedHealth:
    """The reported health of the server and its models, by name. Thread-safe."""

    def __init__(
        self,
        readiness: Callable[[], Mapping[str, bool]],
        threads: ThreadPoolExecutor,
        most: int,
    ) -> None:
        """Report nothing before `report`.

        Args:
            readiness: finds the names and whether each is ready.
            threads: threads that answer calls with long messages.
            most: greatest number of calls of Watch at once.
        """
        self._readiness, self._most = readiness, most
        self._receiver = Receiver(threads, _LARGE)
        self._lock = threading.Lock()
        #: The statuses of all names that were ever reported.
        self._statuses: dict[str, int] = {}
        #: The calls of Watch by name, and their number.
        self._watches: dict[str, set[Sender]] = {}
        self._count = 0

    def handlers(self) -> dict[str, Message]:
        """A handler of `grpc.Server` for each call."""
        calls = {"Check": self._check, "Watch": self._watch}
        return {name: self._receiver.handler(call) for name, call in calls.items()}

    def look(self, now_ns: int) -> float:
        """End calls whose message does not arrive; return the time of the next check."""
        return self._receiver.look(now_ns)

    def report(self) -> None:
        """Report the present readiness, and every change to the calls of Watch."""
        with self._lock:  # also while it is found, so that an older one never replaces a newer one
            found = dict.fromkeys(self._statuses, _UNKNOWN)
            for name, ready in self._readiness().items():
                found[name] = _SERVING if ready else _NOT_SERVING
            before, self._statuses = self._statuses, found
            for name, senders in self._watches.items():
                status = found.get(name, _UNKNOWN)
                if status != before.get(name, _UNKNOWN):
                    for sender in senders:
                        sender.send(_response(status))

    def _check(self, data: bytes | None, context: Context, send: Send) -> None:
        name = _name(data, context, send)
        if name is None:
            return
        status = self._statuses.get(name)
        if status is None:
            text = f"service: {name[:_LONGEST]!r}, expected the name of a model, or none for the server"
            refuse(context, send, grpc.StatusCode.NOT_FOUND, text)
        else:
            answer(context, send, _response(status))

    def _watch(self, data: bytes | None, context: Context, send: Send) -> None:
        name = _name(data, context, send)
        if name is None:
            return
        if not direct_calls.HAS_DIRECT:  # callers take the server for healthy then
            text = "Watch is not served with this version of grpcio"
            refuse(context, send, grpc.StatusCode.UNIMPLEMENTED, text)
            return
        if len(name) > _LONGEST:
            text = f"service: a name of {len(name)} characters, expected at most {_LONGEST}"
            refuse(context, send, grpc.StatusCode.INVALID_ARGUMENT, text)
            return
        sender = Sender(context, _MOST_CHANGES)
        with self._lock:
            has_room = self._count < self._most
            if has_room:
                self._count += 1
                self._watches.setdefault(name, set()).add(sender)
                sender.send(_response(self._statuses.get(name, _UNKNOWN)))
        if not has_room:
            text = f"{self._most} calls of Watch are open, expected at most that many"
            refuse(context, send, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        elif not context.add_callback(partial(self._leave, name, sender)):
            self._leave(name, sender)  # the call has ended, so there is no callback

    def _leave(self, name: str, sender: Sender) -> None:
        """Count a call of Watch no longer."""
        with self._lock:
            self._count -= 1
            senders = self._watches[name]
            senders.remove(sender)
            if not senders:
                del self._watches[name]


def _name(data: bytes | None, context: Context, send: Send) -> str | None:
    """Read the name in a call's message; None if the call is refused because it has none."""
    try:
        return str(health_pb2.HealthCheckRequest.FromString(data).service)
    except Exception:
        text = "the call has no message that is a HealthCheckRequest"
        refuse(context, send, grpc.StatusCode.INVALID_ARGUMENT, text)
        return None


def _response(status: int) -> bytes:
    return bytes(health_pb2.HealthCheckResponse(status=status).SerializeToString())
