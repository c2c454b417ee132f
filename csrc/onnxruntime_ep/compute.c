/* Runs graphs. Arguments in shared memory of this library's allocator are used in place, others are copied.
 * Each thread that runs a graph at the same time has its own burst, with bound requests by shapes and places.
 * */
#include "onnxruntime_ep/compute.h"

#include <stdlib.h>
#include <string.h>

#include "onnxruntime_ep/pools.h"

enum { MOST_REQUESTS = 8, LEAST_ROOM = 4096 };

/* One argument of a run from the engine. */
struct argument {
    void *data;
    size_t bytes;
    int64_t *dimensions;
    size_t rank;
    nnburst_memory *memory; /* held; NULL if it does not lie in shared memory of ours */
    size_t offset;
};

/* A request that is bound. */
struct bound {
    nnburst_request *request;
    uint64_t used; /* when, by counting */
    int64_t *shapes; /* of all inputs: rank, extents */
    nnburst_memory **memories; /* of inputs and outputs, held; NULL for memory of the request's own */
    size_t *offsets;
    nnburst_memory **rooms; /* of outputs whose shape the run finds out; held */
};

struct lane {
    struct lane *next;
    nnburst_burst *burst;
    struct bound bound[MOST_REQUESTS];
    uint64_t uses;
};

struct nnb_graph {
    struct ort_compute_info info; /* first: the engine has its address */
    struct nnb_driver *driver;
    struct nnb_written written;
    nnburst_model *model;
    size_t *inputs;  /* position in the fused node of each input */
    size_t *outputs; /* likewise */
    int64_t **fixed; /* of each output whose shape is known: its extents */
    size_t *ranks;
    size_t *fixed_bytes; /* 0 for one whose shape the run finds out */
    size_t *rooms;       /* bytes that such a one has got so far; a hint, guarded by `lock` */
    size_t *item_bytes;
    pthread_mutex_t lock;
    struct lane *idle;
};

/* -- requests --------------------------------------------------------------------------------------------- */

static size_t argument_count(const struct nnb_graph *graph) {
    return graph->written.input_count + graph->written.output_count;
}

static void unbind(const struct nnb_graph *graph, struct bound *bound) {
    nnburst_free_request(bound->request);
    for (size_t i = 0; bound->memories != NULL && i < argument_count(graph); i++) {
        nnburst_free_memory(bound->memories[i]);
    }
    for (size_t i = 0; bound->rooms != NULL && i < graph->written.output_count; i++) {
        nnburst_free_memory(bound->rooms[i]);
    }
    free(bound->memories);
    free(bound->offsets);
    free(bound->rooms);
    free(bound->shapes);
    *bound = (struct bound){0};
}

static void close_lane(const struct nnb_graph *graph, struct lane *lane) {
    for (size_t i = 0; i < MOST_REQUESTS; i++) {
        unbind(graph, &lane->bound[i]);
    }
    nnburst_close_burst(lane->burst);
    free(lane);
}

/* Whether a request is bound to just these shapes and places. */
static bool fits(const struct nnb_graph *graph, const struct bound *bound, const struct argument *arguments) {
    const int64_t *shapes = bound->shapes;
    if (bound->request == NULL) {
        return false;
    }
    for (size_t i = 0; i < graph->written.input_count; i++) {
        const struct argument *argument = &arguments[i];
        if (shapes[0] != (int64_t)argument->rank ||
            memcmp(shapes + 1, argument->dimensions, argument->rank * sizeof *shapes) != 0) {
            return false;
        }
        shapes += 1 + argument->rank;
    }
    for (size_t i = 0; i < argument_count(graph); i++) {
        if (bound->memories[i] != arguments[i].memory || bound->offsets[i] != arguments[i].offset) {
            return false;
        }
    }
    return true;
}

