"""The bytes of cache files: what was sealed comes back, and anything else does not."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nnburst.driver.model.compilation_cache import PREFIX_BYTES, CacheEntry, seal, unseal
from nnburst.hal.enums import ExecutionPreference, OperandType, OperationType, Priority
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

KEY, TOKEN, WRITER = bytes(range(32)), b"t" * 32, "driver 1"


def relu(extent: int = 4) -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (extent,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (extent,))
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


def entry(program: bytes = b"program", extent: int = 4) -> CacheEntry:
    return CacheEntry(relu(extent), ExecutionPreference.LOW_POWER, Priority.HIGH, 2, program)


def sealed(made: CacheEntry, constants: bytes = b"weights") -> bytes:
    return seal(made, constants, writer=WRITER, token=TOKEN, key=KEY)


def opened(
    model_cache: bytes,
    constants: bytes = b"weights",
    *,
    writer: str = WRITER,
    token: bytes = TOKEN,
    key: bytes = KEY,
) -> CacheEntry:
    found, cached = unseal(model_cache, constants, writer=writer, token=token, key=key)
    assert (cached.model, cached.program, cached.constants) == (
        found.model,
        found.program,
        constants,
    )
    return found


@given(
    st.binary(max_size=200),
    st.binary(max_size=200),
    st.sampled_from(ExecutionPreference),
    st.sampled_from(Priority),
    st.integers(1, 9),
)
def test_what_was_sealed_comes_back(
    program: bytes,
    constants: bytes,
    preference: ExecutionPreference,
    priority: Priority,
    extent: int,
) -> None:
    made = CacheEntry(relu(extent), preference, priority, extent, program)
    assert opened(sealed(made, constants), constants) == made


def test_a_flipped_bit_in_any_byte_is_noticed() -> None:
    content = sealed(entry())
    for at in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            with pytest.raises(GeneralFailure):
                opened(bytes(changed))


def test_a_truncation_at_any_length_is_noticed() -> None:
    content = sealed(entry())
    for length in range(len(content)):
        with pytest.raises(GeneralFailure):
            opened(content[:length])


@given(st.binary(min_size=1, max_size=64))
def test_appended_bytes_are_noticed(more: bytes) -> None:
    with pytest.raises(GeneralFailure):
        opened(sealed(entry()) + more)


@given(st.binary(max_size=3 * PREFIX_BYTES))
def test_bytes_of_any_origin_are_refused(content: bytes) -> None:
    with pytest.raises(GeneralFailure):
        opened(content)


@given(st.data())
def test_pieces_of_two_caches_make_no_third(data: st.DataObject) -> None:
    one, other = sealed(entry(b"one" * 9)), sealed(entry(b"two" * 9, 5))
    cut = data.draw(st.integers(1, min(len(one), len(other)) - 1))
    mixed = one[:cut] + other[cut:]
    assume(mixed not in (one, other))
    with pytest.raises(GeneralFailure):
        opened(mixed)


@given(st.binary(max_size=20).filter(lambda found: found != b"weights"))
def test_a_data_cache_of_another_content_is_not_used(constants: bytes) -> None:
    with pytest.raises(GeneralFailure, match="data cache"):
        opened(sealed(entry()), constants)


@pytest.mark.parametrize(
    "changed",
    [{"writer": "driver 2"}, {"token": b"u" * 32}, {"key": bytes(32)}],
    ids=["writer", "token", "key"],
)
def test_writer_token_and_key_are_part_of_the_seal(changed: dict[str, str | bytes]) -> None:
    with pytest.raises(GeneralFailure, match="not what this driver wrote for this token"):
        opened(sealed(entry()), **changed)  # type: ignore[arg-type]


def test_writer_and_token_do_not_run_together() -> None:
    content = seal(entry(), b"", writer="ab", token=b"c" * 32, key=KEY)
    with pytest.raises(GeneralFailure):
        opened(content, b"", writer="abc", token=b"c" * 31)
