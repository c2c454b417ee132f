"""A private copy of a project, whose sources a mutant may replace, and the processes that run its tests."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from nnburst.hal.environment import SHARED

_TRIAL: Final = Path(__file__).with_name("trial.py")
_TOOLS: Final = Path(__file__).resolve().parents[1]
#: What is copied; whatever else lies beside it is only read, and linked.
_COPIED: Final = ("src", "tests")
_LEFT_OUT: Final = {".git", ".venv", ".hypothesis", ".pytest_cache", "build", "dist", "basetemp"}
#: What the process that trials are forked from may need longer than the trial, in seconds.
_PATIENCE: Final = 300.0


class Project:
    """A copy of `root` in a folder of its own: `src/PACKAGE` and `tests` copied, the rest linked.

    The native module lies in `src` and comes along, so tests need nothing of the original.
    """

    def __init__(self, root: Path, copy: Path, package: str = "nnburst") -> None:
        self.copy = copy.resolve()
        self.sources = self.copy / "src" / package
        shared = (root / SHARED.read()).resolve()
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.copy / "src"), str(_TOOLS)]),
            "NNBURST_SHARED": str(shared),
            "CI": "1",  # hypothesis tries the same examples for every mutant
        }
        self.copy.mkdir(parents=True, exist_ok=True)
        for path in root.iterdir():
            if path.name in _COPIED:
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(path, self.copy / path.name, ignore=ignored)
            elif path.name not in _LEFT_OUT:
                (self.copy / path.name).symlink_to(path.resolve())

    def write(self, module: str, source: str) -> Path:
        """Replace the text of a module, and what Python remembers of it."""
        path = self.sources / module
        path.write_text(source, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)
        return path

    def server(self, way: str, paths: Sequence[str]) -> Server:
        """A process that trials of the tests at `paths` are forked from; see `trial`."""
        words = (way, str(self.sources), *paths)
        return Server(words, self.copy, self._environment)


@dataclass(frozen=True)
class Trial:
    """The outcome of one run of tests.

    Attributes:
        status: pytest's exit status, minus a signal's number, or one of `trial`'s.
        seconds: how long it took.
        failed: the test that failed first, or what was collected; empty if none did or it is not known.
        result: what the trial wrote down: `seconds` of each test, and `lines` if it was traced.
    """

    status: int
    seconds: float
    failed: str
    result: dict[str, Any]


class Server:
    """A process that runs one trial after the other. Not thread-safe. Ends with `close()` or `with`."""

    def __init__(self, words: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        way, *paths = words
        ours, theirs = socket.socketpair()
        ours.settimeout(_PATIENCE)
        self._log = folder / f"{way}.log"
        self._result = folder / f"{way}.json"
        with theirs, self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
                [sys.executable, "-P", str(_TRIAL), way, str(theirs.fileno()), *paths],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        self._stream = ours.makefile("rw", encoding="utf-8")

    def run(self, limit: float, **request: object) -> Trial:
        """Run a trial of at most `limit` seconds.

        Raises:
            RuntimeError: the process has ended; the message has its last words.
        """
        self._result.unlink(missing_ok=True)
        request |= {"limit": limit, "result": str(self._result)}
        self._socket.settimeout(limit + _PATIENCE)
        try:
            self._stream.write(json.dumps(request) + "\n")
            self._stream.flush()
            line = self._stream.readline()
        except OSError as error:
            line = ""
            reason: object = error
        else:
            reason = "it ended"
        if not line:
            raise RuntimeError(f"no trial ({reason}):\n{self.last_words()}")
        reply = json.loads(line)
        result = json.loads(self._result.read_text()) if self._result.exists() else {}
        return Trial(reply["status"], reply["seconds"], result.get("failed", ""), result)

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def close(self) -> None:
        """End the process; a second time is fine."""
        self._stream.close()
        self._socket.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