static int set_dimensions(const struct nnb_graph *graph, nnburst_request *request, uint32_t index,
                          const struct argument *argument) {
    nnburst_operand operand;
    int code = nnburst_input(graph->model, index, &operand, sizeof operand);
    if (code != NNBURST_NO_ERROR || operand.size != 0) {
        return code;
    }
    uint32_t extents[64] = {0};
    uint32_t rank = argument->rank > 64 ? 64 : (uint32_t)argument->rank;
    for (uint32_t i = 0; i < rank; i++) {
        extents[i] = argument->dimensions[i] > UINT32_MAX ? 0 : (uint32_t)argument->dimensions[i];
    }
    return nnburst_set_input_dimensions(request, index, extents, rank);
}

static size_t room_for(struct nnb_graph *graph, size_t output) {
    (void)pthread_mutex_lock(&graph->lock);
    size_t room = graph->rooms[output];
    (void)pthread_mutex_unlock(&graph->lock);
    return room;
}

static int bind(struct nnb_graph *graph, struct lane *lane, struct bound *bound, const struct argument *arguments) {
    const size_t inputs = graph->written.input_count;
    int code = nnburst_create_request(lane->burst, &bound->request);
    for (size_t i = 0; code == NNBURST_NO_ERROR && i < inputs; i++) {
        code = set_dimensions(graph, bound->request, (uint32_t)i, &arguments[i]);
        if (code == NNBURST_NO_ERROR && bound->memories[i] != NULL) {
            code = nnburst_set_input(bound->request, (uint32_t)i, bound->memories[i], bound->offsets[i], arguments[i].bytes);
        }
    }
    for (size_t i = 0; code == NNBURST_NO_ERROR && i < graph->written.output_count; i++) {
        size_t bytes = graph->fixed_bytes[i];
        if (bound->memories[inputs + i] != NULL) {
            code = nnburst_set_output(bound->request, (uint32_t)i, bound->memories[inputs + i], bound->offsets[inputs + i], bytes);
        } else if (bytes == 0) {
            bytes = room_for(graph, i);
            code = nnburst_create_memory(bytes, &bound->rooms[i]);
            if (code == NNBURST_NO_ERROR) {
                code = nnburst_set_output(bound->request, (uint32_t)i, bound->rooms[i], 0, bytes);
            }
        }
    }
    return code == NNBURST_NO_ERROR ? nnburst_bind(bound->request) : code;
}

/* Finds the request for these shapes and places, or binds a new one, which may replace the one that was not
 * used for the longest time. */
static ort_status find_bound(struct nnb_graph *graph, struct lane *lane, struct argument *arguments,
                             struct bound **found) {
    struct bound *oldest = &lane->bound[0];
    for (size_t i = 0; i < MOST_REQUESTS; i++) {
        struct bound *bound = &lane->bound[i];
        if (fits(graph, bound, arguments)) {
            bound->used = ++lane->uses;
            *found = bound;
            return NULL;
        }
        if (bound->used < oldest->used) {
            oldest = bound;
        }
    }
    unbind(graph, oldest);
    size_t numbers = 0;
    for (size_t i = 0; i < graph->written.input_count; i++) {
        numbers += 1 + arguments[i].rank;
    }
    const size_t count = argument_count(graph);
    oldest->shapes = calloc(numbers + 1, sizeof *oldest->shapes);
    oldest->memories = calloc(count + 1, sizeof(nnburst_memory *));
    oldest->offsets = calloc(count + 1, sizeof *oldest->offsets);
    oldest->rooms = calloc(graph->written.output_count + 1, sizeof(nnburst_memory *));
    if (oldest->shapes == NULL || oldest->memories == NULL || oldest->offsets == NULL || oldest->rooms == NULL) {
        unbind(graph, oldest);
        return nnb_ort_short_of_memory();
    }
    int64_t *shapes = oldest->shapes;
    for (size_t i = 0; i < graph->written.input_count; i++) {
        *shapes++ = (int64_t)arguments[i].rank;
        memcpy(shapes, arguments[i].dimensions, arguments[i].rank * sizeof *shapes);
        shapes += arguments[i].rank;
    }
    for (size_t i = 0; i < count; i++) {
        oldest->memories[i] = arguments[i].memory; /* the request's from here on */
        arguments[i].memory = NULL;
        oldest->offsets[i] = arguments[i].offset;
    }
    int code = bind(graph, lane, oldest, arguments);
    if (code != NNBURST_NO_ERROR) {
        ort_status failed = nnb_ort_failed("a request cannot be bound", code);
        unbind(graph, oldest);
        return failed;
    }
    oldest->used = ++lane->uses;
    *found = oldest;
    return NULL;
}

