"""`nnburst capi` prints how C programs are built, `nnburst bench capi` what their calls cost."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from nnburst.capi import installed
from nnburst.cli import executor, main

pytestmark = pytest.mark.skipif(not installed.LIBRARY.is_file(), reason="built without the library")


def test_flags_are_those_of_this_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capi", "--cflags", "--libs", "--path"]) == 0
    cflags, *libs, path = capsys.readouterr().out.split()
    assert Path(cflags.removeprefix("-I"), "android", "NeuralNetworks.h").is_file()
    assert libs[-1] == "-lneuralnetworks"
    assert Path(path, "libneuralnetworks.so").is_file()


def test_without_options_the_flags_of_compiler_and_linker_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["capi"]) == 0
    assert capsys.readouterr().out == f"{installed.cflags()} {installed.libs()}\n"


def test_paths_with_spaces_are_quoted_for_a_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("/a folder/include")
    monkeypatch.setattr(installed, "INCLUDE", folder)
    monkeypatch.setattr(installed, "LIBRARY_FOLDER", folder)
    assert main(["capi", "--cflags", "--libs"]) == 0
    assert shlex.split(capsys.readouterr().out) == [
        f"-I{folder}",
        f"-L{folder}",
        f"-Wl,-rpath,{folder}",
        "-lneuralnetworks",
    ]
    monkeypatch.setattr(executor, "INCLUDE", folder)
    assert main(["executor", "--cflags"]) == 0
    assert shlex.split(capsys.readouterr().out) == [f"-I{folder}"]


def test_flags_that_no_shell_splits_are_not_quoted() -> None:
    assert installed.for_a_shell("-I/home/müller/.venv~1/a+b") == "-I/home/müller/.venv~1/a+b"
    assert installed.for_a_shell("-I/a$b", "-lc") == "'-I/a$b' -lc"


def test_bench_measures_the_interface_beside_the_burst(tmp_path: Path) -> None:
    path = tmp_path / "capi.json"
    assert main(["bench", "capi", "--rounds", "1", "--json", str(path)]) == 0
    names = [case["name"] for case in json.loads(path.read_text())["cases"]]
    assert names == [
        "null_1in1out",
        "capi_memory",
        "capi_pointers",
        "capi_make_and_free",
        "capi_make_and_free_memory",
        "capi_compute",
        "execute",
        "unix_socket_echo",
    ]
