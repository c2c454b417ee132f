"""Paths that are no regular files are refused at once, wherever a network is read."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import nnburst
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import python_command


def _socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    return path


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


KINDS: Final[dict[str, Callable[[Path], Path]]] = {
    "a device": lambda _: Path("/dev/zero"),
    "a directory": _directory,
    "a pipe": _fifo,
    "a socket": _socket,
}
#: Loads with limited memory, since reading /dev/zero never ends.
_LOADS: Final = (
    "import resource, sys, nnburst\n"
    "resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))\n"
    "nnburst.load(sys.argv[1])"
)
#: The words before the path.
COMMANDS: Final = {
    "load": ("-c", _LOADS),
    "compile": ("-c", "import sys, nnburst; nnburst.compile(sys.argv[1])"),
    "inspect": ("-m", "nnburst", "inspect"),
    "run": ("-m", "nnburst", "run"),
    "fuzz importer": ("-m", "nnburst", "fuzz", "importer"),
    "fuzz onnx": ("-m", "nnburst", "fuzz", "onnx"),
    "bench model": ("-m", "nnburst", "bench", "model"),
    "bench operations": ("-m", "nnburst", "bench", "operations"),
    "bench prepare": ("-m", "nnburst", "bench", "prepare"),
    "stress": ("-m", "nnburst", "stress", "--seconds", "1", "--model"),
}


def refusal(command: str, path: Path) -> str:
    """Run a command that must fail; returns its stderr."""
    words = python_command(*COMMANDS[command], str(path))
    ended = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode != 0
    return ended.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_regular_file_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = KINDS[kind](tmp_path / "network")
    assert f"{path} is {kind}, expected a regular file" in refusal("load", path)


@pytest.mark.every_day("inspect")
@pytest.mark.parametrize("command", [each for each in COMMANDS if each != "load"])
def test_no_command_waits_for_the_other_end_of_a_pipe(command: str, tmp_path: Path) -> None:
    path = _fifo(tmp_path / "network")
    assert f"{path} is a pipe, expected a regular file" in refusal(command, path)


@pytest.mark.parametrize("name", ["network.onnx", "network.tflite", "network"])
@pytest.mark.parametrize("as_graph", [None, True])
def test_pointer_of_git_lfs_and_empty_file_are_named_so(
    tmp_path: Path, name: str, as_graph: bool | None
) -> None:
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(InvalidArgument, match=r"network.*: a pointer of Git LFS, not the network"):
        nnburst.load(path, as_graph=as_graph)
    path.write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"network.*: the file is empty"):
        nnburst.load(path, as_graph=as_graph)
