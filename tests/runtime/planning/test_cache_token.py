"""Cache tokens and file names (RT:K1, K3; RTT:C1 to C5)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.client.compilation_cache import cache_paths, cache_token
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.types import NumberOfCacheFiles
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


def test_attributes_that_cannot_be_have_no_token() -> None:
    with pytest.raises(InvalidArgument, match="65536, expected 0 to 65535"):
        token(attributes=[ExtensionAttribute("a.ext", 1 << 16, b"x")])
    with pytest.raises(InvalidArgument, match="given twice"):
        token(attributes=[ExtensionAttribute("a.ext", 1, b"x"), ExtensionAttribute("a.ext", 1)])


def test_file_name_has_two_letters_a_byte_the_low_half_first() -> None:
    found = cache_paths(Path("dir"), bytes([0x10, 0xFA, *[0] * 30]), NumberOfCacheFiles(13, 1))
    assert found[0][12] == Path("dir") / ("ABKP" + "A" * 60 + "112")
    assert found[1] == [Path("dir") / ("ABKP" + "A" * 60 + "20")]


@given(st.binary(min_size=32, max_size=32), st.integers(0, 31), st.integers(0, 31))
def test_file_names_differ_by_token_kind_and_number(found: bytes, models: int, data: int) -> None:
    paths = cache_paths(Path(), found, NumberOfCacheFiles(models, data))
    for kind, (group, count) in enumerate(zip(paths, (models, data), strict=True), 1):
        assert [path.name[64:] for path in group] == [f"{kind}{at}" for at in range(count)]
        for path in group:
            halves = [ord(letter) - ord("A") for letter in path.name[:64]]
            pairs = zip(halves[::2], halves[1::2], strict=True)
            assert bytes(low | high << 4 for low, high in pairs) == found
