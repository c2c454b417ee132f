"""If any call fails, or a road is interrupted anywhere: typed errors, no leaks, and it works again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capi.interface import Addition
from faults.nth_call import CALLS
from faults.roads import INTERRUPTIBLE, ROADS, Kept
from interrupting import Interruption
from nnburst.capi.marshalling import HANDLES
from nnburst.capi.native_executions import NATIVE_EXECUTIONS
from nnburst.hal.environment import EXAMPLES
from programs import environ_of_tests

#: A night's campaign tries every place; some roads have hundreds, each with a road of its own.
PLACES = "all" if EXAMPLES.read() >= 1000 else "some"


def tried(road: str, kind: str, places: str, preloaded: Path | None = None) -> dict[str, Any]:
    environment = environ_of_tests()
    if preloaded is not None:
        environment["LD_PRELOAD"] = str(preloaded)
    command = [sys.executable, "-m", "faults.nth_call", road, kind, places]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_road_through_the_c_interface_frees_all_that_it_makes() -> None:
    around = ROADS["c"]()
    road = next(around)
    counts = []
    for _ in range(2):  # devices stay from the first time on
        road(Kept())
        counts.append(len(HANDLES._objects))
    assert counts[0] == counts[1]
    assert next(around, None) is None


def test_the_road_through_the_c_interface_raises_what_frees_have_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class PlantedError(Exception):
        """Raised by one free."""

    release = NATIVE_EXECUTIONS.release
    planted: list[PlantedError] = []

    def release_or_raise(handle: int) -> None:
        if planted:
            raise planted.pop()
        release(handle)

    monkeypatch.setattr(NATIVE_EXECUTIONS, "release", release_or_raise)
    around = ROADS["c"]()
    road = next(around)
    road(Kept())
    planted.append(PlantedError())
    with pytest.raises(PlantedError):  # of a free at its own end
        road(Kept())
    interrupted = Kept()
    with monkeypatch.context() as context, pytest.raises(Interruption):
        context.setattr(Addition, "compute", lambda *_: interrupt())
        road(interrupted)
    planted.append(PlantedError())
    interrupted.close()
    with pytest.raises(PlantedError):  # of a free behind it
        road(Kept())
    road(Kept())
    assert next(around, None) is None


def interrupt() -> None:
    raise Interruption


@pytest.mark.every_day("fence", "queue")
@pytest.mark.parametrize("road", ["await", "fence", "queue", "c", "serve"])
def test_a_road_survives_the_first_a_middle_and_the_last_failing_call(
    road: str, failing_calls: Path
) -> None:
    found = tried(road, "calls", "some", failing_calls)
    assert found["wrong"] == []
    assert set(found["injected"]) <= set(CALLS)
    assert sum(found["injected"].values()) >= 3


@pytest.mark.every_day("submit")
@pytest.mark.parametrize("road", ["await", "submit", "c"])
def test_a_road_survives_some_interruptions(road: str) -> None:
    found = tried(road, "interrupts", "some")
    assert found["wrong"] == []
    assert found["injected"]["interrupt"] == 3


@pytest.mark.campaign
@pytest.mark.parametrize("road", ROADS)
def test_a_road_survives_every_failing_call(road: str, failing_calls: Path) -> None:
    assert tried(road, "calls", PLACES, failing_calls)["wrong"] == []


@pytest.mark.campaign
@pytest.mark.parametrize("road", INTERRUPTIBLE)
def test_a_road_survives_every_interruption(road: str) -> None:
    assert tried(road, "interrupts", PLACES)["wrong"] == []
