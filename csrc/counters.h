/* Counts the executions of a worker in memory that its supervisor reads.
 *
 * A row belongs to one writer, a burst's thread or the holder of the interpreter lock, so counting needs no
 * locked instruction. Counts only grow. The reader is another process, which copies a row with a system call
 * and does not trust it; a word is written as a whole, so the reader gets one count or the next. */
#ifndef NNB_COUNTERS_H
#define NNB_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "atomics.h"
#include "wire.h"

#define NNB_COUNTED_STATUSES 9u /* NONE to RESOURCE_EXHAUSTED_PERSISTENT, by number */
#define NNB_DURATION_BUCKETS 24u
/* Bucket 0 ends at 2^10 ns, each other bucket at twice the end of the one before; the last has no end. */
#define NNB_FIRST_BUCKET_BITS 10u
#define NNB_SAMPLED_EVERY 64u

struct nnb_durations {
    nnb_atomic_u64 total_ns;
    nnb_atomic_u64 counts[NNB_DURATION_BUCKETS];
};

struct nnb_counters {
    nnb_atomic_u64 model; /* which one; 0 for all that have no row of their own */
    nnb_atomic_u64 began;
    nnb_atomic_u64 statuses[NNB_COUNTED_STATUSES];
    nnb_atomic_u64 queue_full;   /* results that had to wait for room */
    struct nnb_durations device; /* in the executor, of those that are timed */
    struct nnb_durations driver; /* from the request's arrival to its result */
    nnb_atomic_u64 unused[2];
};

_Static_assert(sizeof(struct nnb_counters) == 512, "rows do not share cache lines");

static inline void nnb_counters_add(nnb_atomic_u64 *word, uint64_t more) {
    nnb_store_relaxed_u64(word, nnb_load_relaxed_u64(word) + more); /* TRUST: nothing follows from it */
}

/* Counts the begin of an execution; returns whether it is one of those that are always timed. */
static inline uint32_t nnb_counters_begin(struct nnb_counters *row) {
    uint64_t before = nnb_load_relaxed_u64(&row->began); /* TRUST: chooses what is timed, no more */
    nnb_store_relaxed_u64(&row->began, before + 1);
    return before % NNB_SAMPLED_EVERY == 0;
}

/* Counts the end of an execution with `status`, an ErrorStatus; unknown ones count as GENERAL_FAILURE. */
static inline void nnb_counters_end(struct nnb_counters *row, uint32_t status) {
    nnb_counters_add(
        &row->statuses[status < NNB_COUNTED_STATUSES ? status : NNB_STATUS_GENERAL_FAILURE], 1);
}

/* Adds the durations of a timed execution. */
void nnb_counters_time(struct nnb_counters *row, uint64_t device_ns, uint64_t driver_ns);

/* Adds the counts of `from` to `into`, whose writer calls this; the model of `into` stays. */
void nnb_counters_merge(struct nnb_counters *into, const struct nnb_counters *from);

/* Counts executions without an end as failed, after the row's writer has ended. */
void nnb_counters_settle(struct nnb_counters *row);

/* The same as functions for Python, which keep the interpreter lock. */
uint32_t nnb_counters_note_begin(struct nnb_counters *row);
void nnb_counters_note_end(struct nnb_counters *row, uint32_t status);

#endif
