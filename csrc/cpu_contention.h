/* Notices when there are more threads than cores, so that a waiter does not keep a core from others that could use
 * it: from the one that it waits for, say.
 *
 * The kernel counts how long this thread has run and how long it was ready and waited for a core. If it waits for
 * half as long as it runs or longer, cores are scarce, and a spin takes one away from a thread like this one. Then
 * there is no spinning for some milliseconds, which become more as long as cores stay scarce. Threads that are
 * nicer do not count: they keep this one from no core.
 *
 * A look costs some two microseconds (a file of /proc is read). It is taken only after a spin in vain, before a
 * sleep that costs more, and when spinning is about to begin again. Without the kernel's counts cores are never
 * scarce. */
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

/* Looks at the calling thread's counts, unless that has just been done. */
void nnb_cpu_contention_check(struct nnb_cpu_contention *contention, uint64_t now_ns);

/* What a look does with the counts of `thread`: pure arithmetic. */
void nnb_cpu_contention_update(struct nnb_cpu_contention *contention, uint64_t now_ns,
                               int32_t thread, uint64_t run_ns, uint64_t delay_ns);

#endif
