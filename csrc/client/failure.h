/* Reports the failure of a call: a code for the program, and a text. */
#ifndef NNB_FAILURE_H
#define NNB_FAILURE_H

#include <stdint.h>

/* Stores the text for the calling thread and returns `code`. Not allowed between a run and its return: it
 * formats. */
int nnb_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails with NNBURST_UNEXPECTED_NULL for an argument. */
int nnb_fail_null(const char *argument);

/* Fails with NNBURST_OUT_OF_MEMORY: this process has not enough memory. */
int nnb_fail_short_of_memory(void);

/* The ResultCode of an ErrorStatus. */
int nnb_code_of_status(int32_t status);

#endif
