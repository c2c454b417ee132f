"""Serves KServe v2 over HTTP. One thread reads and writes; other threads execute the requests.

A body may be as long as a gRPC message. A connection is closed if it is idle for `READING` seconds, or needs
longer to send a request or to take its answer, or if a long body stands still: it takes room from others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
import msgspec
from aiohttp import HttpVersion11, web
from tritonclient.grpc import service_pb2

from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.utils import start_thread
from nnburst.serving.addresses import listen, log_plain_text
from nnburst.serving.body_decoder import ENCODINGS, BodyDecoder
from nnburst.serving.callers import HttpCaller
from nnburst.serving.credentials import Tokens, server_context
from nnburst.serving.direct_calls import READING
from nnburst.serving.network import failure_of
from nnburst.serving.options import Options
from nnburst.serving.rest import IsBinary, as_json, error_json, read_request, write_response
from nnburst.serving.service import InferenceService, InferRequest, Threads, status_of
from nnburst.serving.tensors import Message

_STATUSES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_HEAD: Final = "Inference-Header-Content-Length"
#: Compressions of answers; the first of those that a caller prefers alike is taken.
_CODINGS: Final = (web.ContentCoding.deflate, web.ContentCoding.gzip)
#: Limit of the bytes of bodies that are not read yet, as a number of the longest bodies.
_BODIES: Final = 16
#: Bytes of each body that do not count for it, so that short requests are not refused for long ones.
_FREE: Final = 64 * 1024
#: A body longer than `_FREE` must grow by 1 / `_PARTS` of its size every `_STALLED` seconds. A body that
#: comes at an even pace within `READING` seconds grows by more than that, even at its end.
_STALLED: Final = 5.0
_PARTS: Final = 12
#: Seconds between two checks for idle connections.
_PERIOD: Final = 1.0
#: Seconds within which the loop must begin and end.
_PATIENCE: Final = 5.0
#: A silent logger, since aiohttp logs each request that is not HTTP, which any caller can send.
_quiet: Final = logging.getLogger("nnburst.serving.http")
_quiet.disabled = True
logger = logging.getLogger(__name__)

#: Status, type, further headers and body of an answer.
Answer = tuple[int, str, dict[str, str], bytes]


def _log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failed system call of the loop, which goes on after it; other errors are defects."""
    error = context.get("exception")
    if isinstance(error, (OSError, MemoryError)):
        logger.warning("%s failed: %s; serving goes on", context["message"].splitlines()[0], error)
    else:
        loop.default_exception_handler(context)


class _Bodies:
    """Bounds the bytes of all bodies that have come and are not read yet.

    Attributes:
        most: greatest number of these bytes, beyond the free ones of each body.
        held: their number now.
        lock: protects it.
    """

    def __init__(self, most: int) -> None:
        self.most: Final = most
        self.held = 0
        self.lock: Final = threading.Lock()


class _Body:
    """The body of one request, whose bytes count in `_Bodies` until `release`.

    Attributes:
        content: the bytes, once they have all come.
    """

    def __init__(self, bodies: _Bodies, held: int = 0, content: bytes = b"") -> None:
        self._bodies, self._held = bodies, held
        self.content = content

    def grow(self, size: int) -> None:
        """Count the body as one of `size` bytes.

        Raises:
            ResourceExhausted: all bodies together would have too many.
        """
        bodies, held = self._bodies, max(size - _FREE, 0)
        with bodies.lock:
            total = bodies.held + held - self._held
            if held and total > bodies.most:
                raise ResourceExhausted(
                    f"the bodies under way would have more than {bodies.most} bytes together"
                    f" ({_BODIES} of --max-message)"
                )
            bodies.held, self._held = total, held

    def moved(self) -> _Body:
        """Another object with the body, instead of this one."""
        other = _Body(self._bodies, self._held, self.content)
        self._held, self.content = 0, b""
        return other

    def release(self) -> None:
        """Drop the bytes, and count them no longer; twice is fine."""
        self.content = b""
        with self._bodies.lock:
            self._bodies.held -= self._held
            self._held = 0


