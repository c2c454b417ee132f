/* An executor for the accelerator of accelerator.h: what a vendor writes to have a driver.
 *
 *     nnburst serve sample --executor ./libsample.so --option memory_mb=64
 *
 * Options: memory_mb, warm_up_ms, node (a file whose one owner this process becomes; a driver wants it named by
 * --device-node, too), and what tests ask for: fault, fault_at and defect (faults.h). */
#include <nnburst/executor.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelerator.h"
#include "faults.h"
#include "operations.h"

struct nnbx_device {
    struct accelerator *accelerator;
    struct faults faults;
};

/* Where a tensor's bytes are when a request runs. */
enum place { UNUSED, CONSTANT, INPUT, OUTPUT, TEMPORARY };

struct nnbx_prepared {
    nnbx_device *device;
    bool differs; /* by a defect */
    uint32_t tensor_count;
    uint32_t step_count;
    uint32_t input_count;
    uint32_t output_count;
    struct tensor *tensors; /* the operands of the graph; constants lie at their place already */
    uint8_t *places;        /* enum place of each */
    struct step *steps;
    uint32_t *inputs; /* tensors by number */
    uint32_t *outputs;
};

struct nnbx_execution {
    nnbx_prepared *prepared;
    struct tensor *tensors;
    accelerator_address own; /* one piece of memory for all that no request brings along */
    struct accelerator_copy *before;
    struct accelerator_copy *after;
    uint32_t before_count;
    uint32_t after_count;
};

struct nnbx_memory {
    nnbx_device *device;
    accelerator_address at;
    uint64_t bytes;
};

static const uint64_t FLOAT_BYTES = 4;

static int32_t refuse(char *message, int32_t status, const char *why) {
    snprintf(message, NNBX_MESSAGE_BYTES, "%s", why);
    return status;
}

static int32_t status_of(enum accelerator_result result) {
    switch (result) {
    case ACCELERATOR_OK:
        return NNBX_NONE;
    case ACCELERATOR_BUSY:
    case ACCELERATOR_NO_NODE:
        return NNBX_DEVICE_UNAVAILABLE;
    case ACCELERATOR_NO_MEMORY:
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    case ACCELERATOR_LATE:
        return NNBX_MISSED_DEADLINE_PERSISTENT;
    }
    return NNBX_GENERAL_FAILURE;
}

/* ---- The device ---------------------------------------------------------------------------------------------- */

static int read_number(const char *text, uint64_t most, uint64_t *number) {
    char *end = NULL;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && *number <= most;
}

static int32_t open_device(const struct nnbx_options *options, nnbx_device **device, char *message) {
    struct accelerator_settings settings = {.memory_bytes = UINT64_C(64) << 20};
    struct faults faults = {0};
    for (uint32_t i = 0; i < options->option_count; i++) {
        const char *key = options->options[i].key, *value = options->options[i].value;
        uint64_t number = 0;
        if (strcmp(key, "node") == 0) {
            settings.node = value;
        } else if (strcmp(key, "memory_mb") == 0 && read_number(value, 4096, &number) && number > 0) {
            settings.memory_bytes = number << 20;
        } else if (strcmp(key, "warm_up_ms") == 0 && read_number(value, 60000, &number)) {
            settings.warm_up_ms = (uint32_t)number;
        } else if (strcmp(key, "fault_at") == 0 && read_number(value, UINT32_MAX, &number)) {
            faults.at = number;
        } else if (!read_fault(&faults, key, value)) {
            snprintf(message, NNBX_MESSAGE_BYTES, "option %s=%s: not known, or no value that it takes", key, value);
            return NNBX_INVALID_ARGUMENT;
        }
    }
    nnbx_device *made = malloc(sizeof *made);
    if (!made) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    made->faults = faults;
    enum accelerator_result result = accelerator_open(&settings, &made->accelerator);
    if (result != ACCELERATOR_OK) {
        free(made);
        return refuse(message, status_of(result),
                      result == ACCELERATOR_BUSY      ? "the accelerator belongs to another process"
                      : result == ACCELERATOR_NO_NODE ? "the accelerator's node cannot be opened for writing"
                                                      : "the accelerator does not start: memory or threads are short");
    }
    *device = made;
    return NNBX_NONE;
}

