"""The front's options: words that do not go together are refused before anything starts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from nnburst.hal.errors import InvalidArgument
from nnburst.serving.options import add_options, parse, words


def given(*line: str) -> list[str]:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return words(parser.parse_args(line))


def test_without_grpc_there_is_no_front() -> None:
    assert given() == []


def test_words_are_read_again_as_the_same_options(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("x")
    tls = ["--grpc-tls-cert", str(pem), "--grpc-tls-key", str(pem), "--grpc-client-ca", str(pem)]
    line = ["--grpc", "[::1]:0", "--model", f"net={pem}", *tls, "--grpc-shared-memory"]
    options = parse(["--connect", "driver", *given(*line, "--grpc-max-rpcs", "3")])
    assert options.models == {"net": str(pem)}
    assert (options.grpc, options.max_rpcs, options.shared_memory) == ("[::1]:0", 3, True)
    assert options.tls is not None
    assert options.tls.client_ca == pem


def test_metrics_need_no_grpc() -> None:
    options = parse(["--connect", "driver", *given("--metrics", "127.0.0.1:0")])
    assert (options.grpc, options.metrics) == ("", "127.0.0.1:0")
    with pytest.raises(InvalidArgument, match="missing"):
        parse(["--connect", "driver"])


@pytest.mark.parametrize(
    "line",
    [
        ["--model", "a=b:c"],
        ["--grpc", "nowhere"],
        ["--grpc", "host:70000"],
        ["--grpc", "h:1", "--model", "a"],
        ["--grpc", "h:1", "--model", "a=/nowhere.tflite"],
        ["--grpc", "h:1", "--model", "a=b:c", "--model", "a=d:e"],
        ["--grpc", "h:1", "--grpc-tls-cert", "x"],
        ["--grpc", "h:1", "--grpc-client-ca", "x"],
        ["--grpc", "h:1", "--grpc-max-rpcs", "0"],
    ],
)
def test_words_that_do_not_go_together_are_refused(line: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        given(*line)
