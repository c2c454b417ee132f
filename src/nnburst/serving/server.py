"""gRPC: addresses, TLS, limits, health."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.serving.messages import Message
from nnburst.serving.options import Options, Tls, is_loopback
from nnburst.serving.service import NAME, InferenceService

logger = logging.getLogger(__name__)


class Server:
    """A listening server; nothing is answered before `start`."""

    def __init__(self, options: Options, service: InferenceService) -> None:
        """Take the address.

        Raises:
            DeviceUnavailable: it is taken, or not this machine's.
            InvalidArgument: a file of TLS cannot be read or used.
        """
        threads = options.max_rpcs + options.max_streams
        self._server: Message = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="rpc"),
            maximum_concurrent_rpcs=threads,
            options=[
                ("grpc.max_receive_message_length", options.max_message),
                ("grpc.max_send_message_length", options.max_message),
                ("grpc.max_concurrent_streams", threads),
                ("grpc.max_allowed_incoming_connections", options.max_connections),
                ("grpc.so_reuseport", 0),  # two fronts at one address would share its clients
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            ],
        )
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.add_generic_rpc_handlers((service.handlers(),))
        self.be_ready(ready=False)
        self.address = self._listen(options)

    def start(self) -> None:
        """Answer from here on."""
        self._server.start()

    def be_ready(self, *, ready: bool) -> None:
        """What grpc-health answers."""
        status = health_pb2.HealthCheckResponse
        for name in ("", NAME):
            self._health.set(name, status.SERVING if ready else status.NOT_SERVING)

    def close(self, seconds: float) -> None:
        """Take no more requests; those under way have `seconds`."""
        self._health.enter_graceful_shutdown()
        self._server.stop(seconds).wait()

    def _listen(self, options: Options) -> str:
        host = options.grpc.rpartition(":")[0]
        try:
            if options.tls is None:
                if not is_loopback(host):
                    logger.warning(
                        "%s is served without TLS: anyone who reaches it may read and call", host
                    )
                port = self._server.add_insecure_port(options.grpc)
            else:
                port = self._server.add_secure_port(options.grpc, _credentials(options.tls))
        except (RuntimeError, ValueError) as error:
            raise DeviceUnavailable(f"--grpc: {options.grpc} cannot be served: {error}") from None
        if not port:
            raise DeviceUnavailable(
                f"--grpc: {options.grpc} is taken, or its certificate is not valid"
            )
        return f"{host}:{port}"


def _credentials(tls: Tls) -> Message:
    try:
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        root = tls.client_ca.read_bytes() if tls.client_ca is not None else None
    except OSError as error:
        raise InvalidArgument(f"TLS: {error}") from None
    return grpc.ssl_server_credentials([pair], root, require_client_auth=root is not None)