static void close_device(nnbx_device *device) {
    accelerator_close(device->accelerator);
    free(device);
}

static int32_t describe(nnbx_device *device, struct nnbx_description *description) {
    static const struct nnbx_operand_performance performances[] = {{3 /* TENSOR_FLOAT32 */, {0.5f, 0.25f}}};
    (void)device;
    description->name = "sample";
    description->version = "1.0";
    description->type = NNBX_DEVICE_ACCELERATOR;
    description->alignment = 1; /* DMA copies from anywhere */
    description->program_files = 1;
    description->constant_files = 1;
    description->performances = performances;
    description->performance_count = 1;
    return NNBX_NONE;
}

/* ---- Models -------------------------------------------------------------------------------------------------- */

static int32_t supported(nnbx_device *device, const struct nnbx_model *model, uint8_t *found) {
    struct step step;
    for (uint32_t i = 0; i < model->main.operation_count; i++) {
        found[i] = compile_operation(&model->main, &model->main.operations[i], &step) ||
                   overclaims(&device->faults, model->main.operations[i].type);
    }
    change_support(&device->faults, found, model->main.operation_count);
    return NNBX_NONE;
}

static void destroy_prepared(nnbx_prepared *prepared) {
    for (uint32_t i = 0; prepared->places && i < prepared->tensor_count; i++) {
        if (prepared->places[i] == CONSTANT) {
            accelerator_free(prepared->device->accelerator, prepared->tensors[i].at);
        }
    }
    free(prepared->tensors);
    free(prepared->places);
    free(prepared->steps);
    free(prepared->inputs);
    free(prepared->outputs);
    free(prepared);
}

static nnbx_prepared *new_prepared(nnbx_device *device, const nnbx_prepared *like) {
    nnbx_prepared *made = malloc(sizeof *made);
    if (!made) {
        return NULL;
    }
    *made = (nnbx_prepared){.device = device, .tensor_count = like->tensor_count, .step_count = like->step_count,
                               .input_count = like->input_count, .output_count = like->output_count};
    made->tensors = calloc((size_t)like->tensor_count + 1, sizeof *made->tensors);
    made->places = calloc((size_t)like->tensor_count + 1, 1);
    made->steps = calloc((size_t)like->step_count + 1, sizeof *made->steps);
    made->inputs = calloc((size_t)like->input_count + 1, sizeof *made->inputs);
    made->outputs = calloc((size_t)like->output_count + 1, sizeof *made->outputs);
    if (!made->tensors || !made->places || !made->steps || !made->inputs || !made->outputs) {
        destroy_prepared(made);
        return NULL;
    }
    return made;
}

/* Which tensors the steps use, and where those are. */
static void note_tensor(nnbx_prepared *made, const struct nnbx_subgraph *graph, uint32_t number) {
    const struct nnbx_operand *operand = nnbx_operand_at(graph, number);
    struct tensor *tensor = &made->tensors[number];
    switch (operand->lifetime) {
    case NNBX_SUBGRAPH_INPUT:
        made->places[number] = INPUT;
        break;
    case NNBX_SUBGRAPH_OUTPUT:
        made->places[number] = OUTPUT;
        break;
    case NNBX_CONSTANT_COPY:
    case NNBX_CONSTANT_REFERENCE:
        made->places[number] = CONSTANT;
        break;
    default:
        made->places[number] = TEMPORARY;
        break;
    }
    tensor->rank = operand->rank;
    memcpy(tensor->dimensions, operand->dimensions, operand->rank * sizeof tensor->dimensions[0]);
    tensor->elements = nnbx_elements(operand->dimensions, operand->rank);
}

