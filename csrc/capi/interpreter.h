/* The interpreter behind the library: found and started by the first call that needs it, once per process. */
#ifndef NNB_CAPI_INTERPRETER_H
#define NNB_CAPI_INTERPRETER_H

#include <stdbool.h>

#include "exchange.h"

/* What the Python side offers; complete once nnb_interpreter_started has been true. */
extern struct nnb_exchange nnb_services;

/* Whether calls can be made; starts the interpreter if it has not been tried. One line on stderr gives the reason if not. */
bool nnb_interpreter_started(void);

/* Whether this process was forked from one that had started: there is no interpreter then, and never will be. */
bool nnb_forked(void);

#endif
