/* Detects when there are more threads than cores, so that a spinning waiter does not take a core from other
 * threads, such as the one that it waits for.
 *
 * The kernel counts how long this thread has run, and how long it was ready but waited for a core. If the
 * waiting time is at least half of the running time, cores are scarce, and spinning would take a core from
 * another thread. Then this thread does not spin for some milliseconds, and longer as long as cores stay
 * scarce. Threads of lower priority have no influence: they do not keep this thread from a core.
 *
 * A check costs about two microseconds (it reads a file of /proc). It is made only after a spin in vain,
 * before a sleep that costs more, and before spinning begins again. Without the kernel's counts, cores are
 * never scarce. */
#ifndef NNB_CPU_CONTENTION_H
#define NNB_CPU_CONTENTION_H

#include <stdbool.h>
#include <stdint.h>

struct nnb_cpu_contention {
    uint64_t until_ns; /* no spinning before; 0 while cores suffice */
    uint64_t pause_ns; /* how long the next pause is; 0 before the first */
    uint64_t looked_ns;
    uint64_t run_ns;   /* of the thread, at the latest look */
    uint64_t delay_ns; /* likewise: ready, but without a core */
    uint64_t pauses;   /* statistics: times that spinning stopped */
    int32_t thread;    /* whose counts these are; 0 before the first look */
};

/* Reads the calling thread's counts, unless that has just been done. */
void nnb_cpu_contention_check(struct nnb_cpu_contention *contention, uint64_t now_ns);

/* Updates the state from the counts of `thread`, without system calls. */
void nnb_cpu_contention_update(struct nnb_cpu_contention *contention, uint64_t now_ns,
                               int32_t thread, uint64_t run_ns, uint64_t delay_ns);

#endif