static int32_t load_constant(nnbx_prepared *made, uint32_t number, const void *value, uint64_t value_bytes) {
    struct accelerator *accelerator = made->device->accelerator;
    struct tensor *tensor = &made->tensors[number];
    uint64_t bytes = tensor->elements * FLOAT_BYTES, ticks = 0;
    if (bytes > value_bytes) {
        return NNBX_INVALID_ARGUMENT;
    }
    tensor->at = accelerator_allocate(accelerator, bytes);
    if (tensor->at == 0) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    /* The copy reads what may be a client's memory, once; the values steer nothing. */
    struct accelerator_copy copy = {tensor->at, (void *)(uintptr_t)value, bytes, true};
    return status_of(accelerator_copy(accelerator, &copy, 1, UINT64_MAX, &ticks));
}

/* How many tensors a step reads: RESHAPE's shape and SOFTMAX's numbers are known since it was compiled. */
static uint32_t inputs_read(const struct nnbx_operation *operation, const struct nnbx_subgraph *graph) {
    uint32_t count = 0;
    while (count < operation->input_count && count < 3 &&
           nnbx_operand_at(graph, operation->inputs[count])->type == 3 /* TENSOR_FLOAT32 */) {
        count++;
    }
    return count;
}

static int32_t compile(nnbx_prepared *made, const struct nnbx_subgraph *graph) {
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct nnbx_operation *operation = &graph->operations[i];
        struct step *step = &made->steps[i];
        if (!compile_operation(graph, operation, step) && !pretend(&made->device->faults, operation, step)) {
            return NNBX_INVALID_ARGUMENT;
        }
        uint32_t reads = inputs_read(operation, graph);
        for (uint32_t k = 0; k < 3; k++) {
            step->inputs[k] = step->inputs[k < reads ? k : 0];
            note_tensor(made, graph, step->inputs[k]);
        }
        note_tensor(made, graph, step->output);
    }
    for (uint32_t i = 0; i < graph->operand_count; i++) {
        if (made->places[i] == CONSTANT) {
            const struct nnbx_operand *operand = nnbx_operand_at(graph, i);
            int32_t status = load_constant(made, i, operand->value, operand->value_bytes);
            if (status != NNBX_NONE) {
                return status;
            }
        }
    }
    return NNBX_NONE;
}

static int is_late(uint64_t deadline_ns) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return deadline_ns != NNBX_NO_DEADLINE &&
           (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec >= deadline_ns;
}

static int32_t prepare(nnbx_device *device, const struct nnbx_model *model,
                       const struct nnbx_preparation *how, nnbx_prepared **prepared, char *message) {
    const struct nnbx_subgraph *graph = &model->main;
    const nnbx_prepared like = {.tensor_count = graph->operand_count, .step_count = graph->operation_count,
                                   .input_count = graph->input_count, .output_count = graph->output_count};
    if (is_late(how->deadline_ns)) {
        return refuse(message, NNBX_MISSED_DEADLINE_PERSISTENT, "the deadline has passed");
    }
    nnbx_prepared *made = new_prepared(device, &like);
    if (!made) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    memcpy(made->inputs, graph->inputs, graph->input_count * sizeof *made->inputs);
    memcpy(made->outputs, graph->outputs, graph->output_count * sizeof *made->outputs);
    int32_t status = compile(made, graph);
    if (status != NNBX_NONE) {
        destroy_prepared(made);
        return refuse(message, status,
                      status == NNBX_INVALID_ARGUMENT ? "an operation is not supported"
                                                         : "the accelerator has no memory for the constants");
    }
    keep_memory(&device->faults, DEFECT_LEAK);
    made->differs = differs(&device->faults, how->priority, false);
    *prepared = made;
    return NNBX_NONE;
}

/* ---- Compilation caching ------------------------------------------------------------------------------------- */

