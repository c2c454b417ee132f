"""A driver process of this client's own: its last words, and its end."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import threading
import time
from typing import IO, Final

from nnburst.client.session.ending import PATIENCE, describe, dying_exit_code
from nnburst.hal.diagnostics import vlog

#: Lines and bytes of a driver's log that are kept.
_LAST_LINES: Final = 20
_LINE_BYTES: Final = 512
#: Seconds that a process gets to end after its socket was closed, and after SIGTERM.
_GRACE: Final = 2.0
#: Seconds that the lines which a process has written take at most to be read.
_LAST_WORDS: Final = 0.1
_STEP: Final = 0.002


class DriverProcess:
    """A started driver. Thread-safe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Watch `process`, whose stderr is a pipe."""
        self._process = process
        self._owner = os.getpid()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._reader = threading.Thread(
            target=self._read, args=(process.stderr,), name="nnburst driver log", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(_LINE_BYTES):
                text = line.decode(errors="replace").rstrip()
                if text.startswith(vlog.MARK):
                    vlog.write_line(text)  # asked for; its last words are something else
                else:
                    self._lines.append(text)

    @property
    def last_lines(self) -> list[str]:
        """The end of its log."""
        return list(self._lines)

    def ending(self, patience: float = PATIENCE) -> str:
        """How it ended, with the end of its log; waits up to `patience` seconds for it."""
        code = self._exit_code(patience)
        if code is not None:  # a process that it started may still hold its stderr open
            self._reader.join(_LAST_WORDS)
        how = "has closed its connection" if code is None else describe(code)
        lines = "".join(f"\n  {line}" for line in self.last_lines)
        return f"the driver (pid {self.pid}) {how}" + (f"; its last lines:{lines}" if lines else "")

    def _exit_code(self, patience: float) -> int | None:
        """What it is or will be, as soon as that is known."""
        deadline = time.monotonic() + patience
        while True:
            code = self._process.poll()
            if code is None:
                code = dying_exit_code(self.pid)
            if code is not None or time.monotonic() >= deadline:
                return code
            time.sleep(_STEP)

    def close(self) -> None:
        """Wait for it to end after its socket was closed; make it end if it does not."""
        if os.getpid() != self._owner:
            return  # a forked child has no children of this process
        for nudge in (None, signal.SIGTERM, signal.SIGKILL):
            if nudge is not None:
                self._process.send_signal(nudge)
            try:
                self._process.wait(_GRACE)
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(_GRACE)
