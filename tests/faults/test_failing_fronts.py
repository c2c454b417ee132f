"""If any call of a front fails, from start to end, the front names the reason and ends, or it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="extra http is not installed")
pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

from faults.nth_call import CALLS, some_of
from faults.serving_road import Client, driver, words
from nnburst.hal.environment import EXAMPLES

#: Seconds that a front may take from its start to its end.
PATIENCE = 90
#: A night's campaign tries every place of every call, a short one three of some; each is a process.
IS_NIGHT = EXAMPLES.read() >= 1000
PLACES, TRIED = ("all", CALLS) if IS_NIGHT else ("some", ("thread", "socket", "recv"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of a driver."""
    with driver() as found:
        yield found


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with contextlib.closing(Client()) as found:
        yield found


def served(
    call: str, number: int, preloaded: Path, place: Path, address: str, client: Client
) -> tuple[int, list[str]]:
    """Make the `number`-th call of a front fail; the number of its calls, and the faults found."""
    command = [sys.executable, "-m", "faults.serving_road", "front", call, str(number), str(place)]
    path = os.pathsep.join(sys.path)
    front = subprocess.Popen(
        [*command, *words(address)],
        env={**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(preloaded)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert front.stdout is not None
    guard = threading.Timer(PATIENCE, front.kill)
    guard.start()
    wrong = []
    try:
        lines = [line for _ in ("gRPC", "HTTP") if (line := front.stdout.readline().strip())]
        addresses = dict(line.split(" at ") for line in lines)
        try:
            client.ask_until_right(addresses)
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
        if addresses:
            front.send_signal(signal.SIGTERM)
        _, errors = front.communicate()
    finally:
        guard.cancel()
        front.kill()
        front.wait()
    if front.returncode not in ((0,) if addresses else (0, 1)):
        wrong.append(f"it has ended by {front.returncode}")
    if not addresses and "ERROR" not in errors:
        wrong.append("it has not named why it ends")
    if "Traceback" in errors:
        wrong.append(errors[-2000:])
    return int(place.read_text()) if place.exists() else 0, [f"{call} {number}: {e}" for e in wrong]


@pytest.mark.campaign
@pytest.mark.parametrize("call", TRIED)
def test_a_front_names_the_reason_and_ends_or_serves_whatever_call_fails(
    call: str, failing_calls: Path, tmp_path: Path, address: str, client: Client
) -> None:
    seen, wrong = served(call, 10**9, failing_calls, tmp_path / "seen", address, client)
    assert wrong == []
    for number in some_of(range(1, seen + 1), PLACES):
        wrong += served(call, number, failing_calls, tmp_path / "seen", address, client)[1]
    assert wrong == []
