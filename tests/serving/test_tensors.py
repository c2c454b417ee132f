"""Whatever a request holds becomes arrays of the model's types and shapes, or InvalidArgument."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

from tritonclient.grpc import service_pb2

from nnburst.hal import errors
from nnburst.hal.errors import InvalidArgument
from nnburst.serving.callers import user_of_caller
from nnburst.serving.regions import Regions
from nnburst.serving.service import UnknownModel, status_of
from nnburst.serving.tensors import (
    Tensor,
    Wanted,
    data_type,
    read_inputs,
    wanted_outputs,
    write_outputs,
)

KINDS = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f2", "<f4"]
TENSORS = [
    Tensor("x", data_type(np.dtype("<i4")), (2, -1)),
    Tensor("y", data_type(np.dtype("?")), (3,)),
    Tensor("s", data_type(np.dtype("<f4")), ()),
]


def request(**tensors: tuple[str, list[int], bytes]) -> Any:
    found = service_pb2.ModelInferRequest()
    for name, (datatype, shape, raw) in tensors.items():
        found.inputs.add(name=name, datatype=datatype, shape=shape)
        found.raw_input_contents.append(raw)
    return found


def test_any_byte_of_a_bool_is_one_of_both() -> None:
    good = request(
        x=("INT32", [2, 1], bytes(8)), y=("BOOL", [3], b"\0\x01\xff"), s=("FP32", [1], bytes(4))
    )
    _, y, s = read_inputs(good, TENSORS, None)
    assert y.tolist() == [False, True, True]
    assert s.shape == ()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", "s", "z", ""]),
            st.sampled_from(["INT32", "BOOL", "FP32", "BYTES", "FP64", ""]),
            st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4), max_size=3),
            st.binary(max_size=40) | st.just(bytes(8)) | st.just(bytes(3)),
            st.sampled_from(["raw", "int_contents", "bool_contents", "fp32_contents", "region"]),
        ),
        max_size=5,
    ),
    st.integers(-1, 1),
)
def test_any_request_is_read_or_refused(parts: list[Any], surplus: int) -> None:
    message = service_pb2.ModelInferRequest()
    for name, datatype, shape, raw, way in parts:
        tensor = message.inputs.add(name=name, datatype=datatype, shape=shape)
        if way == "raw":
            message.raw_input_contents.append(raw)
        elif way == "region":
            tensor.parameters["shared_memory_region"].string_param = "r"
            tensor.parameters["shared_memory_byte_size"].int64_param = len(raw)
        else:
            getattr(tensor.contents, way).extend(raw)
    message.raw_input_contents.extend([b"surplus"] * surplus)
    try:
        arrays = read_inputs(message, TENSORS, Regions().of(os.geteuid()) if surplus else None)
    except InvalidArgument:
        return
    for tensor, array in zip(TENSORS, arrays, strict=True):
        assert array.dtype == tensor.kind.dtype
        assert len(array.shape) == len(tensor.shape)


@pytest.mark.parametrize("dtype", KINDS)
def test_typed_contents_are_the_same_values_as_raw_ones(dtype: str) -> None:
    kind = data_type(np.dtype(dtype))
    tensor = Tensor("t", kind, (4,))
    values = np.array([0, 1, 1, 0], kind.dtype)
    message = service_pb2.ModelInferRequest()
    contents = message.inputs.add(name="t", datatype=kind.name, shape=[4]).contents
    if not kind.contents:
        with pytest.raises(InvalidArgument, match="raw contents only"):
            read_inputs(message, [tensor], None)
        return
    getattr(contents, kind.contents).extend(values.tolist())
    (found,) = read_inputs(message, [tensor], None)
    raw = request(t=(kind.name, [4], values.tobytes()))
    (same,) = read_inputs(raw, [tensor], None)
    assert found.tolist() == same.tolist() == values.tolist()


def placed(**words: dict[str, Any]) -> Any:
    """A request whose only input and output lie in shared memory, with these parameters."""
    message = service_pb2.ModelInferRequest()
    for tensor in (
        message.inputs.add(name="t", datatype="FP32", shape=[2]),
        message.outputs.add(name="t"),
    ):
        tensor.parameters["shared_memory_region"].string_param = "r"
        for name, word in words.items():
            tensor.parameters[f"shared_memory_{name}"].CopyFrom(service_pb2.InferParameter(**word))
    return message


def test_offset_and_size_in_shared_memory_are_integers_of_either_kind() -> None:
    tensor = Tensor("t", data_type(np.dtype("<f4")), (2,))
    key = f"nnburst_offsets_{os.getpid()}"
    file = Path("/dev/shm", key)
    file.write_bytes(np.arange(8, dtype="<f4").tobytes())
    try:
        regions = Regions().of(os.geteuid())
        assert regions is not None
        regions.register("r", key, 0, 32)
        for field in ("int64_param", "uint64_param"):
            message = placed(offset={field: 8}, byte_size={field: 8})
            assert read_inputs(message, [tensor], regions)[0].tolist() == [2, 3]
            assert wanted_outputs(message, [tensor], regions) == [Wanted(0, "r", 8, 8)]
        for word in ({"double_param": 8.0}, {"string_param": "8"}, {"bool_param": True}, {}):
            for message in (
                placed(offset=word, byte_size={"int64_param": 8}),
                placed(byte_size=word),
            ):
                with pytest.raises(
                    InvalidArgument, match=r"'t': shared_memory_.*expected an integer"
                ):
                    read_inputs(message, [tensor], regions)
                with pytest.raises(
                    InvalidArgument, match=r"'t': shared_memory_.*expected an integer"
                ):
                    wanted_outputs(message, [tensor], regions)
        regions.unregister("")
    finally:
        file.unlink()


@pytest.mark.parametrize(
    "word", [{"int64_param": 5}, {"bool_param": True}, {"string_param": ""}, {}]
)
def test_region_in_shared_memory_is_a_name(word: dict[str, Any]) -> None:
    message = placed(region=word, byte_size={"int64_param": 8})
    regions = Regions().of(os.geteuid())
    tensor = Tensor("t", data_type(np.dtype("<f4")), (2,))
    for read in (read_inputs, wanted_outputs):
        with pytest.raises(
            InvalidArgument, match=r"'t': shared_memory_region: .*expected the name"
        ):
            read(message, [tensor], regions)


def test_outputs_that_overlap_in_shared_memory_are_refused_and_none_is_written() -> None:
    tensors = [Tensor(name, data_type(np.dtype("<f4")), (2,)) for name in ("t", "u")]
    values = {n: ((2,), np.float32([n + 1, n + 1]).tobytes()) for n in range(2)}
    key = f"nnburst_outputs_{os.getpid()}"
    file = Path("/dev/shm", key)
    file.write_bytes(bytes(16))
    try:
        regions = Regions().of(os.geteuid())
        assert regions is not None
        regions.register("r", key, 0, 16)

        def write(*offsets: int) -> None:
            wanted = [Wanted(index, "r", offset, 8) for index, offset in enumerate(offsets)]
            write_outputs(service_pb2.ModelInferResponse(), wanted, tensors, values, regions)

        for offsets in ((0, 0), (0, 4), (8, 4)):
            with pytest.raises(InvalidArgument, match=r"'[tu]' and '[tu]' overlap in 'r'"):
                write(*offsets)
            assert file.read_bytes() == bytes(16)
        write(8, 0)
        assert np.frombuffer(file.read_bytes(), "<f4").tolist() == [2, 2, 1, 1]
        regions.unregister("")
    finally:
        file.unlink()


@pytest.mark.parametrize("extent", [-1, 0])
def test_open_extent_that_is_not_given_is_refused_with_its_rule(extent: int) -> None:
    message = request(x=("INT32", [2, extent], b""))
    with pytest.raises(InvalidArgument, match=r"expected \[2, -1\], with 1 or more for each -1"):
        read_inputs(message, TENSORS[:1], None)


def test_value_that_the_type_has_not_is_refused() -> None:
    tensor = Tensor("t", data_type(np.dtype("i1")), (1,))
    message = service_pb2.ModelInferRequest()
    message.inputs.add(name="t", datatype="INT8", shape=[1]).contents.int_contents.append(128)
    with pytest.raises(InvalidArgument, match="values outside the range of INT8"):
        read_inputs(message, [tensor], None)


def test_output_that_is_unknown_twice_or_to_be_classified_is_refused() -> None:
    for names in (["x", "x"], ["nothing"]):
        message = service_pb2.ModelInferRequest()
        for name in names:
            message.outputs.add(name=name)
        with pytest.raises(InvalidArgument, match="comes twice or is not one of"):
            wanted_outputs(message, TENSORS, None)
    message = service_pb2.ModelInferRequest()
    message.outputs.add(name="x").parameters["classification"].int64_param = 3
    with pytest.raises(InvalidArgument, match="classification is not supported"):
        wanted_outputs(message, TENSORS, None)


@pytest.mark.parametrize(
    "peer",
    [
        "unix:/run/x",
        "ipv4:10.1.2.3:5",
        "ipv6:%5Bfe80::1%5D:5",
        "ipv4:127.0.0.1:5",
        "ipv4:127.0.0.1:",
        "ipv6:127.0.0.1:x",
        "",
    ],
)
def test_caller_without_a_connection_over_loopback_has_no_user(peer: str) -> None:
    assert user_of_caller(peer, ("127.0.0.1", 1)) is None


@pytest.mark.parametrize(
    ("family", "host", "kind", "served"),
    [
        (socket.AF_INET, "127.0.0.1", "ipv4", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "ipv4", "localhost"),
        (socket.AF_INET6, "::1", "ipv6", "[::1]"),
    ],
)
def test_caller_over_loopback_has_its_user(family: int, host: str, kind: str, served: str) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((host, port)) as client, listener.accept()[0]:
            ours = client.getsockname()[1]
            name = f"ipv4:127.0.0.1:{ours}" if kind == "ipv4" else f"ipv6:%5B::1%5D:{ours}"
            assert user_of_caller(name, (served, port)) == os.geteuid()
            assert user_of_caller(name, ("0.0.0.0", port)) is None
            assert user_of_caller(name, (served, port ^ 1)) is None


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("x"), "INVALID_ARGUMENT"),
        (UnknownModel("x"), "NOT_FOUND"),
        (errors.MissedDeadline("x"), "DEADLINE_EXCEEDED"),
        (errors.DeadObject("x"), "UNAVAILABLE"),
        (errors.DeviceUnavailable("x"), "UNAVAILABLE"),
        (errors.Closed("replaced after a death by another request"), "UNAVAILABLE"),
        (errors.ResourceExhausted("x"), "RESOURCE_EXHAUSTED"),
        (errors.GeneralFailure("x"), "INTERNAL"),
        (errors.OutputInsufficientSize("x"), "INTERNAL"),
    ],
)
def test_each_error_has_one_status(error: errors.NnburstError, status: str) -> None:
    assert status_of(error).name == status
