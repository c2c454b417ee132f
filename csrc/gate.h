/* The guard of all that one caller at a time may use: a second thread is refused and not queued, and so is a
 * signal handler's call in the middle of one. Whatever a handler raises, the entry is ended by one call. */
#ifndef NNB_GATE_H
#define NNB_GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"

/* Zeroed to begin with. Private memory of the process. */
struct nnb_gate {
    nnb_atomic_u64 holder; /* who is inside; 0 while it is open */
};

/* Enters; false if another holder is inside. `holder` is not 0 and stands for one entry: a thread in C, a number of
 * its own for each entry of Python's, since a handler's entry may come in the middle of another on its thread. */
static inline bool nnb_gate_enter(struct nnb_gate *gate, uint64_t holder) {
    /* SYNC POINT I: the previous holder's writes are visible. */
    return nnb_try_claim(&gate->holder, holder);
}

/* Whether `holder` is inside. It alone makes this true or false. */
static inline bool nnb_gate_is_held_by(struct nnb_gate *gate, uint64_t holder) {
    /* TRUST: memory of this process. */
    return nnb_load_relaxed_u64(&gate->holder) == holder;
}

/* Leaves, for a caller that is inside for certain. */
static inline void nnb_gate_open(struct nnb_gate *gate) {
    /* SYNC POINT I: what was written inside is visible to who enters next. */
    nnb_store_release_u64(&gate->holder, 0);
}

/* Leaves; nothing if `holder` is not inside. */
static inline void nnb_gate_leave(struct nnb_gate *gate, uint64_t holder) {
    if (nnb_gate_is_held_by(gate, holder)) {
        nnb_gate_open(gate);
    }
}

/* The calling thread as a holder. */
static inline uint64_t nnb_this_thread(void) { return (uint64_t)(uintptr_t)pthread_self(); }

#endif
