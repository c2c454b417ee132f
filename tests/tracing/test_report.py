"""Reports of where time was spent. Times are powers of ten, so that every sum shows its parts."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.cli import main
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing import files
from nnburst.tracing.report import Table, report
from nnburst.tracing.slices import Layer, Phase
from nnburst.tracing.timeline import Slice, Thread, Trace

#: name, duration, children; or a pause.
Tree = tuple[str, int, list["Tree"]]


def thread_of(trees: list[Tree], pid: int = 1, start: int = 0) -> Thread:
    """A thread that does these one after the other; a name of "" is time between."""
    thread = Thread(pid, pid, f"process {pid}", "main")

    def add(tree: Tree, at: int, depth: int) -> int:
        name, duration, children = tree
        if name:
            thread.slices.append(Slice(name, at, at + duration, depth))
        inner = at
        for child in children:
            inner = add(child, inner, depth + 1)
        assert inner <= at + duration
        return at + duration

    for tree in trees:
        start = add(tree, start, 0)
    return thread


def table(*threads: Thread) -> Table:
    tables = report(Trace(list(threads)))
    return tables[-1]


def own(found: Table) -> dict[str, int]:
    return {f"{layer}_{phase}": ns for (layer, phase), ns in found.own.items() if ns}


def total(found: Table) -> dict[str, int]:
    return {f"{layer}_{phase}": ns for (layer, phase), ns in found.total.items() if ns}


def mark(bucket: str, detail: str = "x") -> str:
    return f"[NN_{bucket}]{detail}"


APP = mark("LA_PO")
#: What lies in an application's case of 10^7, and the own times that come of it.
CASES: dict[str, tuple[list[Tree], dict[str, int]]] = {
    "baseline": (
        [(mark("LR_PI"), 1, []), (mark("LR_PP"), 10, []), (mark("LR_PC"), 100, []),
         (mark("LR_PE"), 1000, []), (mark("LR_PT"), 10000, [])],
        {"LR_PI": 1, "LR_PP": 10, "LR_PC": 100, "LR_PE": 1000, "LR_PT": 10000},
    ),
    "lower layer": (
        [(mark("LR_PE"), 1100, [(mark("LI_PE"), 110, [(mark("LD_PE"), 10, [])])])],
        {"LR_PE": 990, "LI_PE": 100, "LD_PE": 10},
    ),
    "switch": (
        [(mark("LC_PTR"), 1100, [("", 100, []), ("[SW]" + mark("LC_PCO"), 1000, [])])],
        {"LC_PTR": 100, "LC_PCO": 1000},
    ),
    "two switches": (
        [(mark("LC_PTR"), 1110,
          [("", 10, []),
           ("[SW]" + mark("LC_PCO"), 1100, [("", 100, []), ("[SW]" + mark("LC_PR"), 1000, [])])])],
        {"LC_PTR": 10, "LC_PCO": 100, "LC_PR": 1000},
    ),
    "subphase": (
        [(mark("LR_PE"), 1110, [(mark("LR_PIO"), 10, []), (mark("LR_PR"), 100, [])])],
        {"LR_PE": 1000, "LR_PIO": 10, "LR_PR": 100},
    ),
    "nested subphase once": (
        [(mark("LR_PE"), 1110, [(mark("LR_PIO"), 110, [(mark("LR_PIO"), 10, [])])])],
        {"LR_PE": 1000, "LR_PIO": 110},
    ),
    "results in the application": (
        [(mark("LA_PR"), 1000, [(mark("LR_PR"), 10, [])])], {"LA_PR": 990, "LR_PR": 10},
    ),
    "subphases by layers": (
        [(mark("LR_PE"), 1111, [(mark("LR_PIO"), 111, [(mark("LI_PE"), 11, [(mark("LD_PIO"), 1, [])])])])],
        {"LR_PE": 1000, "LR_PIO": 100, "LI_PE": 10, "LD_PIO": 1},
    ),
    "detail of the same bucket": (
        [(mark("LR_PE"), 1000, [(mark("LR_PE", "detail"), 100, [])])], {"LR_PE": 1000},
    ),
    "synchronous IPC with initialisation": (
        [(mark("LI_PI"), 1000, [(mark("LD_PI"), 100, [])])], {"LI_PI": 900, "LD_PI": 100},
    ),
    "subtract direct": (
        [(mark("LD_PE"), 1000, [("[SUB]" + mark("LR_PE"), 100, [])])], {"LD_PE": 900, "LR_PE": 100},
    ),
    "subtract nested": (
        [(mark("LI_PE"), 1100, [(mark("LD_PE"), 1000, [("[SUB]" + mark("LR_PE"), 100, [])])])],
        {"LI_PE": 100, "LD_PE": 900, "LR_PE": 100},
    ),
    "initialisation once, amid an execution": (
        [(mark("LR_PE"), 1100, [(mark("LR_PI"), 100, [])])], {"LR_PE": 1000, "LR_PI": 100},
    ),
    "utility takes its parent's phase": (
        [(mark("LR_PE"), 1100, [(mark("LU_PU"), 100, [])])], {"LR_PE": 1000, "LU_PE": 100},
    ),
    "warm-up and benchmark": (
        [(mark("LA_PWU"), 1010, [(mark("LR_PE"), 10, [])]),
         (mark("LA_PBM"), 10100, [(mark("LR_PE"), 100, [])])],
        {"LA_PWU": 1000, "LA_PBM": 10000, "LR_PE": 110},
    ),
    "without termination": ([(mark("LR_PE"), 1000, [])], {"LR_PE": 1000}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_own_times_of(name: str) -> None:
    inside, expected = CASES[name]
    length = 10_000_000
    found = own(table(thread_of([(APP, length, inside)])))
    spent = sum(duration for _, duration, _ in inside)
    assert found == {**expected, "LA_PO": length - spent}
    assert sum(found.values()) == length  # nothing is counted twice, and nothing is left out


def test_wrong_nesting_raises_with_the_tree_and_the_line() -> None:
    with pytest.raises(InvalidArgument, match=r"slice 2: .* > \[NN_LR_PE\]x lies in \[NN_LC_PE\]x"):
        table(thread_of([(mark("LC_PE"), 10, [(mark("LR_PE"), 1, [])])]))


def test_asynchronous_ipc_is_given_the_drivers_time_on_another_thread() -> None:
    client = thread_of([(mark("LR_PE"), 1100, [("", 50, []), (mark("LI_PE"), 1000, [])])])
    driver = thread_of([(mark("LD_PE"), 100, [])], pid=2, start=300)
    assert own(table(client, driver)) == {"LR_PE": 100, "LI_PE": 900, "LD_PE": 100}


def test_case_with_a_switch_begins_a_table_of_its_own() -> None:
    inside: list[Tree] = [(mark("LC_PTR"), 110, [("", 10, []), ("[SW]" + mark("LC_PCO"), 100, [])])]
    thread = thread_of([(mark("LA_PO", "one"), 1000, inside), (mark("LA_PO", "two"), 1000, inside)])
    tables = report(Trace([thread]))
    assert [each.name for each in tables] == ["one", "two"]
    assert [own(each)["LC_PCO"] for each in tables] == [100, 100]


def test_cpu_fallback_beside_a_driver_gives_no_negative_time() -> None:
    """The original subtracts totals of layers and shows less than nothing here."""
    client = thread_of(
        [(mark("LR_PE"), 2000, [(mark("LC_PE"), 1000, []), (mark("LI_PE"), 600, [])])]
    )
    driver = thread_of([(mark("LD_PE"), 500, [])], pid=2, start=1050)
    found = own(table(client, driver))
    assert found == {"LR_PE": 400, "LC_PE": 1000, "LI_PE": 100, "LD_PE": 500}


def test_totals_count_what_lies_inside_and_details_once() -> None:
    found = table(
        thread_of([(mark("LR_PE"), 1110, [(mark("LR_PE"), 110, []), (mark("LI_PE"), 10, [])])])
    )
    assert total(found) == {"LR_PE": 1110, "LI_PE": 10}


BUCKETS = st.sampled_from(["LR_PE", "LI_PE", "LD_PE", "LC_PCO", "LU_PU"])


def round_trip(driver: tuple[int, int], at: int = 0) -> list[Thread]:
    """A caller that waits for 1000 ns, and a driver that serves it between these moments."""
    caller = Thread(1, 1, "client", "main")
    caller.slices = [Slice(mark("LI_PE"), at, at + 1000, flow=(7 << 32) + at + 1, leaves=True)]
    server = Thread(2, 2, "driver", "burst")
    server.slices = [Slice(mark("LD_PE"), at + driver[0], at + driver[1], flow=(7 << 32) + at + 1)]
    return [caller, server]


def test_a_driver_that_works_on_behind_its_answer_is_not_longer_than_the_round_trip() -> None:
    assert table(*round_trip((200, 1700))).bursts == {7: [(1000, 800)]}
    assert table(*round_trip((-100, 600))).bursts == {7: [(1000, 600)]}


def test_medians_of_a_burst_are_those_of_the_round_trips_that_its_driver_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = [thread for n in range(3) for thread in round_trip((100, 900), n * 5000)]
    lost = [round_trip((0, 10), n * 5000)[0] for n in range(3, 8)]  # the driver's marks are gone
    for thread in lost:
        thread.slices[0].end += 9000
    files.write(Trace([*threads, *lost]), tmp_path / "t.json")
    assert main(["trace", "report", str(tmp_path / "t.json")]) == 0
    row = capsys.readouterr().out.partition("by burst")[2].splitlines()[3]
    assert row.split() == ["1", "8", "3", "1.00", "0.80"]


@given(
    st.lists(st.tuples(BUCKETS, st.integers(0, 1000)), min_size=1, max_size=12), st.integers(0, 500)
)
def test_no_own_time_is_negative_and_the_sum_is_what_was_there(
    pieces: list[tuple[str, int]], before: int
) -> None:
    order = ["LR_PE", "LI_PE", "LD_PE", "LC_PCO", "LU_PU"]
    tree: list[Tree] = []
    length = 0
    for bucket, duration in sorted(pieces, key=lambda p: -order.index(p[0])):
        length += duration
        tree = [(mark(bucket), length, tree)]
    other = thread_of([(mark("LD_PE"), 300, [])], pid=2, start=before)
    found = table(thread_of(tree), other)
    assert all(ns >= 0 for ns in found.own.values())
    assert sum(found.own.values()) <= length + 300


TEXT = """\
# tracer: nop
#           TASK-PID    TGID   CPU#  ||||    TIMESTAMP  FUNCTION
         app-100   (  100) [1] .1 10.000000: tracing_mark_write: B|100|[NN_LA_PO]case
         app-100   (  100) [1] .1 10.001000: tracing_mark_write: B|100|[NN_LR_PE]run
         app-100   (  100) [1] .1 10.002000: tracing_mark_write: B|100|HIDL::IPreparedModel::execute::client
      driver-200   (  200) [0] .1 10.003000: tracing_mark_write: B|200|HIDL::IPreparedModel::execute::server
      driver-200   (-----) [0] .1 10.004000: tracing_mark_write: B|200|[NN_LD_PE]run
      driver-200   (  200) [0] .1 10.007000: tracing_mark_write: E
      driver-200   (  200) [0] .1 10.008000: tracing_mark_write: E
         app-100   (  100) [1] .1 10.009000: tracing_mark_write: E
         app-100   (  100) [1] .1 10.010000: tracing_mark_write: E
         app-100   (  100) [1] .1 10.020000: tracing_mark_write: E
      other-300    (  300) [0] .1 10.004000: tracing_mark_write: B|300|draw
