"""A region opens with its caller's rights, is of one user, and is read no further than it is needed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

from tritonclient.grpc import service_pb2

from nnburst.hal.errors import InvalidArgument, ResourceExhausted
from nnburst.serving import regions as regions_module
from nnburst.serving.regions import MAX_REGIONS, MAX_REGIONS_OF_ALL, Regions, UserRegions
from nnburst.serving.tensors import Tensor, data_type, read_inputs
from serving.served import PATIENCE, Served

OWNER, OTHER = os.geteuid(), 65534
FOLDER = Path("/dev/shm")


@pytest.fixture
def key(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of an object of 64 bytes with mode 0600."""
    name = f"nnburst_{request.node.name.partition('[')[0][:60]}_{os.getpid()}"
    path = FOLDER / name
    path.touch(0o600)
    os.truncate(path, 64)
    yield name
    path.unlink()


@pytest.fixture
def mine(key: str) -> Iterator[UserRegions]:
    """The owner's regions; `mine` is the whole object."""
    own = Regions().of(OWNER)
    own.register("mine", key, 0, 64)
    yield own
    own.unregister("")


def test_object_opens_for_its_owner_and_for_no_other_user(key: str) -> None:
    regions = Regions()
    with pytest.raises(InvalidArgument, match="is not shared memory"):
        regions.of(OTHER).register("mine", key, 0, 64)
    own = regions.of(OWNER)
    own.register("mine", key, 0, 64)
    own.write("mine", 0, b"data")
    assert own.read("mine", 0, 4) == b"data"
    own.unregister("")


@pytest.mark.parametrize(("mode", "opens"), [(0o666, True), (0o606, False), (0o664, False)])
def test_mode_that_grants_everyone_both_opens_for_every_user(
    key: str, mode: int, opens: bool
) -> None:
    (FOLDER / key).chmod(mode)
    other = Regions().of(OTHER)
    if opens:
        other.register("theirs", key, 0, 64)
        other.unregister("theirs")
    else:
        with pytest.raises(InvalidArgument, match="is not shared memory"):
            other.register("theirs", key, 0, 64)


def test_region_of_one_user_serves_no_other(key: str) -> None:
    regions = Regions()
    own, other = regions.of(OWNER), regions.of(OTHER)
    own.register("mine", key, 0, 64)
    for use in (
        lambda: other.read("mine", 0, 1),
        lambda: other.write("mine", 0, b"x"),
        lambda: other.listed("mine"),
    ):
        with pytest.raises(InvalidArgument, match="no region 'mine'"):
            use()
    assert other.listed() == {}
    other.unregister("mine")
    other.unregister("")
    assert list(own.listed()) == ["mine"]
    own.unregister("")


def test_caller_without_a_user_has_only_what_is_trusted(key: str) -> None:
    assert Regions().of(None) is None
    unknown = Regions(f"/{key[:-1]}").of(None)
    assert unknown is not None
    unknown.register("shared", key, 0, 64)
    with pytest.raises(InvalidArgument, match="is not shared memory"):
        unknown.register("other", "another", 0, 64)
    unknown.unregister("")


