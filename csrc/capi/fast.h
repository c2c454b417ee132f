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

/* What is known of all executions of a compilation. Memory of the Python side, which keeps it as long as there are
 * drafts of it. */
struct nnb_template {
    nnb_atomic_u32 drafts;
    uint32_t input_count;
    uint32_t output_count;
    const uint64_t *bytes; /* of each input, then each output; 0 if more than one length will do */
};

/* An argument of a draft, or of the executions that a loan is for: at an address, or a range of a memory. */
struct nnb_place {
    void *address;   /* of a draft the program's, of a loan in its pool; NULL of a range */
    uint64_t memory; /* its handle; 0 of an address */
    uint64_t offset; /* of the range, which is as long as the model declares */
};

/* A request that a burst lends, one execution after the other. Arguments at addresses have a place in a pool;
 * ranges of memories are bound where they are. Memory of the Python side, which keeps it while it is busy. */
struct nnb_loan {
    nnb_atomic_u32 busy;
    const struct nnb_template *template; /* of executions that may borrow it */
    int (*run)(void *bound);             /* as nnb_fast_run's */
    void *bound;
    const struct nnb_place *places; /* of each input, then each output */
};

/* An execution that the Python side has not seen yet: see draft.h. */
struct nnb_draft {
    struct nnb_template *template;
    uint32_t set; /* so many arguments */
    uint32_t completed;
    uint32_t adopted; /* the Python side, which sets this, has the execution now */
    struct nnb_place arguments[]; /* each input, then each output; all zeros until it is set */
};

/* Of the slot of an execution: `offer` and `draft`; of a compilation: `template`; of a burst: `loans`; of a
 * memory: `size`. */
struct nnb_fast {
    nnb_atomic_u32 busy;      /* a run is inside, or something of this is looked at or changed */
    nnb_atomic_u32 computing; /* a run is inside */
    const struct nnb_fast_run *offer;
    nnb_atomic_u64 draft; /* address; 0 once the Python side has the execution */
    struct nnb_template *template;
    struct nnb_loan *const *loans;
    uint32_t loan_count;
    nnb_atomic_u64 size; /* bytes that drafts may lie in; 0 if the Python side has to look at each range */
};

/* Whether something may still look at it that was no longer offered when this was called. */
static inline int nnb_template_in_use(struct nnb_template *template) {
    /* SYNC POINT U: the last draft has let go. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&template->drafts) != 0;
}

static inline int nnb_loan_in_use(struct nnb_loan *loan) {
    /* SYNC POINT V: the last run has let go. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&loan->busy) != 0;
}

#endif
