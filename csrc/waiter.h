/* Waits for the peer: spins with `pause`, then sleeps on the event flag, always with a deadline.
 *
 *   1. check the ring; spin for a moment (calls in quick succession are answered within a cache miss);
 *   2. if a period is known: sleep until just before the next event is due, then spin around it;
 *      otherwise spin for the window;
 *   3. sleep until woken.
 *
 * If the clock of a spinning waiter jumps, the waiter was descheduled: another process needs this core, so
 * the waiter goes to sleep and halves its window. A waiter never spins if both sides share one core, or while
 * cores are scarce (cpu_contention.h). Private to one thread, except `attention`, which any thread of this
 * process may set before it wakes the event flag. */
#ifndef NNB_WAITER_H
#define NNB_WAITER_H

#include <stdint.h>

#include "atomics.h"
#include "cpu_contention.h"
#include "rhythm.h"
#include "ring_buffer.h"

enum nnb_wait_status {
    NNB_WAIT_READY = 0,       /* the condition holds, or the ring is corrupt: look at it */
    NNB_WAIT_TIMED_OUT = 1,
    NNB_WAIT_ATTENTION = 2,   /* `attention` is set */
    NNB_WAIT_INTERRUPTED = 3, /* a signal arrived while asleep */
    NNB_WAIT_PEER_CHANGED = 4, /* the word of `peer` has changed, and nothing is there */
};

struct nnb_waiter {
    nnb_atomic_u32 attention; /* set by another thread of this process; private memory */
    uint32_t may_spin;        /* both sides have a core of their own */
    nnb_atomic_u32 *peer;     /* the peer's death word, or NULL: a change of it ends a wait */
    uint32_t peer_value;      /* what it is as long as nothing happens */
    uint64_t window_ns;       /* spin window as configured */
    uint64_t window_now_ns;   /* the same after descheduling halved it */
    uint32_t soon;            /* share of the events after the window that came soon after it, averaged */
    struct nnb_rhythm rhythm;
    struct nnb_cpu_contention contention;
    uint64_t sleeps;       /* statistics: times asleep */
    uint64_t spun_ns;      /* time spent spinning, volleys not counted */
    uint64_t descheduled;  /* times the clock jumped */
};

void nnb_waiter_init(struct nnb_waiter *waiter, uint32_t may_spin, uint64_t window_ns);

/* Notes how long a wait for an event lasted. */
void nnb_waiter_note(struct nnb_waiter *waiter, uint64_t waited_ns);

/* The time to spin without a plan. It is twice the window if most events that the window does not cover come in
 * that time: to sleep in between would cost about as much of the core, and a wake-up. */
uint64_t nnb_waiter_spin_window(const struct nnb_waiter *waiter);

/* Waits until the ring has something to read. `flag` is the ring's event flag. */
int nnb_wait_readable(struct nnb_waiter *waiter, struct nnb_ring *ring, nnb_atomic_u32 *flag,
                      uint64_t deadline_ns);

/* Waits until `count` elements can be written. Sleeps at once, since a full ring is rare. */
int nnb_wait_writable(struct nnb_waiter *waiter, struct nnb_ring *ring, uint64_t count,
                      nnb_atomic_u32 *flag, uint64_t deadline_ns);

/* Polls `iterations` times without reading a clock; returns whether elements can be read. */
static inline int nnb_spin_briefly(struct nnb_ring *ring, uint32_t iterations) {
    for (uint32_t i = 0; i < iterations; i++) {
        if (nnb_ring_poll(ring)) {
            return 1;
        }
        nnb_pause();
    }
    return 0;
}

/* Whether polling without a clock is worthwhile. */
static inline bool nnb_waiter_spins(const struct nnb_waiter *waiter) {
    return waiter->may_spin != 0 && waiter->contention.until_ns == 0;
}

/* Whether cores are too scarce for spinning now; checks again after a while. */
bool nnb_waiter_cpu_is_contended(struct nnb_waiter *waiter, uint64_t now_ns);

/* Whether `attention` is set. */
static inline int nnb_waiter_has_attention(struct nnb_waiter *waiter) {
    /* SYNC POINT D: the earlier writes of nnb_waiter_call's caller are visible after this. */
    return nnb_load_acquire_u32(&waiter->attention) != 0;
}

/* Whether the peer's word has changed. */
static inline bool nnb_waiter_peer_changed(const struct nnb_waiter *waiter) {
    /* TRUST: the worst that a peer can claim is that it has gone. SYNC POINT G: only the word itself is read.
     * */
    return waiter->peer != NULL && nnb_load_relaxed_u32(waiter->peer) != waiter->peer_value;
}

/* Sets `attention` and wakes the waiter if it waits for elements to read. If it may also wait for room, the
 * caller must also wake NNB_FMQ_WRITER_ATTENTION. Any thread of this process. */
void nnb_waiter_call(struct nnb_waiter *waiter, nnb_atomic_u32 *flag);

#endif
