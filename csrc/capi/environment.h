/* Finds the Python environment that the library uses, without running a program. */
#ifndef NNB_CAPI_ENVIRONMENT_H
#define NNB_CAPI_ENVIRONMENT_H

#include <limits.h>
#include <stdbool.h>

struct nnb_environment {
    char said_by[64 + PATH_MAX]; /* the source that names it, for messages */
    char program[PATH_MAX];      /* its interpreter */
    char home[PATH_MAX];         /* folder of the interpreter from which it was made */
    char version[16];            /* "3.11" */
    char problem[1024];          /* the reason why it is not usable */
};

/* Finds the environment. The sources are NNBURST_PYTHON, the file libX.python beside the library libX.so, the
 * active virtual environment, and the environment that the library is installed in. The first source that
 * names one counts, even if it cannot be used. Returns false with a `problem` if it is missing or unusable.
 * */
bool nnb_environment_find(struct nnb_environment *environment);

#endif
