"""The trial run that decides whether the library is the one that csrc/litert.c expects."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from executor.litert.networks import addition, aligned, bind, needs_engine
from nnburst._native import ffi, lib
from nnburst.executor.built_in import litert
from nnburst.executor.c_structs import string_of
from nnburst.executor.litert import native

pytestmark = needs_engine


@pytest.fixture(autouse=True)
def _own_trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "_trials", {})
    monkeypatch.setattr(native, "place", lambda: tmp_path / "passed.txt")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def test_library_of_the_wheel_passes_its_trial() -> None:
    assert native._failed_trial() == ""


def test_network_with_another_result_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = native.GraphWriter()
    vector = native._trial_network()[1]
    x = graph.tensor(vector)
    content = graph.finish([x], graph.operator("RELU", [x], [vector]))
    monkeypatch.setattr(native, "_trial_network", lambda: (content, vector))
    assert str(int(lib.NNB_LITERT_WRONG_RESULT)) in native._failed_trial()


#: A process that forks; both print what keeps the library from use, the child "1" for the same trial first.
_FORK: Final = """
import os, pathlib, sys
from nnburst.executor.litert import native
native.place = lambda: pathlib.Path("/dev/null/none")
wait, trial = native.begin_trial(), native._trial()
if sys.argv[1] == "after":
    assert wait() == ""
if sys.argv[1] == "failed":
    trial._failure = "it failed"
child = os.fork()
if child == 0:
    try:
        print(int(native._trial() is trial), native._failed_trial(), flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
print(native._failed_trial())
"""


def _fork(when: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _FORK, when], capture_output=True, check=True, text=True, timeout=120
    )
    return [line.strip() for line in done.stdout.splitlines()]


def test_process_forked_after_a_passed_trial_makes_none_of_its_own() -> None:
    assert _fork("after") == ["1", ""]


def test_process_forked_during_a_trial_makes_its_own() -> None:
    assert _fork("during") == ["0", ""]


def test_process_forked_after_a_failed_trial_makes_its_own() -> None:
    assert _fork("failed") == ["0", "it failed"]


def test_library_that_was_replaced_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = native._library()
    assert library is not None
    place = tmp_path / library.name
    place.symlink_to(library)
    monkeypatch.setattr(native, "_library", lambda: place)
    before = native._trial()
    assert native._trial() is before
    assert before.failure() == ""
    place.unlink()
    shutil.copyfile(library, place)
    after = native._trial()
    assert after is not before
    assert after.failure() == ""


def test_library_that_has_passed_is_tried_again_only_if_something_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert native._failed_trial() == ""
    assert (tmp_path / "passed.txt").is_file()
    monkeypatch.setattr(native, "_trials", {})
    trial = native._trial()
    assert (trial._child, trial.failure(), trial.counts_here) == (None, "", True)
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        monkeypatch.setattr(native, "_trials", {})
        monkeypatch.setenv(name, str(tmp_path))
        assert native._trial()._child is not None
        assert native._failed_trial() == ""
        monkeypatch.delenv(name)
    monkeypatch.setattr(native, "_trials", {})
    monkeypatch.setattr(native, "_BOOT", tmp_path / "boot")
    assert native._trial()._child is not None  # the start of the machine cannot be told
    assert native._failed_trial() == ""


def test_failed_trial_is_not_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = native.GraphWriter()
    vector = native._trial_network()[1]
    x = graph.tensor(vector)
    content = graph.finish([x], graph.operator("RELU", [x], [vector]))
    monkeypatch.setattr(native, "_trial_network", lambda: (content, vector))
    assert native._failed_trial() != ""
    assert not (tmp_path / "passed.txt").exists()


def test_nothing_is_noted_where_python_may_not_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert native._failed_trial() == ""
    assert not (tmp_path / "passed.txt").exists()


def test_note_that_is_cut_or_noise_counts_for_nothing(tmp_path: Path) -> None:
    assert native._failed_trial() == ""
    now = (tmp_path / "passed.txt").read_text()
    assert native.has_passed(now)
    for harmed in (now[:-1].encode(), b"", b"\xff\xfe"):
        (tmp_path / "passed.txt").write_bytes(harmed)
        assert not native.has_passed(now)


def test_trial_begins_while_a_driver_imports_the_rest() -> None:
    program = (
        "import pathlib, sys\n"
        "from nnburst.executor.litert import native\n"
        "native.place = lambda: pathlib.Path('/dev/null/none')\n"
        "from nnburst.driver.executors import begin_executor\n"
        "wait = begin_executor('litert')\n"
        "assert 'nnburst.driver.service.worker' not in sys.modules\n"
        "from nnburst.executor.litert import native\n"
        "(trial,) = native._trials.values()\n"
        "assert wait() == ''\n"
        "assert native.available()\n"
        "assert list(native._trials.values()) == [trial]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_library_of_another_minor_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_MINORS", ("1.0.",))
    native.available.cache_clear()
    assert not native.available()
    native.available.cache_clear()


def test_refused_network_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    assert native.available()
    message = ffi.new("char[]", int(lib.NNB_LITERT_MESSAGE_BYTES))
    engine = lib.nnb_litert_engine_new_unlocked(b"no network", 10, 1, -1, message)
    assert engine == ffi.NULL
    assert string_of(message).startswith("status ")


def test_engine_writes_nothing_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    model = addition()
    bind(litert().prepare(model, []), model, [aligned(16), aligned(16)]).run()
    assert capfd.readouterr().err == ""
