#include "counters.h"

#include <string.h>

static void add_duration(struct nnb_durations *durations, uint64_t nanoseconds) {
    uint32_t bits = nanoseconds > 1 ? 64u - (uint32_t)__builtin_clzll(nanoseconds - 1) : 0;
    uint32_t bucket = bits > NNB_FIRST_BUCKET_BITS ? bits - NNB_FIRST_BUCKET_BITS : 0;
    if (bucket >= NNB_DURATION_BUCKETS) {
        bucket = NNB_DURATION_BUCKETS - 1;
    }
    nnb_counters_add(&durations->total_ns, nanoseconds);
    nnb_counters_add(&durations->counts[bucket], 1);
}

void nnb_counters_time(struct nnb_counters *row, uint64_t device_ns, uint64_t driver_ns) {
    add_duration(&row->device, device_ns < driver_ns ? device_ns : driver_ns);
    add_duration(&row->driver, driver_ns);
}

void nnb_counters_merge(struct nnb_counters *into, const struct nnb_counters *from) {
    uint64_t counted[sizeof *from / sizeof(uint64_t)];
    memcpy(counted, (const void *)from, sizeof counted);
    nnb_atomic_u64 *words = (nnb_atomic_u64 *)into;
    for (size_t i = 1; i < sizeof counted / sizeof counted[0]; i++) { /* 0 is the model */
        nnb_counters_add(&words[i], counted[i]);
    }
}

void nnb_counters_settle(struct nnb_counters *row) {
    uint64_t ended = 0;
    for (uint32_t i = 0; i < NNB_COUNTED_STATUSES; i++) {
        ended += nnb_load_relaxed_u64(&row->statuses[i]); /* TRUST: this process wrote it */
    }
    uint64_t began = nnb_load_relaxed_u64(&row->began); /* TRUST: this process wrote it */
    nnb_counters_add(&row->statuses[NNB_STATUS_GENERAL_FAILURE], began - ended);
}

uint32_t nnb_counters_note_begin(struct nnb_counters *row) {
    return nnb_counters_begin(row);
}

void nnb_counters_note_end(struct nnb_counters *row, uint32_t status) {
    nnb_counters_end(row, status);
}