"""


def test_the_originals_text_is_read_and_its_hidl_marks_are_ours() -> None:
    trace = files.read_ftrace(TEXT.encode())
    assert sorted(thread.pid for thread in trace.threads) == [100, 200]
    (found,) = report(trace)
    assert found.name == "case"
    assert own(found) == {
        "LA_PO": 11_000_000,
        "LR_PE": 2_000_000,
        "LI_PE": 2_000_000,
        "LD_PE": 5_000_000,
    }


def test_long_lines_of_text_are_read_in_linear_time() -> None:
    lines = [" " * 400_000, "a-1 (" * 80_000, "-" * 400_000, "a-" + "1" * 400_000]
    assert len(files.read_ftrace((TEXT + "\n".join(lines)).encode()).threads) == 2


def test_text_without_marks_is_refused_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("a-1 ( 1) [000] .... 1.0: tracing_mark_write: B|1|draw\n")
    assert main(["trace", "report", str(path)]) == 1
    assert "no marks of NNAPI" in capsys.readouterr().err


def test_end_without_begin_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TEXT + "app-100 ( 100) [001] ...1 10.030000: tracing_mark_write: E\n")
    assert main(["trace", "report", str(path)]) == 0
    assert "1 ends without a beginning" in capsys.readouterr().out


def test_notes_are_no_part_of_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TEXT + "app-100 ( 100) [001] ...1 10.030000: tracing_mark_write: E\n")
    assert main(["trace", "report", str(path), "--csv"]) == 0
    shown = capsys.readouterr()
    assert "1 ends without a beginning" in shown.err
    assert {len(row) for row in csv.reader(shown.out.splitlines())} == {11}
    assert main(["trace", "report", str(path), "--csv", "--per-execution"]) == 1
    assert "--per-execution: given with --csv" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-o", "--marker"])
@pytest.mark.parametrize("word", ["report", "view"])
def test_options_of_recording_are_refused_elsewhere(
    word: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TEXT)
    assert main(["trace", option, str(tmp_path / "out.json"), word, str(path)]) == 1
    assert f"{option}: given with {word}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_port_that_cannot_be_is_named(
    port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TEXT)
    assert main(["trace", "view", str(path), "--port", port, "--no-browser"]) == 1
    assert f"port: {port}, expected" in capsys.readouterr().err


def test_unparsable_mark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TEXT.replace("[NN_LR_PE]run", "[NN_LR_PQ]run"))
    assert main(["trace", "report", str(path)]) == 1
    assert "[NN_LR_PQ]run" in capsys.readouterr().err


def test_report_prints_tables_csv_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = tmp_path / "trace.txt", tmp_path / "report.json"
    path.write_text(TEXT)
    assert main(["trace", "report", str(path), "--per-execution", "--json", str(data)]) == 0
    assert "1 executions: own times" in capsys.readouterr().out
    (found,) = json.loads(data.read_text())["tables"]
    assert found["own_ns"]["LD_PE"] == 5_000_000
    assert main(["trace", "report", str(path), "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("case,layer,Initialization")
    assert any(line.startswith("case,Driver,") for line in lines)


CHROME = files.write_chrome(Trace([thread_of([(APP, 10, [])])]))
PACKED = gzip.compress(CHROME, mtime=0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (PACKED[:-20], "ended before the end-of-stream marker"),
        (PACKED[:-8] + bytes(8), "CRC check failed"),
        (PACKED[:20] + b"\xff" * 20 + PACKED[40:], "decompressing"),
        (CHROME[:-5], "the file is not JSON"),
        (b'{"traceEvents": ["\xff"]}', "the file is not JSON"),
        (b"[" * 200_000, "the file is not JSON"),
        (b'{"traceEvents": [{"ph": "X", "ts": "a"}]}', "an event is malformed: ValueError"),
        (b'[{"ph": "E", "ts": 1, "pid": "q"}]', "an event is malformed: ValueError"),
        (b"[1]", "trace: an event is not an object$"),
        (b'[{"ph": "E"}]', "an event is malformed: KeyError"),
        (b'[{"ph": "s", "tid": []}]', "an event is malformed: TypeError"),
        (b'[{"ph": "M", "args": null}]', "an event is malformed: AttributeError"),
        (b'[{"ph": "X", "ts": "inf"}]', "an event is malformed: OverflowError"),
    ],
)
def test_damaged_file_is_refused_by_its_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=f"^{re.escape(str(path))}: .*{reason}"):
        files.read(path)


def test_layers_and_phases_of_c_are_those_of_python() -> None:
    root = Path(__file__).resolve().parents[2] / "csrc" / "trace.h"
    text = root.read_text().partition("#define NNB_TRACE_SITES_OF")[0]
    layers = [word for word in text.split() if word.startswith("NNB_LAYER_")]
    phases = [word for word in text.split() if word.startswith("NNB_PHASE_")]
    assert [w.strip(",").removeprefix("NNB_LAYER_") for w in layers] == [x.name for x in Layer]
    assert [w.strip(",").removeprefix("NNB_PHASE_") for w in phases] == [x.name for x in Phase]
