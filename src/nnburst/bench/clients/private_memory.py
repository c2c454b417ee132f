"""Measures how much memory and time each further client of a LiteRT service costs its worker.

    python -m nnburst.bench.clients.private_memory NETWORK [--clients 10]

Clients connect one after another and stay connected; each prepares the same network and runs it. The private
memory of each worker is measured before it has a model, after a first model of one operation was prepared and
released, after it has prepared the network, after a request was bound, and after a run. The first model takes
pages of Python that workers share until they write to them, so it is listed apart. Then LiteRT is timed in
this process: compiling the network with and without weights that were packed before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from nnburst.bench.cases import adding_model
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.executor.base import DEFAULT_OPTIONS, PackingExecutor
from nnburst.executor.built_in import litert
from nnburst.executor.litert import native
from nnburst.executor.litert.cache import from_files
from nnburst.executor.litert.network import survey
from nnburst.hal.errors import InvalidArgument
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.driver_under_test import DriverUnderTest

STEPS: Final = ("a first model", "preparing", "binding", "running")
#: Number of runs, so that memory that the first runs allocate is counted.
_RUNS: Final = 20
_TIMES: Final = 9
#: Seconds between two measurements that must agree, and the limit for that.
_BETWEEN_LOOKS: Final = 0.05
_PATIENCE: Final = 60.0
_MAPPING: Final = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


def private_kib(pid: int) -> Counter[str]:
    """The private KiB of a process, by its mappings.

    Raises:
        OSError: this user may not read them.
    """
    found: Counter[str] = Counter()
    kind = ""
    text = Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        if mapping := _MAPPING.match(line):
            kind = _kind(mapping[1])
        elif line.startswith("Private_"):
            found[kind] += int(line.split()[1])
    return found


def _kind(name: str) -> str:
    if name.startswith("/memfd:"):
        return f"shared memory: {name.removeprefix('/memfd:').removesuffix(' (deleted)')}"
    return "files" if name.startswith("/") else "heap and anonymous"


def of_a_client(address: str, imported: ImportedModel, stack: ExitStack) -> list[Counter[str]]:
    """Measure the worker of a client that stays as long as `stack`: before all steps, and after each."""
    device = stack.enter_context(connect(address))
    time.sleep(0.5)  # a worker that was not a spare finishes its start
    found = [settled_kib(device.pid)]
    _first_model(device)
    found.append(settled_kib(device.pid))
    prepared = stack.enter_context(device.prepare(imported))
    found.append(settled_kib(device.pid))
    burst = stack.enter_context(prepared.open_burst())
    bound = burst.bind()
    found.append(settled_kib(device.pid))
    for _ in range(_RUNS):
        bound.run(timeout=60)
    found.append(settled_kib(device.pid))
    return found


def settled_kib(pid: int) -> Counter[str]:
    """As `private_kib`, when the figure is stable: a worker releases a model's pools after its answer.

    Raises:
        OSError: this user may not read them.
        TimeoutError: the figure does not become stable.
    """
    deadline = time.monotonic() + _PATIENCE
    found = private_kib(pid)
    while time.monotonic() < deadline:
        time.sleep(_BETWEEN_LOOKS)
        before, found = found, private_kib(pid)
        if found == before:
            return found
    raise TimeoutError(f"process {pid}: its private memory still changes after {_PATIENCE:.0f} s")


def _first_model(device: Device) -> None:
    with device.prepare(adding_model(1, 1)) as prepared, prepared.open_burst() as burst:
        burst.execute([np.zeros((1, 4), np.float32)])


def engine_ms(imported: ImportedModel) -> dict[str, float]:
    """Median milliseconds that LiteRT takes to compile a network, and of the lowering before.

    Raises:
        InvalidArgument: LiteRT does not run the whole network, or packs nothing of it.
    """
    executor, pools = litert(), list(imported.pools)
    if not isinstance(executor, PackingExecutor) or not native.available():
        raise InvalidArgument("libLiteRt.so is not used here, and only that takes packed weights")
    files = executor.pack(imported.model, pools, DEFAULT_OPTIONS)
    if not files:
        raise InvalidArgument(
            "network: nothing of it is packed, expected one that LiteRT runs whole"
        )
    network, weights = from_files(files)
    times: dict[str, list[float]] = {}
    for _ in range(_TIMES):
        with _timed(times, "lowering"):
            survey(imported.model, pools)
        with _timed(times, "compiling"):
            engine = native.NativeEngine(network, 1)
        engine.close()
        with _timed(times, "compiling with packed weights"):
            engine = native.NativeEngine(network, 1, packed_weights=weights.fd)
        engine.close()
    weights.close()
    for fd in files:
        os.close(fd)
    return {name: round(statistics.median(taken), 2) for name, taken in times.items()}


@contextmanager
def _timed(times: dict[str, list[float]], name: str) -> Iterator[None]:
    began = time.perf_counter_ns()
    yield
    times.setdefault(name, []).append((time.perf_counter_ns() - began) / 1e6)


def main(arguments: Sequence[str]) -> int:
    """Print a line of JSON for each client, one for the last client's mappings, and one for the engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", type=Path, help=".tflite or .onnx file")
    parser.add_argument("--clients", type=int, default=10)
    args = parser.parse_args(arguments)
    imported = load(args.network)
    with DriverUnderTest.start("litert") as driver, ExitStack() as stack:
        for number in range(args.clients):
            looks = of_a_client(driver.address, imported, stack)
            before, *after = [sum(look.values()) for look in looks]
            beyond = {step: kib - before for step, kib in zip(STEPS, after, strict=True)}
            _print({"client": number, "without a model KiB": before, "beyond it KiB": beyond})
        gained = looks[-1] - looks[1]
        _print({"beyond the first model, by mapping, KiB": dict(gained.most_common())})
    _print({"engine ms": engine_ms(imported)})
    return 0


def _print(line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
