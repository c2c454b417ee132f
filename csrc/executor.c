#include "executor.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copies.h"

/* ---- Loading ------------------------------------------------------------------------------------------------- */

static const struct nnburst_executor *refuse(char *message, const char *path, const char *why) {
    snprintf(message, NNBX_MESSAGE_BYTES, "%s: %s", path, why);
    return NULL;
}

/* The reason why a table cannot be used; NULL if it can. */
static const char *flaw(const struct nnburst_executor *table) {
    if (!table->supported || !table->prepare || !table->destroy_prepared || !table->bind || !table->run ||
        !table->destroy_execution) {
        return "one of supported, prepare, destroy_prepared, bind, run and destroy_execution is NULL";
    }
    if (!table->open != !table->close) {
        return "one of open and close is NULL, expected both or none";
    }
    if (!table->save != !table->prepare_from_cache) {
        return "one of save and prepare_from_cache is NULL, expected both or none";
    }
    if (!table->allocate != !table->copy_in || !table->allocate != !table->copy_out ||
        !table->allocate != !table->destroy_memory) {
        return "some of allocate, copy_in, copy_out and destroy_memory are NULL, expected all or none";
    }
    return NULL;
}

const struct nnburst_executor *nnb_executor_load(const char *path, char *message) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror(); /* begins with the path */
        snprintf(message, NNBX_MESSAGE_BYTES, "%s", why ? why : path);
        return NULL;
    }
    void *symbol = dlsym(library, NNBURST_EXECUTOR_SYMBOL);
    if (!symbol) {
        return refuse(message, path, "it does not export " NNBURST_EXECUTOR_SYMBOL ", expected an executor");
    }
    const struct nnburst_executor *(*get)(void);
    memcpy(&get, &symbol, sizeof get);
    const struct nnburst_executor *theirs = get();
    if (!theirs) {
        return refuse(message, path, NNBURST_EXECUTOR_SYMBOL "() returns NULL");
    }
    if (theirs->abi != NNBURST_EXECUTOR_ABI) {
        snprintf(message, NNBX_MESSAGE_BYTES, "%s: it has ABI %u of executors, this nnburst has %u", path,
                 theirs->abi, NNBURST_EXECUTOR_ABI);
        return NULL;
    }
    struct nnburst_executor *table = calloc(1, sizeof *table); /* stays, as the library does */
    if (!table) {
        return refuse(message, path, "out of memory");
    }
    memcpy(table, theirs, theirs->size < sizeof *table ? theirs->size : sizeof *table);
    const char *why = flaw(table);
    if (why) {
        free(table);
        return refuse(message, path, why);
    }
    return table;
}

void nnb_executor_describe_nothing(struct nnbx_description *description) {
    const struct nnbx_performance same = {1.0f, 1.0f};
    *description = (struct nnbx_description){
        .size = sizeof *description,
        .version = "",
        .type = NNBX_DEVICE_OTHER,
        .feature_level = 8,
        .alignment = 64,
        .relaxed_scalar = same,
        .relaxed_tensor = same,
        .if_performance = same,
        .while_performance = same,
    };
}

/* ---- Requests ------------------------------------------------------------------------------------------------ */

/* The bound shape of an output. */
struct output {
    struct nnb_output_rule rule;
    uint64_t bytes; /* UINT64_MAX if it is omitted, or lies in memory of the device */
    uint32_t rank;
    uint32_t dimensions[NNBX_MAX_RANK];
};

struct nnb_hosted {
    const struct nnburst_executor *executor;
    nnbx_execution *execution;
    struct output *outputs;
    struct nnbx_output_shape *shapes;
    struct nnbx_argument *arguments; /* inputs, then outputs */
    uint8_t **staging;
    struct nnb_copy *before;
    struct nnb_copy *after;
    uint32_t output_count;
    uint32_t argument_count;
    uint32_t before_count;
    uint32_t after_count;
    bool is_open; /* some output's shape is not known before a run */
};

/* Allocates memory for a copy of argument `at`, unless the executor can use it in place. */
static bool place(struct nnb_hosted *made, uint32_t at, uint32_t input_count, uint64_t behind,
                  uint32_t alignment, uint32_t padding) {
    struct nnbx_argument *argument = &made->arguments[at];
    if (!argument->data || ((uintptr_t)argument->data % alignment == 0 && behind >= padding)) {
        return true;
    }
    uint64_t step = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    uint64_t room = ((argument->bytes + padding) / step + 1) * step;
    uint8_t *own = made->staging[at] = aligned_alloc(step, room);
    if (!own) {
        return false;
    }
    memset(own, 0, room);
    if (at < input_count) {
        made->before[made->before_count++] = (struct nnb_copy){own, argument->data, argument->bytes, 0};
    } else {
        made->after[made->after_count++] = (struct nnb_copy){argument->data, own, argument->bytes, 0};
    }
    argument->data = own;
    return true;
}

