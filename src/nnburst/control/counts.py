"""Defines the counts of a service's executions by model, and their messages between front and supervisor."""

from __future__ import annotations

from typing import Final

import msgspec

from nnburst.hal.model import Model

#: Bucket 0 of durations ends at 2 to this power in nanoseconds, each next one at twice that; the last never.
FIRST_BUCKET_BITS: Final = 10
BUCKETS: Final = 24
#: Ends of all buckets except the last, in seconds.
BUCKET_ENDS: Final = tuple(2 ** (FIRST_BUCKET_BITS + n) / 1e9 for n in range(BUCKETS - 1))
#: Bytes of an answer and of what it begins with: those of its question.
MAX_ANSWER: Final = 128 * 1024
QUESTION_BYTES: Final = 8
#: Messages instead of a question: a front is being started; all ports of the front listen.
STARTING: Final = b"start"
LISTENING: Final = b"listen"


class DurationCounts(msgspec.Struct, frozen=True):
    """A histogram of durations.

    Attributes:
        total_ns: sum of all durations.
        counts: number of durations in each bucket.
    """

    total_ns: int
    counts: tuple[int, ...]


class ModelCounts(msgspec.Struct, frozen=True):
    """The executions of one model in all present and past workers.

    Attributes:
        model: its `model_id`; 0 for all models without a row of their own.
        statuses: ended executions by `ErrorStatus`, from NONE on.
        in_flight: executions that have begun and not ended.
        queue_full: results that had to wait for room in their queue.
        device: times in the executor, of one execution in 64 and of those that are measured.
        driver: times of the same executions from the request's arrival to its result.
    """

    model: int
    statuses: tuple[int, ...]
    in_flight: int
    queue_full: int
    device: DurationCounts
    driver: DurationCounts


class ServiceCounts(msgspec.Struct, frozen=True):
    """The counts of a service.

    Attributes:
        models: counts of each model, in the order of their first execution.
        clients: number of connected clients.
        deaths: number of workers that have failed.
        restarts: number of restarts of the front.
        cache_hits: number of models prepared from the files of a compilation cache.
        cache_misses: number of refused cache files.
    """

    models: tuple[ModelCounts, ...] = ()
    clients: int = 0
    deaths: int = 0
    restarts: int = 0
    cache_hits: int = 0
    cache_misses: int = 0


def model_id(model: Model) -> int:
    """A hash of 64 bits over a model's graph, the constants in it and the sizes of its pools; never 0.

    The content of pools is left out: models that differ only in weights there have the same number.
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
