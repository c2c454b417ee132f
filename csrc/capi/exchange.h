/* What the library and the Python side give each other when the interpreter is started. */
#ifndef NNB_CAPI_EXCHANGE_H
#define NNB_CAPI_EXCHANGE_H

#include <stdint.h>

#include "fast.h"

/* Changes with every change of this file or of the numbers in functions.h. */
#define NNB_EXCHANGE_VERSION 2u

/* Of `finish`: the run went well after all, and the next may be made like it. */
#define NNB_KEEP_OFFER 0x10000

struct nnb_exchange {
    uint32_t version;

    /* Set by the Python side; they take the interpreter lock themselves. */
    int64_t (*call)(uint32_t function, int64_t *words);
    int64_t (*finish)(uint64_t execution, int32_t status);

    /* Set by the library. */
    uint64_t (*new_handle)(uint32_t kind);
    void (*offer)(uint64_t execution, const struct nnb_fast_run *run);
};

#endif
