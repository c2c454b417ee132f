"""ARCHITECTURE lists the files that a call walks through, as measured in both processes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest

import nnburst
import walks
from nnburst import OperandType, OperationType

ROOT: Final = Path(__file__).resolve().parent.parent
TRIES: Final = 2000


class Stage(NamedTuple):
    """A device whose driver notes its stacks as this process does, and a model for it."""

    device: nnburst.Device
    model: nnburst.Model
    seen: Callable[[Callable[[], object], re.Pattern[str]], set[str]]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    logs = [tmp_path / "client", tmp_path / "driver"]
    (tmp_path / "sitecustomize.py").write_text(Path(walks.__file__).read_text())
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    def seen(call: Callable[[], object], through: re.Pattern[str]) -> set[str]:
        before = [log.stat().st_size for log in logs]
        result = call()
        noted = [log.read_bytes()[size:] for log, size in zip(logs, before, strict=True)]
        if isinstance(result, nnburst.PreparedModel):
            result.close()  # another walk
        stacks = b"\n".join(noted).decode().splitlines()
        return {file for stack in stacks if through.search(stack) for file in stack.split()}

    old = sys.getprofile()
    walks.begin(logs[0])
    try:
        with nnburst.launch("null", env={walks.LOG: str(logs[1]), "PYTHONPATH": path}) as device:
            yield Stage(device, adder(), seen)
    finally:
        walks.end()
        sys.setprofile(old)


def adder() -> nnburst.Model:
    builder = nnburst.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (2, 2))
    y = builder.output(OperandType.TENSOR_FLOAT32, (2, 2))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def listed(walk: str) -> list[str]:
    """The files of a walk in ARCHITECTURE, whose number stands beside them."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    row = re.search(rf"^\| {re.escape(walk)} \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    assert row is not None
    files = re.findall(r"`([\w/]+\.[pyc]+)`", row[2])
    assert len(files) == len(set(files)) == int(row[1])
    return files


def assert_walk(name: str, stage: Stage, call: Callable[[], object], through: str = "") -> None:
    """Repeat the call until it took the listed road: a busy machine puts it on others, which are longer."""
    expected = {file for file in listed(name) if file.endswith(".py")}
    ways = set()
    for _ in range(TRIES):
        ways.add(frozenset(stage.seen(call, re.compile(through))))
        if expected in ways:
            return

    raise AssertionError(sorted(map(sorted, ways), key=len))


def test_walk_of_prepare_is_the_listed_one(stage: Stage) -> None:
    assert_walk("`device.prepare(…)`", stage, lambda: stage.device.prepare(stage.model))


def test_walk_of_a_first_execute_is_the_listed_one(stage: Stage) -> None:
    one = np.ones((2, 2), np.float32)

    def first() -> None:
        with stage.device.prepare(stage.model) as prepared:
            prepared.execute([one])

    through = "client/execution/placed_request|driver/calls/prepared_model"
    assert_walk("`prepared.execute(…)`, the first", stage, first, through)


def test_walk_of_execute_is_the_listed_one(stage: Stage) -> None:
    one = np.ones((2, 2), np.float32)
    with stage.device.prepare(stage.model) as prepared:
        assert_walk("`prepared.execute(…)`", stage, lambda: prepared.execute([one]))


def test_walk_of_a_run_is_the_listed_one(stage: Stage) -> None:
    with stage.device.prepare(stage.model) as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        bound.run()
        assert_walk("`bound.run()`", stage, bound.run)


def test_walk_of_get_memories_is_the_listed_one(stage: Stage) -> None:
    with stage.device.prepare(stage.model) as prepared, prepared.open_burst() as burst:
        through = "driver/burst/burst.*control/connection|client/session/upcalls"
        assert_walk("getMemories", stage, lambda: burst.bind().run(), through)


def test_each_c_file_of_a_run_is_called_by_one_before_it() -> None:
    order = [file for file in listed("`bound.run()`") if file.endswith(".c")]
    assert order[0] == "csrc/burst_client.c"
    text = {file: (ROOT / file).read_text() for file in order}
    before = text["csrc/burst_client.c"]
    for file in ("csrc/ring_buffer.c", "csrc/waiter.c"):
        defined = set(re.findall(r"^[\w \*]+?\b(nnb_\w+)\(", text[file], re.MULTILINE))
        assert [name for name in defined if name + "(" in before]
        assert [name for name in defined if name + "(" in text["csrc/burst_server.c"]]
