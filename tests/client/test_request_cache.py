"""The cache of requests: bounds, order, sightings, values in use, and each value's end."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from interrupting import Interruption, interrupted_at
from nnburst.client.request_cache import RequestCache

KEYS = st.integers(0, 5)


class Value:
    """The value that a request was bound to."""

    def __init__(self, key: int, size: int) -> None:
        self.key = key
        self.size = size

    def __repr__(self) -> str:
        return f"<{self.key}: {self.size} bytes>"


class CacheMachine(RuleBasedStateMachine):
    """A cache beside a list of its values in their order, and what became of each."""

    @initialize(most=st.integers(1, 3), most_bytes=st.none() | st.integers(5, 20), bind_at=KEYS)
    def begin(self, most: int, most_bytes: int | None, bind_at: int) -> None:
        self.most, self.most_bytes, self.bind_at = most, most_bytes, bind_at + 1
        self.ended: list[Value] = []
        self.cache: RequestCache[int, Value] = RequestCache(
            most, most_bytes=most_bytes, bind_at=self.bind_at, end=self.ended.append
        )
        self.kept: list[Value] = []  # the key used longest ago first
        self.taken: list[Value] = []
        self.takers: dict[int, object] = {}
        self.seen: Counter[int] = Counter()
        self.wanted_at: dict[int, float] = {}
        self.made: list[Value] = []
        self.removed: list[Value] = []
        self.needed: dict[int, float] = {}
        self.closed = False

    def touch(self, key: int) -> None:
        mine = [value for value in self.kept if value.key == key]
        self.kept = [value for value in self.kept if value.key != key] + mine

    def of(self, key: int) -> list[Value]:
        return [value for value in self.kept if value.key == key]

    @rule(key=KEYS)
    def find(self, key: int) -> None:
        found = self.cache.find(key)
        assert found is (self.of(key)[0] if self.of(key) else None)
        if found:
            self.touch(key)

    @rule(key=KEYS)
    def take(self, key: int) -> None:
        free = [value for value in self.of(key) if value not in self.taken]
        taker = object()
        found = self.cache.take(key, taker)
        assert found is (free[0] if free else None)
        if found is not None:
            self.taken.append(found)
            self.takers[id(found)] = taker
            self.touch(key)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        value = data.draw(st.sampled_from(self.taken))
        self.taken.remove(value)
        before = len(self.ended)
        self.cache.put(value.key, value)
        assert self.ended[before:] == ([] if value in self.kept else [value])
        assert self.cache.remove_taken(value.key, self.takers[id(value)]) == []

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        value = data.draw(st.sampled_from(self.made))
        was_here = value in self.kept
        assert self.cache.remove(value.key, value) is was_here
        self.note_removal(value, was_here)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def remove_taken(self, data: st.DataObject) -> None:
        value = data.draw(st.sampled_from(self.taken))
        was_here = value in self.kept
        found = self.cache.remove_taken(value.key, self.takers[id(value)])
        assert found == ([value] if was_here else [])
        self.note_removal(value, was_here)

    def note_removal(self, value: Value, was_here: bool) -> None:
        if was_here:
            self.kept.remove(value)
            self.removed.append(value)
            self.wanted_at[value.key] = self.bind_at
            self.seen[value.key] = self.bind_at - 1
            if value in self.taken:
                self.taken.remove(value)

    @rule(key=KEYS)
    def see(self, key: int) -> None:
        mine = self.of(key)
        room = len(self.kept) < self.most or any(v not in self.taken for v in self.kept)
        wanted_at = self.wanted_at.get(key, self.bind_at)
        if self.closed or any(value not in self.taken for value in mine):
            expected = False
        elif mine:
            expected = room
        else:
            self.seen[key] += 1
            expected = self.seen[key] >= wanted_at and room
        assert self.cache.is_wanted(key) is expected

    @rule(key=KEYS)
    def refuse(self, key: int) -> None:
        self.cache.refuse(key)
        self.wanted_at[key] = float("inf")

    @rule(key=KEYS, size=st.integers(0, 12), is_taken=st.booleans())
    def add(self, key: int, size: int, is_taken: bool) -> None:
        value = Value(key, size)
        self.made.append(value)
        before = len(self.ended)
        gone: list[Value] = []
        fits = not self.closed and (self.most_bytes is None or size <= self.most_bytes)
        if fits:
            gone += [old for old in self.of(key) if old not in self.taken]
            self.kept = [old for old in self.kept if old not in gone]
        while fits and (
            len(self.kept) >= self.most
            or (self.most_bytes and sum(v.size for v in self.kept) + size > self.most_bytes)
        ):
            old = next((old for old in self.kept if old not in self.taken), None)
            if old is None:
                fits = False
                break
            self.kept.remove(old)
            gone.append(old)
            self.seen[old.key] = 0
            needed = self.needed.get(id(old), self.bind_at)
            self.wanted_at[old.key] = 2 * needed
        taker = self.takers[id(value)] = object()
        assert self.cache.add(key, value, size, taker=taker if is_taken else None) is fits
        if fits:
            self.needed[id(value)] = self.wanted_at.pop(key, self.bind_at)
            self.seen[key] = 0
            self.kept.append(value)
            self.touch(key)
            if is_taken:
                self.taken.append(value)
        else:
            gone.append(value)
        assert self.ended[before:] == gone

    @rule(key=KEYS)
    def release(self, key: int) -> None:
        before = len(self.ended)
        self.cache.release(lambda other: other == key)
        self.leave([value for value in self.kept if value.key == key], before)
        self.seen.pop(key, None)
        self.wanted_at.pop(key, None)

    @rule()
    def close(self) -> None:
        before = len(self.ended)
        self.cache.close()
        self.closed = True
        self.leave(self.kept, before)

    def leave(self, gone: list[Value], before: int) -> None:
        self.kept = [value for value in self.kept if value not in gone]
        assert self.ended[before:] == [value for value in gone if value not in self.taken]

    @invariant()
    def holds_what_it_should(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert self.cache.values() == self.kept
        assert len(self.cache) == len(self.kept) <= self.most
        assert self.cache.bytes == sum(value.size for value in self.kept)
        assert self.most_bytes is None or self.cache.bytes <= self.most_bytes
        assert len(set(self.ended)) == len(self.ended), "a value ends once"
        assert not {*self.ended} & {*self.kept, *self.removed}


TestCacheMachine = CacheMachine.TestCase


def test_key_is_wanted_with_the_last_sighting_that_it_needs() -> None:
    cache: RequestCache[str, object] = RequestCache(2, bind_at=3)
    assert [cache.is_wanted("a") for _ in range(4)] == [False, False, True, True]
    cache.add("a", object())
    assert not cache.is_wanted("a")


def test_program_that_goes_round_more_requests_than_there_is_room_for_binds_few_anew() -> None:
    cache: RequestCache[int, int] = RequestCache(8, bind_at=2)
    bound = found = 0
    for turn in range(200):
        for key in range(9):
            if cache.find(key) is not None:
                found += turn >= 100
            elif cache.is_wanted(key):
                cache.add(key, key)
                bound += turn >= 100
    assert bound <= 20
    assert found >= 600


def test_keys_that_are_seen_once_do_not_fill_the_memory() -> None:
    cache: RequestCache[int, int] = RequestCache(4, bind_at=2)
    for key in range(10_000):
        assert not cache.is_wanted(key)
    assert len(cache._sightings) <= 100


@pytest.mark.parametrize("is_closed", [False, True])
def test_value_that_is_taken_ends_when_it_comes_back(is_closed: bool) -> None:
    ended: list[str] = []
    cache: RequestCache[int, str] = RequestCache(1, end=ended.append)
    cache.add(1, "one", taker=object())
    if is_closed:
        cache.close()
    else:
        cache.release(lambda key: key == 1)
    assert not ended
    cache.put(1, "one")
    assert ended == ["one"]


def test_threads_never_have_the_same_value_and_each_ends_once() -> None:
    ended: list[object] = []
    cache: RequestCache[int, object] = RequestCache(3, bind_at=2, end=ended.append)
    in_use: set[int] = set()
    lock = threading.Lock()
    made: list[object] = []

    def run(me: int) -> int:
        clashes = 0
        for turn in range(400):
            key = (me + turn) % 3
            value = cache.take(key, me)
            if value is None and cache.is_wanted(key):
                value = object()
                made.append(value)
                if not cache.add(key, value, taker=me):
                    continue
            if value is None:
                continue
            with lock:
                clashes += id(value) in in_use
                in_use.add(id(value))
            with lock:
                in_use.discard(id(value))
            cache.put(key, value)
        return clashes

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(run, range(6))) == 0
    cache.close()
    assert len(ended) == len(made) == len({*map(id, ended)})


def test_each_value_ends_wherever_adding_and_releasing_are_interrupted() -> None:
    number, came = 0, True
    while came:
        number += 1
        ended: set[int] = set()
        cache: RequestCache[int, int] = RequestCache(3, end=ended.add)
        for key in range(3):
            cache.add(key, key)

        def use(cache: RequestCache[int, int] = cache) -> None:
            cache.add(3, 3)  # the oldest goes for it
            cache.add(3, 4)  # and the one before with its key
            cache.close()

        came = interrupted_at(number, use)
        kept = {*cache.values()}
        assert len(cache) == len(kept), number
        assert not ended & kept, number
        cache.close()
        assert not cache.values()
        assert ended >= {0, 1, 2} | kept, number
    assert number > 50
    assert ended == {0, 1, 2, 3, 4}


def test_a_value_whose_adding_was_interrupted_anywhere_is_kept_or_ends() -> None:
    number, came = 1, True  # at the first place it is not the cache's yet
    while came:
        number += 1
        ended: set[int] = set()
        cache: RequestCache[int, int] = RequestCache(1, end=ended.add)
        cache.add(1, 1)
        came = interrupted_at(number, partial(cache.add, 2, 2))
        cache.close()
        assert ended == {1, 2}, number
    assert number > 10


def test_a_value_whose_end_was_interrupted_ends_with_the_next_call() -> None:
    ended: list[int] = []
    interrupted: list[int] = []

    def end(value: int) -> None:
        if value == 2 and not interrupted:
            interrupted.append(value)
            raise Interruption
        ended.append(value)

    cache: RequestCache[int, int] = RequestCache(3, end=end)
    for value in (1, 2, 3):
        cache.add(value, value)
    with pytest.raises(Interruption):
        cache.close()
    cache.close()
    assert ended == [1, 2, 3]


def test_a_value_whose_adding_is_interrupted_while_another_thread_takes_its_place_ends_once() -> (
    None
):
    ended: list[str] = []

    def end(value: str) -> None:
        ended.append(value)
        if value == "oldest":
            cache.release(lambda key: key == 2)  # as by another thread, which ends "new"
            raise Interruption

    cache: RequestCache[int, str] = RequestCache(1, end=end)
    cache.add(1, "oldest")
    with pytest.raises(Interruption):
        cache.add(2, "new")
    assert ended == ["oldest", "new"]
