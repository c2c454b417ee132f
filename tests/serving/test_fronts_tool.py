"""`make fronts`: loads count what servers answer, and the table says who is ahead, and what is left out."""

from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.fronts import __main__ as fronts
from tools.fronts.__main__ import Server
from tools.fronts.load import BadAnswer, Block, _of_threads, length, over_http, post

BODY = bytes(range(256)) * 200
COMPUTED = b"what the network computes"


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers each request with its body, in two parts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Counting)
        with self.server.lock:
            self.server.answered += 1
        self.send_response(200 if self.path == "/infer" else 503)
        self.send_header("CONTENT-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:100])
        self.wfile.write(content[100:])

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


class Counting(http.server.ThreadingHTTPServer):
    lock = threading.Lock()
    answered = 0
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing is said of a client that has gone."""


@pytest.fixture
def echo() -> Iterator[Counting]:
    with Counting(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("clients", [1, 5])
def test_a_load_counts_each_answer_once_but_the_first_of_each_connection(
    echo: Counting, clients: int
) -> None:
    block = over_http(echo.server_port, post("/infer", BODY, {}), clients, 0.05)
    assert echo.answered == block.calls + clients
    assert block.calls >= clients
    assert 0 < block.slowest <= block.seconds


def test_a_load_ends_with_the_first_answer_that_is_not_200(echo: Counting) -> None:
    with pytest.raises(BadAnswer, match="503"):
        over_http(echo.server_port, post("/other", BODY, {}), 2, 0.05)


def test_an_answer_without_a_length_is_refused() -> None:
    assert length(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 17") == 17
    with pytest.raises(BadAnswer, match="with a length"):
        length(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked")


def test_an_error_of_one_client_is_raised() -> None:
    def fails() -> None:
        raise BadAnswer("no")

    with pytest.raises(BadAnswer, match="no"):
        _of_threads([lambda: None, fails], 0.01)


def test_a_block_has_the_time_that_one_call_in_a_hundred_exceeds() -> None:
    block = Block.of([*range(100, 0, -1)] * 2, 50)
    assert (block.rate, block.slowest) == (4, 99)
    assert Block.of([3.0], 2) == Block(1, 2, 3.0)


def server(name: str, *, is_ours: bool = False, computes: bool = True) -> Server:
    return Server(name, lambda _clients, _seconds: Block(1, 1, 1), COMPUTED, is_ours, computes)


def blocks(rates: dict[str, int]) -> fronts.Blocks:
    return {
        (name, clients): [Block(rate * n, 1, n / 1000) for n in (1, 2, 3)]
        for name, rate in rates.items()
        for clients in fronts.CLIENTS
    }


OURS = [server("nnburst gRPC", is_ours=True), server("nnburst REST", is_ours=True)]


def test_a_server_that_answers_a_quarter_more_calls_is_named_and_one_that_computes_nothing_is_not() -> (
    None
):
    others = [server("echo", computes=False), server("grpcio"), server("LitServe")]
    rates = {
        "nnburst gRPC": 1000,
        "nnburst REST": 900,
        "echo": 5000,
        "grpcio": 1240,
        "LitServe": 1126,
    }
    shown = fronts.tables([*OURS, *others], blocks(rates))
    assert shown.splitlines()[-1] == (
        "ahead by a quarter: LitServe with 1 clients, LitServe with 4 clients,"
        " LitServe with 16 clients, LitServe with 64 clients"
    )
    assert "| nnburst gRPC ÷ grpcio | 0.81 (0.81 to 0.81) |" in shown
    assert "| nnburst gRPC ÷ echo | 0.20 (0.20 to 0.20) |" in shown
    assert "| nnburst REST ÷ nnburst gRPC | 0.90 (0.90 to 0.90) |" in shown
    assert "| nnburst REST | 1800 (2.0) |" in shown


def test_no_server_is_named_if_none_is_ahead_by_a_quarter() -> None:
    shown = fronts.tables(
        [*OURS, server("FastAPI")],
        blocks({"nnburst gRPC": 1000, "nnburst REST": 1000, "FastAPI": 1249}),
    )
    assert shown.endswith("ahead by a quarter: none")


def test_each_server_has_a_turn_in_each_round_for_each_number_of_clients() -> None:
    turns: list[tuple[str, int, float]] = []

    def noting(name: str) -> Server:
        def load(clients: int, seconds: float) -> Block:
            turns.append((name, clients, seconds))
            return Block(1, 1, 1)

        return Server(name, load, COMPUTED)

    found = fronts.measured([noting("one"), noting("other")], 2, 0.5)
    once = [(name, clients, 0.5) for clients in fronts.CLIENTS for name in ("one", "other")]
    assert turns == once * 2
    assert all(len(each) == 2 for each in found.values())


def test_nothing_is_measured_if_no_other_server_can_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert fronts.main(["no.tflite", "--folder", str(tmp_path)]) == 0
    *left_out, last = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in left_out] == ["left out"] * len(fronts.PACKAGES)
    assert last == "skipped: no other server can be installed here"
