#include "event_flag.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

/* The futex is shared between processes: FUTEX_PRIVATE_FLAG must not be set. */
static long futex(nnb_atomic_u32 *word, int operation, uint32_t value, const struct timespec *timeout,
                  uint32_t bits) {
    return syscall(SYS_futex, word, operation, value, timeout, NULL, bits);
}

int nnb_event_flag_wake(nnb_atomic_u32 *word, uint32_t bits) {
    if (bits == 0) {
        return NNB_EVENT_FLAG_OK;
    }
    /* SYNC POINT C: everything published before is visible to a waiter that finds these bits set.
     * TRUST: a peer that has set them without a reason only makes itself sleep longer. */
    uint32_t before = nnb_fetch_or_u32(word, bits);
    if ((before & bits) != bits) {
        (void)futex(word, FUTEX_WAKE_BITSET, INT_MAX, NULL, bits);
    }
    return NNB_EVENT_FLAG_OK;
}

static int sleep_on_one(nnb_atomic_u32 *word, uint32_t seen, uint32_t bits, uint64_t deadline_ns) {
    struct timespec until = nnb_timespec_of(deadline_ns);
    const struct timespec *timeout = deadline_ns == NNB_FOREVER ? NULL : &until;
    if (futex(word, FUTEX_WAIT_BITSET, seen, timeout, bits) == 0 || errno == EAGAIN) {
        return NNB_EVENT_FLAG_OK;
    }
    return errno == EINTR ? NNB_EVENT_FLAG_INTERRUPTED : NNB_EVENT_FLAG_TIMED_OUT;
}

int nnb_event_flag_sleep(nnb_atomic_u32 *word, uint32_t bits, uint64_t deadline_ns) {
    if (bits == 0) {
        return NNB_EVENT_FLAG_BAD_VALUE;
    }
    /* TRUST: the peer can write any value to this word; it can only wake us early, or not before the
     * deadline. */
    uint32_t value = nnb_load_relaxed_u32(word);
    return (value & bits) != 0 ? NNB_EVENT_FLAG_OK : sleep_on_one(word, value, bits, deadline_ns);
}

#define LOOK_NS 5000000u /* interval for checking the other word without futex_waitv */
#define FUTEX_WAITV_CALL 449L
#define FUTEX_WORD_OF_32_BITS 2u

/* As in linux/futex.h since 5.16; the installed headers may be older than the kernel. */
struct watched_word {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};

int nnb_event_flag_sleep_beside(nnb_atomic_u32 *word, uint32_t seen, uint32_t bits,
                                uint64_t deadline_ns, nnb_atomic_u32 *other, uint32_t value,
                                bool punctual) {
    if ((seen & bits) != 0) {
        return NNB_EVENT_FLAG_OK;
    }
    if (other == NULL && !punctual) {
        return sleep_on_one(word, seen, bits, deadline_ns);
    }
    /* Unlike futex's, the sleeps of futex_waitv end without the thread's timer slack. They take 0.1 us more. */
    struct watched_word both[2] = {
        {.value = seen, .address = (uint64_t)(uintptr_t)word, .flags = FUTEX_WORD_OF_32_BITS},
        {.value = value, .address = (uint64_t)(uintptr_t)other, .flags = FUTEX_WORD_OF_32_BITS},
    };
    struct timespec until = nnb_timespec_of(deadline_ns);
    const struct timespec *timeout = deadline_ns == NNB_FOREVER ? NULL : &until;
    unsigned int words = other == NULL ? 1 : 2;
    if (syscall(FUTEX_WAITV_CALL, both, words, 0, timeout, CLOCK_MONOTONIC) >= 0 || errno == EAGAIN) {
        return NNB_EVENT_FLAG_OK;
    }
    if (errno == EINTR) {
        return NNB_EVENT_FLAG_INTERRUPTED;
    }
    if (errno == ETIMEDOUT) {
        return NNB_EVENT_FLAG_TIMED_OUT;
    }
    if (other == NULL) { /* here and below: an old kernel, or a filter of system calls */
        return sleep_on_one(word, seen, bits, deadline_ns);
    }
    uint64_t look_at = nnb_deadline_after(nnb_now_ns(), LOOK_NS);
    int status = sleep_on_one(word, seen, bits, look_at < deadline_ns ? look_at : deadline_ns);
    return status == NNB_EVENT_FLAG_TIMED_OUT && look_at < deadline_ns ? NNB_EVENT_FLAG_OK : status;
}

static uint32_t consume(nnb_atomic_u32 *word, uint32_t bits, bool among) {
    if (!among) {
        return nnb_event_flag_prepare(word, bits);
    }
    uint32_t seen = 0;
    (void)nnb_event_flag_prepare_among(word, bits, &seen);
    return seen;
}

int nnb_event_flag_wait(nnb_atomic_u32 *word, uint32_t bits, bool among, uint64_t deadline_ns, uint32_t *seen) {
    for (;;) {
        *seen = consume(word, bits, among);
        if (*seen != 0) {
            return NNB_EVENT_FLAG_OK;
        }
        int status = nnb_event_flag_sleep(word, bits, deadline_ns);
        if (status == NNB_EVENT_FLAG_OK && nnb_now_ns() >= deadline_ns) {
            status = NNB_EVENT_FLAG_TIMED_OUT; /* also if a peer that writes other bits keeps us awake */
        }
        if (status != NNB_EVENT_FLAG_OK) {
            *seen = consume(word, bits, among);
            return *seen != 0 ? NNB_EVENT_FLAG_OK : status;
        }
    }
}
