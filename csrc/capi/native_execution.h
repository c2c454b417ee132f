/* Runs native executions, which exist only in C, for programs that make an execution for each inference.
 *
 * The first execution of a compilation is made in Python; each further one begins as a native execution. C
 * notes its arguments if they have the lengths, and the types if given, that the model declares. burstCompute
 * then runs a cached request of the burst: it copies arguments at addresses into and out of the request's
 * pool; arguments in shared memories are already bound to the request. compute does the same over a burst
 * that the Python side has opened for the thread. So does startCompute if the run is quick; its event then
 * exists in C and has ended. Queries about outputs are answered with the declared types. Before any other
 * call the Python side adopts the execution with the noted arguments, since only Python has all checks and
 * codes.
 *
 * Usable by any thread. */
#ifndef NNB_CAPI_NATIVE_EXECUTION_H
#define NNB_CAPI_NATIVE_EXECUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "functions.h"

/* Carries out a call that makes or uses a native execution, if C can do so alone, and stores its code. False
 * if nothing was done and Python must carry out the call. Must not be called after the interpreter has ended.
 * */
bool nnb_native_call(enum nnb_function function, const int64_t *words, int *code);

/* Has the Python side adopt a native execution. Returns a ResultCode: BAD_STATE while C computes this
 * execution. */
int nnb_native_adopted(uint64_t execution, const char *name);

/* Has the Python side adopt an event that C has made; does nothing for other events. */
void nnb_event_adopt(uint64_t event);

#endif
