from __future__ import annotations

import io
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from driver.conftest import RawClient, add_model
from nnburst.control.messages import ExecuteSynchronously, PrepareModel
from nnburst.driver.service.main import OneLineFormatter, RepetitionFilter
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.types import Request
from nnburst.hal.utils import driver_environment


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines() -> Iterator[Any]:
    """A logger of its own, the clock of its filter, and what it has written."""
    clock, stream = Clock(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLineFormatter("driver: %(message)s"))
    handler.addFilter(RepetitionFilter(lines=2, period=10, clock=clock))
    logger = logging.getLogger("nnburst.test_logs")
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, clock, lambda: stream.getvalue().splitlines()
    logger.removeHandler(handler)


def test_of_many_lines_of_one_kind_a_few_are_written(lines: Any) -> None:
    logger, clock, written = lines
    for worker in range(100):
        logger.warning("worker %d ended", worker)
    assert written() == ["driver: worker 0 ended", "driver: worker 1 ended"]
    clock.now = 9.9
    logger.warning("worker %d ended", 100)
    assert len(written()) == 2


def test_what_was_left_out_is_counted_in_the_next_period(lines: Any) -> None:
    logger, clock, written = lines
    for worker in range(100):
        logger.warning("worker %d ended", worker)
    clock.now = 10.0
    logger.warning("worker %d ended", 100)
    logger.warning("worker %d ended", 101)
    assert written()[2:] == [
        "driver: worker 100 ended (98 more like it were left out)",
        "driver: worker 101 ended",
    ]


def test_lines_of_other_kinds_are_written_meanwhile(lines: Any) -> None:
    logger, _, written = lines
    for _ in range(5):
        logger.warning("one")
        logger.error("one")
        logger.warning("two")
    assert written() == ["driver: one", "driver: one", "driver: two"] * 2


def test_a_message_cannot_forge_a_line(lines: Any) -> None:
    logger, _, written = lines
    logger.warning("refused %s", "x\nnnburst driver: all is well\x1b[2K\u2028y")
    assert written() == [
        r"driver: refused x\x0annburst driver: all is well\x1b[2K\x2028y",
    ]


def test_the_traceback_of_a_defect_keeps_its_lines(lines: Any) -> None:
    logger, _, written = lines
    try:
        {}["defect"]
    except KeyError:
        logger.exception("an execution raised")
    assert written()[-1] == "KeyError: 'defect'"


def test_a_long_message_is_cut(lines: Any) -> None:
    logger, _, written = lines
    logger.warning("refused %s", "A" * 300_000)
    logger.warning("refused %s", "\n" * 300_000)
    for line in written():
        assert len(line) < 1100
        assert line.endswith("… (300016 characters)")
    error = ValueError("B" * 300_000 + "\n" * 300_000)
    logger.error("an execution raised", exc_info=error)
    assert len("\n".join(written())) < 20_000


def test_processes_that_were_forked_share_what_they_may_write(lines: Any) -> None:
    logger, clock, written = lines
    here, there = os.pipe()
    for worker in range(5):
        child = os.fork()
        if child == 0:
            for _ in range(3):
                logger.warning("worker %d ended", worker)
            os.write(there, b"x" * len(written()))
            os._exit(0)
        os.waitpid(child, 0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        assert (
            pipe.read() == b"xx"
        )  # by the first child: what it wrote did not reach this one's stream
    clock.now = 10.0
    logger.warning("worker %d ended", 5)
    assert written() == ["driver: worker 5 ended (13 more like it were left out)"]


def test_kinds_beyond_those_that_are_remembered_share_their_counts(lines: Any) -> None:
    logger, _, written = lines
    for kind in range(1_000):
        logger.warning(f"kind {kind}")  # noqa: G004 - a message that is none of the code's constants
    assert 2 < len(written()) <= 2 * 256 + 2


@pytest.mark.campaign
def test_200_connections_that_break_the_rules_write_a_few_lines(tmp_path: Path) -> None:
    check_lines_of_connections_that_break_the_rules(200, tmp_path)


def test_connections_that_break_the_rules_write_a_few_lines(tmp_path: Path) -> None:
    check_lines_of_connections_that_break_the_rules(30, tmp_path)


def check_lines_of_connections_that_break_the_rules(count: int, tmp_path: Path) -> None:
    """A driver writes at most 20 lines, some of which report the end of a connection."""
    address, log = tmp_path / "here", tmp_path / "log"
    with log.open("wb") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "nnburst.driver", "--executor", "null", "--serve", str(address)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=driver_environment(),
        )
    assert driver.stdout is not None
    driver.stdout.readline()
    for _ in range(count):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connected:
            connected.settimeout(60)
            connected.connect(str(address))
            connected.send(b"\xff")
            assert not connected.recv(1)  # the worker has written its lines
    driver.terminate()
    driver.communicate(timeout=60)
    written = log.read_text().splitlines()
    assert sum("connection ended" in line for line in written) >= 1
    assert len(written) <= 20


def test_lines_have_nothing_of_tensors_constants_or_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = b"SECRET-PAYLOAD"
    values = np.frombuffer(marker * 24, np.float32)
    builder = nnburst.ModelBuilder()
    kind = nnburst.OperandType.TENSOR_FLOAT32
    x, y = builder.input(kind, values.shape), builder.output(kind, values.shape)
    builder.operation(10_000_000, [x, builder.constant(kind, values)], [y])
    refused = builder.build()
    assert marker in refused.operand_values
    monkeypatch.setenv("NNBURST_LOG", "DEBUG")
    client = RawClient()
    client.introduce()
    assert client.launch(PrepareModel(refused, 7))[0].status == ErrorStatus.INVALID_ARGUMENT
    handle = client.prepare(add_model())
    assert client.call(ExecuteSynchronously(handle, Request((), ()))).status != ErrorStatus.NONE
    assert client.send(marker * 10).status == ErrorStatus.INVALID_ARGUMENT
    client.socket.send(marker * 20)  # no envelope: the connection ends, and that is logged
    _, log = client.process.communicate(timeout=30)
    assert b"connection ended" in log
    assert marker not in log
    client.close()
