"""Runs Debian's Chromium headless, for tests of a page's log, requests and appearance."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
    "--hide-scrollbars",
)  # fmt: skip
#: Seconds that an answer may take on a busy machine.
PATIENCE = 120.0


class Page:
    """One page, over the browser's debugging pipe.

    Attributes:
        console: errors and warnings that it logged.
        requests: addresses that it requested.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._session, self._rest = 0, "", b""
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, address: str, width: int, height: int = 1200) -> None:
        """Show an address in a window of this width, and wait until it is loaded."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self._call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.05)

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _receive(self) -> Any:
        while b"\0" not in self._rest:
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        kind, parameters = event.get("method"), event.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif kind == "Runtime.exceptionThrown":
            self.console.append(parameters["exceptionDetails"]["text"])
        elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.console.append(str(parameters["args"][:1]))
        elif kind == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.console.append(parameters["entry"]["text"])


@contextmanager
def chromium(scratch: Path) -> Iterator[Page]:
    """A page in a browser of its own; the test skips without one."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium")
    (their_in, to_browser), (from_browser, their_out) = os.pipe(), os.pipe()

    in_place = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null'  # the browser takes fds 3 and 4
    process = subprocess.Popen(
        ["sh", "-c", in_place, "sh", program, *FLAGS, f"--user-data-dir={scratch / 'chromium'}"],
        stdin=their_in,
        stdout=their_out,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    try:
        yield Page(to_browser, from_browser)
    finally:
        process.kill()
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
