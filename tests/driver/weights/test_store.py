"""Stored weights stay within their bounds, and belong to one owner."""

from __future__ import annotations

import os

import pytest

from nnburst.driver.weights_server import MODELS_OF_ONE, OWNERS, Packed, WeightsStore


def packed(size: int) -> Packed:
    return Packed((os.memfd_create("weights"),), size)


def is_open(kept: Packed) -> bool:
    try:
        os.fstat(kept.files[0])
    except OSError:
        return False
    return True


@pytest.fixture
def store() -> WeightsStore:
    return WeightsStore(100)


def test_one_owners_weights_are_not_found_for_another(store: WeightsStore) -> None:
    kept = packed(10)
    store.keep(1, b"a", kept)
    assert store.find(1, b"a") is kept
    assert store.find(2, b"a") is None


def test_what_was_not_asked_for_longest_goes_first(store: WeightsStore) -> None:
    first, second, third = packed(50), packed(50), packed(50)
    store.keep(1, b"first", first)
    store.keep(1, b"second", second)
    assert store.find(1, b"first") is first
    store.keep(1, b"third", third)
    assert store.find(1, b"second") is None
    assert [is_open(each) for each in (first, second, third)] == [True, False, True]


def test_one_owners_models_take_no_place_from_anothers(store: WeightsStore) -> None:
    theirs = packed(100)
    store.keep(2, b"theirs", theirs)
    for number in range(2 * MODELS_OF_ONE):
        store.keep(1, bytes([number]), packed(1))
    assert store.find(2, b"theirs") is theirs
    assert store.find(1, bytes([0])) is None


def test_what_is_too_large_is_known_to_have_nothing_to_share(store: WeightsStore) -> None:
    large = packed(101)
    store.keep(1, b"large", large)
    assert store.find(1, b"large") == Packed()
    assert not is_open(large)


def test_owner_that_asked_longest_ago_goes_first(store: WeightsStore) -> None:
    kept = [packed(1) for _ in range(OWNERS + 1)]
    for owner, each in enumerate(kept):
        store.keep(owner, b"a", each)
    assert store.find(0, b"a") is None
    assert [is_open(each) for each in kept] == [False] + [True] * OWNERS