/* -- a run ------------------------------------------------------------------------------------------------ */

/* Compares an input with the network. The engine does so with the session's inputs, and not with what other nodes
 * compute, whose shapes a file may state wrongly. */
static ort_status check_shape(const struct nnb_border *border, const struct argument *argument) {
    if (!border->has_shape) {
        return argument->rank != 0
                   ? NULL
                   : nnb_ort_status(ORT_INVALID_ARGUMENT,
                                    "input %s is a scalar, which a driver does not take where the network leaves the rank open",
                                    border->name);
    }
    if (argument->rank != border->rank) {
        return nnb_ort_status(ORT_INVALID_ARGUMENT, "input %s has rank %zu, expected %zu by the network", border->name,
                              argument->rank, border->rank);
    }
    for (size_t i = 0; i < border->rank; i++) {
        if (border->dimensions[i] >= 0 && argument->dimensions[i] != border->dimensions[i]) {
            return nnb_ort_status(ORT_INVALID_ARGUMENT, "input %s has extent %lld along axis %zu, expected %lld by the network",
                                  border->name, (long long)argument->dimensions[i], i, (long long)border->dimensions[i]);
        }
    }
    return NULL;
}

/* Takes an input from the engine. */
static ort_status take_input(const struct nnb_graph *graph, void *context, size_t index, struct argument *argument) {
    ort_object value = NULL;
    ort_object info = NULL;
    ORT_TRY(ORT(ORT_KERNEL_INPUT, ort_object, size_t, ort_object *)(context, graph->inputs[index], &value));
    if (value == NULL) {
        return nnb_ort_status(ORT_INVALID_ARGUMENT, "input %s is not there", graph->written.inputs[index].name);
    }
    ORT_TRY(ORT(ORT_GET_TENSOR_DATA, ort_object, void **)(value, &argument->data));
    ORT_TRY(ORT(ORT_TENSOR_BYTES, ort_object, size_t *)(value, &argument->bytes));
    ORT_TRY(ORT(ORT_GET_TYPE_AND_SHAPE, ort_object, ort_object *)(value, &info));
    ort_status failed = nnb_ort_shape(info, &argument->dimensions, &argument->rank);
    ORT_RELEASE(ORT_RELEASE_TENSOR_INFO, info);
    if (failed == NULL && argument->bytes == 0) {
        return nnb_ort_status(ORT_INVALID_ARGUMENT, "input %s has no elements, which a driver does not take",
                              graph->written.inputs[index].name);
    }
    if (failed == NULL) {
        failed = check_shape(&graph->written.inputs[index], argument);
    }
    if (failed == NULL) {
        argument->memory = nnb_pools_find(argument->data, argument->bytes, &argument->offset);
    }
    return failed;
}

static ort_status make_output(const struct nnb_graph *graph, void *context, size_t index, const int64_t *dimensions,
                              size_t rank, struct argument *argument) {
    void *value = NULL;
    ORT_TRY(ORT(ORT_KERNEL_OUTPUT, void *, size_t, const int64_t *, size_t, void **)(context, graph->outputs[index],
                                                                                    dimensions, rank, &value));
    if (value == NULL) {
        return NULL; /* nothing reads it */
    }
    ORT_TRY(ORT(ORT_GET_TENSOR_DATA, ort_object, void **)(value, &argument->data));
    return ORT(ORT_TENSOR_BYTES, ort_object, size_t *)(value, &argument->bytes);
}

/* Gives an output more room in the next request. */
static void widen(struct nnb_graph *graph, size_t output, uint64_t bytes) {
    (void)pthread_mutex_lock(&graph->lock);
    if (bytes > graph->rooms[output]) {
        graph->rooms[output] = bytes;
    }
    (void)pthread_mutex_unlock(&graph->lock);
}

