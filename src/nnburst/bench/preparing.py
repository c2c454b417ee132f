"""Measures the time to prepare a network, always in processes that have just been started.

    python -m nnburst.bench.preparing driver|cached|engine NETWORK

`driver` starts a driver, prepares the network cold and again, and executes it. `cached` starts two drivers;
the second one finds the first one's cache files. `engine` opens LiteRT's C library and compiles the file,
which is the part that no driver can save. Each prints milliseconds as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nnburst.client.launch import launch
from nnburst.executor.litert import native
from nnburst.executor.litert.network import Network
from nnburst.hal.errors import GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.own_folder import OwnFolder
from nnburst.hal.regular_file import read_regular_file
from nnburst.importer.load import load

#: Timeout in seconds, longer than every successful start.
_PATIENCE: Final = 120


def measure(side: str, path: Path) -> dict[str, float]:
    """Measure the milliseconds of each step in a new process.

    Args:
        side: "driver", "cached" or "engine".
        path: a .tflite file.

    Raises:
        GeneralFailure: the process failed; the text has the last line of its stderr.
        MissedDeadline: the process did not end in time.
    """
    command = [sys.executable, "-m", __name__, side, str(path)]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, this module
            command, capture_output=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise MissedDeadline(f"{path}: {side} did not end in {_PATIENCE} s") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise GeneralFailure(f"{path}: {side}: {last or f'exit status {done.returncode}'}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class _Watch:
    """Measures milliseconds since the last reading."""

    def __init__(self) -> None:
        self.began = self._last = time.perf_counter()

    def lap(self) -> float:
        last, self._last = self._last, time.perf_counter()
        return 1e3 * (self._last - last)

    def total(self) -> float:
        return 1e3 * (self._last - self.began)


def _driver(path: Path) -> dict[str, float]:
    imported = load(path)
    watch = _Watch()
    with launch("litert") as device:
        found = {"launch": watch.lap()}
        prepared = device.prepare(imported)
        found["prepare"] = watch.lap()
        with prepared.open_burst() as burst:
            bound = burst.bind()
            found["open and bind"] = watch.lap()
            bound.run()
            found["first run"] = watch.lap()
            found["start to first result"] = watch.total()
        watch.lap()
        device.prepare(imported).close()
        found["prepare again"] = watch.lap()
    return found


def _cached(path: Path) -> dict[str, float]:
    imported = load(path)
    found: dict[str, float] = {}
    with OwnFolder() as own:
        folder = str(own.path)
        for step in ("prepare and save", "from cache"):
            with launch("litert", env={"XDG_STATE_HOME": folder}) as device:
                watch = _Watch()
                prepared = device.prepare(imported, cache_dir=folder)
                found[step] = watch.lap()
    if not prepared.from_cache:
        raise SystemExit("the driver did not take the network from the cache")
    return found


def _engine(path: Path) -> dict[str, float]:
    content = read_regular_file(path)
    watch = _Watch()
    if not native.available():
        raise SystemExit("libLiteRt.so cannot be used here")
    found = {"open and try": watch.lap()}
    native.NativeEngine(Network(content, (), (), frozenset(), frozenset()), 1)
    return found | {"compile": watch.lap()}


_SIDES: Final[dict[str, Callable[[Path], dict[str, float]]]] = {
    "driver": _driver,
    "cached": _cached,
    "engine": _engine,
}


def main() -> None:
    """Measure one side once, and print the figures."""
    side, path = sys.argv[1:3]
    try:
        found = _SIDES[side](Path(path))
    except (NnburstError, OSError) as error:
        raise SystemExit(str(error)) from None  # one line, which the process that measures reads
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
