/* What the library and the Python side give each other when the interpreter is started. */
#ifndef NNB_CAPI_EXCHANGE_H
#define NNB_CAPI_EXCHANGE_H

#include <stdint.h>

#include "fast.h"

/* Changes with every change of this file or of the numbers in functions.h. */
#define NNB_EXCHANGE_VERSION 6u

/* Of `finish`: the run went well after all, and the next may be made like it. */
#define NNB_KEEP_OFFER 0x10000

/* Of `finish_loan`: outputs are with the program already, not in the loan's pool. */
#define NNB_IN_PLACE 0x10000

struct nnb_exchange {
    uint32_t version;

    /* Set by the Python side; they take the interpreter lock themselves. */
    int64_t (*call)(uint32_t function, int64_t *words);
    int64_t (*finish)(uint64_t execution, int32_t status);
    int64_t (*adopt)(uint64_t execution, struct nnb_draft *draft); /* makes a draft the Python side's */
    int64_t (*finish_loan)(uint64_t execution, struct nnb_draft *draft, const struct nnb_loan *loan,
                           int32_t status); /* the same, with a run that ended otherwise than the one before */

    /* Set by the library. */
    uint64_t (*new_handle)(uint32_t kind);
    void (*offer)(uint64_t execution, const struct nnb_fast_run *run);
    void (*offer_template)(uint64_t compilation, struct nnb_template *template);
    void (*offer_memory)(uint64_t memory, uint64_t size); /* any range of it may be an argument of a draft */
    void (*lend)(uint64_t burst, struct nnb_loan *const *loans, uint32_t count); /* instead of those before */
    uint32_t (*end)(void); /* the interpreter ends: no call begins any more; how many are under way, or may be */
};

#endif
