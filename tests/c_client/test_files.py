"""Drivers that the client in C starts by itself, and networks that it prepares from bytes of files."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c_client.interface import (
    PATIENCE,
    SECOND,
    Failed,
    array_at,
    check,
    connected,
    created,
    ffi,
    input_of,
    library,
    made,
    open_burst,
    operand,
    output_of,
    run,
    text_of,
)
from client.service import Service
from nnburst.formats import onnx_writer

BAD_DATA, UNAVAILABLE_DEVICE, MISSED_DEADLINE, DEAD_OBJECT, OUTPUT_INSUFFICIENT_SIZE = (
    4,
    9,
    10,
    14,
    8,
)
MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
FLOAT = 1


def launched(executor: str) -> Any:
    if importlib.util.find_spec({"litert": "ai_edge_litert"}.get(executor, executor)) is None:
        pytest.skip(f"no {executor}")
    return made(library().nnburst_launch, executor.encode(), 0, PATIENCE)


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    """A driver of the tests' own; they do not kill it."""
    library()
    device = launched("onnxruntime")
    yield device
    library().nnburst_close_device(device)


def memory_with(content: bytes) -> Any:
    memory = made(library().nnburst_create_memory, len(content))
    ffi.buffer(library().nnburst_memory_data(memory), len(content))[:] = content
    return memory


def prepared(
    device: Any, content: bytes, files: Mapping[str, bytes] | None = None, threads: int = 0
) -> Any:
    """The model; the caller's references to the memories are given back."""
    c = library()
    kept = [ffi.new("char[]", name.encode()) for name in files or {}]
    memories = [memory_with(part) for part in (files or {}).values()]
    file, names = memory_with(content), ffi.new("char *[]", kept)
    array = ffi.new("nnburst_memory *[]", memories)
    given = {"names": names, "memories": array, "count": len(kept), "num_threads": threads}
    options = ffi.new("nnburst_prepare_options *", given)
    try:
        size = ffi.sizeof("nnburst_prepare_options")
        return made(c.nnburst_prepare, device, file, options, size, PATIENCE)
    finally:
        for memory in (file, *memories):
            c.nnburst_free_memory(memory)


def product(weights: bytes | tuple[str, int, int], rows: int | None = 2) -> bytes:
    """y = x · w for x of `rows` (None: open) × 4 and w of 4 × 3, whose values are here or elsewhere."""
    shape = (4, 3)
    if isinstance(weights, bytes):
        initializer = onnx_writer.tensor("w", FLOAT, shape, weights)
    else:
        initializer = onnx_writer.tensor_elsewhere("w", FLOAT, shape, weights)
    return onnx_writer.model(
        [onnx_writer.node("MatMul", ["x", "w"], ["y"], {})],
        [initializer],
        [onnx_writer.described("x", FLOAT, (rows or -1, 4))],
        [onnx_writer.described("y", FLOAT, (rows or -1, 3))],
        opset=17,
        version=8,
    )


WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def multiply(model: Any) -> list[list[float]]:
    request = created(open_burst(model))
    check(library().nnburst_bind(request))
    input_of(request, 0, 8)[:] = X.ravel()
    check(run(request))
    return [*map(list, output_of(request, 0, 6).reshape(2, 3).tolist())]


def test_onnx_file_from_memory_is_described_and_computed(device: Any) -> None:
    c = library()
    model = prepared(device, product(WEIGHTS.tobytes()), threads=1)
    assert (text_of(c.nnburst_model_name(model)), c.nnburst_model_version(model)) == ("", 1)
    assert [c.nnburst_input_count(model), c.nnburst_output_count(model)] == [1, 1]
    x, y = operand(c.nnburst_input, model, 0), operand(c.nnburst_output, model, 0)
    assert (text_of(x.name), list(x.dimensions[0:2]), x.size) == ("x", [2, 4], 32)
    assert (text_of(y.name), list(y.dimensions[0:2]), y.size) == ("y", [2, 3], 24)
    assert multiply(model) == (X @ WEIGHTS).tolist()
    c.nnburst_close_model(model)


