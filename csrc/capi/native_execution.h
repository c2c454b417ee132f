/* Runs native executions, which exist in C alone, for programs that make an execution for each inference.
 *
 * The first execution of a compilation is made in Python, each further one begins as a native execution. C notes its
 * arguments if they have the lengths, and the types if any are given, that the model declares. burstCompute then runs a
 * cached request of the burst: it copies arguments at addresses into and out of the request's pool; arguments in shared
 * memories are bound to the request already. compute does the same over a burst that the Python side has given the
 * thread, and so does startCompute if that is quick: its event then is one of C, which has ended. What is asked of
 * outputs then is what the model declares. Any other call has the Python side adopt the execution first, with the noted
 * arguments: Python has all checks and codes.
 *
 * Usable by any thread. */
#ifndef NNB_CAPI_NATIVE_EXECUTION_H
#define NNB_CAPI_NATIVE_EXECUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "functions.h"

/* Carries out a call that makes or uses a native execution, if C can do so alone, and stores its code. False if
 * nothing was done, and the call must go to Python. Not to be called after the interpreter has ended. */
bool nnb_native_call(enum nnb_function function, const int64_t *words, int *code);

/* Has the Python side adopt a native execution. A ResultCode: BAD_STATE while C computes any execution of this
 * handle. */
int nnb_native_adopted(uint64_t execution, const char *name);

/* Has the Python side adopt an event that C has made; nothing for any other. */
void nnb_event_adopt(uint64_t event);

#endif
