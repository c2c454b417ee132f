"""Makes the protocol's answers about a model: metadata, configuration, statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tritonclient.grpc import model_config_pb2, service_pb2

from nnburst.serving.network import Network
from nnburst.serving.sequences import IDLE_SECONDS
from nnburst.serving.tensors import Message, Tensor

PLATFORM: Final = "nnburst"


def metadata(network: Network, versions: Sequence[int]) -> Message:
    """Make a ModelMetadataResponse; `versions` are the served versions of the model."""
    return service_pb2.ModelMetadataResponse(
        name=network.name,
        versions=[str(version) for version in versions],
        platform=PLATFORM,
        inputs=_described(network.inputs),
        outputs=_described(network.outputs),
    )


def config(network: Network) -> Message:
    """Make a ModelConfigResponse; scale and zero point of quantised tensors are parameters.

    As in Triton, dimensions lack the first one if requests are batched.
    """
    first = 1 if network.max_batch else 0
    found = model_config_pb2.ModelConfig(name=network.name, platform=PLATFORM, backend=PLATFORM)
    found.max_batch_size = network.max_batch
    for tensor in network.inputs:
        found.input.add(
            name=tensor.name, data_type=_type(tensor), dims=tensor.described[first:] or [1]
        )
    for tensor in network.outputs:
        found.output.add(
            name=tensor.name, data_type=_type(tensor), dims=tensor.described[first:] or [1]
        )
    for tensor in (*network.inputs, *network.outputs):
        if tensor.scale:
            found.parameters[f"{tensor.name}.scale"].string_value = repr(tensor.scale)
            found.parameters[f"{tensor.name}.zero_point"].string_value = str(tensor.zero_point)
    if network.has_state:
        found.sequence_batching.max_sequence_idle_microseconds = int(IDLE_SECONDS * 1e6)
    return service_pb2.ModelConfigResponse(config=found)


def statistics(networks: Sequence[Network]) -> Message:
    """Make a ModelStatisticsResponse."""
    response = service_pb2.ModelStatisticsResponse()
    for network in networks:
        counted = network.statistics
        found = response.model_stats.add(name=network.name, version=str(network.version))
        found.last_inference = counted.last_ms
        found.inference_count, found.execution_count = counted.rows, counted.executions
        sums, totals = counted.success, found.inference_stats
        _duration(totals.success, counted.succeeded, sums.total)
        _duration(totals.fail, counted.failed, counted.failed_ns)
        _duration(totals.queue, counted.succeeded, sums.queue)
        _duration(totals.compute_input, counted.succeeded, sums.reading)
        _duration(totals.compute_infer, counted.succeeded, sums.inference)
        _duration(totals.compute_output, counted.succeeded, sums.writing)
    return response


def _described(tensors: Sequence[Tensor]) -> list[Message]:
    kind = service_pb2.ModelMetadataResponse.TensorMetadata
    return [
        kind(name=tensor.name, datatype=tensor.kind.name, shape=tensor.described)
        for tensor in tensors
    ]


def _type(tensor: Tensor) -> int:
    return int(model_config_pb2.DataType.Value(f"TYPE_{tensor.kind.name}"))


def _duration(where: Message, count: int, nanoseconds: int) -> None:
    where.count = count
    where.ns = nanoseconds
