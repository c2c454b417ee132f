/* The way of a computation that has run before: from C to the burst, without the interpreter and its lock.
 *
 * The Python side offers it after a computation over a burst went well (nnb_services.offer); it is used until a
 * run ends in any other way than the last one, which is then the Python side's to finish. */
#ifndef NNB_CAPI_FAST_H
#define NNB_CAPI_FAST_H

#include <stdbool.h>
#include <stdint.h>

#include "../atomics.h"

/* The burst computes for another execution: this one is untouched. */
#define NNB_RUN_BUSY (-1)

/* An argument at an address of the program's, copied into a pool before the run or out of it behind it. */
struct nnb_copy {
    void *to;
    const void *from;
    uint64_t bytes;
};

/* Memory of the Python side, which keeps it as long as the execution's handle lives. */
struct nnb_fast_run {
    int (*run)(void *bound); /* 0: all as in the last run; NNB_RUN_BUSY; else the code is meant for `finish` */
    void *bound;
    uint64_t burst; /* handle; 0 for compute */
    const struct nnb_copy *copies_in;
    const struct nnb_copy *copies_out;
    uint32_t copies_in_count;
    uint32_t copies_out_count;
};

struct nnb_fast {
    nnb_atomic_u32 busy; /* a run is inside, or the offer is being changed */
    const struct nnb_fast_run *offer;
};

#endif
