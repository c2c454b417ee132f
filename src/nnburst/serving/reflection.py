"""gRPC's reflection: by it tools such as grpcurl find the calls and messages of the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Final

import grpc

from nnburst.serving.callers import Caller, Context
from nnburst.serving.service import InferenceService
from nnburst.serving.tensors import Message

#: Both versions have the same messages; newer clients ask for the second one first.
_NAMES: Final = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")


def reflection_handlers(
    services: Sequence[str], service: InferenceService, threads: ThreadPoolExecutor
) -> dict[str, dict[str, Message]]:
    """Handlers of `grpc.Server` by the names of their services; none without the package grpcio-reflection.

    A call is a stream like those of inferences: it needs a token if they do, and counts for their limit.

    Args:
        services: names that are listed.
        service: asks for tokens and counts streams.
        threads: each call has one of these.
    """
    if find_spec("grpc_reflection") is None:
        return {}
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    servicer = reflection.ReflectionServicer((*services, _NAMES[0]))

    def answer(requests: Iterator[Message], context: Context, _caller: Caller) -> Iterator[Message]:
        answers: Iterator[Message] = servicer.ServerReflectionInfo(requests, context)
        return answers

    handler = grpc.stream_stream_rpc_method_handler(
        service.as_stream(answer, threads),
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return {name: {"ServerReflectionInfo": handler} for name in _NAMES}
