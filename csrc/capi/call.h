/* Carries out the functions of the interface: checks their arguments, then calls the Python side. */
#ifndef NNB_CAPI_CALL_H
#define NNB_CAPI_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "functions.h"

struct nnb_argument {
    enum nnb_pass passing;
    enum nnb_handle_kind kind;
    bool required; /* null is UNEXPECTED_NULL */
    int count;     /* number of the argument that counts this one, or -1: null is refused unless that is 0 */
};

struct nnb_function_description {
    const char *name;
    bool frees;
    uint32_t argument_count;
    struct nnb_argument arguments[NNB_CAPI_MOST_ARGUMENTS];
};

extern const struct nnb_function_description nnb_descriptions[NNB_FUNCTIONS];

/* Carries out `function`. Each word is an argument: a number, an address, or a handle. Returns a ResultCode.
 * */
int nnb_enter(enum nnb_function function, int64_t *words);

/* The same for a call that C may be able to carry out by itself. */
int nnb_enter_fast(enum nnb_function function, int64_t *words);

static inline int64_t nnb_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int64_t)bits;
}

#endif
