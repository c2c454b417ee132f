"""Runs a profile against a driver."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from nnburst.client.launch import driver_environment
from nnburst.testing.stress.checker import Checker
from nnburst.testing.stress.network import BAD, FAILURE, HANG, PATIENCE
from nnburst.testing.stress.profiles import Profile

#: Seconds that a client lives at most, as the original's do.
_LIFE: Final = 70.0
#: Seconds that a client gets to end: a call may hang so long before it counts.
_GRACE: Final = PATIENCE + 30.0


@dataclass
class StressReport:
    """What became of it.

    Attributes:
        clients: outcomes of their calls.
        checker: outcomes of the checker's.
        processes: clients that were started.
        killed: those of them that were killed.
        messages: some errors.
    """

    clients: Counter[str] = field(default_factory=Counter)
    checker: Counter[str] = field(default_factory=Counter)
    processes: int = 0
    killed: int = 0
    messages: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """Failures, crashes, hangs and wrong results."""
        return sum(counts[what] for counts in (self.clients, self.checker) for what in BAD)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "clients": dict(self.clients),
            "checker": dict(self.checker),
            "processes": self.processes,
            "killed": self.killed,
            "bad": self.bad,
            "messages": self.messages,
        }


def stress(
    address: str,
    profile: Profile,
    seconds: float,
    *,
    model: str = "",
    life: float = _LIFE,
    seed: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> StressReport:
    """Run a profile against the driver at `address`.

    Args:
        address: for `nnburst.connect`.
        profile: what is done.
        seconds: how long.
        model: a network's file; a sum unless given.
        life: seconds that a client lives at most.
        seed: of who is killed when.
        progress: called about once a second.
    """
    report = StressReport()
    lock = threading.Lock()
    until = time.monotonic() + seconds

    def keep_one(number: int) -> None:
        chance = random.Random(1000 * seed + number)  # noqa: S311 - who is killed when
        while (left := until - time.monotonic()) > 0:
            found = _one(address, profile, min(life, left), model, chance)
            with lock:
                _add(report, found)

    keepers = [threading.Thread(target=keep_one, args=(n,)) for n in range(profile.processes)]
    with Checker(address, model) as checker:
        for keeper in keepers:
            keeper.start()
        while any(keeper.is_alive() for keeper in keepers):
            keepers[0].join(1.0) if keepers[0].is_alive() else time.sleep(0.2)
            progress()
    report.checker.update(checker.counts)
    report.messages += checker.messages[:10]
    return report


def _one(
    address: str, profile: Profile, life: float, model: str, chance: random.Random
) -> dict[str, Any]:
    """One client's life."""
    words = [address, profile.work, str(profile.threads), f"{life:.3f}", model]
    client = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
        [sys.executable, "-m", "nnburst.testing.stress.client", *words],
        env=driver_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with client:
        if chance.random() * 100 < profile.killed:
            try:
                client.wait(life * chance.uniform(0.25, 0.5))
            except subprocess.TimeoutExpired:
                client.kill()
            client.communicate()
            return {"killed": True}
        try:
            out, err = client.communicate(timeout=life + _GRACE)
        except subprocess.TimeoutExpired:
            client.kill()
            client.communicate()
            return {"counts": {HANG: 1}, "messages": ["a client did not end"]}
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        return {"counts": {FAILURE: 1}, "messages": [f"a client ended: {err[-300:]}"]}
    return found


def _add(report: StressReport, found: dict[str, Any]) -> None:
    report.processes += 1
    report.killed += bool(found.get("killed"))
    report.clients.update(found.get("counts", {}))
    report.messages = [*report.messages, *found.get("messages", ())][:20]
