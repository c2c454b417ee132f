"""`NNBURST_VLOG`: which words turn on what, and what a line looks like."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnburst.hal import vlog
from nnburst.hal.environment import TAGS, known_tags, unknown_tags

EVERYTHING = set(TAGS)


@pytest.fixture(autouse=True)
def everything_off() -> Iterator[None]:
    yield
    vlog.set_tags("")


@pytest.mark.parametrize(
    ("text", "tags", "unknown"),
    [
        ("", set(), ()),
        ("1", EVERYTHING, ()),
        ("all", EVERYTHING, ()),
        ("model", {"model"}, ()),
        ("model,compilation", {"model", "compilation"}, ()),
        ("model:driver memory", {"model", "driver", "memory"}, ()),
        ("execution,all,model", EVERYTHING, ()),
        ("0", set(), ("0",)),
        ("Model", set(), ("Model",)),
        ("model,,driver", {"model", "driver"}, ("",)),
        ("nonsense cpuexe", {"cpuexe"}, ("nonsense",)),
    ],
)
def test_words_turn_on_tags_as_in_the_original(
    text: str, tags: set[str], unknown: tuple[str, ...]
) -> None:
    assert known_tags(text) == tags
    said = ", ".join(map(repr, unknown))
    assert [line.split(" left out")[0] for line in unknown_tags(text)] == (
        [f"NNBURST_VLOG: {said}"] if unknown else []
    )


def test_words_that_are_not_tags_are_warned_of_once_with_the_tags(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vlog.set_tags("model foo 0")
    [record] = caplog.records
    assert "'foo', '0'" in record.getMessage()
    assert all(tag in record.getMessage() for tag in TAGS)
    assert vlog.on("model")
    assert not vlog.on("driver")


def test_a_line_is_one_line_whatever_the_level_of_the_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    vlog.set_tags("memory")
    vlog.write("memory", "a pool called %s", "x\n\x1b[31m" + "y" * 2000)
    vlog.write("driver", "this is off")
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.startswith(f"nnburst.vlog.memory[{os.getpid()}]: a pool called x\\x0a\\x1b[31myyy")
    assert shown.rstrip().endswith("characters)")


def test_a_stderr_whose_reader_is_gone_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        vlog.set_tags("memory")
        vlog.write("memory", "a line")
        with pytest.raises(BrokenPipeError):  # it is broken
            broken.write("a line\n")
        with contextlib.suppress(BrokenPipeError):
            broken.close()
        vlog.write("memory", "a line to a closed file")


def test_lines_above_the_cap_are_counted_in_the_next_one() -> None:
    now = 0.0
    cap = vlog.Cap(2, lambda: now)

    def passes() -> logging.LogRecord | None:
        record = logging.LogRecord("x", logging.INFO, "", 0, "line %d", (1,), None)
        return record if cap.filter(record) else None

    assert [passes() is not None for _ in range(5)] == [True, True, False, False, False]
    now = 1.5
    first = passes()
    assert first is not None
    assert first.getMessage() == "line 1 (3 lines before it were dropped)"
    second = passes()
    assert second is not None
    assert second.getMessage() == "line 1"


SCRIPT = """
import numpy as np
import nnburst
from nnburst.runtime import Compilation, Model
from nnburst.runtime.compile import CompiledModel
from nnburst.testing.faults.activities import sum_model, summands
from nnburst.testing.framework import two_drivers

manager = two_drivers("reference")
compilation = Compilation(Model.of(sum_model()), manager=manager)
compilation.finish()
with CompiledModel(compilation) as compiled:
    compiled.execute(summands(7777))
manager.close()
with nnburst.launch("reference") as device:
    device.allocate(4096).close()
    device.prepare(sum_model()).execute(summands(7777))
"""


def test_every_tag_shows_what_a_program_and_its_drivers_do_and_never_data(tmp_path: Path) -> None:
    environment = {**os.environ, "NNBURST_VLOG": "all", "NNBURST_GRAPH_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("nnburst.vlog.")]
    by_tag = {tag: [li for li in lines if f"vlog.{tag}[" in li] for tag in TAGS}
    assert {tag for tag, found in by_tag.items() if found} == EVERYTHING
    assert any("digraph" in line for line in by_tag["model"])
    assert any("sample_a" in line or "sample_b" in line for line in by_tag["compilation"])
    assert any("PrepareModel: " in line for line in by_tag["driver"])
    assert any("NO_ERROR" in line for line in by_tag["execution"])
    assert "7777" not in "".join(line.partition("]: ")[2] for line in lines)
    pictures = sorted(path.name for path in tmp_path.glob("*.dot"))
    assert any("finished_model" in name for name in pictures)
    assert any(name.endswith("plan.dot") for name in pictures)
    assert any("prepared_by_reference" in name for name in pictures)
