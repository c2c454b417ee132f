"""Marks of processes reach a collector: slices in the right order, joined, also of killed processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nnburst.cli import main
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import driver_environment
from nnburst.tracing import recording
from nnburst.tracing.collector import Clock, Collector, TracedProcess
from nnburst.tracing.files import read
from nnburst.tracing.slices import Layer, Phase, trace
from nnburst.tracing.timeline import Thread, ThreadBuilder, Trace, flows

#: Reads the trace of a client of an executor that runs a burst so often.
Traced = Callable[[str, int], Trace]

CLIENT = """
import sys
import numpy as np
import nnburst
from nnburst.testing.faults.activities import sum_model, summands

executor, runs, kills = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["kill"]
with nnburst.launch(executor) as device:
    burst = device.prepare(sum_model()).open_burst()
    bound = burst.bind()
    for _ in range(runs):
        bound.run()
    if kills:
        import os, signal
        os.kill(device.pid, signal.SIGKILL)
"""


def recorded(tmp_path: Path, *words: str, suffix: str = ".pftrace") -> Path:
    """The trace of a client that runs a burst."""
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    path = tmp_path / f"trace{suffix}"
    assert main(["trace", "-o", str(path), "--", sys.executable, str(client), *words]) == 0
    return path


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Traces that tests share: each takes the start of two processes."""

    @cache
    def make(executor: str, runs: int) -> Trace:
        return read(recorded(tmp_path_factory.mktemp("trace"), executor, str(runs)))

    return make


@pytest.mark.parametrize("executor", ["null", "reference"])
def test_every_execution_is_joined_across_processes(traced: Traced, executor: str) -> None:
    trace = traced(executor, 200)
    assert flows(trace) == (200, 200)
    counts = Counter(s.name for thread in trace.threads for s in thread.slices)
    assert counts["[NN_LR_PE]burst: run"] == 200
    assert counts["[NN_LD_PE]burst: serve a request"] == 200
    # The first request is new to the driver, which binds and executes it in Python.
    expected = {"null": ("compute", 199), "reference": ("ADD", 200)}
    name, count = expected[executor]
    assert counts[f"[NN_LC_PCO]{name}"] == count
    assert trace.problems == []


SUBMITTING = """
import nnburst
from nnburst.testing.faults.activities import sum_model

with nnburst.launch("reference") as device:
    burst = device.prepare(sum_model()).open_burst(max_in_flight=4)
    bounds = [burst.bind() for _ in range(4)]
    for pending in [bound.submit() for bound in bounds]:
        pending.result()
"""


def test_counters_show_requests_and_bytes_under_way(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert main(["trace", "-o", str(path), "--", sys.executable, "-c", SUBMITTING]) == 0
    samples = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "C"]
    requests, filled = (
        [value for s in samples if name in s["name"] for value in s["args"].values()]
        for name in ("requests out", "bytes in the request ring")
    )
    assert (
        len(requests) == len(filled) >= 8
    )  # four went out, four came back, and looks that came too early
    assert max(requests) <= 4
    assert (requests[0], requests[-1]) == (1, 0)
    assert filled[-1] == 0
    assert 0 <= max(filled) <= 4 * 1024


FORKING = """
import os
import nnburst
from nnburst.testing.faults.activities import sum_model, summands

with nnburst.launch("reference") as device, device.prepare(sum_model()) as prepared:
    prepared.execute(summands(1.0))
    child = os.fork()
    if child == 0:
        prepared.close()
        with nnburst.launch("reference") as own, own.prepare(sum_model()) as model:
            model.execute(summands(1.0))
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    prepared.execute(summands(1.0))
"""


def test_forked_child_records_apart_from_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    assert main(["trace", "-o", str(path), "--", sys.executable, "-c", FORKING]) == 0
    processes = {thread.pid for thread in read(path).threads}
    assert len(processes) == 4, "two clients and two drivers"


QUEUE = """
import threading
import numpy as np
from nnburst.fmq import MessageQueue
from nnburst.tracing.recording import record_if_asked

assert record_if_asked()
queue = MessageQueue.create("<u4", 4, spin_window=0.0)
reader = threading.Thread(target=lambda: [queue.read(1, 60) for _ in range(20)])
reader.start()
for number in range(20):
    assert queue.write(np.array([number], "<u4"), 60)
    while queue.available_to_write() < 4:
        pass
reader.join()
"""


