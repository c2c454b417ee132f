from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnburst.driver.service.main import Options


def test_words_of_a_launch_are_read() -> None:
    options = Options(
        ["--executor", "litert", "--name", "cam", "--cpus", "0,3", "--extension", "a:b", "--extension", "c:d",
         "--fd", "7"]
    )  # fmt: skip
    assert (options.executor, options.name, options.fd, options.serve) == ("litert", "cam", 7, "")
    assert (options.cpus, options.extensions) == ([0, 3], ["a:b", "c:d"])
    assert not options.any_user
    assert not options.until_stdin_ends


def test_words_of_a_service_are_read() -> None:
    options = Options(
        ["--executor=null", "--serve", "-cam", "--any-user", "--until-stdin-ends", "--share-weights", "off",
         "--front", '{"grpc": ":1"}', "--json", "-"]
    )  # fmt: skip
    assert (options.executor, options.name, options.fd, options.serve) == (
        "null",
        "null",
        -1,
        "-cam",
    )
    assert (options.any_user, options.until_stdin_ends, options.share_weights) == (
        True,
        True,
        "off",
    )
    assert (options.front, options.json) == ('{"grpc": ":1"}', Path("-"))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--fd", "3"], "--executor is missing"),
        (["--executor", "null"], "either --fd or --serve"),
        (["--executor", "null", "--fd", "3", "--serve", "cam"], "either --fd or --serve"),
        (["--executor", "null", "--serve", ""], "--serve: '', expected a name or a path"),
        (["--executor", "null", "--fd", "three"], "--fd three: expected a number"),
        (["--executor", "null", "--fd", "3", "--cpus", "0,x"], "--cpus x: expected a number"),
        (["--executor", "null", "--fd", "3", "--share-weights", "some"], "--share-weights some"),
        (["--executor", "null", "--fd", "3", "--colour", "red"], "--colour"),
        (["--executor", "null", "--fd", "3", "more"], "'more'"),
        (["--executor"], "--executor"),
    ],
)
def test_wrong_words_are_named(words: list[str], wrong: str) -> None:
    with pytest.raises(SystemExit, match=f"^python -m nnburst.driver: .*{wrong}"):
        Options(words)


def test_driver_without_its_words_ends_with_the_reason() -> None:
    command = [sys.executable, "-m", "nnburst.driver", "--fd", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "python -m nnburst.driver: --executor is missing\n"