static int32_t save(nnbx_prepared *prepared, struct nnbx_writer *program, struct nnbx_writer *constants) {
    const uint32_t counts[] = {prepared->tensor_count, prepared->step_count, prepared->input_count,
                               prepared->output_count};
    int32_t status = program->write(program, counts, sizeof counts);
    status = status ? status : program->write(program, prepared->tensors, counts[0] * sizeof *prepared->tensors);
    status = status ? status : program->write(program, prepared->places, counts[0]);
    status = status ? status : program->write(program, prepared->steps, counts[1] * sizeof *prepared->steps);
    status = status ? status : program->write(program, prepared->inputs, counts[2] * sizeof *prepared->inputs);
    status = status ? status : program->write(program, prepared->outputs, counts[3] * sizeof *prepared->outputs);
    for (uint32_t i = 0; !status && i < prepared->tensor_count; i++) {
        if (prepared->places[i] == CONSTANT) {
            uint64_t bytes = prepared->tensors[i].elements * FLOAT_BYTES, ticks = 0;
            void *host = malloc(bytes);
            struct accelerator_copy copy = {prepared->tensors[i].at, host, bytes, false};
            status = !host ? NNBX_RESOURCE_EXHAUSTED_TRANSIENT
                           : status_of(accelerator_copy(prepared->device->accelerator, &copy, 1, UINT64_MAX, &ticks));
            status = status ? status : constants->write(constants, host, bytes);
            free(host);
        }
    }
    return status;
}

/* Takes so many bytes of a program that was saved. They come back as they were: only their number is looked at. */
static int take(const uint8_t **from, uint64_t *left, void *to, uint64_t bytes) {
    if (bytes > *left) {
        return 0;
    }
    memcpy(to, *from, bytes);
    *from += bytes;
    *left -= bytes;
    return 1;
}

static int32_t prepare_from_cache(nnbx_device *device, const struct nnbx_cached *cached,
                                  const struct nnbx_preparation *how, nnbx_prepared **prepared, char *message) {
    const uint8_t *from = cached->program, *values = cached->constants;
    uint64_t left = cached->program_bytes, values_left = cached->constant_bytes;
    uint32_t counts[4];
    if (has(&device->faults, DEFECT_CACHE_LOST)) {
        return refuse(message, NNBX_GENERAL_FAILURE, "a defect that was asked for");
    }
    if (!take(&from, &left, counts, sizeof counts)) {
        return refuse(message, NNBX_GENERAL_FAILURE, "the program is too short");
    }
    const nnbx_prepared like = {.tensor_count = counts[0], .step_count = counts[1], .input_count = counts[2],
                                   .output_count = counts[3]};
    nnbx_prepared *made = new_prepared(device, &like);
    if (!made) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    int whole = take(&from, &left, made->tensors, counts[0] * sizeof *made->tensors);
    for (uint32_t i = 0; i < counts[0]; i++) {
        made->tensors[i].at = 0;
    }
    whole = whole && take(&from, &left, made->places, counts[0]) &&
            take(&from, &left, made->steps, counts[1] * sizeof *made->steps) &&
            take(&from, &left, made->inputs, counts[2] * sizeof *made->inputs) &&
            take(&from, &left, made->outputs, counts[3] * sizeof *made->outputs) && left == 0;
    int32_t status = whole ? NNBX_NONE : NNBX_GENERAL_FAILURE;
    for (uint32_t i = 0; status == NNBX_NONE && i < counts[0]; i++) {
        if (made->places[i] == CONSTANT) {
            uint64_t bytes = made->tensors[i].elements * FLOAT_BYTES;
            status = load_constant(made, i, values, values_left);
            values += status == NNBX_NONE ? bytes : 0;
            values_left -= status == NNBX_NONE ? bytes : 0;
        }
    }
    if (status != NNBX_NONE) {
        destroy_prepared(made);
        return refuse(message, status, "what was saved does not fit, or memory is short");
    }
    made->differs = differs(&device->faults, how->priority, true);
    *prepared = made;
    return NNBX_NONE;
}

/* ---- Requests ------------------------------------------------------------------------------------------------ */

static void destroy_execution(nnbx_execution *execution) {
    accelerator_free(execution->prepared->device->accelerator, execution->own);
    free(execution->tensors);
    free(execution->before);
    free(execution->after);
    free(execution);
}

static uint64_t room_for(const struct tensor *tensor) {
    return (tensor->elements * FLOAT_BYTES + ACCELERATOR_ALIGNMENT - 1) / ACCELERATOR_ALIGNMENT *
           ACCELERATOR_ALIGNMENT;
}

