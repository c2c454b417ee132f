from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.control.messages import CALLS, Call, decode_call, encode
from nnburst.hal.enums import Priority
from nnburst.hal.types import BufferDesc
from nnburst.testing.fuzzing import control_fuzzer
from nnburst.testing.fuzzing.control_fuzzer import (
    _variants,
    fuzz_control,
    honest_calls,
    mutate_bytes,
    mutate_tree,
    takes_a_handle,
)

_FAULTY = """
import os
from nnburst.executor.null import NullExecutor

class Dies(NullExecutor):
    calls = 0

    def supported(self, model):
        self.calls += 1
        if self.calls == 20:
            os._exit(3)
        return super().supported(model)

class Leaks(NullExecutor):
    def supported(self, model):
        os.dup(0)
        return super().supported(model)
"""


@pytest.fixture
def faulty(make_module: Callable[[str, str], None]) -> str:
    """The module of the faulty executors, once drivers can import it."""
    make_module("faulty", _FAULTY)
    return "faulty"


@pytest.mark.every_day("reference")
@pytest.mark.parametrize("executor", ["null", "reference"])
def test_mutated_messages_are_answered_and_leave_nothing_behind(executor: str) -> None:
    answered_and_left_nothing(500, executor)


@pytest.mark.campaign
@pytest.mark.parametrize("executor", ["null", "reference"])
def test_many_mutated_messages_are_answered_and_leave_nothing_behind(executor: str) -> None:
    answered_and_left_nothing(5000, executor)


def answered_and_left_nothing(count: int, executor: str) -> None:
    report = fuzz_control(count, seed=1, executor=executor)
    assert not report.failures
    assert report.messages == count
    assert {"NONE", "INVALID_ARGUMENT"} <= set(report.outcomes)


@pytest.mark.campaign
def test_a_driver_that_leaks_descriptors_is_found(
    faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_fuzzer, "_PATIENCE", 0.5)  # these never close
    assert "descriptors" in fuzz_control(2000, executor=f"{faulty}:Leaks").failures[0]


def test_a_driver_that_dies_is_found(faulty: str) -> None:
    report = fuzz_control(20_000, executor=f"{faulty}:Dies")
    assert "the driver ended after" in report.failures[0]
    assert report.messages < 20_000


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(tree=_TREES, seed=st.integers(0, 1000))
def test_a_mutated_tree_can_still_be_encoded(tree: object, seed: int) -> None:
    msgspec.msgpack.decode(msgspec.msgpack.encode(mutate_tree(tree, Random(seed))))


@given(body=st.binary(max_size=100), seed=st.integers(0, 1000))
def test_any_bytes_can_be_mutated(body: bytes, seed: int) -> None:
    assert mutate_bytes(body, Random(seed)) == mutate_bytes(body, Random(seed))


def test_honest_calls_are_of_every_kind_and_can_be_sent() -> None:
    calls = honest_calls(handle=5)
    assert {type(call) for call in calls} == CALLS
    for call in calls:
        assert decode_call(encode(call)) == call
        assert call.fd_count is None or call.fd_count < 4


def test_honest_calls_name_their_handle_wherever_their_type_has_one() -> None:
    for call in honest_calls(handle=987):
        assert ("987" in repr(call)) == takes_a_handle(type(call))


def test_field_that_no_word_is_about_gets_a_value_of_its_type() -> None:
    class Novel(Call, frozen=True):
        desc: BufferDesc
        level: Annotated[int, msgspec.Meta(ge=3)]
        priority: Priority
        name: str
        is_fast: bool
        numbers: tuple[int, ...]
        limit: int | None

    [call] = _variants(Novel, 5)
    assert msgspec.msgpack.Decoder(Novel).decode(encode(call)) == call
