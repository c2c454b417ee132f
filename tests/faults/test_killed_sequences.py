"""`kill -9` of clients with states of sequences in the driver: memory is freed, other clients go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

pytest.importorskip("onnxruntime", reason="the engine")

from faults.processes import Client, Row, Supervisor, goes_on, wait_until_gone
from nnburst.testing.faults.client import SEQUENCES
from nnburst.testing.faults.footprint import children, footprint, resident_bytes, settle

#: Seconds after which a client is killed, at most: some tokens of each of its sequences.
LATEST = 0.03


@pytest.mark.campaign
def test_sequences_go_on_while_a_client_with_others_is_killed(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    row: Row,
) -> None:
    kill_among_sequences(2, 1, serve(executor="onnxruntime"), client, chance, row)


@pytest.mark.campaign
def test_64_sequences_have_the_tokens_of_one_alone_while_10_clients_are_killed(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    row: Row,
) -> None:
    kill_among_sequences(8, 10, serve(executor="onnxruntime"), client, chance, row)


def kill_among_sequences(
    clients: int,
    kills: int,
    supervisor: Supervisor,
    start: Callable[[str, str], Client],
    chance: random.Random,
    row: Row,
) -> None:
    """Kill some of `clients` clients, each of which compares every token that it gets.

    When half of them are killed, new ones replace them.
    """

    def begin(count: int) -> list[Client]:
        with ThreadPoolExecutor(count) as threads:
            names = [supervisor.name] * count
            return list(threads.map(start, names, ["stand_by:decode_in_slots"] * count))

    baseline = footprint(supervisor.pid)
    busy, back = begin(clients), []
    for kill in range(kills):
        if len(busy) <= clients / 2:
            busy += begin(clients - len(busy))
        for one in busy:
            goes_on(one)
        victim = busy.pop(chance.randrange(len(busy)))
        held, share = memory_of(supervisor), resident_bytes(victim.worker)
        killed = victim.kill_after(chance.uniform(0, LATEST))
        back.append(wait_until_gone(victim.worker, killed))
        kept = memory_of(supervisor) - (held - share)
        assert kept < share / 2, f"kill {kill}: {kept} bytes are left of {share}"
    for one in busy:
        goes_on(one)
    row(f"client of {clients * SEQUENCES} sequences killed", kills, memory_back=back)
    for one in busy:
        assert not one.finish()["error"]
    settle(supervisor.pid, baseline)


def memory_of(supervisor: Supervisor) -> int:
    """Bytes of a driver and of its clients' workers."""
    total = 0
    for pid in (supervisor.pid, *children(supervisor.pid)):
        with suppress(FileNotFoundError, ProcessLookupError):  # one that has just been reaped
            total += resident_bytes(pid)
    return total
