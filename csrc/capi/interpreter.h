/* Starts the Python interpreter that the library uses: at the first call that needs it, once per process. */
#ifndef NNB_CAPI_INTERPRETER_H
#define NNB_CAPI_INTERPRETER_H

#include <stdbool.h>

#include "exchange.h"

/* The functions of the Python side; complete once nnb_interpreter_enter has been true. */
extern struct nnb_exchange nnb_services;

/* Begins a call of the Python side, which nnb_interpreter_leave ends; starts the interpreter at the first
 * call. False if there is no interpreter. Then a line on stderr has given the reason, except for a call that
 * frees: it need not do anything without the interpreter. */
bool nnb_interpreter_enter(bool frees);
void nnb_interpreter_leave(void);

/* Whether there is no interpreter and never will be: this process was forked from one that had started, or the
 * program has ended its Python. */
bool nnb_interpreter_gone(void);

#endif
