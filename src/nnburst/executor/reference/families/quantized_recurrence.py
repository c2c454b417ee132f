"""Small arithmetic that both quantised LSTM operations share.

NNAPI: QuantUtils.h.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def saturate(x: npt.ArrayLike, bits: int) -> Int64:
    """The nearest number that `bits` bits hold."""
    limit = 1 << (bits - 1)
    return np.clip(np.asarray(x, np.int64), -limit, limit - 1)
