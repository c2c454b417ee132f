"""Cache tokens and file names (RT:K1, K3; RTT:C1 to C5)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.runtime.planning.cache_token import (
    CacheKind,
    cache_file_name,
    cache_token,
)
from nnburst.runtime.planning.plan import CompoundPlan
from runtime.planning.plans import ADD, CPU, EXP, branches, chain, device, made

CLIENT = bytes(range(32))


def token(
    client: bytes = CLIENT,
    operations: Sequence[tuple[int, int]] = (),
    name: str = "device",
    version: str = "1.0",
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
    priority: Priority = Priority.MEDIUM,
    attributes: Sequence[ExtensionAttribute] = (),
) -> bytes:
    return cache_token(
        client,
        operations,
        name,
        version,
        preference=preference,
        priority=priority,
        attributes=attributes,
    )


def test_token_is_the_hash_of_its_parts_in_their_order() -> None:
    attributes = [
        ExtensionAttribute("b.ext", 1, b"x"),
        ExtensionAttribute("a.ext", 2, b"y"),
        ExtensionAttribute("a.ext", 1, b""),
    ]
    wanted = hashlib.sha256(
        CLIENT
        + pack("<IiIi", 0, 3, 1, 0)
        + b"device"
        + b"1.0"
        + pack("<ii", 1, 100)
        + b"a.ext"
        + pack("<H", 1)
        + b"a.ext"
        + pack("<H", 2)
        + b"y"
        + b"b.ext"
        + pack("<H", 1)
        + b"x"
    ).digest()
    assert token(operations=[(0, 3), (1, 0)], attributes=attributes) == wanted


def test_token_differs_by_everything_that_the_compilation_is_made_of() -> None:
    tokens = [
        token(),
        token(client=bytes(32)),
        token(operations=[(0, 0)]),
        token(operations=[(0, 1)]),
        token(operations=[(1, 0)]),
        token(name="other"),
        token(version="1.1"),
        *(token(preference=p) for p in ExecutionPreference if p != 1),
        *(token(priority=p) for p in Priority if p != Priority.MEDIUM),
        token(attributes=[ExtensionAttribute("a.ext", 1, b"x")]),
    ]
    assert len(set(tokens)) == len(tokens)


def test_client_token_has_32_bytes() -> None:
    with pytest.raises(InvalidArgument, match="S11: cache token: 3 bytes"):
        token(client=b"abc")


def test_whole_model_and_each_of_its_steps_have_other_operations() -> None:
    simple = made(chain(ADD, EXP), [CPU]).plan
    plan = made(chain(ADD, EXP), [device("adder", ADD), CPU]).plan
    assert isinstance(plan, CompoundPlan)
    assert simple.token_operations == ()  # type: ignore[union-attr]
    assert [step.token_operations for step in plan.execution_steps] == [((0, 0),), ((0, 1),)]


def test_equal_operations_of_two_branches_have_other_source_models() -> None:
    plan = made(branches(), [device("adder", ADD), CPU]).plan
    assert isinstance(plan, CompoundPlan)
    assert [step.token_operations for step in plan.execution_steps] == [
        *(((1, 0),), ((2, 0),), ((0, 1),)),
    ]


def test_file_name_has_two_letters_a_byte_the_low_half_first() -> None:
    name = cache_file_name(bytes([0x10, 0xFA, *[0] * 30]), CacheKind.MODEL, 12)
    assert name == "ABKP" + "A" * 60 + "112"


@given(st.binary(min_size=32, max_size=32), st.sampled_from(CacheKind), st.integers(0, 31))
def test_file_names_differ_by_token_kind_and_number(
    found: bytes, kind: CacheKind, number: int
) -> None:
    name = cache_file_name(found, kind, number)
    halves = [ord(letter) - ord("A") for letter in name[:64]]
    assert bytes(a | b << 4 for a, b in zip(halves[::2], halves[1::2], strict=True)) == found
    assert name[64:] == f"{int(kind)}{number}"
