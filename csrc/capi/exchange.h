/* The tables of functions that the library and the Python side exchange when the interpreter is started. */
#ifndef NNB_CAPI_EXCHANGE_H
#define NNB_CAPI_EXCHANGE_H

#include <stdint.h>

#include "fast.h"

/* Changes with every change of this file or of the numbers in functions.h. */
#define NNB_EXCHANGE_VERSION 9u

/* Of `finish`: the run has succeeded after all, and the next one may run in the same way. */
#define NNB_KEEP_OFFER 0x10000

/* Of `finish_cached`: the program has its outputs already; they are not in the cached request's pool. */
#define NNB_IN_PLACE 0x10000

struct nnb_exchange {
    uint32_t version;

    /* Set by the Python side; they take the interpreter lock themselves. */
    int64_t (*call)(uint32_t function, int64_t *words);
    int64_t (*finish)(uint64_t execution, int32_t status);
    int64_t (*adopt)(uint64_t execution, struct nnb_native_execution *native); /* the Python side has it from now on */
    int64_t (*finish_cached)(uint64_t execution, struct nnb_native_execution *native,
                             const struct nnb_cached_request *cached,
                             int32_t status); /* the same, with a run that ended otherwise than the one before */
    int64_t (*adopt_event)(uint64_t event, int32_t code); /* an event of a computation that C has ended with `code` */

    /* Set by the library. */
    uint64_t (*new_handle)(uint32_t kind);
    void (*offer)(uint64_t execution, const struct nnb_fast_run *run);
    void (*offer_sizes)(uint64_t compilation, struct nnb_argument_sizes *sizes);
    void (*offer_memory)(uint64_t memory, uint64_t size); /* any range of it may be an argument of a native execution */
    void (*cache)(uint64_t burst, struct nnb_cached_request *const *cached, uint32_t count); /* instead of those before */
    void (*end_burst)(uint64_t burst); /* one that no program has; runs that are inside of it go on */
    uint32_t (*end)(void); /* the interpreter ends: no call begins any more; how many are under way, or may be */
};

#endif
