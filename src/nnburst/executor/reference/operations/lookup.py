"""Kernels that look rows up, hash them, draw samples and pick the largest elements.

The hash function and the random generator that they need are here, too, for many values at once.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.lookup import DENSE
from nnburst.executor.reference.operations.shape import require_in_range
from nnburst.hal.enums import OperationType

Words = npt.NDArray[np.uint64]

_U64: Final = np.uint64
_K0: Final = _U64(0xC3A5C85C97CB3127)
_K1: Final = _U64(0xB492B66FBE98F273)
_K2: Final = _U64(0x9AE16A3B2F90404F)
_ONES: Final = 2**64 - 1


# -- FarmHash's Fingerprint64 of many keys at once -------------------------------------------------
# farmhashna::Hash64, little endian, modulo 2**64. Written from the published algorithm. Pure and
# thread-safe.


def fingerprint64(keys: npt.NDArray[np.uint8]) -> Words:
    """Hashes of keys of equal length.

    Args:
        keys: [number, length] bytes.

    Returns:
        [number] hashes.
    """
    length = keys.shape[1]
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64 on purpose
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
    """The common start for 17 to 32 and 33 to 64 bytes: `a` and the two words to hash."""
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


# -- EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION --------------------------------------------
# NNAPI: EmbeddingLookup.cpp, HashtableLookup.cpp, LSHProjection.cpp.


@kernel(OperationType.EMBEDDING_LOOKUP, half=True)
def embedding_lookup(node: Node) -> Run:
    """Check the indices, then take the rows."""
    lookups, values = node.tensor("lookups").array, node.tensor("values").array
    y = node.output().array

    def run() -> None:
        require_in_range(node, "lookups", lookups, values.shape[0])
        np.take(values, lookups, axis=0, out=y, mode="clip")

    return run


@kernel(OperationType.HASHTABLE_LOOKUP)
def hashtable_lookup(node: Node) -> Run:
    """Search and take; rows of keys that are not found are zeroed, among them keys out of order."""
    lookups, keys = node.tensor("lookups").array, node.tensor("keys").array
    values, y, hits = node.tensor("values").array, node.output().array, node.output(1).array

    def run() -> None:
        at = np.minimum(np.searchsorted(keys, lookups), len(keys) - 1)
        found = keys[at] == lookups
        np.take(values, at, axis=0, out=y, mode="clip")
        y[~found] = 0
        np.copyto(hits, found)

    return run


_SPARSE: Final = 3

#: Bytes of keys that are hashed at once: enough to keep numpy busy, little enough to stay in cache.
_KEY_BYTES: Final = 1 << 20


def _hash_keys(seeds: Array, rows: Array) -> npt.NDArray[np.float64]:
    """Hashes of every seed's bytes before every row's, as signed numbers: [rows, seeds]."""
    keys = np.empty((len(rows), len(seeds), 4 + rows.shape[1]), np.uint8)
    keys[:, :, :4] = seeds
    keys[:, :, 4:] = rows[:, None]
    hashes = fingerprint64(keys.reshape(-1, keys.shape[2]))
    return hashes.view(np.int64).astype(np.float64).reshape(len(rows), len(seeds))


def _bits(node: Node) -> Array:
    """The sign of each hash function's weighted sum over the rows: [number of hashes, bits]."""
    table, x, weight = node.tensor("hash"), node.tensor("input").array, node.find("weight")
    seeds = table.array.astype("<f4").reshape(-1, 1).view(np.uint8)
    rows = x.reshape(x.shape[0], -1).view(np.uint8)
    weights = np.ones(len(rows)) if weight is None else weight.array.astype(np.float64)
    found = np.empty(len(seeds), np.bool_)
    at_once = min(len(seeds), max(1, _KEY_BYTES // (4 + rows.shape[1])))
    step = max(1, _KEY_BYTES // (at_once * (4 + rows.shape[1])))
    for first in range(0, len(seeds), at_once):
        some = seeds[first : first + at_once]
        score = np.zeros(len(some))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            keys = weights[part, None] * _hash_keys(some, rows[part])
            # Summing over the first axis adds row after row, in the original's order.
            score = np.vstack([score, keys]).sum(axis=0)
        np.greater(score, 0, out=found[first : first + at_once])
    return found.reshape(table.shape)


@kernel(OperationType.LSH_PROJECTION, half=True)
def lsh_projection(node: Node) -> Run:
    """Hash the input's raw bytes, whatever they stand for; sum the weights and pack the signs."""
    y, kind = node.output().array, int(node.value("type"))
    functions, bits = node.tensor("hash").shape
    powers = np.int64(1) << np.arange(bits - 1, -1, -1, dtype=np.int64)
    offset = np.arange(functions, dtype=np.int64) << bits if kind == _SPARSE else np.int64(0)

    def run() -> None:
        found = _bits(node)
        if kind == DENSE:
            np.copyto(y, found.reshape(-1))
        else:
            np.copyto(y, found @ powers + offset, casting="unsafe")

    return run


# -- The random generator Philox4x32-10 ------------------------------------------------------------
# Counter-based (Salmon et al., SC'11), many blocks at once. Pure and thread-safe: a stream is a key
# and a counter, not a state.


_ROUNDS: Final = 10
_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def philox4x32(key: tuple[int, int], counters: Words) -> Words:
    """Random blocks of four 32-bit words.

    Args:
        key: two 32-bit words.
        counters: [blocks, 4] 32-bit words, one counter per block.

    Returns:
        [blocks, 4] 32-bit words, held in 64 bits each.
    """
    c0, c1, c2, c3 = counters.T
    for turn in range(_ROUNDS):
        k0, k1 = (np.uint64((k + turn * w) & 0xFFFFFFFF) for k, w in zip(key, _WEYL, strict=True))
        # 32 x 32 bits fit 64, so nothing overflows here.
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
    return np.stack([c0, c1, c2, c3], axis=1)


def uniform_doubles(seeds: tuple[int, int], count: int) -> npt.NDArray[np.float64]:
    """The first `count` numbers in [0, 1) of the stream that two signed seeds select.

    The first seed is the key, the second the upper half of the counter, whose lower half counts
    blocks; two words make one double of 52 random bits.
    """
    first, second = (seed & (2**64 - 1) for seed in seeds)
    blocks = np.arange((count + 1) // 2, dtype=np.uint64)
    counters = np.empty((len(blocks), 4), np.uint64)
    counters[:, 0], counters[:, 1] = blocks & _LOW, blocks >> _HALF
    counters[:, 2], counters[:, 3] = np.uint64(second & 0xFFFFFFFF), np.uint64(second >> 32)
    words = philox4x32((first & 0xFFFFFFFF, first >> 32), counters).reshape(-1, 2)[:count]
    mantissas = (words[:, 0] & np.uint64(0xFFFFF)) << _HALF | words[:, 1]
    return mantissas.astype(np.float64) * 2.0**-52


# -- RANDOM_MULTINOMIAL and TOPK_V2 ----------------------------------------------------------------
# NNAPI: Multinomial.cpp, TopK_V2.cpp.


def _cumulative(logits: Array) -> npt.NDArray[np.float64]:
    """Sums over the classes of exp(logit - largest logit); only finite logits count."""
    values = logits.astype(np.float64)
    finite = np.isfinite(values)
    largest = np.max(values, axis=1, keepdims=True, where=finite, initial=-np.inf)
    weights = np.exp(np.where(finite, values - largest, -np.inf))
    return np.cumsum(weights, axis=1)


@kernel(OperationType.RANDOM_MULTINOMIAL)
def random_multinomial(node: Node) -> Run:
    """Invert the cumulative distribution of each batch.

    The generator is Philox4x32-10, as in the original; which numbers a pair of seeds gives is no
    part of the contract (NNAPI compares frequencies).
    DEVIATES: RANDOM_MULTINOMIAL gives the last class for a batch without any finite logit; the
    original gives one past it.
    """
    logits, seeds, y = node.tensor("logits").array, node.tensor("seeds").array, node.output().array
    last = logits.shape[1] - 1

    def run() -> None:
        first, second = (int(seed) for seed in seeds)
        if first == 0 and second == 0:
            first, second = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        cumulative = _cumulative(logits)
        draws = uniform_doubles((first, second), y.size).reshape(y.shape)
        for drawn, sums, classes in zip(draws, cumulative, y, strict=True):
            at = np.searchsorted(sums, drawn * sums[-1], side="right")
            np.minimum(at, last, out=classes, casting="unsafe")

    return run


@kernel(OperationType.TOPK_V2)
def topk_v2(node: Node) -> Run:
    """Sort stably upwards and read backwards: of equal elements the larger index comes first."""
    x, k = node.tensor("input").array, int(node.value("k"))
    values, indices = node.output(0).array, node.output(1).array
    # Sorting reads elements twice: it could leave the array if memory changes in between.
    private = node.scratch(x.shape, x.dtype)

    def run() -> None:
        np.copyto(private, x)
        order = np.argsort(private, axis=-1, kind="stable")[..., ::-1][..., :k]
        np.copyto(values, np.take_along_axis(private, order, axis=-1))
        np.copyto(indices, order, casting="unsafe")

    return run
