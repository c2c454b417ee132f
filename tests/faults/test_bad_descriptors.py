"""Whatever descriptor a client sends, the driver refuses or uses it, keeps running, and leaks none."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import msgspec
import pytest

import nnburst
from driver.conftest import RawClient, add_model
from faults import descriptor_places as places
from faults.descriptor_places import SIZE, Place, sealed
from faults.processes import HANG, KILLS, Row, Supervisor
from nnburst.control.address import socket_path
from nnburst.control.channel import MAX_INLINE_BYTES
from nnburst.control.fences import create_fence
from nnburst.control.messages import CALLS, Memories, Message, Ping
from nnburst.hal.enums import ErrorStatus
from nnburst.testing.faults.bad_descriptors import bad_descriptors
from nnburst.testing.faults.footprint import footprint, settle

NONE, INVALID = ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT
#: What the HAL defines for memory that cannot be mapped (device:§6); every other place is a model's, a
#: request's or a burst's, which are not valid then.
COPIES = dict.fromkeys((places.copy_from, places.copy_to), ErrorStatus.GENERAL_FAILURE)
#: Descriptors sent to each place; every kind is sent at least once.
ROUNDS = max(KILLS, 50)
#: A worker keeps the threads that it has started for calls.
MOST_THREADS = 64


@pytest.fixture(scope="module")
def raw() -> Iterator[RawClient]:
    """One driver for all places: it must survive every one of them."""
    client = RawClient()
    client.introduce()
    yield client
    client.close()


def refuse(raw: RawClient, place: Place, bad: dict[str, int], row: Row) -> None:
    """Send `bad` to a place again and again; each must be refused, and nothing be kept."""
    send, refusal = place(raw), COPIES.get(place, INVALID)
    for kind, fd in bad.items():
        assert send(fd) == refusal, kind
    baseline = footprint(raw.process.pid)
    for kind, fd in islice(cycle(bad.items()), ROUNDS):
        assert send(fd) == refusal, kind
    settle(raw.process.pid, replace(baseline, threads=MOST_THREADS))
    assert raw.call(Ping()).status == NONE
    row(f"bad descriptor: {place.__name__}", ROUNDS, kinds=str(len(bad)), driver="alive, no leak")


def test_kinds_that_every_machine_has_are_among_the_bad_ones() -> None:
    with bad_descriptors(SIZE) as bad:
        named = {"unsealed", "file", "a page short", "/dev/zero", "pipe, read end", "directory"}
        assert named < set(bad)


def test_every_message_that_brings_descriptors_has_a_place() -> None:
    brings = {kind for kind in {*CALLS, Memories} if kind.fd_count is not Message.fd_count}
    assert brings == places.COVERED


@pytest.mark.rule("M4", "rejects")
@pytest.mark.parametrize("place", places.MEMORY_PLACES, ids=lambda place: place.__name__)
def test_descriptor_that_is_not_sealed_memory_is_refused_wherever_memory_is_expected(
    raw: RawClient, place: Place, row: Row
) -> None:
    with bad_descriptors(SIZE) as bad:
        refuse(raw, place, bad, row)


@pytest.mark.parametrize("place", places.MEMORY_PLACES, ids=lambda place: place.__name__)
def test_sealed_memory_of_the_promised_size_or_more_is_accepted_there(
    raw: RawClient, place: Place
) -> None:
    for size in (SIZE, SIZE + 1, 2 * SIZE):
        fd = sealed(size)
        assert place(raw)(fd) == NONE
        os.close(fd)


def test_descriptor_that_is_not_a_stream_socket_is_refused_for_wakeups(
    raw: RawClient, row: Row
) -> None:
    with bad_descriptors(SIZE) as bad:
        stream = bad["stream socket"]
        refuse(
            raw, places.wakeup_socket, {kind: fd for kind, fd in bad.items() if fd != stream}, row
        )
        assert places.wakeup_socket(raw)(stream) == NONE  # it is not read, which harms nothing


@pytest.mark.parametrize("place", [places.fence, places.fence_of_a_reusable_execution])
def test_descriptor_that_is_not_a_connected_stream_socket_is_refused_for_a_fence(
    raw: RawClient, place: Place, row: Row
) -> None:
    with bad_descriptors(SIZE) as bad:
        refuse(raw, place, bad, row)
    waiting, signaller = create_fence()
    assert place(raw)(waiting.fileno()) == NONE
    signaller.signal()
    waiting.close()


def test_descriptor_that_is_not_a_packet_socket_is_refused_for_upcalls(
    raw: RawClient, row: Row
) -> None:
    with bad_descriptors(SIZE) as bad:
        refuse(raw, places.upcall_socket, bad, row)


def test_descriptor_that_is_not_a_network_in_sealed_memory_is_refused(
    raw: RawClient, row: Row
) -> None:
    with bad_descriptors(SIZE) as bad:
        refuse(raw, places.graph_file, bad, row)


def is_regular_and_writable(fd: int) -> bool:
    """Whether it would do as a cache file, which need not be sealed."""
    path = Path(f"/proc/self/fd/{fd}")
    return path.is_file() and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def test_descriptor_of_another_kind_is_refused_for_a_compilation(raw: RawClient, row: Row) -> None:
    with bad_descriptors(SIZE) as bad:
        files = {kind for kind, fd in bad.items() if is_regular_and_writable(fd)}
        assert {"file", "unsealed"} < files
        refuse(raw, places.cache_file, {k: fd for k, fd in bad.items() if k not in files}, row)
        send = places.cache_file(raw)
        for kind in files:
            assert send(bad[kind]) in (NONE, ErrorStatus.GENERAL_FAILURE), kind


def test_two_rings_in_one_memory_are_refused(raw: RawClient) -> None:
    send, fd = places.both_rings(raw), sealed(2 * SIZE)
    for _ in range(10):
        assert send(fd) == INVALID
    os.close(fd)


@pytest.mark.campaign
def test_large_message_that_lies_in_no_sealed_memory_ends_that_connection_alone(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    supervisor = serve()
    baseline, size = footprint(supervisor.pid), 2 * MAX_INLINE_BYTES
    with nnburst.connect("cam") as other, bad_descriptors(size) as bad:
        for kind, fd in islice(cycle(bad.items()), max(KILLS, len(bad))):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(socket_path("cam")))
                packet = msgspec.msgpack.encode([1, 0, b"", size])
                socket.send_fds(client, [packet], [fd])
                client.settimeout(HANG)
                assert client.recv(1) == b"", kind
        assert other.is_alive
        other.prepare(add_model()).close()
    settle(supervisor.pid, baseline)
    row("bad descriptor: large message", max(KILLS, len(bad)), kinds=str(len(bad)))
