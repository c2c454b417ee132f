"""Runs many clients of a profile against one driver, with a checker beside them.

A profile names the networks that clients execute, and for how long.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from nnburst.client.connect import connect
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import DeadObject, MissedDeadline, ResourceExhausted
from nnburst.hal.model import DTYPES
from nnburst.hal.utils import driver_environment
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.faults.activities import sum_model, summands

INFERENCE: Final = "inference"
LOADING: Final = "loading"
MAPPED: Final = "mapped"
DEGRADATION: Final = "degradation"
#: Random graphs by their size (`random_graphs.SIZES`), prepared and executed or prepared only.
GRAPHS: Final = {"wide-graphs": "wide", "long-graphs": "long"}
GRAPHS_LOADED: Final = {"wide-graphs-loaded": "wide", "long-graphs-loaded": "long"}


@dataclass(frozen=True, slots=True)
class Profile:
    """Clients of one kind.

    Attributes:
        processes: number at a time; one that ends is replaced by another.
        threads: threads of each process.
        work: the work of each thread.
        killed: percent of the processes that are killed between a quarter and a half of their lifetime.
        what: a description.
    """

    processes: int
    threads: int
    work: str
    killed: int
    what: str


PROFILES: Final = {
    "parallel": Profile(1, 8, INFERENCE, 0, "8 threads infer"),
    "parallel-12": Profile(1, 12, INFERENCE, 0, "12 threads infer"),
    "inference": Profile(1, 1, INFERENCE, 0, "one thread infers"),
    "loading": Profile(1, 1, LOADING, 0, "one thread prepares"),
    "early-termination": Profile(1, 4, LOADING, 100, "4 threads prepare and are killed"),
    "multi-process": Profile(6, 10, INFERENCE, 0, "6 × 10 threads infer"),
    "multi-process-80": Profile(6, 10, INFERENCE, 80, "the same, 80 % of clients killed"),
    "multi-process-loading": Profile(6, 10, LOADING, 0, "6 × 10 threads prepare"),
    "multi-process-loading-50": Profile(6, 10, LOADING, 50, "the same, 50 % of clients killed"),
    "multi-process-loading-100": Profile(6, 10, LOADING, 100, "the same, all clients killed"),
    "mapped-models": Profile(1, 4, MAPPED, 0, "4 threads map a model's memory anew and prepare it"),
    "random-graphs": Profile(
        1, 4, "wide-graphs", 0, "4 threads execute random graphs of 10 operations, extents to 1,000"
    ),
    "random-graphs-long": Profile(
        1, 4, "long-graphs", 0, "the same with 600 operations, extents to 10"
    ),
    "random-graphs-loading": Profile(
        1, 4, "wide-graphs-loaded", 0, "4 threads prepare random graphs of 10 operations"
    ),
    "random-graphs-long-loading": Profile(
        1, 4, "long-graphs-loaded", 0, "the same with 600 operations"
    ),
    "degradation": Profile(
        1, 1, DEGRADATION, 0, "one thread infers, alone and beside one that prepares every 20 ms"
    ),
}


#: Seconds after which a call counts as a hang.
PATIENCE: Final = 30.0
SUCCESS, REFUSED, FAILURE, CRASH, HANG, WRONG = (
    "success", "refused", "failure", "crash", "hang", "wrong result",
)  # fmt: skip
#: Outcomes that must not happen.
BAD: Final = (FAILURE, CRASH, HANG, WRONG)


class WrongAnswer(Exception):
    """The same inputs gave another result than before, bit for bit."""


class StressNetwork:
    """A network with constant inputs, whose results must stay the same."""

    def __init__(self, path: str = "") -> None:
        """Read a file, or add two tensors."""
        self.path = path
        self.model: Any = load(Path(path)) if path else sum_model()
        main = (self.model.model if isinstance(self.model, ImportedModel) else self.model).main
        random = np.random.default_rng(7)
        self.inputs: list[Any] = summands(1.0)
        if path:
            self.inputs = [
                random.integers(0, 2, o.dimensions).astype(DTYPES[OperandType(o.type)])
                for o in (main.operands[i] for i in main.input_indexes)
            ]
        self._expected: list[Any] | None = None

    def check(self, outputs: list[Any]) -> None:
        """Compare with the first results.

        Raises:
            WrongAnswer: they differ.
        """
        if self._expected is None:
            self._expected = [np.array(output) for output in outputs]
        pairs = zip(outputs, self._expected, strict=True)
        if not all(np.array_equal(mine, first, equal_nan=True) for mine, first in pairs):
            raise WrongAnswer


def message_of(error: BaseException) -> str:
    """The message of an error, truncated."""
    return f"{type(error).__name__}: {error}"[:300]


def outcome_of(error: BaseException) -> str:
    """The outcome that an error counts as."""
    if isinstance(error, WrongAnswer):
        return WRONG
    if isinstance(error, DeadObject):
        return CRASH
    if isinstance(error, MissedDeadline):
        return HANG
    return REFUSED if isinstance(error, ResourceExhausted) else FAILURE


#: Seconds between two executions of the checker.
_PAUSE: Final = 0.05
#: Executions after which the checker connects again, as another program would.
_EACH: Final = 60


class Checker:
    """Executes a network on a thread and checks its results, until it is closed. A context manager."""

    def __init__(self, address: str, path: str = "") -> None:
        """Check the driver at `address` with the network of a file, or a sum."""
        self._address = address
        self._network = StressNetwork(path)
        self._done = threading.Event()
        self.counts: Counter[str] = Counter()
        self.messages: list[str] = []
        self._thread = threading.Thread(target=self._run, name="stress checker")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                self._connection()
            except Exception as error:
                self.counts[outcome_of(error)] += 1
                self.messages.append(f"checker: {message_of(error)}")
                self._done.wait(_PAUSE)

    def _connection(self) -> None:
        network = self._network
        with (
            connect(self._address, timeout=PATIENCE) as device,
            device.prepare(network.model, timeout=PATIENCE) as prepared,
        ):
            for _ in range(_EACH):
                network.check(prepared.execute(network.inputs, timeout=PATIENCE).outputs)
                self.counts[SUCCESS] += 1
                if self._done.wait(_PAUSE):
                    return


#: The longest lifetime of a client in seconds, as in the original.
_LIFE: Final = 70.0
#: Seconds that a client has to end, in which a call may hang.
_GRACE: Final = PATIENCE + 30.0
#: Seconds between two checks for an interrupt.
_LOOK: Final = 0.5


@dataclass
class StressReport:
    """The outcomes of a stress test.

    Attributes:
        clients: outcomes of the clients' calls.
        checker: outcomes of the checker's calls.
        processes: number of clients that were started.
        killed: number of clients that were killed.
        messages: messages of some errors.
    """

    clients: Counter[str] = field(default_factory=Counter)
    checker: Counter[str] = field(default_factory=Counter)
    processes: int = 0
    killed: int = 0
    messages: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """Number of failures, crashes, hangs and wrong results."""
        return sum(counts[what] for counts in (self.clients, self.checker) for what in BAD)

    def as_json(self) -> dict[str, Any]:
        """The report as `--json` writes it."""
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
        profile: the work of the clients.
        seconds: duration.
        model: a network's file; a sum by default.
        life: the most seconds that a client runs.
        seed: seed for the choice of the clients to kill, and of the time.
        progress: called about once a second.
    """
    report = StressReport()
    lock = threading.Lock()
    until = time.monotonic() + seconds
    interrupted = threading.Event()

    def keep_one(number: int) -> None:
        chance = random.Random(1000 * seed + number)  # noqa: S311 - who is killed when
        while (left := until - time.monotonic()) > 0 and not interrupted.is_set():
            found = _one(address, profile, min(life, left), model, chance, interrupted)
            with lock:
                _add(report, found)

    keepers = [threading.Thread(target=keep_one, args=(n,)) for n in range(profile.processes)]
    with Checker(address, model) as checker:
        for keeper in keepers:
            keeper.start()
        try:
            while any(keeper.is_alive() for keeper in keepers):
                keepers[0].join(1.0) if keepers[0].is_alive() else time.sleep(0.2)
                progress()
        except BaseException:
            interrupted.set()
            raise
    report.checker.update(checker.counts)
    report.messages += checker.messages[:10]
    return report