def test_weights_may_lie_in_another_memory(device: Any) -> None:
    content = product(("values", 64, WEIGHTS.nbytes))
    model = prepared(device, content, {"values": bytes(64) + WEIGHTS.tobytes()})
    assert multiply(model) == (X @ WEIGHTS).tolist()


def test_file_that_did_not_come_is_not_looked_for(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(WEIGHTS.tobytes())
    for name in (str(path), "weights", "../weights"):
        with pytest.raises(Failed, match="the network came as bytes") as failed:
            prepared(device, product((name, 0, WEIGHTS.nbytes)), {"values": b"1"})
        assert failed.value.code == BAD_DATA
    with pytest.raises(Failed, match="is not the name of a file"):
        prepared(device, product((str(path), 0, 48)), {str(path): WEIGHTS.tobytes()})


def test_extents_that_a_file_leaves_open_come_with_the_request(device: Any) -> None:
    c = library()
    model = prepared(device, product(WEIGHTS.tobytes(), rows=None))
    burst = open_burst(model)
    for rows, room, expected in ((2, 24, 0), (3, 24, OUTPUT_INSUFFICIENT_SIZE), (1, 64, 0)):
        request, memory = created(burst), made(c.nnburst_create_memory, room)
        check(c.nnburst_set_input_dimensions(request, 0, ffi.new("uint32_t[]", [rows, 4]), 2))
        check(c.nnburst_set_output(request, 0, memory, 0, room))
        check(c.nnburst_bind(request))
        input_of(request, 0, 4 * rows)[:] = 1
        assert run(request) == expected
        dimensions, rank = ffi.new("uint32_t[4]"), ffi.new("uint32_t *", 4)
        check(c.nnburst_output_dimensions(request, 0, dimensions, rank))
        assert list(dimensions[0 : rank[0]]) == [rows, 3]
        if expected == 0:
            found = array_at(c.nnburst_memory_data(memory), 3 * rows)
            assert found.tolist() == [18, 22, 26] * rows
        c.nnburst_free_request(request)
        c.nnburst_free_memory(memory)


def test_tflite_file_from_memory_is_bit_equal_to_the_engine() -> None:
    path = MODELS / "kws_int8.tflite"
    if not path.exists():
        pytest.skip(f"no {path}")
    device = launched("litert")
    model = prepared(device, path.read_bytes())
    x = operand(library().nnburst_input, model, 0)
    values = np.random.default_rng(7).integers(-128, 128, x.size, np.int8)
    request = created(open_burst(model))
    check(library().nnburst_bind(request))
    input_of(request, 0, x.size, "i1")[:] = values
    check(run(request))

    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    (given,), (taken,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(given["index"], values.reshape(given["shape"]))
    interpreter.invoke()
    expected = interpreter.get_tensor(taken["index"])
    found = output_of(request, 0, expected.size, "i1")
    assert found.tolist() == expected.ravel().tolist()
    library().nnburst_close_device(device)


@pytest.mark.parametrize(
    "content", [b"x", b"\x08\x08junk", b"\0\0\0\0TFL3" + bytes(40), product(b"")]
)
def test_file_that_is_not_intact_is_refused_and_the_driver_goes_on(
    device: Any, content: bytes
) -> None:
    with pytest.raises(Failed) as failed:
        prepared(device, content)
    assert failed.value.code == BAD_DATA
    assert failed.value.text
    assert multiply(prepared(device, product(WEIGHTS.tobytes()))) == (X @ WEIGHTS).tolist()


def test_executor_that_does_not_compute_files_refuses_them() -> None:
    with Service(executor="reference") as service:
        device = connected(service.address)
        with pytest.raises(Failed, match="not supported") as failed:
            prepared(device, product(WEIGHTS.tobytes()))
        assert failed.value.code == BAD_DATA
        library().nnburst_close_device(device)


def test_arguments_that_make_no_sense_are_refused_by_name(device: Any) -> None:
    c, model = library(), ffi.new("nnburst_model **")
    file = memory_with(b"x")
    given = [
        ((ffi.NULL, file, ffi.NULL, 0), "device: NULL"),
        ((device, ffi.NULL, ffi.NULL, 0), "file, memories: NULL"),
        ((device, file, {"count": 63}, 24), "options: 63 files, 0 threads, expected at most 62"),
        ((device, file, {"num_threads": 1025}, 24), "1025 threads, expected at most 62 and 1024"),
        ((device, file, {"count": 1}, 24), "options.names: NULL"),
    ]
    for (where, what, options, size), message in given:
        made_options = (
            options if options == ffi.NULL else ffi.new("nnburst_prepare_options *", options)
        )
        assert c.nnburst_prepare(where, what, made_options, size, PATIENCE, model) != 0
        assert message in text_of(c.nnburst_error_message())
    assert c.nnburst_prepare(device, file, ffi.NULL, 0, PATIENCE, ffi.NULL) != 0
    c.nnburst_free_memory(file)


def test_launched_driver_is_started_again_with_what_was_prepared_and_leaves_no_process() -> None:
    c = library()
    device = launched("onnxruntime")
    model = prepared(device, product(WEIGHTS.tobytes()))
    request = created(open_burst(model))
    check(c.nnburst_bind(request))
    input_of(request, 0, 8)[:] = X.ravel()
    check(run(request))
    first = c.nnburst_device_pid(device)
    os.kill(first, signal.SIGKILL)
    assert run(request) == DEAD_OBJECT
    check(c.nnburst_reconnect(device, PATIENCE))
    second = c.nnburst_device_pid(device)
    assert second != first
    assert not Path(f"/proc/{first}").exists()
    input_of(request, 0, 8)[:] = X.ravel()
    check(run(request))
    assert output_of(request, 0, 6).tolist() == (X @ WEIGHTS).ravel().tolist()
    c.nnburst_close_device(device)
    assert not Path(f"/proc/{second}").exists()


def test_launched_driver_keeps_none_of_the_programs_descriptors_open() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)  # as `pipe` of C leaves it
    device = made(library().nnburst_launch, b"null", 0, PATIENCE)
    os.close(write)
    has_ended = select.select([read], [], [], 5.0)[0] == [read]
    library().nnburst_close_device(device)
    os.close(read)
    assert has_ended


def test_driver_that_does_not_start_or_end_in_time_is_killed_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = library()
    (tmp_path / "hangs.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(Failed, match="timeout"):
        made(c.nnburst_launch, b"hangs:executor", 0, SECOND)
    assert time.monotonic() - began < 3
    device = made(c.nnburst_launch, b"null", 0, PATIENCE)
    os.kill(c.nnburst_device_pid(device), signal.SIGSTOP)
    began = time.monotonic()
    assert c.nnburst_reconnect(device, SECOND) == MISSED_DEADLINE
    assert time.monotonic() - began < 3
    check(c.nnburst_reconnect(device, PATIENCE))
    c.nnburst_close_device(device)


def test_driver_that_cannot_start_is_unavailable_with_the_reason(tmp_path: Path) -> None:
    c = library()
    with pytest.raises(Failed, match="executor: 'no-such-executor' is not known") as failed:
        made(c.nnburst_launch, b"no-such-executor", 0, PATIENCE)
    assert failed.value.code == UNAVAILABLE_DEVICE
    with pytest.raises(Failed, match="executor: it is empty"):
        made(c.nnburst_launch, b"", 0, PATIENCE)
    with pytest.raises(Failed, match="flags: expected 0"):
        made(c.nnburst_launch, b"null", 1, PATIENCE)
    with pytest.raises(Failed, match="timeout"):
        made(c.nnburst_launch, b"null", 0, SECOND // 10000)
    text = (
        "from c_client.interface import *\n"
        "try: made(library().nnburst_launch, b'null', 0, PATIENCE)\n"
        "except Failed as failed: print(failed.code, failed.text)\n"
    )
    environment = os.environ | {
        "NNBURST_PYTHON": str(tmp_path / "none"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment, timeout=120, check=True
    )  # fmt: skip
    assert done.stdout == f"9 NNBURST_PYTHON names no Python interpreter: {tmp_path / 'none'}\n"
