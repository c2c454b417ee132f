"""If any call of a front or its supervisor fails, from start to end, it says why and ends, or it serves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="extra http is not installed")
pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

from faults.nth_call import CALLS, some_of
from faults.serving_road import FRONT, Client, driver, words
from nnburst.hal.environment import EXAMPLES

#: A supervisor forks, so the libraries that this test imports there may start no threads.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
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
    role: Sequence[str], call: str, number: int, preloaded: Path, place: Path, client: Client
) -> tuple[int, list[str]]:
    """Make the `number`-th call of a process fail; the number of its calls, and the faults found.

    `role` has the process, "front" or "supervisor", and its options.
    """
    which, *options = role
    command = [sys.executable, "-m", "faults.serving_road", which, call, str(number), str(place)]
    path = os.pathsep.join(sys.path)
    front = subprocess.Popen(
        [*command, *options],
        env={**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(preloaded), **_ONE_THREAD},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert front.stdout is not None
    guard = threading.Timer(PATIENCE, front.kill)
    guard.start()
    wrong = []
    try:
        addresses: dict[str, str] = {}
        while len(addresses) < 2 and (line := front.stdout.readline()):
            protocol, _, place_of = line.strip().partition(" at ")
            if protocol in ("gRPC", "HTTP"):  # a supervisor has a line of its own besides
                addresses[protocol] = place_of
        try:
            client.ask_until_right(addresses, "unload", "load")
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
    if not addresses and not re.search(
        r"^nnburst (front: ERROR|driver .*\]): ", errors, re.MULTILINE
    ):
        wrong.append("it has not named why it ends")
    if "Traceback" in errors:
        wrong.append(errors[-2000:])
    return int(place.read_text()) if place.exists() else 0, [f"{call} {number}: {e}" for e in wrong]


@pytest.mark.campaign
@pytest.mark.parametrize("call", TRIED)
def test_a_front_names_the_reason_and_ends_or_serves_whatever_call_fails(
    call: str, failing_calls: Path, tmp_path: Path, address: str, client: Client
) -> None:
    check_all(["front", *words(address)], call, failing_calls, tmp_path, client)


@pytest.mark.campaign
@pytest.mark.parametrize("call", TRIED)
def test_a_supervisor_names_the_reason_and_ends_or_its_front_serves_whatever_call_fails(
    call: str, failing_calls: Path, tmp_path: Path, client: Client
) -> None:
    service = ["--executor", "reference", "--serve", str(tmp_path / "driver")]
    check_all(
        ["supervisor", *service, "--front", json.dumps(FRONT)],
        call,
        failing_calls,
        tmp_path,
        client,
    )


def check_all(
    role: Sequence[str], call: str, preloaded: Path, folder: Path, client: Client
) -> None:
    seen, wrong = served(role, call, 10**9, preloaded, folder / "seen", client)
    assert wrong == []
    for number in some_of(range(1, seen + 1), PLACES):
        wrong += served(role, call, number, preloaded, folder / "seen", client)[1]
    assert wrong == []
