#include "client/failure.h"

#include <nnburst.h>
#include <stdarg.h>
#include <stdio.h>

#include "wire.h"

static _Thread_local char message[512];

int nnb_fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return code;
}

int nnb_fail_null(const char *argument) {
    return nnb_fail(NNBURST_UNEXPECTED_NULL, "%s: NULL, expected a pointer", argument);
}

int nnb_fail_short_of_memory(void) { return nnb_fail(NNBURST_OUT_OF_MEMORY, "memory is short"); }

const char *nnburst_error_message(void) { return message; }

uint32_t nnburst_abi_version(void) { return NNBURST_ABI_VERSION; }

int nnb_code_of_status(int32_t status) {
    switch (status) {
    case NNB_STATUS_NONE:
        return NNBURST_NO_ERROR;
    case NNB_STATUS_DEVICE_UNAVAILABLE:
        return NNBURST_UNAVAILABLE_DEVICE;
    case NNB_STATUS_OUTPUT_INSUFFICIENT_SIZE:
        return NNBURST_OUTPUT_INSUFFICIENT_SIZE;
    case NNB_STATUS_INVALID_ARGUMENT:
        return NNBURST_BAD_DATA;
    case NNB_STATUS_MISSED_DEADLINE_TRANSIENT:
        return NNBURST_MISSED_DEADLINE;
    case NNB_STATUS_MISSED_DEADLINE_PERSISTENT:
        return NNBURST_MISSED_DEADLINE_PERSISTENT;
    case NNB_STATUS_RESOURCE_EXHAUSTED_TRANSIENT:
        return NNBURST_RESOURCE_EXHAUSTED;
    case NNB_STATUS_RESOURCE_EXHAUSTED_PERSISTENT:
        return NNBURST_RESOURCE_EXHAUSTED_PERSISTENT;
    case NNB_STATUS_DEAD_OBJECT:
        return NNBURST_DEAD_OBJECT;
    default:
        return NNBURST_OP_FAILED;
    }
}

const char *nnburst_result_name(int result) {
    switch (result) {
    case NNBURST_NO_ERROR:
        return "NO_ERROR";
    case NNBURST_OUT_OF_MEMORY:
        return "OUT_OF_MEMORY";
    case NNBURST_INCOMPLETE:
        return "INCOMPLETE";
    case NNBURST_UNEXPECTED_NULL:
        return "UNEXPECTED_NULL";
    case NNBURST_BAD_DATA:
        return "BAD_DATA";
    case NNBURST_OP_FAILED:
        return "OP_FAILED";
    case NNBURST_BAD_STATE:
        return "BAD_STATE";
    case NNBURST_OUTPUT_INSUFFICIENT_SIZE:
        return "OUTPUT_INSUFFICIENT_SIZE";
    case NNBURST_UNAVAILABLE_DEVICE:
        return "UNAVAILABLE_DEVICE";
    case NNBURST_MISSED_DEADLINE:
        return "MISSED_DEADLINE";
    case NNBURST_MISSED_DEADLINE_PERSISTENT:
        return "MISSED_DEADLINE_PERSISTENT";
    case NNBURST_RESOURCE_EXHAUSTED:
        return "RESOURCE_EXHAUSTED";
    case NNBURST_RESOURCE_EXHAUSTED_PERSISTENT:
        return "RESOURCE_EXHAUSTED_PERSISTENT";
    case NNBURST_DEAD_OBJECT:
        return "DEAD_OBJECT";
    case NNBURST_BUSY:
        return "BUSY";
    case NNBURST_CLOSED:
        return "CLOSED";
    default:
        return "unknown";
    }
}
