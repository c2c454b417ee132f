"""The program's cases, and a batch of them in a process of its own."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

#: `[       OK ] Suite.Case (12 ms)`
_LINE: Final = re.compile(
    r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+\.[^\s,]+)(?:, .*?)?(?: \((\d+) ms\))?$"
)
_OUTCOMES: Final = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
_KEPT_LINES: Final = 40


class Result(msgspec.Struct, frozen=True):
    """The outcome of one case.

    Attributes:
        name: suite and case.
        outcome: passed, failed, skipped, or crashed (its process died or was silent for too long).
        seconds: that it took.
        detail: the last lines that it printed, if it did not pass.
    """

    name: str
    outcome: str
    seconds: float
    detail: str = ""


def cases(program: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """All cases of the program, in its order; it runs with these variables besides this process's."""
    listed = subprocess.run(  # noqa: S603
        [program, "--gtest_list_tests"],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = []
    suite = ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = name
        elif name:
            found.append(suite + name)
    return found


def run_batch(
    program: Path, names: Sequence[str], environment: Mapping[str, str], patience: float
) -> Iterator[Result]:
    """Run cases in one process; it ends early if the process dies, with the case that was running.

    Args:
        program: the built CTS.
        names: of the cases.
        environment: of the process.
        patience: seconds that a case may be silent for before its process is killed.

    Yields:
        A result for each case that ended, in order.
    """
    process = subprocess.Popen(  # noqa: S603
        [program, "--gtest_color=no", f"--gtest_filter={':'.join(names)}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
    )
    assert process.stdout is not None
    running, began, printed = "", time.monotonic(), []
    try:
        for line in _lines(process, patience):
            found = _LINE.search(line)
            if found is None or (found[1] == "RUN") == (running == found[2]):
                printed = [*printed[-_KEPT_LINES:], line]
            elif found[1] == "RUN":
                running, began, printed = found[2], time.monotonic(), []
            elif found[2] == running:
                outcome = _OUTCOMES[found[1]]
                detail = "" if outcome == "passed" else "\n".join(printed)
                yield Result(running, outcome, int(found[3] or 0) / 1000, detail)
                running = ""
    finally:
        died = _end(process)
    if running:
        detail = "\n".join([*printed, died])
        yield Result(running, "crashed", time.monotonic() - began, detail)


def _lines(process: subprocess.Popen[bytes], patience: float) -> Iterator[str]:
    """Lines until the output ends; a process that is silent for too long is killed."""
    assert process.stdout is not None
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(patience):
                yield f"silent for {patience:g} s: killed"
                os.killpg(process.pid, signal.SIGKILL)
                break
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            *whole, pending = (pending + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)


def _end(process: subprocess.Popen[bytes]) -> str:
    """Wait for the process, which is killed with all that it started if it does not end; how it ended."""
    try:
        process.wait(5)
        how = f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        how = "did not end: killed"
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing of it is left
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    return how
