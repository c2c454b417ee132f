/* What a call failed with: a code for the program, a text for people. */
#ifndef NNB_FAILURE_H
#define NNB_FAILURE_H

#include <stdint.h>

/* Notes why for the calling thread and returns `code`. Never between a run and its return: it formats. */
int nnb_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* NNBURST_UNEXPECTED_NULL of an argument. */
int nnb_fail_null(const char *argument);

/* NNBURST_OUT_OF_MEMORY of this process. */
int nnb_fail_short_of_memory(void);

/* The ResultCode of an ErrorStatus. */
int nnb_code_of_status(int32_t status);

#endif
