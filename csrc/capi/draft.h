/* Drafts: executions that live in C alone, for programs that make one for each inference.
 *
 * An execution of a compilation that has made one before begins as a draft. Arguments at addresses and in shared
 * memories, of the lengths that the model declares, are noted; burstCompute runs a request that the burst lends, to and
 * from which it copies the former, and which is bound to the latter. Whatever else is asked of it, the Python side
 * adopts it first, with the arguments that are noted: it has all checks and codes.
 *
 * Any thread. */
#ifndef NNB_CAPI_DRAFT_H
#define NNB_CAPI_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "functions.h"

/* Carries a call out if it is of a draft, or makes one, and C can do it alone: its code. False if nothing was done,
 * and the call is to go on as any other. Not if the interpreter is gone. */
bool nnb_draft_call(enum nnb_function function, const int64_t *words, int *code);

/* Has the Python side adopt an execution that is a draft. A ResultCode: BAD_STATE while C computes it, draft or not. */
int nnb_draft_adopted(uint64_t execution, const char *name);

#endif
