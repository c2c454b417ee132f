"""`nnburst bench queue` as it is typed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnburst.bench.queues import PairPeer
from nnburst.cli import bench_queue, main

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def test_parts_are_measured_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_queue, "_READERS", (2,))
    monkeypatch.setattr(bench_queue, "_STREAMED", 2000)
    target = tmp_path / "queue.json"
    words = ["--rounds", "1", "--only", "sizes", "readers"]
    assert main(["bench", "queue", *words, "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert [each["bytes"] for each in figures["sizes"]] == [8, 64, 1024, 16384, 1 << 18, 1 << 20]
    assert [each["readers"] for each in figures["readers"]] == [2]
    assert "cases" not in figures
    assert "written a second" in capsys.readouterr().out


@pytest.mark.parametrize("plot", ["x.foo", "x", "missing/x.svg"])
@pytest.mark.parametrize("command", ["queue", "burst"])
def test_picture_that_cannot_be_drawn_is_wrong_usage(
    command: str, plot: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", command, "--rounds", "1", "--plot", str(tmp_path / plot)])
    assert ended.value.code == 2


def test_picture_of_pairs_that_are_not_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "queue", "--only", "sizes", "--plot", str(tmp_path / "x.svg")]
    assert main(words) == 1
    assert "pairs are not measured" in capsys.readouterr().err


def test_peer_that_waits_for_messages_is_ended_with_the_benchmark() -> None:
    peer = PairPeer(max(os.sched_getaffinity(0)))
    peer.begin("queue_bound", 10)
    peer.close()
    assert peer._process.exitcode is not None
