from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from driver.conftest import RawClient, add_model
from nnburst.control.messages import ExecuteSynchronously, PrepareModel
from nnburst.driver.logs import OneLineFormatter, RepetitionFilter
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.request import Request


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