static void note_output(struct output *output, const struct nnbx_argument *argument,
                        const struct nnb_output_rule *rule) {
    output->rule = *rule;
    output->bytes = argument->data ? argument->bytes : UINT64_MAX;
    output->rank = argument->rank;
    for (uint32_t axis = 0; axis < argument->rank; axis++) {
        output->dimensions[axis] = argument->dimensions[axis];
    }
}

static bool is_open(const struct output *output) {
    if (output->rank == 0) {
        return !output->rule.is_scalar;
    }
    for (uint32_t axis = 0; axis < output->rank; axis++) {
        if (output->dimensions[axis] == 0) {
            return true;
        }
    }
    return false;
}

static bool make_room(struct nnb_hosted *made) {
    size_t count = (size_t)made->argument_count + 1;
    size_t outputs = (size_t)made->output_count + 1;
    made->arguments = calloc(count, sizeof *made->arguments);
    made->staging = calloc(count, sizeof *made->staging);
    made->before = calloc(count, sizeof *made->before);
    made->after = calloc(count, sizeof *made->after);
    made->outputs = calloc(outputs, sizeof *made->outputs);
    made->shapes = calloc(outputs, sizeof *made->shapes);
    return made->arguments && made->staging && made->before && made->after && made->outputs && made->shapes;
}

static int32_t known_status(int32_t status) {
    return status >= NNBX_NONE && status <= NNBX_RESOURCE_EXHAUSTED_PERSISTENT ? status
                                                                                     : NNBX_GENERAL_FAILURE;
}

/* The status of a call that reports no shapes. */
static int32_t status_without_shapes(int32_t status) {
    return status == NNBX_OUTPUT_INSUFFICIENT_SIZE ? NNBX_GENERAL_FAILURE : known_status(status);
}

struct nnb_hosted *nnb_hosted_bind(const struct nnburst_executor *executor, nnbx_prepared *prepared,
                                   const struct nnbx_request *request, const struct nnb_output_rule *rules,
                                   const uint64_t *behind, uint32_t alignment, uint32_t padding,
                                   int32_t *status, char *message) {
    uint32_t inputs = request->input_count;
    message[0] = 0;
    *status = NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    struct nnb_hosted *made = calloc(1, sizeof *made);
    if (!made) {
        return NULL;
    }
    made->executor = executor;
    made->output_count = request->output_count;
    made->argument_count = inputs + request->output_count;
    bool done = make_room(made);
    for (uint32_t at = 0; done && at < made->argument_count; at++) {
        bool is_input = at < inputs;
        const struct nnbx_argument *given = is_input ? &request->inputs[at] : &request->outputs[at - inputs];
        made->arguments[at] = *given;
        if (given->rank > NNBX_MAX_RANK) {
            *status = NNBX_INVALID_ARGUMENT;
            snprintf(message, NNBX_MESSAGE_BYTES, "an argument has rank %u, expected at most %u", given->rank,
                     NNBX_MAX_RANK);
            done = false;
            break;
        }
        if (!is_input) {
            struct output *output = &made->outputs[at - inputs];
            note_output(output, given, &rules[at - inputs]);
            made->is_open = made->is_open || is_open(output);
        }
        done = place(made, at, inputs, behind[at], alignment, padding);
    }
    if (done) {
        struct nnbx_request own = *request;
        own.inputs = made->arguments;
        own.outputs = made->arguments + inputs;
        *status = status_without_shapes(executor->bind(prepared, &own, &made->execution, message));
        message[NNBX_MESSAGE_BYTES - 1] = 0;
        done = *status == NNBX_NONE;
    }
    if (done && !made->execution) {
        *status = NNBX_GENERAL_FAILURE;
        snprintf(message, NNBX_MESSAGE_BYTES, "bind returned NNBX_NONE and no execution");
        done = false;
    }
    if (!done) {
        made->execution = NULL;
        nnb_hosted_free(made);
        return NULL;
    }
    return made;
}

void nnb_hosted_free(struct nnb_hosted *made) {
    if (made->execution) {
        made->executor->destroy_execution(made->execution);
    }
    for (uint32_t i = 0; made->staging && i < made->argument_count; i++) {
        free(made->staging[i]);
    }
    free(made->arguments);
    free(made->staging);
    free(made->before);
    free(made->after);
    free(made->outputs);
    free(made->shapes);
    free(made);
}

uint64_t nnb_hosted_copied_bytes(const struct nnb_hosted *made) {
    return nnb_copied_bytes(made->before, made->before_count, made->after, made->after_count);
}

/* ---- Runs, and what they report ------------------------------------------------------------------------------ */