/* Finds the extents and the bytes of an output after a run. */
static int found_shape(const struct nnb_graph *graph, const struct bound *bound, size_t output, uint32_t *extents,
                       uint32_t *rank, uint64_t *bytes) {
    *rank = 64;
    int code = nnburst_output_dimensions(bound->request, (uint32_t)output, extents, rank);
    *bytes = graph->item_bytes[output];
    for (uint32_t i = 0; code == NNBURST_NO_ERROR && i < *rank; i++) {
        if (__builtin_mul_overflow(*bytes, extents[i], bytes)) {
            return NNBURST_OP_FAILED;
        }
    }
    return code;
}

/* Runs a bound request. Sets `*again` if an output had too little room, which gets more next time. */
static ort_status run_once(struct nnb_graph *graph, struct bound *bound, const struct argument *arguments, bool *again) {
    for (size_t i = 0; i < graph->written.input_count; i++) {
        if (bound->memories[i] == NULL) {
            memcpy(nnburst_input_data(bound->request, (uint32_t)i), arguments[i].data, arguments[i].bytes);
        }
    }
    *again = false;
    int code = nnburst_run(bound->request, graph->driver->timeout_ns);
    if (code != NNBURST_OUTPUT_INSUFFICIENT_SIZE) {
        return code == NNBURST_NO_ERROR ? NULL
                                        : nnb_ort_status(ORT_FAIL, "nnburst: the driver's execution failed: %s",
                                                         nnburst_result_name(code));
    }
    for (size_t i = 0; i < graph->written.output_count; i++) {
        uint32_t extents[64];
        uint32_t rank;
        uint64_t bytes;
        if (graph->fixed_bytes[i] == 0 && found_shape(graph, bound, i, extents, &rank, &bytes) == NNBURST_NO_ERROR &&
            bytes > nnburst_memory_size(bound->rooms[i])) {
            widen(graph, i, bytes + bytes / 4);
            *again = true;
        }
    }
    return *again ? NULL : nnb_ort_status(ORT_FAIL, "nnburst: the driver does not say how much room an output needs");
}

static bool is_scalar(const struct nnb_graph *graph, const struct bound *bound, size_t output) {
    const struct nnb_border *border = &graph->written.outputs[output];
    int64_t rank = (int64_t)border->rank;
    if (!border->has_shape) {
        /* TRUST: read once; any number but 0 stands for the extents that the driver reports. */
        memcpy(&rank, nnburst_output_data(bound->request, (uint32_t)border->rank_output), sizeof rank);
    }
    return rank == 0;
}

/* Gives the engine an output whose shape the run has determined, or one that was not computed in place. */
static ort_status give_output(struct nnb_graph *graph, void *context, const struct bound *bound, size_t index,
                              struct argument *argument) {
    const void *data = nnburst_output_data(bound->request, (uint32_t)index);
    if (graph->fixed_bytes[index] == 0) {
        uint32_t extents[64];
        int64_t dimensions[64];
        uint32_t rank;
        uint64_t bytes;
        int code = found_shape(graph, bound, index, extents, &rank, &bytes);
        if (code != NNBURST_NO_ERROR || bytes > nnburst_memory_size(bound->rooms[index])) {
            return nnb_ort_failed("an output has no shape", code != NNBURST_NO_ERROR ? code : NNBURST_OP_FAILED);
        }
        for (uint32_t i = 0; i < rank; i++) {
            dimensions[i] = extents[i];
        }
        ORT_TRY(make_output(graph, context, index, dimensions, is_scalar(graph, bound, index) ? 0 : rank, argument));
        if (argument->data != NULL && argument->bytes != bytes) {
            return nnb_ort_status(ORT_FAIL, "nnburst: output %s has %zu bytes, the driver's %llu",
                                  graph->written.outputs[index].name, argument->bytes, (unsigned long long)bytes);
        }
    }
    bool is_in_place = bound->memories[graph->written.input_count + index] != NULL;
    if (argument->data != NULL && argument->bytes != 0 && !is_in_place) {
        memcpy(argument->data, data, argument->bytes);
    }
    return NULL;
}

