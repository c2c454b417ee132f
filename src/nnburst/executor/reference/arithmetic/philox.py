"""The counter-based random generator Philox4x32-10 (Salmon et al., SC'11), many blocks at once.

Pure and thread-safe: a stream is a key and a counter, not a state.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

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
    """The first `count` numbers in [0, 1) of the stream that two signed seeds name.

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
