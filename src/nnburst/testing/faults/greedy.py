"""Runs clients that use up their quotas: `python -m nnburst.testing.faults.greedy ADDRESS CLIENTS`.

Prints a line of JSON when all clients have reached their quotas, and holds the resources until standard input
ends. The clients are forked from this process, so that hundreds of them fit into a machine; only a few at a
time allocate.

Each object is small, since this tests quotas on counts. Quotas on bytes need a bigger machine to be reached
by many clients at once.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

import nnburst
from nnburst.control.channel import MAX_BURSTS
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import GeneralFailure, MissedDeadline, NnburstError, ResourceExhausted
from nnburst.hal.model import DataLocation
from nnburst.hal.types import Request, RequestArgument
from nnburst.serialize import deserialize_result, serialize_request
from nnburst.testing.faults.activities import sum_model
from nnburst.testing.raw_peer import RawBurst

#: New slots in a request: as many as a reply to getMemories has room for.
_SLOTS: Final = 64
#: Number of requests after which the driver is taken to have no limit on pools.
_MOST_REQUESTS: Final = 1000
#: Clients that allocate at the same time.
_AT_ONCE: Final = 4
#: Share of the machine's process numbers that the threads of all bursts together may use.
_THREAD_SHARE: Final = 0.25


def take_everything(device: nnburst.Device, bursts: int, kept: ExitStack) -> dict[str, int]:
    """Allocate objects of each kind until the driver refuses; their numbers by kind.

    Args:
        device: a new connection.
        bursts: the most bursts to open, since each one needs a thread.
        kept: holds all allocated objects.

    Raises:
        NnburstError: a call was refused for another reason than a quota.
    """
    first = device.prepare(sum_model())
    return {
        "pools": _take_pools(first, device.allocate(4096), kept),
        "bursts": 1 + _take(lambda: first.open_burst(), bursts - 1, kept),
        "buffers": _take(lambda: device.allocate_buffer(inputs=[(first, 0)]), None, kept),
        "models": 1 + _take(lambda: device.prepare(sum_model()), None, kept),
    }


def _take(
    make: Callable[[], nnburst.Burst | nnburst.Buffer | nnburst.PreparedModel],
    most: int | None,
    kept: ExitStack,
) -> int:
    count = 0
    while count != most:
        try:
            kept.enter_context(make())
        except ResourceExhausted:
            break
        count += 1
    return count


def _take_pools(prepared: nnburst.PreparedModel, memory: nnburst.Memory, kept: ExitStack) -> int:
    """Make a burst map one pool repeatedly, under a new slot each time."""
    burst = kept.enter_context(RawBurst(prepared, memories=lambda slots: [memory] * len(slots)))
    at = [RequestArgument(location=DataLocation(0, offset, 512)) for offset in (0, 1024, 2048)]
    request = Request((at[0], at[1]), (at[2],))
    for number in range(_MOST_REQUESTS):
        slots = range(number * _SLOTS, (number + 1) * _SLOTS)
        status, _, _ = deserialize_result(
            burst.exchange(serialize_request(request, slots, MeasureTiming.NO), timeout=60)
        )
        if status == ErrorStatus.GENERAL_FAILURE:
            return number * _SLOTS
        if status != ErrorStatus.NONE:
            raise GeneralFailure(f"slots {slots} were answered with {status.name}")
    raise MissedDeadline(f"{_MOST_REQUESTS * _SLOTS} pools, and no end of it")


def bursts_for(clients: int) -> int:
    """Bursts that each client can open without using up the machine's process numbers."""
    numbers = int(Path("/proc/sys/kernel/pid_max").read_text())
    return min(MAX_BURSTS, max(1, int(numbers * _THREAD_SHARE) // clients))


def main(address: str, count: str) -> None:
    """Run `count` clients of the driver at `address`."""
    clients, bursts = int(count), bursts_for(int(count))
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    turns, reports, end = os.pipe(), os.pipe(), os.pipe()
    os.write(turns[1], b"x" * min(_AT_ONCE, clients))
    for _ in range(clients):
        if os.fork() == 0:
            os.close(end[1])
            _be_a_client(address, bursts, (turns, reports[1], end[0]))
    os.close(reports[1])
    with os.fdopen(reports[0]) as lines:
        told = [json.loads(lines.readline()) for _ in range(clients)]
    sys.stdout.write(json.dumps(_summary(told, bursts)) + "\n")
    sys.stdout.flush()
    sys.stdin.read()  # the clients end with this process: no other process holds the write end of `end`


def _be_a_client(address: str, bursts: int, pipes: tuple[tuple[int, int], int, int]) -> NoReturn:
    (take_turn, give_turn), report, end = pipes
    facts: dict[str, int | str] = {}
    try:
        os.read(take_turn, 1)
        kept = ExitStack()
        device = nnburst.connect(address)
        facts.update(take_everything(device, bursts, kept))
        os.write(give_turn, b"x")
    except (NnburstError, OSError) as error:
        facts["error"] = f"{type(error).__name__}: {error}"[:500]
        os.write(give_turn, b"x")
    os.write(report, (json.dumps(facts) + "\n").encode())
    os.read(end, 1)
    os._exit(0)


def _summary(told: Sequence[dict[str, int | str]], bursts: int) -> dict[str, object]:
    kinds = ("models", "buffers", "bursts", "pools")
    return {
        "clients": len(told),
        "burst_limit": bursts,
        "errors": [facts["error"] for facts in told if "error" in facts],
        **{kind: sum(int(facts.get(kind, 0)) for facts in told) for kind in kinds},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
