/* Guards an object that only one caller at a time may use. A second thread is refused, not queued, and so is
 * a signal handler's call in the middle of another call. One call ends the entry, even if a handler has
 * raised. */
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

/* Enters; false if another holder is inside. `holder` is not 0 and identifies an entry: a thread in C, a new
 * number for each entry from Python, since a handler may enter in the middle of another entry on its thread.
 * */
static inline bool nnb_gate_enter(struct nnb_gate *gate, uint64_t holder) {
    /* SYNC POINT I: the previous holder's writes are visible. */
    return nnb_try_claim(&gate->holder, holder);
}

/* Whether `holder` is inside. Only `holder` itself changes this answer. */
static inline bool nnb_gate_is_held_by(struct nnb_gate *gate, uint64_t holder) {
    /* TRUST: memory of this process. */
    return nnb_load_relaxed_u64(&gate->holder) == holder;
}

/* Leaves, for a caller that is certainly inside. */
static inline void nnb_gate_open(struct nnb_gate *gate) {
    /* SYNC POINT I: writes inside are visible to the next holder. */
    nnb_store_release_u64(&gate->holder, 0);
}

/* Leaves; does nothing if `holder` is not inside. */
static inline void nnb_gate_leave(struct nnb_gate *gate, uint64_t holder) {
    if (nnb_gate_is_held_by(gate, holder)) {
        nnb_gate_open(gate);
    }
}

/* The calling thread as a holder. */
static inline uint64_t nnb_this_thread(void) { return (uint64_t)(uintptr_t)pthread_self(); }

#endif
