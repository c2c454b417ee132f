"""Receives and sends messages of calls in grpcio's own thread, so that no thread waits for a caller.

grpcio begins every handler on a pool, and a handler that needs its message waits there until the library's
one thread for events has it. So a few calls whose messages do not come hold all threads of a pool. Here that
thread begins the handler, and a thread of the pool goes on with it when the message has come. In the same way
grpcio's function that sends a message waits until the caller has room for it; `Sender` does not.

The functions that do this are not public. Without them calls wait for their messages on the pool, and there
is no `Sender`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import grpc

from nnburst.serving.callers import Context

try:
    from grpc._cython.cygrpc import (
        ReceiveMessageOperation,
        SendInitialMetadataOperation,
        SendMessageOperation,
    )
    from grpc._server import (
        _RECEIVE_MESSAGE_TOKEN,
        _SEND_MESSAGE_TOKEN,
        _possibly_finish_call,
        _status,
    )
except ImportError:
    HAS_DIRECT = False
else:
    HAS_DIRECT = True

logger = logging.getLogger(__name__)

#: grpcio's function that sends a message, or with None the status.
Send = Callable[[bytes | None], None]
#: Answers a call, now or later, and raises nothing. It takes the call's message (None without one), its
#: context and the function that sends.
Answering = Callable[[bytes | None, Context, Send], None]

#: Seconds within which a call's message must arrive.
READING: Final = 30.0
#: Greatest number of messages that are received at once: HTTP has as many connections by default.
_MOST: Final = 256
#: Greatest number of calls that wait to be received.
_MOST_WAITING: Final = 20_000


class _SameThread(ThreadPoolExecutor):
    """Runs functions at once, in the caller's thread. Thread-safe."""

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        """Run a function; the future has its result or its error."""
        done: Future[Any] = Future()
        try:
            done.set_result(run(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Receiver:
    """Receives the messages of calls for a pool, and ends calls whose message does not come. Thread-safe."""

    def __init__(self, threads: ThreadPoolExecutor, direct: int = -1) -> None:
        """Start without calls.

        Args:
            threads: threads that answer the calls.
            direct: greatest size of a message that is answered in grpcio's thread, where all other calls wait
                meanwhile; -1 for none.
        """
        self._threads, self._direct = threads, direct
        self._same_thread = _SameThread(1)
        self._lock = threading.Lock()
        #: Calls whose message is not taken yet, and since when it is awaited; infinite if it has come.
        self._reading: dict[Context, float] = {}
        #: Calls that begin to be received when others are done, and how they go on.
        self._waiting: deque[tuple[Context, Callable[[bytes | None], None]]] = deque()

    def __len__(self) -> int:
        """The number of calls whose message is not taken yet."""
        return len(self._reading) + len(self._waiting)

    def handler(self, answering: Answering) -> Any:  # noqa: ANN401 - a handler of grpcio
        """Make a handler. On the wire a call with one message is a stream of one message."""

        def call(messages: Iterator[bytes], context: Context, send: Send) -> None:
            if not HAS_DIRECT:
                answering(self._wait(messages, context), context, send)
                return

            def take(data: bytes | None) -> None:
                self._leave(context)
                answering(data, context, send)

            def received(data: bytes | None) -> None:
                if data is None or len(data) <= self._direct:
                    take(data)
                else:
                    self._reading[context] = math.inf
                    try:
                        self._threads.submit(take, data)
                    except BaseException:
                        self._leave(context)
                        raise

            if not self._enter(context, received):
                text = f"{_MOST_WAITING} calls wait for their messages to be received"
                refuse(context, send, grpc.StatusCode.RESOURCE_EXHAUSTED, text)

        # Only handlers of streams may return before they answer.
        call.experimental_non_blocking = True  # type: ignore[attr-defined]
        pool = self._same_thread if HAS_DIRECT else self._threads
        call.experimental_thread_pool = pool  # type: ignore[attr-defined]
        return grpc.stream_stream_rpc_method_handler(call)

    def look(self, _now_ns: int) -> float:
        """End calls whose message does not arrive; return the time of the next check."""
        oldest = time.monotonic() - READING
        for context, since in self._reading.copy().items():
            if since < oldest:
                context.cancel()
        return math.inf

    def _enter(self, context: Context, then: Callable[[bytes | None], None]) -> bool:
        """Begin to receive a call now or later; False if too many wait."""
        with self._lock:
            if len(self._reading) >= _MOST:
                if len(self._waiting) >= _MOST_WAITING:
                    return False
                self._waiting.append((context, then))
                return True
            self._reading[context] = time.monotonic()
        if not self._begin(context, then):
            self._leave(context)
        return True

    def _begin(self, context: Context, then: Callable[[bytes | None], None]) -> bool:
        """Begin to receive a call that counts already; False if it has ended."""
        try:
            return _receive(context, then)
        except Exception:
            logger.exception("a call could not be received")
            context.cancel()
            return False

    def _leave(self, context: Context) -> None:
        """Count a call no longer, and begin to receive the next one that waits. Twice is fine."""
        while True:
            with self._lock:
                if self._reading.pop(context, None) is None or not self._waiting:
                    return
                context, then = self._waiting.popleft()
                self._reading[context] = time.monotonic()
            if self._begin(context, then):
                return

    def _wait(self, messages: Iterator[bytes], context: Context) -> bytes | None:
        self._reading[context] = time.monotonic()
        try:
            return next(messages, None)
        except grpc.RpcError:  # the caller has gone
            return None
        finally:
            del self._reading[context]


class Sender:
    """Sends the messages of a call one after another without waiting. Needs `HAS_DIRECT`. Thread-safe."""

    def __init__(self, context: Context, most: int) -> None:
        """Start without messages.

        Args:
            context: context of the call.
            most: greatest number of messages that wait; of more the oldest is left out.
        """
        self._context, self._state = context, context._state
        self._waiting: deque[bytes] = deque(maxlen=most)

    def send(self, data: bytes) -> None:
        """Send a message after those that wait; none is sent if the call has ended."""
        with self._state.condition:
            self._waiting.append(data)
            if _SEND_MESSAGE_TOKEN not in self._state.due:
                self._send_next()

    def _send_next(self) -> None:
        state = self._state
        if not self._waiting or not self._context.is_active():
            return
        operations = [SendMessageOperation(self._waiting.popleft(), 0)]
        if state.initial_metadata_allowed:
            operations.append(SendInitialMetadataOperation(None, 0))
        try:
            self._context._rpc_event.call.start_server_batch(operations, self._sent)
        except Exception:  # it could end grpcio's thread, and with it the server
            logger.exception("a message could not be sent")
            self._context.cancel()
            return
        state.initial_metadata_allowed = False
        state.due.add(_SEND_MESSAGE_TOKEN)

    def _sent(self, _event: Any) -> object:  # noqa: ANN401 - an event of grpcio
        with self._state.condition:
            finished = _possibly_finish_call(self._state, _SEND_MESSAGE_TOKEN)
            self._send_next()
            return finished


def answer(context: Context, send: Send, data: bytes) -> None:
    """Send the message of an answer, and the context's status, which is OK unless it was set.

    grpcio's public function sends the message, waits until it was received, and then sends the status.
    """
    if HAS_DIRECT:
        _status(context._rpc_event, context._state, data)
    else:
        send(data)
        send(None)


def refuse(context: Context, send: Send, code: grpc.StatusCode, details: str) -> None:
    """End a call with an error."""
    context.set_code(code)
    context.set_details(details)
    send(None)


def _receive(context: Context, then: Callable[[bytes | None], None]) -> bool:
    """Give the message of a call to `then` in grpcio's thread; None if the call ends without one.

    False if the call has ended already, so that grpcio has forgotten it.
    """
    state = context._state

    def received(event: Any) -> object:  # noqa: ANN401 - an event of grpcio
        try:
            then(event.batch_operations[0].message())
        except Exception:  # it would end the thread, and with it the server
            logger.exception("a call could not be answered")
            context.cancel()
        with state.condition:
            return _possibly_finish_call(state, _RECEIVE_MESSAGE_TOKEN)

    with state.condition:
        if not context.is_active():
            return False
        context._rpc_event.call.start_server_batch((ReceiveMessageOperation(0),), received)
        state.due.add(_RECEIVE_MESSAGE_TOKEN)
        return True
