/* Which Python environment stands behind the library, found without running anything. */
#ifndef NNB_CAPI_ENVIRONMENT_H
#define NNB_CAPI_ENVIRONMENT_H

#include <limits.h>
#include <stdbool.h>

struct nnb_environment {
    char said_by[64 + PATH_MAX]; /* what named it, for messages */
    char program[PATH_MAX];      /* its interpreter */
    char home[PATH_MAX];         /* folder of the interpreter that it was made from */
    char version[16];            /* "3.11" */
};

/* NNBURST_PYTHON, the file libneuralnetworks.python beside the library, the active virtual environment, the
 * environment that the library is installed in: the first that is named counts, even if it cannot be used. False
 * with one line on stderr if it is missing or unusable. */
bool nnb_environment_find(struct nnb_environment *environment);

/* Opens its libpython for all threads of the process; NULL with one line on stderr. */
void *nnb_environment_open(const struct nnb_environment *environment);

#endif
