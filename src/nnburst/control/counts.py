"""What a service has counted of its executions, as its supervisor hands it to a front."""

from __future__ import annotations

from typing import Final

import msgspec

#: Bucket 0 of durations ends at 2^this nanoseconds, each next one at twice that; the last has no end.
FIRST_BUCKET_BITS: Final = 10
BUCKETS: Final = 24
#: Ends of the buckets but the last, in seconds.
BUCKET_ENDS: Final = tuple(2 ** (FIRST_BUCKET_BITS + n) / 1e9 for n in range(BUCKETS - 1))
#: Bytes of an answer and of what it begins with: those of its question.
MAX_ANSWER: Final = 128 * 1024
QUESTION_BYTES: Final = 8


class DurationCounts(msgspec.Struct, frozen=True):
    """A histogram.

    Attributes:
        total_ns: sum of all.
        counts: of each bucket.
    """

    total_ns: int
    counts: tuple[int, ...]


class ModelCounts(msgspec.Struct, frozen=True):
    """What happened to one model, in all workers that are and were.

    Attributes:
        model: its `model_id`; 0 for those that have no row of their own.
        statuses: ended executions by `ErrorStatus`, from NONE on.
        in_flight: executions that have begun and not ended.
        queue_full: results that had to wait for room in their queue.
        device: time in the executor, of one execution in 64 and those that measure.
        driver: likewise, from the request's arrival to its result.
    """

    model: int
    statuses: tuple[int, ...]
    in_flight: int
    queue_full: int
    device: DurationCounts
    driver: DurationCounts


class ServiceCounts(msgspec.Struct, frozen=True):
    """What a service has counted.

    Attributes:
        models: in the order in which they came.
        clients: connected now.
        deaths: workers that have failed.
        restarts: of the front.
        cache_hits: models prepared from the files of a compilation cache.
        cache_misses: files that were refused.
    """

    models: tuple[ModelCounts, ...] = ()
    clients: int = 0
    deaths: int = 0
    restarts: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
