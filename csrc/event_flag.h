/* Event flag: 32 bits in shared memory on which both sides sleep (a shared futex).
 *
 * NNAPI: fmq/EventFlag.cpp. Bits 1 and 2 mean what they mean there, so that either side may be the
 * original. A bit that is set means "something happened since you last looked"; a sleeper clears its
 * bits, looks once more, and sleeps only while they stay clear. */
#ifndef NNB_EVENT_FLAG_H
#define NNB_EVENT_FLAG_H

#include <stdint.h>

#include "atomics.h"
#include "wire.h"

/* Ours, in bits that the original leaves alone: a private word of the sleeper's own process has
 * changed (a command, a death); a sleeper looks at it. */
#define NNB_FMQ_ATTENTION 0x04u
/* Ours, too: a client waits for a result in an event loop, so the publisher of one also sends a byte. */
#define NNB_FMQ_ASYNC 0x08u
/* ATTENTION for who waits for room. A bit of its own, since both sides' sleepers meet on one word and each
 * clears its bits: it would take the other's attention away between that one's last look and its sleep. */
#define NNB_FMQ_WRITER_ATTENTION 0x10u

/* ASYNC for who waits for room in an event loop. */
#define NNB_FMQ_WRITER_ASYNC 0x20u
/* Which of a broadcast's readers wait in event loops, beside ASYNC: a bit for every eighth of them, from this one on. */
#define NNB_FMQ_FIRST_LOOP 0x100u
#define NNB_FMQ_LOOP_BITS 8u
#define NNB_FMQ_LOOPS (((1u << NNB_FMQ_LOOP_BITS) - 1) * NNB_FMQ_FIRST_LOOP)

/* One look of a reader beside others: nnb_event_flag_prepare_among. From here on the word counts these looks. */
#define NNB_FMQ_LOOK (NNB_FMQ_FIRST_LOOP << NNB_FMQ_LOOP_BITS)
/* How often such a look is tried against others that change the word. */
#define NNB_FMQ_ATTEMPTS 1000u

enum nnb_event_flag_status {
    NNB_EVENT_FLAG_OK = 0,
    NNB_EVENT_FLAG_TIMED_OUT = 1,
    NNB_EVENT_FLAG_INTERRUPTED = 2, /* a signal arrived */
    NNB_EVENT_FLAG_BAD_VALUE = 3,   /* no bits given */
};

/* Sets bits and wakes who sleeps on them; a system call only if one of them was clear. */
int nnb_event_flag_wake(nnb_atomic_u32 *word, uint32_t bits);

/* The same for who has just published something: if the bits are still set they have not been cleared
 * since, so no waiter sleeps on them, and the shared line is only read. */
static inline void nnb_event_flag_notify(nnb_atomic_u32 *word, uint32_t bits) {
    /* SYNC POINT C: what was published before is visible to a sleeper that clears the bits after we
     * looked; a sleeper that cleared them before is seen here and woken.
     * TRUST: a peer that sets the bits for no reason only makes itself sleep on. */
    nnb_fence();
    if ((nnb_load_relaxed_u32(word) & bits) != bits) {
        (void)nnb_event_flag_wake(word, bits);
    }
}

/* Clears `bits` so that a wake after this is not lost; returns those that were set. Look at what you
 * wait for after this and before nnb_event_flag_sleep. */
static inline uint32_t nnb_event_flag_prepare(nnb_atomic_u32 *word, uint32_t bits) {
    /* SYNC POINT C: who publishes after this finds the bits clear and wakes us; what was published
     * before is visible to the look that follows.
     * TRUST: bits mean "look", never what will be found. */
    uint32_t seen = nnb_fetch_and_u32(word, ~bits) & bits;
    nnb_fence();
    return seen;
}

/* The same for one of several sleepers on the same bits (an unsynchronized queue's readers): returns the whole word, to be
 * slept on. Each counts its look in the same step in which it clears the bits, so that no word that another one slept on
 * comes back: that one would sleep although its bits were set meanwhile. The original leaves the word's upper part alone.
 * Those of `bits` that were set come in `*was_set`. If a peer changes the word without end, `bits` are set in what is
 * returned: look, then call again. */
static inline uint32_t nnb_event_flag_prepare_among(nnb_atomic_u32 *word, uint32_t bits, uint32_t *was_set) {
    /* TRUST: bits mean "look", never what will be found. */
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

/* Sets `bits` without waking a sleeper: their only sleeper is awake. A bit that is set without an event makes
 * the next wait look once more, as any stale bit does. */
static inline void nnb_event_flag_awake(nnb_atomic_u32 *word, uint32_t bits) {
    /* SYNC POINT C: nothing is published with the bits; a publisher that finds them set wakes no waiter.
     * TRUST: no bit of the word is looked at. */
    (void)nnb_fetch_or_u32(word, bits);
}

/* Sleeps while none of `bits` is set, until `deadline_ns` (CLOCK_MONOTONIC). */
int nnb_event_flag_sleep(nnb_atomic_u32 *word, uint32_t bits, uint64_t deadline_ns);

/* The same while the word is `seen`, and no longer than `other`, a word of the peer's, is `value`: at most 5 ms longer if
 * the kernel cannot sleep on two words (Linux before 5.16). NULL for none. OK may mean either, so look at both. */
int nnb_event_flag_sleep_beside(nnb_atomic_u32 *word, uint32_t seen, uint32_t bits,
                                uint64_t deadline_ns, nnb_atomic_u32 *other, uint32_t value);

/* Waits for any of `bits`, consumes and returns them in `*seen` (NNAPI: EventFlag::wait). `among`: the word counts looks, as
 * an unsynchronized queue's does, and these are counted as well. */
int nnb_event_flag_wait(nnb_atomic_u32 *word, uint32_t bits, bool among, uint64_t deadline_ns, uint32_t *seen);

#endif