def test_writes_reads_and_waits_of_a_queue_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert main(["trace", "-o", str(path), "--", sys.executable, "-c", QUEUE]) == 0
    names = [event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]]
    for kind in ("queue: write", "queue: read"):
        assert sum(kind in name for name in names) == 20
    assert any("queue: wait" in name for name in names)


def test_no_more_than_twelve_marks_a_round_trip(traced: Traced) -> None:
    marks = []
    for runs in (100, 200):
        slices = [s for t in traced("null", runs).threads for s in t.slices]
        switched = sum(s.name.endswith(("take the result", "a request")) for s in slices)
        marks.append(2 * len(slices) - switched)
    assert marks[1] - marks[0] <= 12 * 100


def test_trace_of_a_killed_driver_survives(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path, "null", "50", "kill"))
    assert flows(trace) == (50, 50)


def test_slices_of_one_thread_lie_within_each_other(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path, "reference", "100", suffix=".json.gz"))
    for thread in trace.threads:
        ends: list[int] = []
        for piece in thread.slices:
            assert piece.begin <= piece.end
            while ends and ends[-1] <= piece.begin:
                ends.pop()
            assert not ends or piece.end <= ends[-1]
            ends.append(piece.end)


def test_formats_hold_the_same_slices(traced: Traced, tmp_path: Path) -> None:
    other = read(recorded(tmp_path, "null", "100", suffix=".json"))
    names = [
        # The last wait is not recorded if the driver was not asleep yet when the client ended.
        Counter(
            n for t in trace.threads for s in t.slices if "wait for a request" not in (n := s.name)
        )
        for trace in (traced("null", 100), other)
    ]
    assert names[0] == names[1]


def test_command_keeps_its_status_and_a_wrong_suffix_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--", sys.executable, "-c", "raise SystemExit(7)"]
    assert main(["trace", "-o", str(tmp_path / "a.pftrace"), *words]) == 7
    assert main(["trace", "-o", str(tmp_path / "a.txt"), *words]) == 1
    assert "expected a name in" in capsys.readouterr().err


def test_file_that_cannot_be_written_is_refused_before_the_command_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--", "touch", str(tmp_path / "ran")]
    with pytest.raises(SystemExit, match="2"):
        main(["trace", "-o", str(tmp_path / "nowhere" / "a.json"), *words])
    assert "-o/--output: cannot write" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_slices_above_the_hal_go_to_the_kernels_trace_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker, client, path = (tmp_path / name for name in ("marker", "client.py", "trace.json"))
    client.write_text(CLIENT)
    words = ["trace", "-o", str(path), "--marker", str(marker)]
    command = ["--", sys.executable, str(client), "reference", "3"]
    assert main([*words, *command]) == 1
    assert "marker cannot be written, expected tracefs" in capsys.readouterr().err
    marker.touch()
    assert main([*words, *command]) == 0
    marks = re.findall(r"B\|\d+\|\[NN_[A-Z_]+\][a-z :]+|E\|\d+", marker.read_text())
    begun = [mark.split("|")[2] for mark in marks if mark.startswith("B")]
    assert "[NN_LR_PI]launch" in "".join(begun)
    assert any("[NN_LR_PC]prepare" in name for name in begun)
    assert all(name.startswith("[NN_LR_") for name in begun)
    assert len(marks) == 2 * len(begun)


@pytest.mark.campaign
def test_marks_that_the_kernels_trace_refuses_are_lost_and_nothing_else(tmp_path: Path) -> None:
    client, path = tmp_path / "client.py", tmp_path / "trace.json"
    client.write_text(CLIENT)
    # As trace_marker is while the kernel's tracer is stopped: it opens, and no write succeeds.
    words = ["trace", "-o", str(path), "--marker", "/dev/full"]
    assert main([*words, "--", sys.executable, str(client), "null", "3"]) == 0
    names = {s.name for thread in read(path).threads for s in thread.slices}
    assert any("[NN_LR_PC]prepare" in name for name in names)


