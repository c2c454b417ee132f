/* The time that all waits use: nanoseconds of CLOCK_MONOTONIC. */
#ifndef NNB_CLOCK_H
#define NNB_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NNB_FOREVER UINT64_MAX

static inline uint64_t nnb_now_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* now + timeout, saturating: a timeout of NNB_FOREVER never passes. */
static inline uint64_t nnb_deadline_after(uint64_t now_ns, uint64_t timeout_ns) {
    uint64_t deadline = now_ns + timeout_ns;
    return deadline < now_ns ? NNB_FOREVER : deadline;
}

/* Converts nanoseconds to the kernel's struct. */
static inline struct timespec nnb_timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

#endif
