"""FarmHash's Fingerprint64 against published values and the original library's."""

from __future__ import annotations

import numpy as np
import pytest

from nnburst.executor.reference.operations.lookup import fingerprint64


def fingerprint(text: bytes) -> int:
    [found] = fingerprint64(np.frombuffer(text, np.uint8).reshape(1, -1))
    return int(found)


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        (b"1footrue", -1541654101129638711),
        (b"2applefalse", 2794438866806483259),
        (b"3true", -4880158226897771312),
    ],
)
def test_published_examples_of_farm_fingerprint_come_out(text: bytes, signed: int) -> None:
    """BigQuery's documentation of FARM_FINGERPRINT."""
    assert fingerprint(text) == signed % 2**64


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (0, 0x9AE16A3B2F90404F),
        (3, 0x40B4412E33EEFD64),
        (5, 0x156112F7C93E5CB3),
        (7, 0x4FEF0B39C12AA9A4),
        (12, 0x07E11FA045E761BC),
        (16, 0x7EDA0ED8C837A168),
        (20, 0x7DAB3F979FD30094),
        (32, 0xA53F806F23A314E8),
        (33, 0xC24F9D7CE864F0E9),
        (64, 0x0566266CB579ECA2),
        (65, 0x77E0867714E6B0E4),
        (128, 0x666823960B3AC271),
        (129, 0x98206B8579BCA083),
        (200, 0x6D7105B27CBE2FD7),
    ],
)
def test_every_range_of_lengths_hashes_as_the_original(length: int, wanted: int) -> None:
    assert fingerprint(bytes((7 * i + 3) % 256 for i in range(length))) == wanted


@pytest.mark.parametrize("length", [1, 6, 11, 27, 50, 100])
def test_keys_are_hashed_independently_of_each_other(length: int) -> None:
    keys = np.random.default_rng(length).integers(0, 256, (9, length), dtype=np.uint8)
    alone = [fingerprint(key.tobytes()) for key in keys]
    assert fingerprint64(keys).tolist() == alone
    assert len(set(alone)) == len(alone)
