from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform

import pytest

from nnburst._native import lib
from nnburst.bench.clients.private_memory import private_kib
from programs import run_program

KIB = 4096


def gained_and_shared() -> tuple[dict[str, int], int]:
    """The private memory that a process gains by its own pages and by shared ones, mapped twice."""
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


def held_and_given_back() -> list[int]:
    """KiB of freed memory below some that stays, that a process has before it gives it back, and after."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    before = private_kib(os.getpid())["heap and anonymous"]
    places = [libc.malloc(KIB) for _ in range(4 * KIB)]
    for place in places:
        ctypes.memset(place, 1, KIB)
    for place in places[:-1]:
        libc.free(place)
    held = private_kib(os.getpid())["heap and anonymous"] - before
    lib.nnb_give_memory_back()
    return [held, private_kib(os.getpid())["heap and anonymous"] - before]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back")
def test_freed_memory_below_some_that_stays_is_given_back() -> None:
    code = "import json, bench.test_private_memory as t; print(json.dumps(t.held_and_given_back()))"
    held, left = json.loads(run_program(code))
    assert held >= 15 * 1024
    assert left <= held / 4