/* Whether a reported shape is one that the output may have; with NONE it lies in the output's memory. */
static bool is_possible(const struct output *output, const struct nnbx_output_shape *shape, bool is_done) {
    if (shape->rank > NNBX_MAX_RANK || shape->is_sufficient > 1 || (is_done && !shape->is_sufficient)) {
        return false;
    }
    if (output->rule.is_scalar ? shape->rank != 0 : output->rank != 0 && shape->rank != output->rank) {
        return false;
    }
    uint64_t bytes = output->rule.element_bytes;
    for (uint32_t axis = 0; axis < shape->rank; axis++) {
        uint32_t extent = shape->dimensions[axis];
        if (output->rank != 0 && output->dimensions[axis] != 0 && extent != output->dimensions[axis]) {
            return false;
        }
        if (__builtin_mul_overflow(bytes, extent, &bytes)) {
            return false;
        }
    }
    return !is_done || bytes <= output->bytes;
}

static int32_t fail(struct nnbx_outcome *outcome, const char *format, int32_t number) {
    outcome->shape_count = 0;
    if (outcome->message) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(outcome->message, NNBX_MESSAGE_BYTES, format, number);
#pragma GCC diagnostic pop
    }
    return NNBX_GENERAL_FAILURE;
}

static int32_t check(const struct nnb_hosted *hosted, int32_t status, struct nnbx_outcome *outcome) {
    if (outcome->message) {
        outcome->message[NNBX_MESSAGE_BYTES - 1] = 0;
    }
    if (known_status(status) != status) {
        return fail(outcome, "the executor returned status %d, which does not exist", status);
    }
    if (status != NNBX_NONE && status != NNBX_OUTPUT_INSUFFICIENT_SIZE) {
        outcome->shape_count = 0;
        return status;
    }
    bool is_done = status == NNBX_NONE;
    if (outcome->shape_count == 0) {
        if (is_done && !hosted->is_open) {
            return status;
        }
        return fail(outcome, "the executor returned status %d without the shapes of outputs", status);
    }
    if (outcome->shape_count != hosted->output_count) {
        return fail(outcome, "the executor reported %d shapes, another number than there are outputs",
                    (int32_t)outcome->shape_count);
    }
    bool all_fit = true;
    for (uint32_t i = 0; i < hosted->output_count; i++) {
        if (!is_possible(&hosted->outputs[i], &hosted->shapes[i], is_done)) {
            return fail(outcome, "the executor reported a shape that output %d cannot have", (int32_t)i);
        }
        all_fit = all_fit && hosted->shapes[i].is_sufficient;
    }
    if (!is_done && all_fit) {
        return fail(outcome, "the executor returned status %d although every output fits", status);
    }
    return status;
}

int32_t nnb_hosted_run(nnbx_execution *execution, const struct nnbx_run *run,
                       struct nnbx_outcome *outcome) {
    struct nnb_hosted *hosted = (struct nnb_hosted *)(void *)execution;
    /* TRUST: arguments are shared with the client; an executor reads them by the header's rules. */
    nnb_copy_all(hosted->before, hosted->before_count);
    char *message = outcome->message;
    outcome->shapes = hosted->shapes;
    int32_t status = hosted->executor->run(hosted->execution, run, outcome);
    outcome->shapes = hosted->shapes; /* a library may have replaced both pointers */
    outcome->message = message;
    status = check(hosted, status, outcome);
    if (status == NNBX_NONE) {
        nnb_copy_all(hosted->after, hosted->after_count);
    }
    return status;
}

/* ---- Saving -------------------------------------------------------------------------------------------------- */

struct collector {
    struct nnbx_writer writer; /* first: the executor has its address */
    uint8_t *bytes;
    uint64_t count;
    uint64_t room;
    uint64_t most;
};

static int32_t collect(struct nnbx_writer *writer, const void *data, uint64_t bytes) {
    struct collector *collector = (struct collector *)(void *)writer;
    if (bytes > collector->most - collector->count) {
        return NNBX_RESOURCE_EXHAUSTED_PERSISTENT;
    }
    uint64_t wanted = collector->count + bytes;
    if (wanted > collector->room) {
        uint64_t room = wanted > 2 * collector->room ? wanted : 2 * collector->room;
        uint8_t *grown = realloc(collector->bytes, room);
        if (!grown) {
            return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
        }
        collector->bytes = grown;
        collector->room = room;
    }
    if (bytes > 0) {
        memcpy(collector->bytes + collector->count, data, bytes);
    }
    collector->count = wanted;
    return NNBX_NONE;
}

int32_t nnb_executor_save(const struct nnburst_executor *executor, nnbx_prepared *prepared, uint64_t most,
                          struct nnb_saved *saved) {
    struct collector collectors[2] = {
        {.writer = {.write = collect}, .most = most},
        {.writer = {.write = collect}, .most = most},
    };
    int32_t status = status_without_shapes(executor->save(prepared, &collectors[0].writer, &collectors[1].writer));
    for (uint32_t kind = 0; kind < 2; kind++) {
        saved->bytes[kind] = collectors[kind].bytes;
        saved->counts[kind] = collectors[kind].count;
    }
    return status;
}

void nnb_saved_free(struct nnb_saved *saved) {
    free(saved->bytes[0]);
    free(saved->bytes[1]);
    memset(saved, 0, sizeof *saved);
}