def _one(
    address: str,
    profile: Profile,
    life: float,
    model: str,
    chance: random.Random,
    interrupted: threading.Event,
) -> dict[str, Any]:
    """Run one client to its end, or until an interrupt."""
    words = [address, profile.work, str(profile.threads), f"{life:.3f}", model]
    client = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
        [sys.executable, "-m", "nnburst.testing.load.stress_client", *words],
        env=driver_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C is for the command
    )
    with client:
        if chance.random() * 100 < profile.killed:
            _output(client, life * chance.uniform(0.25, 0.5), interrupted)
            return {"killed": True}
        printed = _output(client, life + _GRACE, interrupted)
        if printed is None:
            return {"counts": {HANG: 1}, "messages": ["a client did not end"]}
        out, err = printed
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        return {"counts": {FAILURE: 1}, "messages": [f"a client ended: {err[-300:]}"]}
    return found


def _output(
    client: subprocess.Popen[str], seconds: float, interrupted: threading.Event
) -> tuple[str, str] | None:
    """A client's output and errors; None if it was killed after `seconds` or at an interrupt."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not interrupted.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return client.communicate(timeout=min(left, _LOOK))
    client.kill()
    client.communicate()
    return None


def _add(report: StressReport, found: dict[str, Any]) -> None:
    report.processes += 1
    report.killed += bool(found.get("killed"))
    report.clients.update(found.get("counts", {}))
    report.messages = [*report.messages, *found.get("messages", ())][:20]
