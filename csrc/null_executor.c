/* The null executor, which computes nothing, to measure the transport and the header's own cost. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "executor.h"

struct nnbx_prepared {
    char unused;
};

struct nnbx_execution {
    uint32_t count; /* of shapes that are reported after every run; 0 if all were known before */
    struct nnbx_output_shape shapes[];
};

static int32_t describe(nnbx_device *device, struct nnbx_description *description) {
    (void)device;
    description->name = "null";
    description->type = NNBX_DEVICE_CPU;
    description->alignment = 1;
    description->program_files = 1; /* no constants */
    return NNBX_NONE;
}

static int32_t supported(nnbx_device *device, const struct nnbx_model *model, uint8_t *all) {
    (void)device;
    memset(all, 1, model->main.operation_count);
    return NNBX_NONE;
}

static int32_t make(nnbx_prepared **prepared) {
    static nnbx_prepared none;
    *prepared = &none;
    return NNBX_NONE;
}

static int32_t prepare(nnbx_device *device, const struct nnbx_model *model,
                       const struct nnbx_preparation *how, nnbx_prepared **prepared, char *message) {
    (void)device;
    (void)model;
    (void)how;
    (void)message;
    return make(prepared);
}

static void destroy_prepared(nnbx_prepared *prepared) { (void)prepared; }

static int32_t save(nnbx_prepared *prepared, struct nnbx_writer *program,
                    struct nnbx_writer *constants) {
    (void)prepared;
    (void)program;
    (void)constants;
    return NNBX_NONE;
}

static int32_t prepare_from_cache(nnbx_device *device, const struct nnbx_cached *cached,
                                  const struct nnbx_preparation *how, nnbx_prepared **prepared,
                                  char *message) {
    (void)device;
    (void)cached;
    (void)how;
    (void)message;
    return make(prepared);
}

/* Binds any request; unknown extents are reported as 1. */
static int32_t bind(nnbx_prepared *prepared, const struct nnbx_request *request,
                    nnbx_execution **execution, char *message) {
    (void)prepared;
    (void)message;
    nnbx_execution *made = calloc(1, sizeof *made + request->output_count * sizeof made->shapes[0]);
    if (!made) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    for (uint32_t i = 0; i < request->output_count; i++) {
        const struct nnbx_argument *output = nnbx_argument_at(request, request->outputs, i);
        bool is_open = output->rank == 0;
        made->shapes[i].rank = output->rank;
        made->shapes[i].is_sufficient = 1;
        for (uint32_t axis = 0; axis < output->rank; axis++) {
            is_open = is_open || output->dimensions[axis] == 0;
            made->shapes[i].dimensions[axis] = output->dimensions[axis] ? output->dimensions[axis] : 1;
        }
        made->count = is_open ? request->output_count : made->count;
    }
    *execution = made;
    return NNBX_NONE;
}

static int32_t run(nnbx_execution *execution, const struct nnbx_run *how, struct nnbx_outcome *outcome) {
    (void)how;
    outcome->device_ns = NNBX_MEASURED;
    memcpy(outcome->shapes, execution->shapes, execution->count * sizeof execution->shapes[0]);
    outcome->shape_count = execution->count;
    return NNBX_NONE;
}

static void destroy_execution(nnbx_execution *execution) { free(execution); }

static const struct nnburst_executor functions = {
    .abi = NNBURST_EXECUTOR_ABI,
    .size = sizeof functions,
    .describe = describe,
    .supported = supported,
    .prepare = prepare,
    .destroy_prepared = destroy_prepared,
    .save = save,
    .prepare_from_cache = prepare_from_cache,
    .bind = bind,
    .run = run,
    .destroy_execution = destroy_execution,
};

const struct nnburst_executor *nnb_null_executor(void) { return &functions; }

/* For a library of this file alone, which is loaded like any other executor. */
#ifdef NNB_NULL_LIBRARY
NNBURST_EXPORT_EXECUTOR(functions)
#endif
