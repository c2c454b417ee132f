"""Workers with the bytes of a model get its packed weights; others read, publish and change nothing."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from driver.weights.packers import Deed
from nnburst.driver.weights_client import MESSAGE, SMALLEST, WeightsClient, write_pack_request
from nnburst.driver.weights_server import OWNER_BYTES
from nnburst.executor.base import DEFAULT_OPTIONS, PrepareOptions
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder

TESTS = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
KEEP = (
    "import socket, sys; from nnburst.driver.weights_server import keep_weights;"
    "keep_weights(socket.socket(fileno=int(sys.argv[1])), 'driver.weights.packers:Packer')"
)


def model_of(pool_bytes: int) -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (4,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (4,))
    builder.operation(OperationType.ABS, [x], [y])
    return builder.build(pools=[MemoryPool(pool_bytes)])


MODEL = model_of(SMALLEST)


def pool(deed: Deed = Deed.NOTHING, mark: int = 0) -> memoryview:
    return memoryview(bytes((deed, mark)) + bytes(SMALLEST - 2))


class Keeper:
    """A keeper's process, with the test as its supervisor."""

    def __init__(self) -> None:
        self.supervisor, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", KEEP, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )

    def socket_for(self, owner: int) -> socket.socket:
        keepers, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with keepers:
            number = owner.to_bytes(OWNER_BYTES, "little", signed=True)
            socket.send_fds(self.supervisor, [number], [keepers.fileno()])
        workers.settimeout(PATIENCE)
        return workers

    @contextmanager
    def borrowed(
        self,
        given: memoryview,
        *,
        owner: int = 7,
        model: Model = MODEL,
        options: PrepareOptions = DEFAULT_OPTIONS,
    ) -> Iterator[Sequence[int]]:
        """The weights that a worker of its own borrows."""
        with (
            WeightsClient(self.socket_for(owner)) as worker,
            worker.packed(model, [given], options) as files,
        ):
            yield files

    def close(self) -> None:
        self.supervisor.close()
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    kept = Keeper()
    yield kept
    kept.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def inode(fd: int) -> int:
    return os.fstat(fd).st_ino


def test_workers_of_one_user_share_what_was_packed_of_the_same_bytes(
    keeper: Keeper, stack: ExitStack
) -> None:
    mine = pool(mark=1)
    first, second = (stack.enter_context(keeper.borrowed(mine)) for _ in "12")
    assert len(first) == len(second) == 1
    assert inode(first[0]) == inode(second[0])
    assert os.pread(first[0], SMALLEST, 0) == mine.tobytes()


def test_other_bytes_options_and_users_share_nothing(keeper: Keeper, stack: ExitStack) -> None:
    asked = [
        keeper.borrowed(pool(mark=2)),
        keeper.borrowed(pool(mark=3)),
        keeper.borrowed(pool(mark=2), options=PrepareOptions(num_threads=2)),
        keeper.borrowed(pool(mark=2), owner=8),
    ]
    files = [stack.enter_context(each) for each in asked]
    assert len({inode(fd) for (fd,) in files}) == len(asked)


def test_small_models_pack_for_themselves(keeper: Keeper) -> None:
    with keeper.borrowed(pool()[:64], model=model_of(64)) as files:
        assert not files


@pytest.mark.parametrize(
    "deed", [Deed.CRASH, Deed.NO_MEMORY_FILE, Deed.REFUSE, Deed.NOTHING_TO_SHARE]
)
def test_packing_that_fails_leaves_the_worker_to_itself_and_the_keeper_goes_on(
    keeper: Keeper, deed: Deed
) -> None:
    with WeightsClient(keeper.socket_for(7)) as worker:
        for _ in range(2):  # the second time nothing is packed again
            with worker.packed(MODEL, [pool(deed)], DEFAULT_OPTIONS) as files:
                assert not files
        with worker.packed(MODEL, [pool(mark=1)], DEFAULT_OPTIONS) as files:
            assert len(files) == 1