/* Makes outputs of known shape before the run, so that those in shared memory are written in place. */
static ort_status make_known(const struct nnb_graph *graph, void *context, struct argument *outputs) {
    for (size_t i = 0; i < graph->written.output_count; i++) {
        if (graph->fixed_bytes[i] == 0) {
            continue;
        }
        ORT_TRY(make_output(graph, context, i, graph->fixed[i], graph->ranks[i], &outputs[i]));
        if (outputs[i].data != NULL && outputs[i].bytes != graph->fixed_bytes[i]) {
            return nnb_ort_status(ORT_FAIL, "nnburst: output %s has %zu bytes, the driver's %zu",
                                  graph->written.outputs[i].name, outputs[i].bytes, graph->fixed_bytes[i]);
        }
        if (outputs[i].data != NULL) {
            outputs[i].memory = nnb_pools_find(outputs[i].data, outputs[i].bytes, &outputs[i].offset);
        }
    }
    return NULL;
}

static ort_status compute_on(struct nnb_graph *graph, struct lane *lane, void *context, struct argument *arguments) {
    const size_t inputs = graph->written.input_count;
    for (size_t i = 0; i < inputs; i++) {
        ORT_TRY(take_input(graph, context, i, &arguments[i]));
    }
    ORT_TRY(make_known(graph, context, arguments + inputs));
    struct bound *bound = NULL;
    bool again = true;
    while (again) {
        ORT_TRY(find_bound(graph, lane, arguments, &bound));
        ORT_TRY(run_once(graph, bound, arguments, &again));
        if (again) { /* with the memories that it was bound to */
            for (size_t i = 0; i < argument_count(graph); i++) {
                if (arguments[i].memory == NULL) {
                    arguments[i].memory = bound->memories[i];
                    bound->memories[i] = NULL;
                }
            }
            unbind(graph, bound);
        }
    }
    for (size_t i = 0; i < graph->written.output_count; i++) {
        ORT_TRY(give_output(graph, context, bound, i, &arguments[inputs + i]));
    }
    return NULL;
}

/* An idle lane, or a new one. */
static ort_status take_lane(struct nnb_graph *graph, struct lane **lane) {
    (void)pthread_mutex_lock(&graph->lock);
    *lane = graph->idle;
    if (*lane != NULL) {
        graph->idle = (*lane)->next;
    }
    (void)pthread_mutex_unlock(&graph->lock);
    if (*lane != NULL) {
        return NULL;
    }
    *lane = calloc(1, sizeof **lane);
    if (*lane == NULL) {
        return nnb_ort_short_of_memory();
    }
    int code = nnburst_open_burst(graph->model, NULL, 0, graph->driver->timeout_ns, &(*lane)->burst);
    if (code != NNBURST_NO_ERROR) {
        free(*lane);
        return nnb_ort_failed("a burst cannot be opened", code);
    }
    return NULL;
}

static ort_status compute(struct ort_compute_info *info, void *state, void *context) {
    struct nnb_graph *graph = nnb_graph_of(info);
    struct nnb_driver *driver = graph->driver;
    (void)state;
    struct nnb_reason reason;
    if (!nnb_driver_recover(driver, &reason)) {
        return nnb_ort_status(ORT_FAIL, "%s", reason.text);
    }
    struct argument *arguments = calloc(argument_count(graph) + 1, sizeof *arguments);
    if (arguments == NULL) {
        return nnb_ort_short_of_memory();
    }
    struct lane *lane = NULL;
    (void)pthread_rwlock_rdlock(&driver->recovery);
    ort_status failed = take_lane(graph, &lane);
    if (failed == NULL) {
        failed = compute_on(graph, lane, context, arguments);
        (void)pthread_mutex_lock(&graph->lock);
        lane->next = graph->idle;
        graph->idle = lane;
        (void)pthread_mutex_unlock(&graph->lock);
    }
    (void)pthread_rwlock_unlock(&driver->recovery);
    for (size_t i = 0; i < argument_count(graph); i++) {
        nnburst_free_memory(arguments[i].memory);
        free(arguments[i].dimensions);
    }
    free(arguments);
    return failed;
}

