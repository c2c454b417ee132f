"""FarmHash's Fingerprint64 of many keys at once (farmhashna::Hash64, little endian, modulo 2**64).

Written from the published algorithm. Pure and thread-safe.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_U64: Final = np.uint64
_K0: Final = _U64(0xC3A5C85C97CB3127)
_K1: Final = _U64(0xB492B66FBE98F273)
_K2: Final = _U64(0x9AE16A3B2F90404F)
_ONES: Final = 2**64 - 1


def fingerprint64(keys: npt.NDArray[np.uint8]) -> Words:
    """Hashes of keys of equal length.

    Args:
        keys: [number, length] bytes.

    Returns:
        [number] hashes.
    """
    length = keys.shape[1]
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is what is wanted
        if length == 0:
            return np.full(len(keys), _K2)
        if length <= 3:
            return _up_to_3(keys)
        if length <= 7:
            return _4_to_7(keys)
        if length <= 16:
            return _8_to_16(keys)
        if length <= 32:
            return _17_to_32(keys)
        if length <= 64:
            return _33_to_64(keys)
        return _over_64(keys)


def _load(keys: npt.NDArray[np.uint8], at: int, size: int = 8) -> Words:
    """Little-endian words of `size` bytes at offset `at` of each key (from the end if negative)."""
    at = at if at >= 0 else keys.shape[1] + at
    chunk = np.ascontiguousarray(keys[:, at : at + size])
    return chunk.view(f"<u{size}")[:, 0].astype(np.uint64)


def _wrap(value: int) -> np.uint64:
    return _U64(value & _ONES)


def _rotate(x: Words, by: int) -> Words:
    return (x >> _U64(by)) | (x << _U64(64 - by))


def _mix(x: Words) -> Words:
    return x ^ (x >> _U64(47))


def _hash_16(u: Words, v: Words, multiplier: Any) -> Words:  # noqa: ANN401 - one word or one per key
    a = _mix((u ^ v) * multiplier)
    b: Words = _mix((v ^ a) * multiplier) * multiplier
    return b


def _up_to_3(keys: npt.NDArray[np.uint8]) -> Words:
    n = keys.shape[1]
    first, middle, last = (keys[:, i].astype(np.uint64) for i in (0, n >> 1, n - 1))
    y, z = first + (middle << _U64(8)), _wrap(n) + (last << _U64(2))
    return _mix(y * _K2 ^ z * _K0) * _K2


def _4_to_7(keys: npt.NDArray[np.uint8]) -> Words:
    n = keys.shape[1]
    first = _wrap(n) + (_load(keys, 0, 4) << _U64(3))
    return _hash_16(first, _load(keys, -4, 4), _wrap(int(_K2) + 2 * n))


def _8_to_16(keys: npt.NDArray[np.uint8]) -> Words:
    m = _wrap(int(_K2) + 2 * keys.shape[1])
    a, b = _load(keys, 0) + _K2, _load(keys, -8)
    return _hash_16(_rotate(b, 37) * m + a, (_rotate(a, 25) + b) * m, m)


def _32_bytes(keys: npt.NDArray[np.uint8], first: np.uint64) -> tuple[Words, Words, Words]:
    """What 17 to 32 and 33 to 64 bytes share: `a` and the two words that are hashed."""
    m = _wrap(int(_K2) + 2 * keys.shape[1])
    a, b = _load(keys, 0) * first, _load(keys, 8)
    c, d = _load(keys, -8) * m, _load(keys, -16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    return a, y, a + _rotate(b + _K2, 18) + c


def _17_to_32(keys: npt.NDArray[np.uint8]) -> Words:
    _, y, z = _32_bytes(keys, _K1)
    return _hash_16(y, z, _wrap(int(_K2) + 2 * keys.shape[1]))


def _33_to_64(keys: npt.NDArray[np.uint8]) -> Words:
    m = _wrap(int(_K2) + 2 * keys.shape[1])
    a, y, z = _32_bytes(keys, _K2)
    z = _hash_16(y, z, m)
    e, f = _load(keys, 16) * m, _load(keys, 24)
    g, h = (y + _load(keys, -32)) * m, (z + _load(keys, -24)) * m
    return _hash_16(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, m)


def _weak_hash(keys: npt.NDArray[np.uint8], at: int, a: Words, b: Words) -> tuple[Words, Words]:
    """Two words of state from 32 bytes at offset `at` and two seeds."""
    w, x, y, z = (_load(keys, at + 8 * i) for i in range(4))
    a = a + w
    b = _rotate(b + a + z, 21)
    inner = a + x + y
    return inner + z, b + _rotate(inner, 44) + a


class _State:
    """The 56 bytes that the loop over 64-byte blocks carries: x, y, z, v and w."""

    def __init__(self, keys: npt.NDArray[np.uint8]) -> None:
        seed, count = 81, len(keys)
        self.keys = keys
        self.x = _wrap(seed * int(_K2)) + _load(keys, 0)
        self.y = np.full(count, _wrap(seed * int(_K1) + 113))
        self.z = _mix(self.y * _K2 + _U64(113)) * _K2
        self.v = self.w = (np.zeros(count, np.uint64),) * 2

    def block(self, at: int, multiplier: Any, weight: int) -> None:  # noqa: ANN401
        """Mix in 64 bytes; the last block weighs two of the words nine times."""
        keys, m, nine = self.keys, multiplier, _U64(weight)
        v, w = self.v, self.w
        x = _rotate(self.x + self.y + v[0] + _load(keys, at + 8), 37) * m
        y = _rotate(self.y + v[1] + _load(keys, at + 48), 42) * m
        x = x ^ (w[1] * nine)
        y = y + v[0] * nine + _load(keys, at + 40)
        z = _rotate(self.z + w[0], 33) * m
        self.v = _weak_hash(keys, at, v[1] * m, x + w[0])
        self.w = _weak_hash(keys, at + 32, z + w[1], y + _load(keys, at + 16))
        self.x, self.y, self.z = z, y, x


def _over_64(keys: npt.NDArray[np.uint8]) -> Words:
    n = keys.shape[1]
    s = _State(keys)
    for at in range(0, (n - 1) // 64 * 64, 64):
        s.block(at, _K1, 1)
    m = _K1 + ((s.z & _U64(0xFF)) << _U64(1))
    w0 = s.w[0] + _U64((n - 1) & 63)
    v0 = s.v[0] + w0
    s.v, s.w = (v0, s.v[1]), (w0 + v0, s.w[1])
    s.block(n - 64, m, 9)
    first = _hash_16(s.v[0], s.w[0], m) + _mix(s.y) * _K0 + s.z
    return _hash_16(first, _hash_16(s.v[1], s.w[1], m) + s.x, m)