/* Puts one argument's tensor where its memory is, or notes the copy from or to the host's. */
static int32_t bind_argument(nnbx_execution *made, const struct nnbx_argument *argument, uint32_t number,
                             int is_input) {
    struct tensor *tensor = &made->tensors[number];
    uint64_t bytes = tensor->elements * FLOAT_BYTES;
    if (made->prepared->places[number] == UNUSED) {
        return NNBX_NONE; /* an input that no operation reads */
    }
    if ((!argument->data && !argument->memory) || argument->bytes < bytes) {
        return NNBX_INVALID_ARGUMENT;
    }
    if (argument->memory) {
        tensor->at = argument->memory->at;
        return argument->memory->bytes < bytes ? NNBX_INVALID_ARGUMENT : NNBX_NONE;
    }
    const struct accelerator_copy copy = {0, argument->data, bytes, is_input};
    if (is_input) {
        made->before[made->before_count++] = copy;
    } else {
        made->after[made->after_count++] = copy;
    }
    tensor->at = 0; /* in memory of the execution */
    return NNBX_NONE;
}

/* One piece of memory for all tensors that have none, and the copies' places in it. */
static int32_t place_tensors(nnbx_execution *made) {
    nnbx_prepared *prepared = made->prepared;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < prepared->tensor_count; i++) {
        bytes += prepared->places[i] != UNUSED && made->tensors[i].at == 0 ? room_for(&made->tensors[i]) : 0;
    }
    made->own = bytes == 0 ? 0 : accelerator_allocate(prepared->device->accelerator, bytes);
    if (bytes != 0 && made->own == 0) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    accelerator_address next = made->own;
    for (uint32_t i = 0; i < prepared->tensor_count; i++) {
        if (prepared->places[i] != UNUSED && made->tensors[i].at == 0) {
            made->tensors[i].at = next;
            next += room_for(&made->tensors[i]);
        }
    }
    return NNBX_NONE;
}

static int32_t bind(nnbx_prepared *prepared, const struct nnbx_request *request,
                    nnbx_execution **execution, char *message) {
    nnbx_execution *made = calloc(1, sizeof *made);
    if (!made) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    made->prepared = prepared;
    made->tensors = calloc((size_t)prepared->tensor_count + 1, sizeof *made->tensors);
    made->before = calloc((size_t)prepared->input_count + 1, sizeof *made->before);
    made->after = calloc((size_t)prepared->output_count + 1, sizeof *made->after);
    int32_t status =
        made->tensors && made->before && made->after ? NNBX_NONE : NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    if (status == NNBX_NONE) {
        memcpy(made->tensors, prepared->tensors, prepared->tensor_count * sizeof *made->tensors);
    }
    for (uint32_t i = 0; status == NNBX_NONE && i < prepared->input_count; i++) {
        status = bind_argument(made, nnbx_argument_at(request, request->inputs, i), prepared->inputs[i], 1);
    }
    for (uint32_t i = 0; status == NNBX_NONE && i < prepared->output_count; i++) {
        status = bind_argument(made, nnbx_argument_at(request, request->outputs, i), prepared->outputs[i], 0);
    }
    status = status == NNBX_NONE ? place_tensors(made) : status;
    if (status != NNBX_NONE) {
        destroy_execution(made);
        return refuse(message, status, status == NNBX_INVALID_ARGUMENT ? "an argument is omitted, or too short"
                                                                         : "the accelerator has no memory for it");
    }
    uint32_t copied = 0;
    for (uint32_t i = 0; i < prepared->input_count; i++) {
        if (prepared->places[prepared->inputs[i]] != UNUSED &&
            nnbx_argument_at(request, request->inputs, i)->data) {
            made->before[copied++].at = made->tensors[prepared->inputs[i]].at;
        }
    }
    copied = 0;
    for (uint32_t i = 0; i < prepared->output_count; i++) {
        if (nnbx_argument_at(request, request->outputs, i)->data) {
            made->after[copied++].at = made->tensors[prepared->outputs[i]].at;
        }
    }
    *execution = made;
    return NNBX_NONE;
}

