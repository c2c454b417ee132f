from __future__ import annotations

import errno
import gc
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descriptors import descriptors
from nnburst import Closed, Device, InvalidArgument, ResourceExhausted
from nnburst.client.memory import find_memory


def mappings() -> int:
    """Pools that this process has mapped."""
    return Path("/proc/self/maps").read_text().count("/memfd:pool")


def test_views_see_the_same_bytes(device: Device) -> None:
    with device.allocate(64) as memory:
        floats, octets = memory.array("<f4", (2, 2), 16), memory.array("u1", (64,))
        floats[...] = 1.5
        assert octets[16:32].tobytes() == np.full(4, 1.5, "<f4").tobytes()
        memory.view()[0] = 7
        assert octets[0] == 7
        assert np.asarray(memory).shape == (64,)
        np.testing.assert_array_equal(np.from_dlpack(memory), octets)


def test_new_pool_is_zero(device: Device) -> None:
    with device.allocate(10_000) as memory:
        assert not np.asarray(memory).any()


@pytest.mark.parametrize("dtype", ["O", [("a", "<f4"), ("b", "O")], "V0", "U0"])
def test_view_of_objects_or_of_nothing_is_refused(device: Device, dtype: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"dtype is .*, expected one with"):
        device.allocate(64).array(dtype, (2,))


def test_view_keeps_the_mapping_after_close_and_after_the_object(device: Device) -> None:
    gc.collect()
    before = mappings()
    memory = device.allocate(4096)
    view = memory.array("f4", (4,))
    view[...] = 3
    memory.close()
    memory.close()
    del memory
    gc.collect()
    assert mappings() == before + 1
    np.testing.assert_array_equal(view, [3, 3, 3, 3])
    del view
    gc.collect()
    assert mappings() == before


def test_a_closed_pool_makes_no_arrays_and_those_made_before_stay(device: Device) -> None:
    memory = device.allocate(64)
    before = np.asarray(memory)
    memory.close()
    before[...] = 7
    assert before.tolist() == [7] * 64
    for make in (
        np.asarray,
        np.from_dlpack,
        lambda pool: pool.array("u1", (1,)),
        lambda pool: pool.view(),
    ):
        with pytest.raises(Closed, match="the pool is closed"):
            make(memory)


def test_forgotten_pool_frees_its_descriptor(device: Device) -> None:
    gc.collect()
    before = descriptors()
    memories = [device.allocate(4096) for _ in range(10)]
    assert len(descriptors() - before) == 10
    del memories
    gc.collect()
    assert descriptors() <= before


@pytest.mark.parametrize("by", ["close", "collection"])
def test_end_of_a_pool_is_notified_once(device: Device, by: str) -> None:
    told: list[int] = []
    memory = device.allocate(64)
    number = memory._number
    memory._on_close(told.append)
    ignored = told.clear
    memory._on_close(ignored)  # type: ignore[arg-type]
    memory._remove_callback(ignored)  # type: ignore[arg-type]
    if by == "close":
        memory.close()
        with pytest.raises(Closed):
            memory._on_close(told.append)
    del memory
    gc.collect()
    assert told == [number]


def test_array_finds_its_pool_through_views_of_views(device: Device) -> None:
    memory = device.allocate(4096)
    array = memory.array("f4", (8, 8), offset=128)
    assert find_memory(array) == (memory, 128)
    assert find_memory(array[2:, 1:]) == (memory, 128 + 68)
    assert find_memory(array.view("u1").reshape(-1)[3:]) == (memory, 131)
    assert find_memory(np.frombuffer(memory.view(), "u1", offset=5)) == (memory, 5)
    assert find_memory(array.copy()) is None
    assert find_memory(np.zeros(3)) is None
    memory.close()
    assert find_memory(array) is None


def test_view_keeps_its_pool_findable_when_the_object_is_dropped(device: Device) -> None:
    array = device.allocate(64).array("f4", (4,))
    gc.collect()
    found = find_memory(array)
    assert found is not None
    assert not found[0].closed


def test_pool_does_not_keep_itself_alive(device: Device) -> None:
    memory = device.allocate(64)
    gone = weakref.ref(memory)
    del memory
    assert gone() is None, "a reference cycle keeps pools until the next collection"


def test_duplicate_is_a_descriptor_of_its_own(device: Device) -> None:
    memory = device.allocate(64)
    fd = memory.duplicate()
    memory.close()
    assert os.fstat(fd).st_size == 64
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_pool_that_cannot_be_duplicated_is_resource_exhausted(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with device.allocate(64) as memory:
        monkeypatch.setattr(os, "dup", refuse)
        with pytest.raises(ResourceExhausted, match="Too many open files"):
            memory.duplicate()
