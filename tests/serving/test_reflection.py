"""Tools find the protocol by reflection, within the limits that every stream has."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("grpc_reflection", reason="extra grpc is not installed")

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from serving.served import PATIENCE, Served

STREAMS = 2
NAMES = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served("--grpc-max-streams", str(STREAMS), ready=False, models=("add",)) as served:
        yield served


def call(channel: grpc.Channel, name: str = NAMES[0]) -> Any:
    return channel.stream_stream(
        f"/{name}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )


def listing() -> Any:
    return reflection_pb2.ServerReflectionRequest(list_services="")


def test_a_tool_finds_services_calls_and_messages(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        found = ProtoReflectionDescriptorDatabase(channel)
        names = set(found.get_services())
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= names
        pool = DescriptorPool(found)
        for name in names:
            assert pool.FindServiceByName(name).methods
        method = pool.FindMethodByName("inference.GRPCInferenceService.ModelInfer")
        assert "raw_input_contents" in method.input_type.fields_by_name


@pytest.mark.parametrize("name", NAMES)
def test_both_versions_answer(served: Served, name: str) -> None:
    with grpc.insecure_channel(served.address) as channel:
        (answer,) = call(channel, name)(iter([listing()]), timeout=PATIENCE)
        services = [each.name for each in answer.list_services_response.service]
        assert "inference.GRPCInferenceService" in services


def test_message_of_another_form_ends_its_stream(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        raw = channel.stream_stream(f"/{NAMES[0]}/ServerReflectionInfo")
        with pytest.raises(grpc.RpcError, match="is a ServerReflectionRequest") as refused:
            next(raw(iter([b"\xff" * 40]), timeout=PATIENCE))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_streams_that_ask_nothing_hold_up_no_health_and_count_for_the_limit(served: Served) -> None:
    questions: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(STREAMS)]
    with grpc.insecure_channel(served.address) as channel:
        streams = [call(channel)(iter(each.get, None)) for each in questions]
        for question, stream in zip(questions, streams, strict=True):
            question.put(listing())
            next(stream)  # it is open
        with pytest.raises(grpc.RpcError) as refused:
            next(call(channel)(iter([listing()]), timeout=PATIENCE))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="add")
        for _ in range(20):
            health.Check(request, timeout=PATIENCE)
        for question, stream in zip(questions, streams, strict=True):
            question.put(None)
            assert list(stream) == []


@pytest.mark.campaign
def test_with_tokens_reflection_needs_one(tmp_path: Path) -> None:
    file, token = tmp_path / "tokens", "a-token-of-this-test"
    file.write_text(token)
    with (
        Served("--token-file", str(file), ready=False, models=("add",)) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        with pytest.raises(grpc.RpcError) as refused:
            next(call(channel)(iter([listing()]), timeout=PATIENCE))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        metadata = [("authorization", f"Bearer {token}")]
        assert list(call(channel)(iter([listing()]), timeout=PATIENCE, metadata=metadata))
