/* An executor that says and returns what the macros below have: right, unless a test wants it otherwise. It doubles its
 * first input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nnburst/executor.h>

#ifndef ABI
#define ABI NNBURST_EXECUTOR_ABI
#endif
#ifndef SIZE
#define SIZE sizeof(struct nnburst_executor)
#endif
#ifndef DESCRIBE
#define DESCRIBE (void)0
#endif
#ifndef OPEN_STATUS
#define OPEN_STATUS NNBX_NONE
#endif
#ifndef PREPARE_STATUS
#define PREPARE_STATUS NNBX_NONE
#endif
#ifndef BIND_STATUS
#define BIND_STATUS NNBX_NONE
#endif
#ifndef RUN_STATUS
#define RUN_STATUS NNBX_NONE
#endif
#ifndef REPORT
#define REPORT (void)0
#endif
#ifndef ON_PREPARE
#define ON_PREPARE (void)0
#endif
#ifndef LEAVE
#define LEAVE 0
#endif

struct nnbx_device {
    char said[256]; /* by options, and by what was prepared last */
};

struct nnbx_prepared {
    nnbx_device *device;
};

struct nnbx_execution {
    const float *from;
    float *to;
    uint64_t count;
    uint64_t alignment; /* what the addresses have in common */
};

static int32_t open_device(const struct nnbx_options *options, nnbx_device **device, char *message) {
    static nnbx_device one;
    snprintf(message, NNBX_MESSAGE_BYTES, "as the test wants");
    one.said[0] = 0;
    for (uint32_t i = 0; i < options->option_count; i++) {
        strcat(one.said, options->options[i].key);
        strcat(one.said, options->options[i].value);
    }
    *device = &one;
    return OPEN_STATUS;
}

static void close_device(nnbx_device *device) { (void)device; }

static int32_t describe(nnbx_device *device, struct nnbx_description *description) {
    if (device->said[0]) {
        description->version = device->said;
    }
    DESCRIBE;
    return NNBX_NONE;
}

/* An operation is supported if it has a constant whose first number is not 0, or none at all. */
static int32_t supported(nnbx_device *device, const struct nnbx_model *model, uint8_t *found) {
    (void)device;
    for (uint32_t i = 0; i < model->main.operation_count; i++) {
        const struct nnbx_operation *operation = &model->main.operations[i];
        found[i] = 1;
        for (uint32_t k = 0; k < operation->input_count; k++) {
            const struct nnbx_operand *operand = nnbx_operand_at(&model->main, operation->inputs[k]);
            float first = 0;
            if (operand->lifetime == NNBX_CONSTANT_REFERENCE) {
                if (!operand->value || operand->value_bytes < sizeof first) {
                    found[i] = 0;
                    continue;
                }
                memcpy(&first, operand->value, sizeof first);
                found[i] = first != 0;
            }
        }
    }
    return NNBX_NONE;
}

static int32_t prepare(nnbx_device *device, const struct nnbx_model *model,
                       const struct nnbx_preparation *how, nnbx_prepared **prepared, char *message) {
    (void)model;
    (void)how;
    message[0] = 0;
    ON_PREPARE;
    *prepared = malloc(sizeof **prepared);
    (*prepared)->device = device;
    return PREPARE_STATUS;
}

static void destroy_prepared(nnbx_prepared *prepared) { free(prepared); }

static uint64_t alignment_of(const void *first, const void *second) {
    uint64_t bits = (uint64_t)(uintptr_t)first | (uint64_t)(uintptr_t)second | 4096;
    return bits & (~bits + 1);
}

static int32_t bind(nnbx_prepared *prepared, const struct nnbx_request *request,
                    nnbx_execution **execution, char *message) {
    (void)prepared;
    snprintf(message, NNBX_MESSAGE_BYTES, "bound as the test wants");
    const struct nnbx_argument *from = nnbx_argument_at(request, request->inputs, 0);
    const struct nnbx_argument *to = nnbx_argument_at(request, request->outputs, 0);
    nnbx_execution *made = malloc(sizeof *made);
    *made = (nnbx_execution){from->data, to->data, from->bytes / sizeof(float), alignment_of(from->data, to->data)};
    *execution = made;
    return BIND_STATUS;
}

static int32_t run(nnbx_execution *execution, const struct nnbx_run *how, struct nnbx_outcome *outcome) {
    (void)how;
    for (uint64_t i = 0; i < execution->count - LEAVE; i++) {
        execution->to[i] = 2 * execution->from[i];
    }
    REPORT;
    return RUN_STATUS;
}

static void destroy_execution(nnbx_execution *execution) { free(execution); }

static const struct nnburst_executor functions = {
    .abi = ABI,
    .size = SIZE,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .supported = supported,
    .prepare = prepare,
    .destroy_prepared = destroy_prepared,
    .bind = bind,
#ifndef WITHOUT_RUN
    .run = run,
#endif
    .destroy_execution = destroy_execution,
};
#ifndef WITHOUT_SYMBOL
NNBURST_EXPORT_EXECUTOR(functions)
#endif