class _Infer:
    """An inference over HTTP, from the body to the answer; a `Reply`."""

    def __init__(
        self,
        service: InferenceService,
        caller: HttpCaller,
        read: Callable[[bytes], tuple[Message, IsBinary]],
        body: _Body,
    ) -> None:
        self._service, self._caller, self._read, self._body = service, caller, read, body
        self._is_binary: IsBinary = lambda _: False
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Answer] = self._loop.create_future()
        self._job: InferRequest | None = None
        self.is_wanted = True

    def run(self) -> None:
        """Read the request and execute or queue it, on a thread that may wait."""
        try:
            request, self._is_binary = self._read(self._body.content)
            self._job = job = self._service.read(request, None, self._caller, self)
        except Exception as error:
            self.fail(failure_of(error, "reading a request"))
            return
        finally:
            self._body.release()  # the queue of the model counts the arrays
        if job is not None:
            if not self.is_wanted:
                job.cancel()
            job.submit()

    def cancel(self) -> None:
        """Give up the request, because the caller is gone."""
        self.is_wanted = False
        if self._job is not None:
            self._job.cancel()

    def succeed(self, response: Message) -> None:
        """See `Reply`."""
        try:
            head, behind = write_response(response, self._is_binary)
        except Exception as error:
            self.fail(failure_of(error, "writing an answer"))
            return
        if behind:
            self._answer((200, _BYTES, {_HEAD: str(len(head))}, head + behind))
        else:
            self._answer((200, _JSON, {}, head))

    def fail(self, error: NnburstError) -> None:
        """See `Reply`."""
        self._answer(_refusal(error))

    def _answer(self, answer: Answer) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended with all connections
            self._loop.call_soon_threadsafe(self._set, answer)

    def _set(self, answer: Answer) -> None:
        if not self.done.done():
            self.done.set_result(answer)