def test_process_that_packs_holds_no_descriptor_that_leads_to_others(keeper: Keeper) -> None:
    with (
        keeper.borrowed(pool(mark=4)) as others,
        keeper.borrowed(pool(Deed.LIST_DESCRIPTORS), owner=8) as files,
    ):
        assert others
        held = os.pread(files[0], 1 << 16, 0).decode().splitlines()
    memory = {kind for kind in held if kind.startswith("/memfd:")}
    sockets = {kind for kind in held if kind.startswith("socket:")}
    assert len(memory) == len(sockets) == 1
    assert memory.pop().startswith("/memfd:pack_request")


def test_taken_over_worker_cannot_change_what_others_read(keeper: Keeper) -> None:
    with keeper.borrowed(pool(mark=5)) as files:
        fd = files[0]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(fd, b"x")
        with pytest.raises(PermissionError):
            mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        try:
            for change in (
                lambda: os.pwrite(again, b"x", 0),
                lambda: os.ftruncate(again, 0),
                lambda: fcntl.fcntl(again, fcntl.F_ADD_SEALS, 0),
                lambda: mmap.mmap(again, mmap.PAGESIZE, mmap.MAP_SHARED),
            ):
                with pytest.raises(PermissionError):
                    change()
        finally:
            os.close(again)


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"\1" * 32, 0), (MESSAGE.pack(1), 0), (MESSAGE.pack(1), 2), (b"packed", 1), (b"x" * 99, 1)],
    ids=["hash", "nothing", "two", "as a packing process", "long"],
)
def test_taken_over_worker_reads_and_publishes_nothing_by_another_message(
    keeper: Keeper, stack: ExitStack, data: bytes, count: int
) -> None:
    given = pool(mark=6)
    files = stack.enter_context(keeper.borrowed(given))
    forged = [os.memfd_create("forged", os.MFD_ALLOW_SEALING) for _ in range(count)]
    with keeper.socket_for(7) as hostile:
        if forged:
            socket.send_fds(hostile, [data], forged)
        else:
            hostile.send(data)
        answer, got, _, _ = socket.recv_fds(hostile, 64, 4)
    assert (answer, got) == (b"", [])  # it is given up
    for fd in forged:
        os.close(fd)
    again = stack.enter_context(keeper.borrowed(given))
    assert inode(again[0]) == inode(files[0])
    assert os.pread(again[0], SMALLEST, 0) == given.tobytes()


def test_pack_request_that_could_still_change_is_not_taken(keeper: Keeper) -> None:
    sealed = write_pack_request(MODEL, [pool(mark=7)], DEFAULT_OPTIONS)
    unsealed = os.memfd_create("pack_request", os.MFD_ALLOW_SEALING)
    os.write(unsealed, os.pread(sealed, 2 * SMALLEST, 0))
    with keeper.socket_for(7) as hostile:
        for pack_request, expected in ((unsealed, 0), (sealed, 1)):
            socket.send_fds(hostile, [MESSAGE.pack(3)], [pack_request])
            answer, got, _, _ = socket.recv_fds(hostile, 64, 4)
            assert (answer, len(got)) == (MESSAGE.pack(3), expected)
            for fd in (pack_request, *got):
                os.close(fd)


def test_bytes_that_are_not_a_model_are_packed_to_nothing(keeper: Keeper) -> None:
    garbage = os.memfd_create("pack_request", os.MFD_ALLOW_SEALING)
    os.write(garbage, b"\xff" * SMALLEST)
    fcntl.fcntl(garbage, fcntl.F_ADD_SEALS, 0xF)
    with keeper.socket_for(7) as hostile:
        socket.send_fds(hostile, [MESSAGE.pack(1)], [garbage])
        answer, got, _, _ = socket.recv_fds(hostile, 64, 4)
    os.close(garbage)
    assert (answer, got) == (MESSAGE.pack(1), [])


def test_keeper_ends_with_its_supervisor_and_workers_go_on_alone() -> None:
    keeper = Keeper()
    with WeightsClient(keeper.socket_for(7)) as worker:
        with worker.packed(MODEL, [pool()], DEFAULT_OPTIONS) as files:
            assert files
        keeper.close()
        assert keeper.process.returncode == 0
        with worker.packed(MODEL, [pool()], DEFAULT_OPTIONS) as files:
            assert not files
