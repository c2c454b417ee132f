"""Counts how often `nnburst bench model --baseline` is right, with equal and with slower executors.

    python tools/verdict_trials.py NETWORK RESULTS.jsonl [--same N] [--slower N] [--seconds S] [-- OPTIONS…]

The first call measures the baseline, beside RESULTS; each one adds tries, until there are as many as were
asked for or the seconds are over: a machine that is quiet for a while only is asked again. Prints what became
of all tries: `same` must not be worse or better, `slower` must not be same or better; "noisy" is never wrong.
Ends with 1 if one was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nnburst.driver.executors import make_executor
from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Execution,
    Executor,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model

#: How much longer every execution of the slower executor takes.
SLOWER: Final = 0.10
_EXECUTORS: Final = {"same": "litert", "slower": f"{Path(__file__).stem}:SlowedLiteRt"}
#: Verdicts that are right, for each kind of try.
RIGHT: Final = {"same": "same", "slower": "worse"}
_NOISY: Final = "noisy"
#: What a try measures besides latency: as little as can be.
_SHORT: Final = ("--examples", "1", "--prepares", "0")


class SlowedLiteRt(Executor):
    """The executor litert, each of whose executions takes a tenth longer."""

    name = "slowed-litert"

    def __init__(self) -> None:
        """Begin."""
        self._executor = make_executor("litert")

    def supported(self, model: Model) -> list[bool]:
        """As the executor's."""
        return self._executor.supported(model)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """As the executor's."""
        return _SlowedModel(self._executor.prepare(model, pools, options))


class _SlowedModel(Prepared):
    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:
        return _SlowedExecution(self._prepared.bind(inputs, outputs))

    def close(self) -> None:
        self._prepared.close()


class _SlowedExecution(Execution):
    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        began = time.perf_counter_ns()
        outcome = self._execution.run(deadline_ns, loop_timeout_ns)
        until = began + (1 + SLOWER) * (time.perf_counter_ns() - began)
        while time.perf_counter_ns() < until:
            pass
        return outcome

    def close(self) -> None:
        self._execution.close()


def measure(network: Path, target: Path, kind: str, words: Sequence[str]) -> None:
    """One run of the command.

    Raises:
        RuntimeError: it failed.
    """
    command = [
        *(sys.executable, "-m", "nnburst", "bench", "model", str(network), *_SHORT, *words),
        *("--executor", _EXECUTORS[kind], "--json", str(target)),
    ]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(  # noqa: S603 - this interpreter, a list of words
        command,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1, 2) or not target.exists():
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}"
        )


def attempt(network: Path, baseline: Path, kind: str, words: Sequence[str]) -> dict[str, object]:
    """One try: what the command found, beside what is right."""
    target = baseline.with_suffix(".try.json")
    target.unlink(missing_ok=True)
    measure(network, target, kind, ["--baseline", str(baseline), *words])
    report = json.loads(target.read_text(encoding="utf-8"))
    found = report["networks"][0]["beside_baseline"]
    verdict = found["verdict"]
    return {
        "kind": kind,
        "verdict": verdict,
        "wrong": verdict not in (RIGHT[kind], _NOISY),
        "effect": found["effect"],
        "why": found["why"],
        "others_share": report["conditions"]["others_share"],
        "stolen_share": report["conditions"]["stolen_share"],
    }


def main() -> int:
    """Try until there are enough; 1 if one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("network", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--same", type=int, default=20, metavar="N")
    parser.add_argument("--slower", type=int, default=20, metavar="N")
    parser.add_argument("--seconds", type=float, default=3600.0, metavar="S")
    parser.add_argument("words", nargs="*", metavar="OPTION")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    baseline = args.results.with_suffix(".baseline.json")
    if not baseline.exists():
        measure(args.network, baseline, "same", args.words)
    lines = args.results.read_text().splitlines() if args.results.exists() else []
    tries = [json.loads(line) for line in lines]
    wanted = {"same": args.same, "slower": args.slower}
    with args.results.open("a", encoding="utf-8") as file:
        while time.monotonic() < until:
            there = Counter(one["kind"] for one in tries)
            kind = max(wanted, key=lambda name: wanted[name] - there[name])
            if there[kind] >= wanted[kind]:
                break
            tries.append(attempt(args.network, baseline, kind, args.words))
            file.write(json.dumps(tries[-1]) + "\n")
            file.flush()
    for kind in wanted:
        mine = [one for one in tries if one["kind"] == kind]
        counts = dict(Counter(one["verdict"] for one in mine))
        effects = ", ".join(f"{one['effect']:+.1%}" for one in mine)
        print(f"{kind}: {len(mine)} tries, {counts}, {sum(one['wrong'] for one in mine)} wrong")
        print(f"  {effects}")
    return int(any(one["wrong"] for one in tries))


if __name__ == "__main__":
    raise SystemExit(main())
