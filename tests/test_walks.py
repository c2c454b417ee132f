"""ARCHITECTURE lists the files that a call goes through, as measured in both processes."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import numpy as np
import pytest

import nnburst
import walks
from nnburst import OperandType, OperationType
from nnburst.bench import interface
from nnburst.runtime import Manager

ROOT: Final = Path(__file__).resolve().parent.parent
TRIES: Final = 2000


class Stage(NamedTuple):
    """A device whose driver records its stacks as this process does, and a model for it."""

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
        return files_of(b"\n".join(noted), through)

    old = sys.getprofile()
    walks.begin(logs[0])
    try:
        with nnburst.launch("null", env={walks.LOG: str(logs[1]), "PYTHONPATH": path}) as device:
            yield Stage(device, adder(), seen)
    finally:
        walks.end()
        sys.setprofile(old)


def files_of(noted: bytes, through: re.Pattern[str]) -> set[str]:
    """The files on the stacks that go through a pattern; what calls for the test is not of the package's."""
    stacks = noted.decode().splitlines()
    found = {file for stack in stacks if through.search(stack) for file in stack.split()}
    return {file for file in found if not file.startswith("bench/")}


def adder() -> nnburst.Model:
    builder = nnburst.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (2, 2))
    y = builder.output(OperandType.TENSOR_FLOAT32, (2, 2))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def listed(walk: str) -> list[str]:
    """The files of a walk in ARCHITECTURE; their number is checked."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    row = re.search(rf"^\| {re.escape(walk)} \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    assert row is not None
    files = re.findall(r"`([\w/]+\.[pych]+)`", row[2])
    assert len(files) == len(set(files)) == int(row[1])
    return files


def assert_walk(
    name: str,
    stage: Stage,
    call: Callable[[], object],
    through: str = "",
    begin: Callable[[], object] = lambda: None,
) -> None:
    """Repeat `begin` and the call until it takes the listed way; on a busy machine it may take others."""
    expected = {file for file in listed(name) if file.endswith(".py")}
    ways = set()
    for _ in range(TRIES):
        begin()
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

    through = "client/execution/socket_request|driver/calls/execution"
    assert_walk("`prepared.execute(…)`, the first", stage, first, through)


def test_walk_of_execute_is_the_listed_one(stage: Stage) -> None:
    one = np.ones((2, 2), np.float32)
    with stage.device.prepare(stage.model) as prepared:
        deadline = time.monotonic() + 60
        while prepared._thread.mine.burst is None and time.monotonic() < deadline:
            prepared.execute([one])
        prepared.execute([one])
        assert_walk("`prepared.execute(…)`", stage, lambda: prepared.execute([one]))


def test_walk_of_execute_without_bursts_is_the_listed_one(stage: Stage) -> None:
    one = np.ones((2, 2), np.float32)
    with stage.device.prepare(stage.model, bursts=False) as prepared:
        name = "`prepared.execute(…)`, `bursts=False`"
        assert_walk(name, stage, lambda: prepared.execute([one]))


def test_walk_of_a_run_is_the_listed_one(stage: Stage) -> None:
    with stage.device.prepare(stage.model) as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        bound.run()
        assert_walk("`bound.run()`", stage, bound.run)


def test_walk_of_get_memories_is_the_listed_one(stage: Stage) -> None:
    with stage.device.prepare(stage.model) as prepared, prepared.open_burst() as burst:
        through = "driver/burst.*control/connection|client/session/upcalls"
        assert_walk("getMemories", stage, lambda: burst.bind().run(), through)


def compile_on_cpu(manager: Manager) -> None:
    nnburst.compile(adder(), ["nnapi-reference"], manager=manager).close()


def test_walk_of_compile_is_the_listed_one(stage: Stage) -> None:
    with Manager([]) as manager:
        through = "runtime/objects/compilation"
        assert_walk("`nnburst.compile(…)`", stage, lambda: compile_on_cpu(manager), through)


def test_compile_enters_no_file_again_that_it_has_left_by_a_call() -> None:
    back = set()
    walk = set(listed("`nnburst.compile(…)`"))

    def note(frame: FrameType, event: str, _argument: object) -> None:
        place = walks.file_of(frame)
        if event != "call" or place not in walk:
            return
        left = False
        walker = frame.f_back
        while walker is not None:
            if walks.file_of(walker) == place and left:
                back.add(place)
            left |= walks.file_of(walker) not in (place, "")
            walker = walker.f_back

    old = sys.getprofile()
    with Manager([]) as manager:
        threading.setprofile(note)
        try:
            compile_on_cpu(manager)
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
            sys.setprofile(old)
    assert back == set()


def test_walk_of_the_first_compute_from_c_is_the_listed_one(stage: Stage) -> None:
    with interface.devices(stage.device):
        c = interface.Interface()
        compiled = interface.Compiled(c)
        room = np.zeros((2, interface.ELEMENTS), np.float32)
        executions = []

        def make() -> None:
            executions.append(c.make("Execution_create", compiled.compilation))
            interface.set_arguments(c, executions[0], None, [row.ctypes.data for row in room])

        def compute() -> None:
            c.call("Execution_burstCompute", executions.pop(), compiled.burst)

        walk = "`ANeuralNetworksExecution_burstCompute`, the first"
        assert_walk(walk, stage, compute, "capi/entry.*bound_request", make)


@pytest.mark.campaign
def test_walk_of_model_infer_is_the_listed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("tritonclient.grpc")
    from serving.served import Served

    (tmp_path / "sitecustomize.py").write_text(Path(walks.__file__).read_text())
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv(walks.LOG, str(log))
    with Served() as served, served.client() as client:
        inputs = [triton.InferInput(name, [2, 3], "FP32") for name in "ab"]
        for each in inputs:
            each.set_data_from_numpy(np.ones((2, 3), np.float32))
        expected = set(listed("ModelInfer"))
        for _ in range(TRIES):
            before = log.stat().st_size
            client.infer("add", inputs)
            noted = log.read_bytes()[before:]
            if files_of(noted, re.compile("^serving/")) == expected:
                return
    raise AssertionError(noted)


@pytest.mark.parametrize(
    ("change", "most"),
    [("ring and burst", 25), ("a control call", 10), ("an operation in three executors", 6)],
)
def test_files_to_read_for_a_change_are_few_and_exist(change: str, most: int) -> None:
    files = listed(change)
    assert len(files) <= most
    for file in files:
        assert (ROOT / file).is_file() or (ROOT / "src" / "nnburst" / file).is_file()


def test_each_c_file_of_a_run_is_called_by_one_before_it() -> None:
    order = [file for file in listed("`bound.run()`") if file.endswith(".c")]
    assert order[0] == "csrc/burst_client.c"
    text = {file: (ROOT / file).read_text() for file in order}
    before = text["csrc/burst_client.c"]
    for file in ("csrc/ring_buffer.c", "csrc/waiter.c"):
        defined = set(re.findall(r"^[\w \*]+?\b(nnb_\w+)\(", text[file], re.MULTILINE))
        assert [name for name in defined if name + "(" in before]
        assert [name for name in defined if name + "(" in text["csrc/burst_server.c"]]
