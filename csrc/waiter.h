/* Waiting for the peer: spin with `pause`, then sleep on the event flag, always with a deadline.
 *
 *   1. look at the ring; spin for a moment (volleys are answered in a cache miss);
 *   2. if a rhythm is known: sleep until just before the next event is due, then spin around it;
 *      otherwise spin for the window;
 *   3. sleep until woken.
 *
 * A spinner whose clock jumps was descheduled: another process needs this core, so it goes to sleep and
 * halves its window. Nothing spins if both sides share one core, or while cores are scarce (crowd.h). Private to one thread, except
 * `attention`, which any thread of this process may set before it wakes the event flag. */
#ifndef NNB_WAITER_H
#define NNB_WAITER_H

#include <stdint.h>

#include "atomics.h"
#include "crowd.h"
#include "rhythm.h"
#include "ring_buffer.h"

enum nnb_wait_status {
    NNB_WAIT_READY = 0,       /* the condition holds, or the ring is corrupt: look at it */
    NNB_WAIT_TIMED_OUT = 1,
    NNB_WAIT_ATTENTION = 2,   /* `attention` is set */
    NNB_WAIT_INTERRUPTED = 3, /* a signal arrived while asleep */
};

struct nnb_waiter {
    nnb_atomic_u32 attention; /* set by another thread of this process; private memory */
    uint32_t may_spin;        /* both sides have a core of their own */
    uint64_t window_ns;       /* spin window as configured */
    uint64_t window_now_ns;   /* the same after descheduling halved it */
    struct nnb_rhythm rhythm;
    struct nnb_crowd crowd;
    uint64_t sleeps;       /* statistics: times asleep */
    uint64_t spun_ns;      /* time spent spinning, volleys not counted */
    uint64_t descheduled;  /* times the clock jumped */
};

void nnb_waiter_init(struct nnb_waiter *waiter, uint32_t may_spin, uint64_t window_ns);

/* Waits until the ring has something to read. `flag` is the ring's event flag. */
int nnb_wait_readable(struct nnb_waiter *waiter, struct nnb_ring *ring, nnb_atomic_u32 *flag,
                      uint64_t deadline_ns);

/* Waits until `count` elements can be written. Sleeps at once: a full ring is the exception. */
int nnb_wait_writable(struct nnb_waiter *waiter, struct nnb_ring *ring, uint64_t count,
                      nnb_atomic_u32 *flag, uint64_t deadline_ns);

/* Polls `iterations` times without looking at a clock; whether there is something to read. */
static inline int nnb_spin_briefly(struct nnb_ring *ring, uint32_t iterations) {
    for (uint32_t i = 0; i < iterations; i++) {
        if (nnb_ring_poll(ring)) {
            return 1;
        }
        nnb_pause();
    }
    return 0;
}

/* Whether a look without a clock is worth its time. */
static inline bool nnb_waiter_spins(const struct nnb_waiter *waiter) {
    return waiter->may_spin != 0 && waiter->crowd.until_ns == 0;
}

/* Whether `attention` is set. */
static inline int nnb_waiter_has_attention(struct nnb_waiter *waiter) {
    /* SYNC POINT D: what the caller of nnb_waiter_call prepared is visible after this. */
    return nnb_load_acquire_u32(&waiter->attention) != 0;
}

/* Sets `attention` and wakes the waiter if it waits for something to read; who may wait for room, too, wakes
 * that flag as well (NNB_FMQ_WRITER_ATTENTION). Any thread of this process. */
void nnb_waiter_call(struct nnb_waiter *waiter, nnb_atomic_u32 *flag);

#endif