def test_one_user_cannot_use_up_the_regions_of_all(key: str) -> None:
    (FOLDER / key).chmod(0o666)
    regions = Regions()
    for user in range(1, 1 + MAX_REGIONS_OF_ALL // MAX_REGIONS):
        for number in range(MAX_REGIONS):
            regions.of(user).register(str(number), key, 0, 64)
        with pytest.raises(ResourceExhausted, match="of a user"):
            regions.of(user).register("more", key, 0, 64)
    with pytest.raises(ResourceExhausted, match="of all"):
        regions.of(OTHER).register("more", key, 0, 64)
    for user in range(1, 1 + MAX_REGIONS_OF_ALL // MAX_REGIONS):
        regions.of(user).unregister("")


@pytest.mark.parametrize(
    ("shape", "sent", "error", "rule"),
    [
        ((3,), [3], InvalidArgument, "has 2147483648 bytes, expected 12"),
        ((-1,), [2**29], ResourceExhausted, "tensor of open shape, expected at most"),
    ],
)
def test_size_is_checked_before_a_region_is_read(
    key: str, shape: tuple[int, ...], sent: list[int], error: type[Exception], rule: str
) -> None:
    os.truncate(FOLDER / key, 4 << 30)
    own = Regions().of(OWNER)
    own.register("sparse", key, 0, 4 << 30)
    message = service_pb2.ModelInferRequest()
    parameters = message.inputs.add(name="t", datatype="FP32", shape=sent).parameters
    parameters["shared_memory_region"].string_param = "sparse"
    parameters["shared_memory_byte_size"].int64_param = 2 << 30
    tracemalloc.start()
    try:
        with pytest.raises(error, match=rule):
            read_inputs(message, [Tensor("t", data_type(np.dtype("<f4")), shape)], own)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
        own.unregister("")


def test_other_callers_do_not_wait_for_a_region_that_is_read(
    mine: UserRegions, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on, found = threading.Event(), threading.Event(), []
    pread = os.pread

    def slow_pread(fd: int, size: int, offset: int) -> bytes:
        reading.set()
        assert go_on.wait(PATIENCE)
        return pread(fd, size, offset)

    monkeypatch.setattr(regions_module.os, "pread", slow_pread)
    reader = threading.Thread(target=lambda: found.append(mine.read("mine", 0, 64)))
    reader.start()
    assert reading.wait(PATIENCE)
    mine.register("next", key, 0, 8)
    mine.write("next", 0, b"new")
    mine.unregister("")
    go_on.set()
    reader.join(PATIENCE)
    assert found == [b"new".ljust(64, b"\0")]


def test_output_is_written_in_as_many_calls_as_it_takes(
    mine: UserRegions, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(
        regions_module.os, "pwrite", lambda fd, data, at: pwrite(fd, data[: len(data) // 2 + 1], at)
    )
    mine.write("mine", 8, bytes(range(40)))
    assert mine.read("mine", 0, 64) == bytes(8) + bytes(range(40)) + bytes(16)


def test_output_without_room_in_the_file_system_is_resource_exhausted(
    mine: UserRegions, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def fill(fd: int, data: bytes, at: int) -> int:
        if at >= 32:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data[: 32 - at], at)

    monkeypatch.setattr(regions_module.os, "pwrite", fill)
    with pytest.raises(ResourceExhausted, match=f"{key}: No space left"):
        mine.write("mine", 0, bytes(64))


#: Becomes another user, then prints how each attempt at a region of the first one ends.
THIEF = """
import encodings.idna, os, sys
import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
os.setgroups([]); os.setgid(65534); os.setuid(65534)
address, theirs, own = sys.argv[1:]
client = triton.InferenceServerClient(address)

def attempt(name, call):
    try:
        call()
    except InferenceServerException as error:
        print(name, error.status())
    else:
        print(name, "done")

attempt("register", lambda: client.register_system_shared_memory("x", "/" + theirs, 64))
inputs = [triton.InferInput(name, [2, 3], "FP32") for name in "ab"]
for each in inputs:
    each.set_shared_memory("victim", 24)
attempt("read", lambda: client.infer("add", inputs))
values = np.zeros((2, 3), np.float32)
for each in inputs:
    each.set_data_from_numpy(values)
wanted = triton.InferRequestedOutput("y")
wanted.set_shared_memory("victim", 24)
attempt("write", lambda: client.infer("add", inputs, outputs=[wanted]))
attempt("status", lambda: client.get_system_shared_memory_status("victim"))
print("listed", len(client.get_system_shared_memory_status().regions))
attempt("unregister", lambda: client.unregister_system_shared_memory())
path = "/dev/shm/" + own
with open(path, "xb") as file:
    file.truncate(24)
os.chmod(path, 0o600)
attempt("own", lambda: client.register_system_shared_memory("own", "/" + own, 24))
wanted.set_shared_memory("own", 24)
attempt("answer", lambda: client.infer("add", inputs, outputs=[wanted]))
print("sum", np.fromfile(path, np.float32).tolist() == [0] * 6)
os.unlink(path)
"""


@pytest.mark.skipif(OWNER != 0, reason="only root can be another user")
def test_another_user_reaches_no_region_of_the_first(key: str) -> None:
    (FOLDER / key).write_bytes(b"secret".ljust(64))
    with Served("--shared-memory", models=("add",)) as served:
        client = served.client()
        client.register_system_shared_memory("victim", f"/{key}", 64)
        done = subprocess.run(
            [sys.executable, "-c", THIEF, served.address, key, f"{key}_own"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        refused = "StatusCode.INVALID_ARGUMENT"
        assert done.stdout.splitlines() == [
            f"register {refused}",
            f"read {refused}",
            f"write {refused}",
            f"status {refused}",
            "listed 0",
            "unregister done",
            "own done",
            "answer done",
            "sum True",
        ]
        assert list(client.get_system_shared_memory_status().regions) == ["victim"]
        client.unregister_system_shared_memory()
        client.close()
    assert (FOLDER / key).read_bytes() == b"secret".ljust(64)
