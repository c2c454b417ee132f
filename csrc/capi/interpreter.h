/* Starts the Python interpreter that the library uses: at the first call that needs it, once per process. */
#ifndef NNB_CAPI_INTERPRETER_H
#define NNB_CAPI_INTERPRETER_H

#include <stdbool.h>

#include "exchange.h"

/* The functions of the Python side; complete once nnb_interpreter_enter has been true. */
extern struct nnb_exchange nnb_services;

/* Begins a call of the Python side, after which nnb_interpreter_leave comes; starts the interpreter if it has not been
 * tried. False if it cannot: one line on stderr has given the reason, but for a call that frees: nothing is lost with it if the
 * interpreter is gone. */
bool nnb_interpreter_enter(bool frees);
void nnb_interpreter_leave(void);

/* Whether there is no interpreter and never will be: this process was forked from one that had started, or the
 * program has ended its Python. */
bool nnb_interpreter_gone(void);

#endif
