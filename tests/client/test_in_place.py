"""Tensors that lie in a pool are copied nowhere: every page that a run uses is accounted for.

A copy of a tensor has to be put somewhere. So the kernel's note of which pages were used, cleared before the
runs, shows every copy: in memory of the client's own, of the driver's own, or in a second pool. The tensors
are of 8 MiB, far more than the interpreters themselves use. The client is a process of its own, since what
other tests have left in this one would count, too.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from nnburst import Device, Memory, Model, ModelBuilder, OperandType, OperationType
from programs import run_program

MIB: Final = 1 << 20
SIZE: Final = 8 * MIB
SHAPE: Final = (1, SIZE // 4)
RUNS: Final = 20

MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ (\d+) ")
needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"
)


class Used(NamedTuple):
    """Bytes of the pages that a process has used: of pools, and of all else that can be written."""

    pool: int
    others: int


def forget_what_was_used(pid: int | str) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("1")


def used(pid: int | str, *pools: int) -> Used:
    """The memory used since then; `pools` are the pools' inodes."""
    of_pool = of_others = 0
    permissions, inode = "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if head := MAPPING.match(line):
            permissions, inode = head[1], int(head[2])
        elif line.startswith("Referenced:"):
            size = int(line.split()[1]) * 1024
            if inode in pools:
                of_pool += size
            elif "w" in permissions:
                of_others += size
    return Used(of_pool, of_others)


def relu() -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, SHAPE)
    y = builder.output(OperandType.TENSOR_FLOAT32, SHAPE)
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


def used_by_runs(device: Device, memory: Memory, offset: int) -> tuple[Used, Used]:
    """The memory that client and driver use to write an input, run it, and read the output.

    Args:
        device: a driver.
        memory: where both tensors lie.
        offset: how far off a page each begins.
    """
    fd = memory.duplicate()
    inode = os.fstat(fd).st_ino
    os.close(fd)
    given = memory.array("f4", SHAPE, offset)
    taken = memory.array("f4", SHAPE, 2 * SIZE + offset)
    with device.prepare(relu()) as prepared, prepared.open_burst() as burst:
        bound = burst.bind([given], [taken])
        bound.run()
        gc.collect()
        gc.disable()  # it looks at every object, and uses their pages
        try:
            for pid in ("self", device.pid):
                forget_what_was_used(pid)
            for step in range(RUNS):
                given.fill(step - 3)
                bound.run()
                assert taken.max() == taken.min() == max(0, step - 3)
            return used("self", inode), used(device.pid, inode)
        finally:
            gc.enable()


def used_by_a_client(executor: str, offset: int) -> tuple[Used, Used]:
    """The same of a client in a process of its own, over a driver with this executor."""
    code = f"""
import nnburst
from client.test_in_place import SIZE, used_by_runs
with nnburst.launch({executor!r}) as device, device.allocate(4 * SIZE) as memory:
    print([tuple(side) for side in used_by_runs(device, memory, {offset})])
"""
    printed = run_program(code)
    assert printed.startswith("[("), printed
    client, driver = ast.literal_eval(printed)
    return Used(*client), Used(*driver)


@pytest.mark.every_day("reference")
@pytest.mark.parametrize("executor", ["reference", pytest.param("litert", marks=needs_engine)])
def test_aligned_tensors_in_a_pool_are_copied_nowhere(executor: str) -> None:
    for found in used_by_a_client(executor, 64):
        # The kernel forgets a few pages by itself when it looks for unused ones.
        assert 1.5 * SIZE < found.pool < 2 * SIZE + MIB, "not the tensors and nothing but them"
        assert found.others < SIZE / 2, "there is a copy of a tensor"


@pytest.mark.campaign
@needs_engine
def test_the_note_of_used_pages_shows_a_copy_where_there_is_one() -> None:
    client, driver = used_by_a_client("litert", 4)
    assert client.others < SIZE / 2
    assert driver.others > 1.5 * SIZE, "the engine takes only tensors that are aligned to 64 bytes"