class HttpServer:
    """A listening HTTP server; it answers nothing before `start`."""

    def __init__(
        self,
        options: Options,
        service: InferenceService,
        threads: Threads,
        tokens: Tokens | None = None,
        metrics: Callable[[], bytes] | None = None,
    ) -> None:
        """Listen at the address.

        Args:
            options: address and limits.
            service: the service that answers.
            threads: threads that execute the calls.
            tokens: tokens, one of which every call needs except health calls; None requires none.
            metrics: makes the text for /metrics; None for "not found".

        Raises:
            DeviceUnavailable: the address is in use, or not this machine's.
            InvalidArgument: a file of TLS cannot be read or used.
        """
        self._service, self._threads, self._tokens = service, threads, tokens
        self._metrics = metrics
        self._most, self._most_connections = options.max_message, options.max_connections
        self._bodies = _Bodies(_BODIES * options.max_message)
        self._listening = listen("--http", options.http, any_user=options.any_user)
        self.address = self._listening.address
        self._tls: ssl.SSLContext | None = None
        if options.tls is None:
            log_plain_text("--http", options.http)
        elif not self._listening.is_unix:
            self._tls = server_context(options.tls)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_failure)
        self._server: web.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        #: Connections that have come and are not open yet: of TLS during their handshake.
        self._arriving: set[asyncio.Task[None]] = set()
        self._is_closing = False
        #: Connections with a request under way, and the times since which the others are idle.
        self._busy: set[Any] = set()
        self._idle: dict[Any, float] = {}
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        began = threading.Event()
        self._loop.call_soon(lambda: self._loop.create_task(self._begin(began)))
        start_thread(self._thread)
        if not began.wait(_PATIENCE):
            raise DeviceUnavailable(f"--http: {self.address} does not begin to listen")

    def part(self) -> None:
        """Take no new connections, and end the open ones after their next answer."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._close_listening)

    def close(self, seconds: float) -> None:
        """Stop serving; requests under way have `seconds` to finish. Twice is fine."""
        if self._thread.is_alive():
            ended = asyncio.run_coroutine_threadsafe(self._finish(seconds), self._loop)
            with contextlib.suppress(TimeoutError):
                ended.result(seconds + _PATIENCE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)
        if not self._thread.is_alive() and not self._loop.is_closed():
            self._loop.close()
        self._listening.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _begin(self, began: threading.Event) -> None:
        self._server = server = web.Server(
            self._handle,
            access_log=None,
            logger=_quiet,
            keepalive_timeout=READING,
            handler_cancellation=True,
            auto_decompress=False,
        )
        self._listening.socket.setblocking(False)
        self._accepting = self._loop.create_task(self._accept(server))
        self._sweeper = self._loop.create_task(self._sweep())
        began.set()

    async def _accept(self, server: web.Server) -> None:
        """Accept connections, and close those beyond the limit at once; stop listening when cancelled."""
        with self._listening.socket as listening:
            while True:
                try:
                    connected, _ = await self._loop.sock_accept(listening)
                except ConnectionAbortedError:
                    continue
                except OSError as error:  # such as too many open files, until present callers end
                    logger.warning("--http: %s", error)
                    await asyncio.sleep(_PERIOD)
                    continue
                if len(self._arriving) + len(server.connections) >= self._most_connections:
                    connected.close()
                    continue
                arriving = self._loop.create_task(self._open(server, connected))
                self._arriving.add(arriving)
                arriving.add_done_callback(self._arriving.discard)

    async def _open(self, server: web.Server, connected: socket.socket) -> None:
        """Make a connection of the server, after its handshake if there is TLS."""
        patience = READING if self._tls is not None else None
        with contextlib.suppress(OSError):  # the caller has gone, or its handshake fails
            await self._loop.connect_accepted_socket(
                server, connected, ssl=self._tls, ssl_handshake_timeout=patience
            )

    def _close_listening(self) -> None:
        self._is_closing = True
        if self._accepting is not None:
            self._accepting.cancel()

    async def _finish(self, seconds: float) -> None:
        self._close_listening()
        for each in self._arriving:
            each.cancel()
        if self._server is not None:
            await self._server.shutdown(seconds)
        self._sweeper.cancel()

    async def _sweep(self) -> None:
        """Close idle connections."""
        assert self._server is not None
        while True:
            await asyncio.sleep(_PERIOD)
            now, there = time.monotonic(), set(self._server.connections)
            self._idle = {
                each: self._idle.get(each, now) for each in there if each not in self._busy
            }
            for each, since in self._idle.items():
                if now - since > READING and each.transport is not None:
                    each.transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._busy.add(request.protocol)
        closes = self._is_closing
        try:
            try:
                status, kind, headers, body = await self._answer(request)
            except TimeoutError:
                closes = True
                text = (
                    f"the body has not come after {READING:g} s, or stood still for {_STALLED:g} s"
                )
                status, kind, headers, body = 408, _JSON, {}, error_json(text)
            except ConnectionError:  # the caller has gone
                raise
            except Exception as error:
                status, kind, headers, body = _refusal(failure_of(error, request.path))
                closes = closes or not request.content.is_eof()
            response = web.Response(
                status=status, body=body, headers={"Content-Type": kind, **headers}
            )
            if closes:
                response.force_close()
            coding = _coding(request.headers.get("Accept-Encoding", ""))
            if status == 200 and coding is not None:
                response.enable_compression(coding)
            try:
                async with asyncio.timeout(READING):
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
            return response
        finally:
            self._busy.discard(request.protocol)

    async def _answer(self, request: web.BaseRequest) -> Answer:
        path = [part for part in request.path.split("/") if part]
        method = _method(request)
        if path[:2] == ["v2", "health"] and method == "GET":
            return self._health(path[2:])
        if self._tokens is not None:
            self._tokens.check(request.headers.get("Authorization", ""))
        if path == ["metrics"] and self._metrics is not None and method == "GET":
            series = await self._loop.run_in_executor(self._threads.control, self._metrics)
            return 200, "text/plain; version=0.0.4; charset=utf-8", {}, series
        encoding = request.headers.get("Content-Encoding", "").lower()
        if encoding not in ("", "identity", *ENCODINGS):
            text = f"Content-Encoding: {encoding!r}, expected gzip or deflate"
            return 415, _JSON, {}, error_json(text)
        body = _Body(self._bodies)
        try:
            decoder = BodyDecoder(encoding) if encoding in ENCODINGS else None
            await self._receive(request, body, decoder)
            return await self._behind_body(request, path, body)
        finally:
            body.release()

    async def _behind_body(self, request: web.BaseRequest, path: list[str], body: _Body) -> Answer:
        """Answer a call whose body has come."""
        if request.method == "POST" and (model := _inferred(path)) is not None:
            return await self._infer(request, body, *model)
        found = _call(_method(request), path, body.content)
        if found is None and (allowed := self._allowed(path)):
            text = f"{request.method} {request.path}: expected {allowed}"
            return 405, _JSON, {"Allow": allowed}, error_json(text)
        if found is None:
            text = f"{request.method} {request.path}: not part of what nnburst serves"
            return 404, _JSON, {}, error_json(text)
        name, message, write = found
        behaviour = getattr(self._service, name, None)
        if behaviour is None:
            return 501, _JSON, {}, error_json(f"{name} is not part of what nnburst serves")
        threads = self._threads.of_call(name)
        caller = HttpCaller(request.transport, request.headers)
        answer = await self._loop.run_in_executor(threads, behaviour, message, caller)
        return write(answer)

    def _allowed(self, path: list[str]) -> str:
        """The methods that a path takes; empty if there is no such path."""
        match path:
            case ["v2", "health", "live" | "ready"]:
                return "GET, HEAD"
            case ["metrics"] if self._metrics is not None:
                return "GET, HEAD"
        if _inferred(path) is not None:
            return "POST"
        takes = {"GET, HEAD": _call("GET", path, b""), "POST": _call("POST", path, b"")}
        return ", ".join(methods for methods, call in takes.items() if call is not None)

    def _health(self, what: list[str]) -> Answer:
        if what == ["live"] or (what == ["ready"] and self._service.is_ready):
            return 200, _JSON, {}, f'{{"{what[0]}":true}}'.encode()
        return 400 if what == ["ready"] else 404, _JSON, {}, b""

    async def _infer(
        self, request: web.BaseRequest, body: _Body, name: str, version: str
    ) -> Answer:
        head = request.headers.get(_HEAD, str(len(body.content)))
        if not head.isdecimal() or len(head) > 20:
            raise InvalidArgument(f"{_HEAD}: {head!r}, expected a number")
        call = _Infer(
            self._service,
            HttpCaller(request.transport, request.headers),
            lambda content: read_request(content, int(head), name, version),
            body.moved(),
        )
        self._threads.inference.submit(call.run)
        try:
            return await call.done
        except asyncio.CancelledError:
            call.cancel()
            raise

    async def _receive(
        self, request: web.BaseRequest, body: _Body, decoder: BodyDecoder | None
    ) -> None:
        """Receive the whole body; `decoder` decodes it, None if it is not compressed.

        Raises:
            InvalidArgument: the body cannot be read or decoded.
            ResourceExhausted: the body is too long, or the bodies under way are too long together.
            TimeoutError: the body does not arrive in time, or has almost stopped.
        """
        too_long = ResourceExhausted(f"the body has more than {self._most} bytes (--max-message)")
        if (request.content_length or 0) > self._most:
            raise too_long
        waits = request.headers.get("Expect", "").lower() == "100-continue"
        if waits and request.version >= HttpVersion11:  # by 1.0 it would be taken for the answer
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunks, size, wanted = [], 0, _FREE
        end = self._loop.time() + READING
        try:
            async with asyncio.timeout_at(end) as limit:
                async for chunk in request.content.iter_any():
                    for piece in (chunk,) if decoder is None else decoder.pieces(chunk):
                        chunks.append(piece)
                        size += len(piece)
                        if size > self._most:
                            raise too_long
                        body.grow(size)
                        if size > wanted:
                            wanted = size + size // _PARTS
                            limit.reschedule(min(end, self._loop.time() + _STALLED))
                        if decoder is not None:
                            await asyncio.sleep(0)  # others' turn between two pieces
            if decoder is not None:
                decoder.finish()
        except (web.HTTPException, web.RequestPayloadError, ValueError) as error:
            raise InvalidArgument(f"the body cannot be read: {error}") from None
        body.content = b"".join(chunks) if len(chunks) != 1 else chunks[0]


def _method(request: web.BaseRequest) -> str:
    """The method that is answered: GET for HEAD, too, where aiohttp leaves the body out."""
    return "GET" if request.method == "HEAD" else request.method


def _coding(accepted: str) -> web.ContentCoding | None:
    """The compression that `Accept-Encoding` prefers; None if the caller does not want one."""
    weights: dict[str, float] = {}
    for word in accepted.lower().split(","):
        name, _, given = word.partition(";")
        with contextlib.suppress(ValueError):  # an invalid weight: the caller goes without
            weights[name.strip()] = float(given.strip().removeprefix("q=") or 1)
    best = max(_CODINGS, key=lambda each: weights.get(each.value, 0.0))
    weight = weights.get(best.value, 0.0)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


def _refusal(error: NnburstError) -> Answer:
    status = _STATUSES[status_of(error)]
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return status, _JSON, headers, error_json(str(error))


def _inferred(path: list[str]) -> tuple[str, str] | None:
    """Name and version of the model that a path of an inference names; None for another path."""
    match path:
        case ["v2", "models", name, "infer"]:
            return name, ""
        case ["v2", "models", name, "versions", version, "infer"]:
            return name, version
    return None


def _call(
    method: str, path: list[str], body: bytes
) -> tuple[str, Message, Callable[[Message], Answer]] | None:
    """For a path, the name of the call, its message, and the function that writes the answer."""
    if path[:1] != ["v2"]:
        return None
    versionless, version = path[1:], ""
    if len(path) > 4 and path[1] == "models" and path[3] == "versions":
        version, versionless = path[4], [*path[1:3], *path[5:]]
    if method == "GET":
        match versionless:
            case []:
                return "ServerMetadata", service_pb2.ServerMetadataRequest(), _written
            case ["models", "stats"]:
                return "ModelStatistics", service_pb2.ModelStatisticsRequest(), _written
            case ["models", name]:
                words = {"name": name, "version": version}
                return "ModelMetadata", service_pb2.ModelMetadataRequest(**words), _written
            case ["models", name, "ready"]:
                words = {"name": name, "version": version}
                return "ModelReady", service_pb2.ModelReadyRequest(**words), _readiness
            case ["models", name, "config"]:
                words = {"name": name, "version": version}
                return "ModelConfig", service_pb2.ModelConfigRequest(**words), _config
            case ["models", name, "stats"]:
                words = {"name": name, "version": version}
                return "ModelStatistics", service_pb2.ModelStatisticsRequest(**words), _written
            case ["trace", *_] | ["models", _, "trace", *_]:
                return "TraceSetting", None, _written
            case ["logging"]:
                return "LogSettings", None, _written
            case ["systemsharedmemory", "region", name, "status"]:
                message = service_pb2.SystemSharedMemoryStatusRequest(name=name)
                return "SystemSharedMemoryStatus", message, _regions
            case ["systemsharedmemory", "status"]:
                message = service_pb2.SystemSharedMemoryStatusRequest()
                return "SystemSharedMemoryStatus", message, _regions
            case ["cudasharedmemory", *_, "status"]:
                return (
                    "CudaSharedMemoryStatus",
                    service_pb2.CudaSharedMemoryStatusRequest(),
                    _regions,
                )
        return None
    return _posted(versionless, body) if method == "POST" else None


def _posted(
    path: list[str], body: bytes
) -> tuple[str, Message, Callable[[Message], Answer]] | None:
    match path:
        case ["repository", "index"]:
            ready = _words(body).get("ready", False)
            if not isinstance(ready, bool):
                raise InvalidArgument(f"ready: {ready!r}, expected a boolean")
            return "RepositoryIndex", service_pb2.RepositoryIndexRequest(ready=ready), _index
        case ["repository", "models", name, "load"]:
            message = service_pb2.RepositoryModelLoadRequest(model_name=name)
            given = _words(body).get("parameters") or {}
            if not isinstance(given, dict):
                raise InvalidArgument(f"parameters: a {type(given).__name__}, expected an object")
            for word in given:
                message.parameters[str(word)].string_param = ""  # each call is refused by its name
            return "RepositoryModelLoad", message, _nothing
        case ["repository", "models", name, "unload"]:
            message = service_pb2.RepositoryModelUnloadRequest(model_name=name)
            return "RepositoryModelUnload", message, _nothing
        case ["systemsharedmemory", "region", name, "register"]:
            words = _words(body)
            try:
                message = service_pb2.SystemSharedMemoryRegisterRequest(
                    name=name,
                    key=words.get("key", ""),
                    offset=words.get("offset", 0),
                    byte_size=words.get("byte_size", 0),
                )
            except (TypeError, ValueError) as error:
                raise InvalidArgument(f"key, offset, byte_size: {error}") from None
            return "SystemSharedMemoryRegister", message, _nothing
        case ["systemsharedmemory", "region", name, "unregister"]:
            message = service_pb2.SystemSharedMemoryUnregisterRequest(name=name)
            return "SystemSharedMemoryUnregister", message, _nothing
        case ["systemsharedmemory", "unregister"]:
            message = service_pb2.SystemSharedMemoryUnregisterRequest()
            return "SystemSharedMemoryUnregister", message, _nothing
        case ["trace", *_] | ["models", _, "trace", *_]:
            return "TraceSetting", None, _written
        case ["logging"]:
            return "LogSettings", None, _written
        case ["cudasharedmemory", *_]:
            return "CudaSharedMemoryRegister", None, _written
    return None


def _words(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body) if body else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgument("the body is not a JSON object")
    return found


def _written(message: Message) -> Answer:
    return 200, _JSON, {}, as_json(message)


def _config(message: Message) -> Answer:
    return 200, _JSON, {}, as_json(message.config)


def _readiness(message: Message) -> Answer:
    return 200 if message.ready else 400, _JSON, {}, b""


def _index(message: Message) -> Answer:
    return 200, _JSON, {}, b"[" + b",".join(map(as_json, message.models)) + b"]"


def _regions(message: Message) -> Answer:
    return 200, _JSON, {}, b"[" + b",".join(map(as_json, message.regions.values())) + b"]"


def _nothing(_message: Message) -> Answer:
    return 200, _JSON, {}, b""