static ort_status create_state(struct ort_compute_info *info, void *context, void **state) {
    (void)context;
    *state = info;
    return NULL;
}

static void release_state(struct ort_compute_info *info, void *state) {
    (void)info;
    (void)state;
}

/* -- beginning and end ------------------------------------------------------------------------------------ */

struct nnb_graph *nnb_graph_of(struct ort_compute_info *info) { return (struct nnb_graph *)(void *)info; }

const struct nnb_written *nnb_graph_written(const struct nnb_graph *graph) { return &graph->written; }

/* Writes the files into shared memory, and has the driver prepare them. */
static int prepare_files(struct nnb_graph *graph) {
    const struct nnb_written *written = &graph->written;
    nnburst_memory *file = NULL;
    nnburst_memory *weights = NULL;
    int code = nnburst_create_memory(written->file.count, &file);
    if (code == NNBURST_NO_ERROR && written->weights_bytes != 0) {
        code = nnburst_create_memory(written->weights_bytes, &weights);
    }
    if (code == NNBURST_NO_ERROR) {
        memcpy(nnburst_memory_data(file), written->file.data, written->file.count);
        if (weights != NULL) {
            nnb_written_copy_weights(written, nnburst_memory_data(weights));
        }
        const char *const names[] = {NNB_WEIGHTS};
        nnburst_memory *const memories[] = {weights};
        const nnburst_prepare_options options = {
            .names = names,
            .memories = memories,
            .count = weights != NULL,
            .num_threads = graph->driver->num_threads,
        };
        code = nnburst_prepare(graph->driver->device, file, &options, sizeof options, graph->driver->timeout_ns,
                               &graph->model);
    }
    nnburst_free_memory(weights);
    nnburst_free_memory(file);
    return code;
}

/* Stores the known facts about an output before a run. */
static int look_at_output(struct nnb_graph *graph, size_t index) {
    nnburst_operand operand;
    int code = nnburst_output(graph->model, (uint32_t)index, &operand, sizeof operand);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    graph->item_bytes[index] = operand.element_size;
    graph->rooms[index] = LEAST_ROOM;
    graph->fixed[index] = calloc((size_t)operand.rank + 1, sizeof **graph->fixed);
    if (graph->fixed[index] == NULL) {
        return NNBURST_OUT_OF_MEMORY;
    }
    const struct nnb_border *border = &graph->written.outputs[index];
    if (operand.size != 0 && border->has_shape) {
        graph->fixed_bytes[index] = operand.size;
        graph->ranks[index] = border->rank == 0 ? 0 : operand.rank;
        for (uint32_t i = 0; i < operand.rank; i++) {
            graph->fixed[index][i] = operand.dimensions[i];
        }
    }
    return NNBURST_NO_ERROR;
}

/* Whether the driver has the graph's inputs and outputs, ranks included. */
static bool is_border_complete(const struct nnb_graph *graph) {
    const struct nnb_written *written = &graph->written;
    const size_t outputs = written->output_count + written->rank_count;
    bool complete = nnburst_input_count(graph->model) == written->input_count && nnburst_output_count(graph->model) == outputs;
    for (size_t i = written->output_count; complete && i < outputs; i++) {
        nnburst_operand operand;
        complete = nnburst_output(graph->model, (uint32_t)i, &operand, sizeof operand) == NNBURST_NO_ERROR &&
                   operand.size == sizeof(int64_t);
    }
    return complete;
}

