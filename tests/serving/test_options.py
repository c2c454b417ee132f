"""The front's options: words that do not go together are refused before anything starts."""

from __future__ import annotations

import argparse
import errno
import re
import shutil
import socket
from pathlib import Path

import pytest

from nnburst.cli import main, serve
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.importer.named_sources import NamedSource
from nnburst.serving import addresses
from nnburst.serving.addresses import check_address, listen
from nnburst.serving.credentials import NotAuthenticated, Tokens
from nnburst.serving.options import add_options, parse, words


def given(*line: str) -> list[str]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--any-user", action="store_true")
    add_options(parser)
    return words(parser.parse_args(line))


def test_without_grpc_there_is_no_front() -> None:
    assert given() == []


def test_words_are_read_again_as_the_same_options(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("x")
    tls = ["--tls-cert", str(pem), "--tls-key", str(pem), "--client-ca", str(pem)]
    line = [
        "--grpc",
        "[::1]:0",
        "--model",
        f"net={pem}",
        "--shape",
        "x=1,3",
        "--state",
        "past=present",
        "--largest",
        "logits",
        *tls,
        "--shared-memory",
        "--spans",
    ]
    options = parse(["--connect", "driver", *given(*line, "--max-queue", "3")])
    source = NamedSource("net", 1, str(pem), {"x": (1, 3)}, {"past": "present"}, ("logits",))
    assert options.models == {"net": {1: source}}
    assert (options.grpc, options.max_queue, options.shared_memory) == ("[::1]:0", 3, True)
    assert options.spans
    assert options.tls is not None
    assert options.tls.client_ca == pem


def test_metrics_need_no_grpc() -> None:
    options = parse(["--connect", "driver", *given("--metrics", "127.0.0.1:0")])
    assert (options.grpc, options.metrics) == ("", "127.0.0.1:0")
    with pytest.raises(InvalidArgument, match="missing"):
        parse(["--connect", "driver"])


def test_metrics_beyond_loopback_need_a_token_file(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-this-test")
    with pytest.raises(InvalidArgument, match="--token-file"):
        given("--metrics", "0.0.0.0:9100")
    line = given("--metrics", "0.0.0.0:9100", "--token-file", str(tokens))
    assert parse(["--connect", "driver", *line]).metrics == "0.0.0.0:9100"


def test_secret_that_is_replaced_by_links_is_read_again(tmp_path: Path) -> None:
    """As Kubernetes mounts secrets: files are links through one folder, whose own link changes at once."""
    names = ("token", "certificate", "key")
    data = tmp_path / "data"

    def replace(generation: str) -> None:
        before = data.resolve() if data.is_symlink() else None
        folder = tmp_path / generation
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"{generation} {name} of this test")
        link = tmp_path / "new"
        link.symlink_to(folder)
        link.rename(data)
        if before is not None:
            shutil.rmtree(before)

    replace("first")
    for name in names:
        (tmp_path / name).symlink_to(Path("data") / name)
    line = ["--grpc", "h:1", "--token-file", str(tmp_path / "token")]
    line += ["--tls-cert", str(tmp_path / "certificate"), "--tls-key", str(tmp_path / "key")]
    options = parse(["--connect", "driver", *given(*line)])
    assert options.token_file is not None
    assert options.tls is not None
    tokens = Tokens(options.token_file)
    tokens.check("Bearer first token of this test")
    replace("second")
    tokens.check("Bearer second token of this test")
    with pytest.raises(NotAuthenticated):
        tokens.check("Bearer first token of this test")
    assert options.tls.certificate.read_text().startswith("second")
    assert options.tls.key.read_text().startswith("second")


@pytest.mark.parametrize(
    "line",
    [
        ["--http-metrics"],
        ["--spans"],
        ["--token-file", "/nowhere"],
        ["--tls-cert", "x"],
        ["--client-ca", "x"],
        ["--shared-memory"],
        ["--repository", "/nowhere"],
        ["--model-control", "explicit"],
        ["--lanes", "4"],
        ["--grpc-max-streams", "4"],
        ["--watchdog", "5"],
    ],
)
def test_option_of_a_front_that_is_not_there_is_refused(line: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{line[0]}: needs --grpc, --http or --metrics$"):
        given(*line)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--metrics", ["--metrics", "localhost:0"]),
        ("--http-metrics", ["--http", "localhost:0", "--http-metrics"]),
    ],
)
def test_option_without_its_extra_is_refused_by_its_own_name(
    option: str,
    line: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = {"prometheus_client"}
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name in missing else name)
    assert main(["serve", "x", *line]) == 1
    assert f"nnburst: {option} needs the extra metrics" in capsys.readouterr().err


def test_networks_need_no_grpc_and_a_front_has_every_version_of_each() -> None:
    networks = ["--model", "a=b:c", "--model", "a@10=f:g", "--model", "a@9=d:e"]
    assert given(*networks) == []
    options = parse(["--connect", "driver", *given("--grpc", "h:1", *networks)])
    assert options.models == {
        "a": {
            1: NamedSource("a", 1, "b:c"),
            9: NamedSource("a", 9, "d:e"),
            10: NamedSource("a", 10, "f:g"),
        }
    }


