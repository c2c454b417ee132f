#include "faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLOOR = 8, SQUEEZE = 34, LOW = 0 }; /* codes of NNAPI */
enum { KEPT_BYTES = 100000 };

static const char *const fault_names[] = {"none", "abort", "hang", "fail", "exhausted", "status", "shapes", "times"};
static const char *const defect_names[] = {
    "none",       "last_element",    "writes_input",    "run_before", "empty_run", "half_precision", "zeroed_nan",
    "overclaims", "wrong_operation", "support_changes", "leak",       "saturates", "short_copy",
    "low_differs", "cache_differs", "cache_lost", "far_missed", "memory_unwritten", "memory_short", "memory_kept"};

static bool find(const char *name, const char *const *names, size_t count, int *found) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            *found = (int)i;
            return true;
        }
    }
    return false;
}

bool read_fault(struct faults *faults, const char *key, const char *value) {
    int found = 0;
    if (strcmp(key, "fault") == 0 && find(value, fault_names, sizeof fault_names / sizeof *fault_names, &found)) {
        faults->fault = (enum fault)found;
        return true;
    }
    if (strcmp(key, "defect") == 0 && find(value, defect_names, sizeof defect_names / sizeof *defect_names, &found)) {
        faults->defect = (enum defect)found;
        return true;
    }
    return false;
}

int32_t fault_now(struct faults *faults, struct accelerator *accelerator, uint64_t deadline_ns,
                  struct nnbx_outcome *outcome) {
    if (faults->fault == FAULT_NONE || atomic_fetch_add(&faults->runs, 1) != faults->at) {
        return NO_FAULT;
    }
    switch (faults->fault) {
    case FAULT_ABORT:
        abort();
    case FAULT_HANG:
        (void)accelerator_hang(accelerator, deadline_ns);
        return NNBX_MISSED_DEADLINE_PERSISTENT;
    case FAULT_FAIL:
        if (outcome->message) {
            strcpy(outcome->message, "a fault that was asked for");
        }
        return NNBX_GENERAL_FAILURE;
    case FAULT_EXHAUSTED:
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    case FAULT_STATUS:
        return 77;
    case FAULT_SHAPES: /* larger than any output */
        outcome->shapes[0] = (struct nnbx_output_shape){1, 1, {UINT32_MAX}};
        outcome->shape_count = 1;
        return NNBX_NONE;
    case FAULT_TIMES: /* longer than the run, the device's longer than the driver's */
        outcome->driver_ns = UINT64_C(1) << 40;
        outcome->device_ns = UINT64_C(1) << 41;
        return NNBX_NONE;
    case FAULT_NONE:
        break;
    }
    return NO_FAULT;
}

bool misses(const struct faults *faults, uint64_t deadline_ns) {
    return faults->defect == DEFECT_FAR_MISSED && deadline_ns != NNBX_NO_DEADLINE;
}

/* ---- Defects ------------------------------------------------------------------------------------------------- */

static float spoiled(enum defect defect, float x) {
    switch (defect) {
    case DEFECT_HALF_PRECISION: { /* 10 bits of mantissa */
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits &= UINT32_C(0xffffe000);
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    case DEFECT_ZEROED_NAN:
        return isnan(x) ? 0 : x;
    case DEFECT_SATURATES:
        return x > 1000 ? 1000 : x;
    default:
        return x;
    }
}

void spoil(struct faults *faults, const struct accelerator_copy *inputs, uint32_t input_count,
           const struct accelerator_copy *outputs, uint32_t output_count, bool other) {
    if (faults->defect == DEFECT_NONE || output_count == 0) {
        return;
    }
    float *first = outputs[0].host;
    uint64_t count = outputs[0].bytes / sizeof *first;
    switch (faults->defect) {
    case DEFECT_LAST_ELEMENT:
        first[count - 1] += count > 1000 ? 1 : 0;
        break;
    case DEFECT_WRITES_INPUT: /* which is mapped read-only: the process dies */
        if (input_count > 0) {
            *(volatile float *)inputs[0].host = 7;
        }
        break;
    case DEFECT_RUN_BEFORE: {
        float left = atomic_exchange(&faults->left, first[0]);
        first[0] += isfinite(left) ? left : 0;
        break;
    }
    case DEFECT_EMPTY_RUN:
        if (atomic_fetch_add(&faults->runs, 1) % 500 == 499) {
            memset(first, 0, outputs[0].bytes);
        }
        break;
    case DEFECT_SHORT_COPY:
        memset(&first[count - 1], 0xa5, sizeof *first);
        break;
    case DEFECT_LOW_DIFFERS:
    case DEFECT_CACHE_DIFFERS:
        first[0] += other ? 1 : 0;
        break;
    default:
        for (uint64_t i = 0; i < count; i++) {
            first[i] = spoiled(faults->defect, first[i]);
        }
        break;
    }
}

bool overclaims(const struct faults *faults, int32_t operation) {
    return (faults->defect == DEFECT_OVERCLAIMS || faults->defect == DEFECT_WRONG_OPERATION) && operation == SQUEEZE;
}

bool pretend(const struct faults *faults, const struct nnbx_operation *operation, struct step *step) {
    if (faults->defect != DEFECT_WRONG_OPERATION || operation->type != SQUEEZE) {
        return false;
    }
    *step = (struct step){.type = FLOOR, .output = operation->outputs[0]};
    for (uint32_t i = 0; i < 3; i++) {
        step->inputs[i] = operation->inputs[0];
    }
    return true;
}

void change_support(struct faults *faults, uint8_t *found, uint32_t count) {
    if (faults->defect == DEFECT_SUPPORT_CHANGES && atomic_fetch_add(&faults->answers, 1) % 7 == 6) {
        memset(found, 0, count);
    }
}

bool differs(const struct faults *faults, int32_t priority, bool is_cached) {
    return (faults->defect == DEFECT_LOW_DIFFERS && priority == LOW) ||
           (faults->defect == DEFECT_CACHE_DIFFERS && is_cached);
}

bool has(const struct faults *faults, enum defect defect) { return faults->defect == defect; }

/* The last memory that was kept. It is no local variable: a compiler leaves out writes that nothing can read. */
static char *volatile kept;

void keep_memory(const struct faults *faults, enum defect which) {
    if (faults->defect == which) {
        kept = malloc(KEPT_BYTES);
        if (kept) {
            memset(kept, 1, KEPT_BYTES);
        }
    }
}