ort_status nnb_graph_prepare(struct nnb_driver *driver, struct nnb_written *written, struct nnb_graph **graph) {
    struct nnb_graph *made = calloc(1, sizeof *made);
    if (made == NULL) {
        nnb_written_free(written);
        return nnb_ort_short_of_memory();
    }
    made->info = (struct ort_compute_info){ORT_VERSION, create_state, compute, release_state};
    made->driver = driver;
    made->written = *written;
    *written = (struct nnb_written){0};
    (void)pthread_mutex_init(&made->lock, NULL);
    const size_t outputs = made->written.output_count;
    made->inputs = calloc(made->written.input_count + 1, sizeof *made->inputs);
    made->outputs = calloc(outputs + 1, sizeof *made->outputs);
    made->fixed = calloc(outputs + 1, sizeof *made->fixed);
    made->ranks = calloc(outputs + 1, sizeof *made->ranks);
    made->fixed_bytes = calloc(outputs + 1, sizeof *made->fixed_bytes);
    made->rooms = calloc(outputs + 1, sizeof *made->rooms);
    made->item_bytes = calloc(outputs + 1, sizeof *made->item_bytes);
    bool have_all = made->inputs != NULL && made->outputs != NULL && made->fixed != NULL && made->ranks != NULL &&
                    made->fixed_bytes != NULL && made->rooms != NULL && made->item_bytes != NULL;
    int code = have_all ? prepare_files(made) : NNBURST_OUT_OF_MEMORY;
    if (code == NNBURST_NO_ERROR && !is_border_complete(made)) {
        nnb_graph_close(made);
        return nnb_ort_status(ORT_FAIL, "nnburst: the driver finds other inputs or outputs");
    }
    for (size_t i = 0; code == NNBURST_NO_ERROR && i < outputs; i++) {
        code = look_at_output(made, i);
    }
    if (code != NNBURST_NO_ERROR) {
        ort_status failed = nnb_ort_failed("a graph is not prepared", code);
        nnb_graph_close(made);
        return failed;
    }
    *graph = made;
    return NULL;
}

void nnb_graph_close(struct nnb_graph *graph) {
    if (graph == NULL) {
        return;
    }
    while (graph->idle != NULL) {
        struct lane *lane = graph->idle;
        graph->idle = lane->next;
        close_lane(graph, lane);
    }
    nnburst_close_model(graph->model);
    for (size_t i = 0; graph->fixed != NULL && i < graph->written.output_count; i++) {
        free(graph->fixed[i]);
    }
    free(graph->inputs);
    free(graph->outputs);
    free(graph->fixed);
    free(graph->ranks);
    free(graph->fixed_bytes);
    free(graph->rooms);
    free(graph->item_bytes);
    nnb_written_free(&graph->written);
    (void)pthread_mutex_destroy(&graph->lock);
    free(graph);
}

/* Finds each border's position among a node's inputs or outputs, by its name. */
static ort_status find_positions(ort_object node, bool outputs, const struct nnb_border *borders, size_t count,
                                 size_t *positions) {
    ort_object *values = NULL;
    size_t value_count = 0;
    ORT_TRY(nnb_ort_list(node, outputs ? ORT_NODE_COUNT_OUTPUTS : ORT_NODE_COUNT_INPUTS,
                         outputs ? ORT_NODE_OUTPUTS : ORT_NODE_INPUTS, &values, &value_count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        size_t at = 0;
        for (; failed == NULL && at < value_count; at++) {
            const char *name = "";
            if (values[at] != NULL) {
                failed = ORT(ORT_VALUE_NAME, ort_object, const char **)(values[at], &name);
            }
            if (failed == NULL && strcmp(name, borders[i].name) == 0) {
                break;
            }
        }
        positions[i] = at;
        if (failed == NULL && at == value_count) {
            failed = nnb_ort_status(ORT_FAIL, "nnburst: the fused node has no %s %s", outputs ? "output" : "input",
                                    borders[i].name);
        }
    }
    free(values);
    return failed;
}

ort_status nnb_graph_fuse(struct nnb_graph *graph, ort_object node, struct ort_compute_info **info) {
    const struct nnb_written *written = &graph->written;
    ORT_TRY(find_positions(node, false, written->inputs, written->input_count, graph->inputs));
    ORT_TRY(find_positions(node, true, written->outputs, written->output_count, graph->outputs));
    *info = &graph->info;
    return NULL;
}
