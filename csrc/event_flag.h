/* Event flag: 32 bits in shared memory on which both sides sleep (a shared futex).
 *
 * NNAPI: fmq/EventFlag.cpp. Bits 1 and 2 have the same meaning as there, so that either side may be the
 * original. A set bit means that something has happened since the last check. A sleeper clears its bits,
 * checks once more, and sleeps only while the bits stay clear. */
#ifndef NNB_EVENT_FLAG_H
#define NNB_EVENT_FLAG_H

#include <stdint.h>

#include "atomics.h"
#include "wire.h"

/* nnburst's own, in a bit that the original does not use: a private word of the sleeper's process has
 * changed (a command, a death), which the sleeper then reads. */
#define NNB_FMQ_ATTENTION 0x04u
/* nnburst's own: a client waits for a result in an event loop, so the publisher of one also sends a byte. */
#define NNB_FMQ_ASYNC 0x08u
/* ATTENTION for a writer that waits for room. It is a separate bit, since both sides' sleepers use one word
 * and each clears its bits: with one bit, a sleeper could clear the other's between its last check and its
 * sleep. */
#define NNB_FMQ_WRITER_ATTENTION 0x10u

/* ASYNC for a writer that waits for room in an event loop. */
#define NNB_FMQ_WRITER_ASYNC 0x20u
/* The broadcast's readers that wait in event loops, in addition to ASYNC: each bit from this one on stands
 * for every eighth reader. */
#define NNB_FMQ_FIRST_LOOP 0x100u
#define NNB_FMQ_LOOP_BITS 8u
#define NNB_FMQ_LOOPS (((1u << NNB_FMQ_LOOP_BITS) - 1) * NNB_FMQ_FIRST_LOOP)

/* One check by one of several readers: nnb_event_flag_prepare_among. The bits from here on count these
 * checks. */
#define NNB_FMQ_LOOK (NNB_FMQ_FIRST_LOOP << NNB_FMQ_LOOP_BITS)
/* Greatest number of attempts for such a check while others change the word. */
#define NNB_FMQ_ATTEMPTS 1000u

enum nnb_event_flag_status {
    NNB_EVENT_FLAG_OK = 0,
    NNB_EVENT_FLAG_TIMED_OUT = 1,
    NNB_EVENT_FLAG_INTERRUPTED = 2, /* a signal arrived */
    NNB_EVENT_FLAG_BAD_VALUE = 3,   /* no bits given */
};

/* Sets bits and wakes the sleepers on them; makes a system call only if a bit was clear. */
int nnb_event_flag_wake(nnb_atomic_u32 *word, uint32_t bits);

/* The same for a thread that has just published: if the bits are still set, no waiter has cleared them and
 * sleeps on them, and the shared cache line is only read. */
static inline void nnb_event_flag_notify(nnb_atomic_u32 *word, uint32_t bits) {
    /* SYNC POINT C: everything published before is visible to a sleeper that clears the bits after this
     * check; a sleeper that cleared them before is seen here and woken.
     * TRUST: a peer that sets the bits without a reason only makes itself sleep longer. */
    nnb_fence();
    if ((nnb_load_relaxed_u32(word) & bits) != bits) {
        (void)nnb_event_flag_wake(word, bits);
    }
}

/* Clears `bits` so that a wake after this is not lost; returns those that were set. The caller must check its
 * condition after this and before nnb_event_flag_sleep. */
static inline uint32_t nnb_event_flag_prepare(nnb_atomic_u32 *word, uint32_t bits) {
    /* SYNC POINT C: a publisher after this finds the bits clear and wakes us; everything published before is
     * visible to the check that follows.
     * TRUST: bits only cause a check, never its result. */
    uint32_t seen = nnb_fetch_and_u32(word, ~bits) & bits;
    nnb_fence();
    return seen;
}

/* The same for one of several sleepers on the same bits (an unsynchronized queue's readers): returns the
 * whole word, on which the caller then sleeps. Each sleeper counts its check in the same step in which it
 * clears the bits, so that the word never returns to a value on which another one sleeps: that one would
 * sleep although its bits were set meanwhile. The original does not use the upper part of the word.
 * `*was_set` gets those of `bits` that were set. If a peer changes the word without end, `bits` are set in
 * the returned word: check, then call again. */
static inline uint32_t nnb_event_flag_prepare_among(nnb_atomic_u32 *word, uint32_t bits, uint32_t *was_set) {
    /* TRUST: bits only cause a check, never its result. */
    uint32_t before = nnb_load_relaxed_u32(word);
    for (uint32_t attempt = 0; attempt < NNB_FMQ_ATTEMPTS; attempt++) {
        uint32_t after = (before & ~bits) + NNB_FMQ_LOOK;
        *was_set = before & bits;
        /* SYNC POINT C: as in nnb_event_flag_prepare. */
        if (nnb_try_replace_u32(word, &before, after)) {
            nnb_fence();
            return after;
        }
    }
    return before | bits;
}

/* Sets `bits` without waking a sleeper, since their only sleeper is awake. A bit that is set without an event
 * makes the next wait check once more, like any stale bit. */
static inline void nnb_event_flag_awake(nnb_atomic_u32 *word, uint32_t bits) {
    /* SYNC POINT C: nothing is published with the bits; a publisher that finds them set wakes no waiter.
     * TRUST: no bit of the word is read. */
    (void)nnb_fetch_or_u32(word, bits);
}

/* Sleeps while none of `bits` is set, until `deadline_ns` (CLOCK_MONOTONIC). */
int nnb_event_flag_sleep(nnb_atomic_u32 *word, uint32_t bits, uint64_t deadline_ns);

/* Sleeps while the word is `seen` and `other`, a word of the peer, is `value`; at most 5 ms longer if the
 * kernel cannot sleep on two words (Linux before 5.16). `other` may be NULL. After OK either word may have
 * changed: check both. `punctual`: the deadline is not moved by the thread's timer slack, which is 50 us as a
 * rule, if the kernel can do that (Linux 5.16). */
int nnb_event_flag_sleep_beside(nnb_atomic_u32 *word, uint32_t seen, uint32_t bits,
                                uint64_t deadline_ns, nnb_atomic_u32 *other, uint32_t value,
                                bool punctual);

/* Waits for any of `bits`, clears them, and returns them in `*seen` (NNAPI: EventFlag::wait). `among`: the
 * word counts checks, like an unsynchronized queue's, and these checks are counted, too. */
int nnb_event_flag_wait(nnb_atomic_u32 *word, uint32_t bits, bool among, uint64_t deadline_ns, uint32_t *seen);

#endif
