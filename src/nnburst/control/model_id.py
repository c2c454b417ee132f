"""A number for a model, the same wherever it is computed: what counts of its executions are filed under."""

from __future__ import annotations

import msgspec

from nnburst.hal.model import Model


def model_id(model: Model) -> int:
    """64 bits of its graph, the constants in it and the sizes of its pools; never 0.

    What lies in pools is not looked at: networks that differ in weights alone are one.
    """
    import hashlib  # OpenSSL, 2 ms: the driver of one client alone never asks

    parts = (
        model.main,
        model.referenced,
        model.operand_values,
        [pool.size for pool in model.pools],
        model.relax_computation_float32_to_float16,
    )
    digest = hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