def test_process_without_a_collector_goes_on(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    environment = {**driver_environment(), "NNBURST_TRACE": str(tmp_path / "nobody")}
    done = subprocess.run(
        [sys.executable, str(client), "null", "3"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "nothing is recorded" in done.stderr


def test_tracing_off_records_nothing_and_makes_no_context() -> None:
    with trace(Layer.RUNTIME, Phase.EXECUTION, "one") as nothing:
        assert nothing is None


def test_collector_goes_when_it_is_closed(tmp_path: Path) -> None:
    with Collector() as collector:
        folder = collector.address.parent
        assert folder.stat().st_mode & 0o777 == 0o700
    collector.close()
    assert not folder.exists()


def an_area() -> np.ndarray:
    """Memory as a process would send it, with one mark in ring 0."""
    memory = np.zeros(recording.BYTES, np.uint8)
    fields = recording.view(memory)
    fields["magic"] = recording.MAGIC
    fields["names"] = 1
    fields["name"]["text"][0] = b"work"
    put(fields, 0, 0, recording.BEGIN)
    return memory


def put(fields: np.void, ring: int, number: int, kind: int) -> None:
    record = fields["record"][ring][number % recording.RECORDS]
    record["sequence"], record["time"], record["kind"] = number + 1, 1000 + number, kind
    fields["record"][ring][number % recording.RECORDS] = record
    fields["ring"]["written"][ring] = number + 1


def slices_of(source: TracedProcess) -> list[str]:
    source.drain()
    threads, _ = source.threads(Clock())
    return [s.name for t in threads for s in t.slices]


def test_memory_that_is_not_an_area_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="does not begin like an area"):
        TracedProcess(np.zeros(recording.BYTES, np.uint8))


@pytest.mark.parametrize("written", [2**64 - 1, 2**63, recording.RECORDS * 1000])
def test_count_that_leaps_costs_its_own_marks_only(written: int) -> None:
    memory = an_area()
    recording.view(memory)["ring"]["written"][0] = written
    source = TracedProcess(memory)
    assert slices_of(source) == []
    assert source.lost > 0


def test_count_that_goes_back_is_not_followed() -> None:
    memory = an_area()
    source = TracedProcess(memory)
    assert slices_of(source) == ["[NN_LA_PO]work"]
    recording.view(memory)["ring"]["written"][0] = 0
    assert slices_of(source) == ["[NN_LA_PO]work"]


@pytest.mark.parametrize("field", ["name", "kind", "layer", "phase", "flags", "argument"])
def test_nonsense_in_a_record_does_no_harm(field: str) -> None:
    memory = an_area()
    records = recording.view(memory)["record"]
    records[field][0][0] = np.iinfo(records.dtype[field]).max
    assert len(slices_of(TracedProcess(memory))) <= 1


def test_nonsense_in_the_header_does_no_harm() -> None:
    memory = an_area()
    recording.view(memory)["names"] = 2**32 - 1
    recording.view(memory)["name"]["layer"] = 255
    recording.view(memory)["name"]["phase"] = 255
    recording.view(memory)["name"]["text"][0] = b"\x1b[31m\xff"
    (name,) = slices_of(TracedProcess(memory))
    assert name.isprintable()


def test_what_is_overwritten_before_it_is_read_is_counted() -> None:
    memory = an_area()
    fields = recording.view(memory)
    source = TracedProcess(memory)
    source.drain()
    for number in range(1, 5):
        put(fields, 0, number, recording.INSTANT)
    fields["ring"]["written"][0] = recording.RECORDS + 5  # all but these were overwritten long ago
    source.drain()
    assert source.lost == recording.RECORDS + 4


def test_record_that_is_being_written_is_lost() -> None:
    memory = an_area()
    recording.view(memory)["record"]["sequence"][0][0] = 0
    source = TracedProcess(memory)
    assert slices_of(source) == []
    assert source.lost == 1


def test_memory_that_is_not_sealed_is_refused(tmp_path: Path) -> None:
    import socket

    with Collector() as collector:
        fd = os.memfd_create("loose")
        os.ftruncate(fd, recording.BYTES)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(collector.address))
            socket.send_fds(peer, [b"nnburst-trace"], [fd])
            os.close(fd)
            peer.settimeout(60)
            assert peer.recv(1) == b""
        trace = collector.finish()
    assert trace.threads == []
    assert trace.problems


def test_switch_ends_the_latest_slice_and_what_is_open_lasts_to_the_end() -> None:
    builder = ThreadBuilder(Thread(1, 1, "p", "t"))
    builder.end_slice(5)
    builder.begin("a", 10)
    builder.begin("b", 20)
    builder.switch("c", 30)
    builder.begin("d", 40)
    builder.finish()
    assert builder.surplus == 1
    found = [(s.name, s.begin, s.end, s.depth, s.is_complete) for s in builder.thread.slices]
    assert found == [
        ("a", 10, 40, 0, False),
        ("b", 20, 30, 1, True),
        ("c", 30, 40, 1, False),
        ("d", 40, 40, 2, False),
    ]