static uint64_t host_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int32_t run(nnbx_execution *execution, const struct nnbx_run *how, struct nnbx_outcome *outcome) {
    struct nnbx_prepared *prepared = execution->prepared;
    struct accelerator *accelerator = prepared->device->accelerator;
    struct faults *faults = &prepared->device->faults;
    const struct program program = {prepared->steps, execution->tensors};
    uint64_t began = host_ns(), ticks = 0;
    int32_t fault = fault_now(faults, accelerator, how->deadline_ns, outcome);
    if (fault != NO_FAULT) {
        return fault;
    }
    if (misses(faults, how->deadline_ns)) {
        return NNBX_MISSED_DEADLINE_TRANSIENT;
    }
    if (has(faults, DEFECT_MEMORY_UNWRITTEN) && execution->after_count < prepared->output_count) {
        return NNBX_NONE;
    }
    enum accelerator_result result =
        accelerator_copy(accelerator, execution->before, execution->before_count, how->deadline_ns, &ticks);
    if (result == ACCELERATOR_OK) {
        result = accelerator_compute(accelerator, run_step, &program, prepared->step_count, how->deadline_ns, &ticks);
    }
    if (result == ACCELERATOR_OK) {
        result = accelerator_copy(accelerator, execution->after, execution->after_count, how->deadline_ns, &ticks);
    }
    if (result != ACCELERATOR_OK) {
        return status_of(result);
    }
    spoil(faults, execution->before, execution->before_count, execution->after, execution->after_count,
          prepared->differs);
    outcome->driver_ns = host_ns() - began;
    outcome->device_ns = ticks * ACCELERATOR_TICK_NS;
    if (outcome->device_ns > outcome->driver_ns) { /* two clocks: theirs may run a little faster */
        outcome->device_ns = outcome->driver_ns;
    }
    return NNBX_NONE;
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

static int32_t allocate(nnbx_device *device, const struct nnbx_memory_desc *desc, nnbx_memory **memory,
                        char *message) {
    nnbx_memory *made = malloc(sizeof *made);
    if (!made) {
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    *made = (struct nnbx_memory){device, accelerator_allocate(device->accelerator, desc->bytes), desc->bytes};
    if (made->at == 0) {
        free(made);
        snprintf(message, NNBX_MESSAGE_BYTES, "the accelerator has no %" PRIu64 " bytes", desc->bytes);
        return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    *memory = made;
    return NNBX_NONE;
}

static int32_t copy(nnbx_memory *memory, void *host, uint64_t bytes, int in) {
    uint64_t ticks = 0;
    const struct accelerator_copy copy = {memory->at, host, bytes, in};
    if (bytes > memory->bytes) {
        return NNBX_INVALID_ARGUMENT;
    }
    return status_of(accelerator_copy(memory->device->accelerator, &copy, 1, UINT64_MAX, &ticks));
}

static int32_t copy_in(nnbx_memory *memory, const void *from, uint64_t bytes) {
    bytes -= has(&memory->device->faults, DEFECT_MEMORY_SHORT) && bytes >= FLOAT_BYTES ? FLOAT_BYTES : 0;
    return copy(memory, (void *)(uintptr_t)from, bytes, 1);
}

static int32_t copy_out(nnbx_memory *memory, void *to, uint64_t bytes) { return copy(memory, to, bytes, 0); }

static void destroy_memory(nnbx_memory *memory) {
    accelerator_free(memory->device->accelerator, memory->at);
    keep_memory(&memory->device->faults, DEFECT_MEMORY_KEPT);
    free(memory);
}

static const struct nnburst_executor functions = {
    .abi = NNBURST_EXECUTOR_ABI,
    .size = sizeof functions,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .supported = supported,
    .prepare = prepare,
    .destroy_prepared = destroy_prepared,
    .save = save,
    .prepare_from_cache = prepare_from_cache,
    .bind = bind,
    .run = run,
    .destroy_execution = destroy_execution,
    .allocate = allocate,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .destroy_memory = destroy_memory,
};
NNBURST_EXPORT_EXECUTOR(functions)
