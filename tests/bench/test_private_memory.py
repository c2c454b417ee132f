from __future__ import annotations

import json
import mmap
import os

from nnburst.bench.clients.private_memory import private_kib
from programs import run_program

KIB = 4096


def gained_and_shared() -> tuple[dict[str, int], int]:
    """What a process gains by memory of its own and by some that it shares; the latter, mapped twice."""
    before = private_kib(os.getpid())
    fd = os.memfd_create("some")
    os.ftruncate(fd, KIB * 1024)
    with mmap.mmap(-1, KIB * 1024, mmap.MAP_PRIVATE) as own, mmap.mmap(fd, KIB * 1024) as some:
        own.write(b"1" * len(own))
        some.write(b"1" * len(some))
        gained = private_kib(os.getpid()) - before
        with mmap.mmap(fd, KIB * 1024) as again:
            again.read()
            shared = private_kib(os.getpid())["shared memory: some"]
    os.close(fd)
    return dict(gained), shared


def test_memory_that_only_this_process_has_is_counted_by_what_is_mapped() -> None:
    # In a process of its own: what other tests left may be given back at any moment.
    code = "import json, bench.test_private_memory as t; print(json.dumps(t.gained_and_shared()))"
    gained, shared = json.loads(run_program(code))
    assert gained["heap and anonymous"] >= KIB
    assert gained["shared memory: some"] == KIB
    assert shared == 0