@pytest.mark.parametrize(
    "line",
    [
        ["--grpc", "nowhere"],
        ["--grpc", "unix:relative"],
        ["--grpc", "h:1", "--http-metrics"],
        ["--metrics", "0.0.0.0:1"],
        ["--metrics", "127.0.0.1:1", "--spans"],
        ["--metrics", "unix:/run/metrics"],
        ["--http", "h:1", "--token-file", "/nowhere"],
        ["--grpc", "host:70000"],
        ["--grpc", f"host:{'9' * 5000}"],
        ["--grpc", "h:1", "--model", "a"],
        ["--grpc", "h:1", "--model", "a=/nowhere.tflite"],
        ["--grpc", "h:1", "--model", "a=b:c", "--model", "a@1=d:e"],
        ["--grpc", "h:1", "--state", "past=present", "--model", "a=b:c"],
        ["--grpc", "h:1", "--model", "a=b:c", "--state", "past"],
        ["--grpc", "h:1", "--model", "a=b:c", "--state", "past=one", "--state", "past=two"],
        ["--grpc", "h:1", "--largest", "logits"],
        ["--grpc", "h:1", "--tls-cert", "x"],
        ["--grpc", "h:1", "--client-ca", "x"],
        ["--grpc", "h:1", "--max-queue", "0"],
        ["--grpc", "h:1", "--max-message", str(2**31)],
        ["--grpc", "h:1", "--max-connections", str(2**31)],
        ["--grpc", "h:1", "--max-delay-us", str(2**31)],
        *(["--grpc", "h:1", "--watchdog", value] for value in ("0", "-1", "nan", "inf", "86401")),
        ["--grpc", "h:1", "--drain", "nan"],
        ["--grpc", "h:1", "--repository", "/nowhere"],
        ["--grpc", "h:1", "--model-control", "poll"],
    ],
)
def test_words_that_do_not_go_together_are_refused(line: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        given(*line)


@pytest.mark.parametrize("option", ["--http", "--metrics"])
@pytest.mark.parametrize("host", ["a..b", "a" * 70])
def test_name_that_no_host_can_have_is_refused_with_its_option(option: str, host: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"^{option}: {re.escape(host)}:8111 cannot be"):
        listen(option, f"{host}:8111", any_user=False)


@pytest.mark.parametrize("option", ["--grpc", "--http", "--metrics"])
def test_service_whose_address_no_wait_cures_ends_with_one_line(
    option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["serve", str(tmp_path / "driver"), "--executor", "null", option, "a..b:8111"]
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-this-test")
    assert main([*line, "--token-file", str(tokens)]) == 1
    shown = capfd.readouterr()
    assert shown.err.startswith(f"nnburst: {option}: a..b:8111 cannot be served: ")
    assert shown.err.count("\n") == 1
    assert not shown.out


@pytest.mark.parametrize("protocol", ["--grpc", "--http", "--metrics"])
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--token-file {file}", "--token-file: {file} has no line of 16 characters or more"),
        ("--tls-cert {file} --tls-key {file}", "--tls-cert {file} and --tls-key {file}: "),
    ],
)
def test_service_that_has_no_token_or_no_certificate_ends_with_one_line(
    protocol: str, words: str, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("short\n")
    line = ["serve", str(tmp_path / "driver"), "--executor", "null", protocol, "127.0.0.1:0"]
    assert main([*line, *words.format(file=file).split()]) == 1
    shown = capfd.readouterr()
    assert shown.err.startswith("nnburst: " + reason.format(file=file))
    assert shown.err.count("\n") == 1
    assert not shown.out


@pytest.mark.parametrize(
    ("one", "other"), [("--grpc", "--http"), ("--grpc", "--metrics"), ("--http", "--metrics")]
)
def test_two_protocols_at_one_address_are_refused_unless_the_kernel_chooses(
    one: str, other: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{other}: '127.0.0.1:8001' is that of {one}, "):
        given(one, "127.0.0.1:8001", other, "127.0.0.1:8001")
    assert given(one, "127.0.0.1:0", other, "127.0.0.1:0")


def test_port_that_this_user_may_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses.socket, "socket", ForbiddenSocket)
    with pytest.raises(InvalidArgument, match=r"^--http: 127\.0\.0\.1:80 cannot be .*denied"):
        check_address("--http", "127.0.0.1:80")


class ForbiddenSocket(socket.socket):
    """As that of a user who may not use the port; root may."""

    def bind(self, _address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")


def test_path_that_can_have_no_socket_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidArgument, match="not a socket"):
        check_address("--http", f"unix:{file}")
    with pytest.raises(InvalidArgument, match="a folder that this user can write to"):
        check_address("--http", f"unix:{tmp_path}/absent/socket")
    with pytest.raises(InvalidArgument, match="longer than"):
        check_address("--http", f"unix:{tmp_path}/{'a' * 200}")
    check_address("--http", f"unix:{tmp_path}/socket")
    assert sorted(tmp_path.iterdir()) == [file], "nothing is left"


def test_address_that_may_be_there_later_is_left_to_the_front(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        check_address("--grpc", f"127.0.0.1:{taken.getsockname()[1]}")
    check_address("--grpc", "192.0.2.1:8111")  # of nobody: an example by RFC 5737
    check_address("--grpc", "[::1]:0")
    check_address("--grpc", "localhost:0")

    def no_server_yet(*_: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(addresses.socket, "getaddrinfo", no_server_yet)
    check_address("--grpc", "some.example:8111")
