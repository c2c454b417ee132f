#include "openvino.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atomics.h"
#include "copies.h"

/* The used part of the declarations of libopenvino_c.so. Handles are opaque pointers; a status is 0 for
 * success. */
typedef void *handle;

/* The oldest version with which the executor's tests pass (`make engines`). */
#define LEAST_YEAR 2025u
#define LEAST_RELEASE 4u

struct version {
    const char *build_number;
    const char *description;
};
struct shape {
    int64_t rank;
    int64_t *dimensions;
};
struct interval {
    int64_t least;
    int64_t most;
};
struct partial_shape {
    struct interval rank;
    struct interval *dimensions;
};
struct node_profile {
    int status;
    int64_t real_time_us;
    int64_t cpu_time_us;
    const char *node_name;
    const char *exec_type;
    const char *node_type;
};
struct profile {
    struct node_profile *nodes;
    size_t count;
};
_Static_assert(sizeof(struct node_profile) == 48, "the layout of ov_profiling_info_t");

static struct {
    handle core;
    char version[NNB_ONNX_NAME_BYTES];
    int (*get_openvino_version)(struct version *);
    void (*version_free)(struct version *);
    char *(*get_last_err_msg)(void);
    void (*free)(char *);
    int (*core_create)(handle *);
    int (*core_get_property)(handle, const char *device, const char *key, char **);
    int (*core_read_model_from_memory_buffer)(handle, const char *, size_t, handle weights, handle *);
    int (*core_compile_model)(handle, handle model, const char *device, size_t count, handle *, ...);
    int (*core_set_property)(handle, const char *device, ...);
    int (*core_import_model)(handle, const char *, size_t, const char *device, handle *);
    void (*model_free)(handle);
    int (*compiled_model_inputs_size)(handle, size_t *);
    int (*compiled_model_outputs_size)(handle, size_t *);
    int (*compiled_model_input_by_index)(handle, size_t, handle *);
    int (*compiled_model_output_by_index)(handle, size_t, handle *);
    int (*compiled_model_create_infer_request)(handle, handle *);
    int (*compiled_model_export_model)(handle, const char *path);
    void (*compiled_model_free)(handle);
    int (*port_get_any_name)(handle, char **);
    int (*port_get_element_type)(handle, int *);
    int (*port_get_partial_shape)(handle, struct partial_shape *);
    void (*partial_shape_free)(struct partial_shape *);
    void (*output_const_port_free)(handle);
    int (*tensor_create_from_host_ptr)(int element, struct shape, void *, handle *);
    void (*tensor_free)(handle);
    int (*infer_request_set_input_tensor_by_index)(handle, size_t, handle);
    int (*infer_request_set_output_tensor_by_index)(handle, size_t, handle);
    int (*infer_request_infer)(handle);
    int (*infer_request_start_async)(handle);
    int (*infer_request_wait)(handle);
    int (*infer_request_cancel)(handle);
    void (*infer_request_free)(handle);
    int (*infer_request_get_profiling_info)(handle, struct profile *);
    void (*profiling_info_list_free)(struct profile *);
} engine;

struct nnb_openvino_network {
    handle compiled;
    uint32_t counts[2]; /* inputs, outputs */
    bool profiles;
    uint8_t *imported; /* whose constants an imported network reads in place */
};

struct nnb_openvino_call {
    struct nnb_openvino_network *network;
    handle request;
    handle *tensors;
    uint8_t **staging;
    uint32_t count;
    uint32_t before_count;
    uint32_t after_count;
    struct nnb_copy *before;
    struct nnb_copy *after;
    nnb_atomic_u64 stopped; /* orders nothing: a run that misses it ends a little later */
    char message[NNB_ONNX_MESSAGE_BYTES];
};

/* OpenVINO's number of each of ONNX's element types; 0 for those that are not taken. */
static const int elements[] = {
    [1] = 4,   /* float32 */
    [2] = 16,  /* uint8 */
    [3] = 7,   /* int8 */
    [4] = 17,  /* uint16 */
    [5] = 8,   /* int16 */
    [6] = 9,   /* int32 */
    [7] = 10,  /* int64 */
    [9] = 1,   /* bool */
    [10] = 3,  /* float16 */
    [11] = 5,  /* float64 */
    [12] = 18, /* uint32 */
    [13] = 19, /* uint64 */
    [16] = 2,  /* bfloat16 */
};
enum { ELEMENT_COUNT = sizeof elements / sizeof elements[0] };

/* Whether a call went well; keeps the message if it did not. */
static bool went_well(int status, char *message) {
    if (status == 0) {
        return true;
    }
    char *said = engine.get_last_err_msg();
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "%s", said ? said : "");
    if (!said || !said[0]) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "status %d", status);
    }
    if (said) {
        engine.free(said);
    }
    return false;
}

/* A function whose name is `ov_` and that of its place. */
#define FIND(place) find(library, "ov_" #place, &engine.place, sizeof engine.place, message)

static bool find(void *library, const char *name, void *place, size_t bytes, char *message) {
    void *found = dlsym(library, name);
    if (!found) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "has no %s", name);
        return false;
    }
    memcpy(place, &found, bytes);
    return true;
}

static bool find_version(void *library, char *message) {
    return FIND(get_openvino_version) && FIND(version_free) && FIND(get_last_err_msg) && FIND(free);
}

static bool find_all(void *library, char *message) {
    return FIND(core_create) && FIND(core_get_property) && FIND(core_read_model_from_memory_buffer) &&
           FIND(core_compile_model) && FIND(core_set_property) && FIND(core_import_model) &&
           FIND(compiled_model_export_model) && FIND(model_free) && FIND(compiled_model_inputs_size) &&
           FIND(compiled_model_outputs_size) && FIND(compiled_model_input_by_index) &&
           FIND(compiled_model_output_by_index) && FIND(compiled_model_create_infer_request) &&
           FIND(compiled_model_free) && FIND(port_get_any_name) && FIND(port_get_element_type) &&
           FIND(port_get_partial_shape) && FIND(partial_shape_free) && FIND(output_const_port_free) &&
           FIND(tensor_create_from_host_ptr) && FIND(tensor_free) &&
           FIND(infer_request_set_input_tensor_by_index) && FIND(infer_request_set_output_tensor_by_index) &&
           FIND(infer_request_infer) && FIND(infer_request_start_async) && FIND(infer_request_wait) &&
           FIND(infer_request_cancel) && FIND(infer_request_free) &&
           FIND(infer_request_get_profiling_info) && FIND(profiling_info_list_free);
}

/* Reads a graph with the library; NULL if it is refused. */
static handle read_model(const uint8_t *content, uint64_t bytes, char *message) {
    handle model = NULL;
    bool done = went_well(engine.core_read_model_from_memory_buffer(engine.core, (const char *)content, bytes,
                                                                    NULL, &model),
                          message);
    return done ? model : NULL;
}

/* Stores the library's version; false with the reason if it is older than the oldest version that is known to
 * work. */
static bool check_version(char *message) {
    struct version found = {0};
    if (!went_well(engine.get_openvino_version(&found), message)) {
        return false;
    }
    snprintf(engine.version, sizeof engine.version, "%s", found.build_number);
    engine.version_free(&found);
    unsigned year = 0;
    unsigned release = 0;
    int count = sscanf(engine.version, "%4u.%4u", &year, &release);
    if (count == 2 && (year > LEAST_YEAR || (year == LEAST_YEAR && release >= LEAST_RELEASE))) {
        return true;
    }
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "version '%s', expected %u.%u or later", engine.version, LEAST_YEAR,
             LEAST_RELEASE);
    return false;
}

int nnb_openvino_open(const char *path, const uint8_t *content, uint64_t bytes, char *version, char *message) {
    message[0] = '\0';
    if (!engine.core) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            snprintf(message, NNB_ONNX_MESSAGE_BYTES, "%s", dlerror());
            return NNB_OPENVINO_NO_LIBRARY;
        }
        if (!find_version(library, message)) {
            return NNB_OPENVINO_NO_SYMBOL;
        }
        if (!check_version(message)) {
            return NNB_OPENVINO_FAILED;
        }
        if (!find_all(library, message)) {
            return NNB_OPENVINO_NO_SYMBOL;
        }
        if (!went_well(engine.core_create(&engine.core), message)) {
            engine.core = NULL;
            return NNB_OPENVINO_FAILED;
        }
        handle model = read_model(content, bytes, message);
        if (!model) {
            return NNB_OPENVINO_FAILED;
        }
        engine.model_free(model);
    }
    snprintf(version, NNB_ONNX_NAME_BYTES, "%s", engine.version);
    return NNB_OPENVINO_OK;
}

int nnb_openvino_device(const char *device, char *name, char *message) {
    char *found = NULL;
    if (!went_well(engine.core_get_property(engine.core, device, "FULL_DEVICE_NAME", &found), message)) {
        return NNB_OPENVINO_FAILED;
    }
    snprintf(name, NNB_ONNX_NAME_BYTES, "%s", found);
    engine.free(found);
    return NNB_OPENVINO_OK;
}

static bool count_borders(struct nnb_openvino_network *made, char *message) {
    size_t counts[2] = {0};
    if (!went_well(engine.compiled_model_inputs_size(made->compiled, &counts[0]), message) ||
        !went_well(engine.compiled_model_outputs_size(made->compiled, &counts[1]), message)) {
        return false;
    }
    made->counts[0] = (uint32_t)counts[0];
    made->counts[1] = (uint32_t)counts[1];
    return counts[0] <= 4096 && counts[1] <= 4096;
}

/* An import takes its properties from the core, so they are set there first. Nothing else may read them meanwhile;
 * a compilation copies them, and its own go before them. */
static pthread_rwlock_t core_properties = PTHREAD_RWLOCK_INITIALIZER;

static bool compile(struct nnb_openvino_network *made, const uint8_t *content, uint64_t bytes, const char *device,
                    const struct nnb_openvino_property *properties, uint32_t property_count, char *message) {
    struct nnb_openvino_property given[NNB_OPENVINO_MAX_PROPERTIES] = {0};
    memcpy(given, properties, property_count * sizeof given[0]);
    handle model = read_model(content, bytes, message);
    if (!model) {
        return false;
    }
    pthread_rwlock_rdlock(&core_properties);
    /* The library reads the given number of the words that follow, two for each property. */
    int status = engine.core_compile_model(
        engine.core, model, device, (size_t)property_count * 2, &made->compiled, given[0].key, given[0].value,
        given[1].key, given[1].value, given[2].key, given[2].value, given[3].key, given[3].value, given[4].key,
        given[4].value, given[5].key, given[5].value);
    bool done = went_well(status, message);
    pthread_rwlock_unlock(&core_properties);
    engine.model_free(model);
    return done;
}

static bool import(struct nnb_openvino_network *made, const uint8_t *content, uint64_t bytes, const char *device,
                   const struct nnb_openvino_property *properties, uint32_t property_count, char *message) {
    made->imported = nnb_room_for_copy(bytes, NNB_ONNX_ALIGNMENT);
    if (!made->imported) {
        return false;
    }
    memcpy(made->imported, content, bytes);
    bool done = true;
    pthread_rwlock_wrlock(&core_properties);
    for (uint32_t i = 0; done && i < property_count; i++) {
        const struct nnb_openvino_property *each = &properties[i];
        done = went_well(engine.core_set_property(engine.core, device, each->key, each->value), message);
    }
    /* TRUST: of this user's drivers, by the seal of the cache file (compilation_cache.py) */
    done = done && went_well(engine.core_import_model(engine.core, (const char *)made->imported, bytes, device,
                                                      &made->compiled),
                             message);
    pthread_rwlock_unlock(&core_properties);
    return done;
}

typedef bool maker(struct nnb_openvino_network *, const uint8_t *, uint64_t, const char *,
                   const struct nnb_openvino_property *, uint32_t, char *);

static struct nnb_openvino_network *make(maker *by, const uint8_t *content, uint64_t bytes, const char *device,
                                         const struct nnb_openvino_property *properties, uint32_t property_count,
                                         uint32_t profile, char *message) {
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "out of memory");
    struct nnb_openvino_network *made = calloc(1, sizeof *made);
    if (!made || property_count > NNB_OPENVINO_MAX_PROPERTIES) {
        free(made);
        return NULL;
    }
    made->profiles = profile != 0;
    if (!by(made, content, bytes, device, properties, property_count, message) || !count_borders(made, message)) {
        nnb_openvino_network_free(made);
        return NULL;
    }
    return made;
}

struct nnb_openvino_network *nnb_openvino_network_new(const uint8_t *content, uint64_t bytes, const char *device,
                                                      const struct nnb_openvino_property *properties,
                                                      uint32_t property_count, uint32_t profile, char *message) {
    return make(compile, content, bytes, device, properties, property_count, profile, message);
}

struct nnb_openvino_network *nnb_openvino_network_import(const uint8_t *content, uint64_t bytes, const char *device,
                                                         const struct nnb_openvino_property *properties,
                                                         uint32_t property_count, uint32_t profile, char *message) {
    return make(import, content, bytes, device, properties, property_count, profile, message);
}

int nnb_openvino_export(const struct nnb_openvino_network *made, const char *path, char *message) {
    return went_well(engine.compiled_model_export_model(made->compiled, path), message) ? NNB_OPENVINO_OK
                                                                                        : NNB_OPENVINO_FAILED;
}

void nnb_openvino_network_free(struct nnb_openvino_network *made) {
    if (made->compiled) {
        engine.compiled_model_free(made->compiled);
    }
    free(made->imported);
    free(made);
}

uint32_t nnb_openvino_count(const struct nnb_openvino_network *made, int outputs) {
    return made->counts[outputs != 0];
}

/* ONNX's number of an element type of OpenVINO's; 0 for those that it does not have. */
static int32_t onnx_element(int element) {
    for (int32_t i = 0; i < ELEMENT_COUNT; i++) {
        if (elements[i] != 0 && elements[i] == element) {
            return i;
        }
    }
    return 0;
}

static bool describe_port(handle port, struct nnb_onnx_border *border, char *message) {
    char *name = NULL;
    int element = 0;
    struct partial_shape shape = {0};
    if (!went_well(engine.port_get_any_name(port, &name), message)) {
        return false;
    }
    border->name = strdup(name);
    engine.free(name);
    if (!border->name || !went_well(engine.port_get_element_type(port, &element), message) ||
        !went_well(engine.port_get_partial_shape(port, &shape), message)) {
        return false;
    }
    border->element = onnx_element(element);
    bool known = shape.rank.least == shape.rank.most && shape.rank.most <= NNB_ONNX_MAX_RANK;
    for (int64_t axis = 0; known && axis < shape.rank.most; axis++) {
        struct interval extent = shape.dimensions[axis];
        border->dimensions[axis] = extent.least == extent.most ? extent.most : -1;
    }
    border->rank = known ? (uint32_t)shape.rank.most : 0;
    engine.partial_shape_free(&shape);
    return known;
}

int nnb_openvino_describe(const struct nnb_openvino_network *made, int outputs, uint32_t at,
                          struct nnb_onnx_border *border) {
    char message[NNB_ONNX_MESSAGE_BYTES];
    handle port = NULL;
    memset(border, 0, sizeof *border);
    int status = outputs ? engine.compiled_model_output_by_index(made->compiled, at, &port)
                         : engine.compiled_model_input_by_index(made->compiled, at, &port);
    if (!went_well(status, message)) {
        return NNB_OPENVINO_FAILED;
    }
    bool done = describe_port(port, border, message);
    engine.output_const_port_free(port);
    return done ? NNB_OPENVINO_OK : NNB_OPENVINO_FAILED;
}

static bool bind_argument(struct nnb_openvino_call *call, bool is_output, uint32_t at,
                          const struct nnb_onnx_argument *argument) {
    uint32_t number = at + (is_output ? call->network->counts[0] : 0);
    uint8_t *memory = argument->memory;
    if (argument->apart || (uintptr_t)memory % NNB_ONNX_ALIGNMENT != 0) {
        uint8_t *own = call->staging[number] = nnb_room_for_copy(argument->bytes, NNB_ONNX_ALIGNMENT);
        if (!own) {
            return false;
        }
        if (is_output) {
            call->after[call->after_count++] = (struct nnb_copy){memory, own, argument->bytes, 0};
        } else {
            call->before[call->before_count++] = (struct nnb_copy){
                own, memory, argument->bytes, argument->apart == NNB_COPIED_TRUTH};
        }
        memory = own;
    }
    int element = argument->element > 0 && argument->element < ELEMENT_COUNT ? elements[argument->element] : 0;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
    memcpy(dimensions, argument->dimensions, sizeof dimensions);
    struct shape shape = {argument->rank, dimensions};
    if (!went_well(engine.tensor_create_from_host_ptr(element, shape, memory, &call->tensors[number]), call->message)) {
        return false;
    }
    handle tensor = call->tensors[number];
    return went_well(is_output ? engine.infer_request_set_output_tensor_by_index(call->request, at, tensor)
                               : engine.infer_request_set_input_tensor_by_index(call->request, at, tensor),
                     call->message);
}

struct nnb_openvino_call *nnb_openvino_bind(struct nnb_openvino_network *made, const struct nnb_onnx_argument *inputs,
                                            const struct nnb_onnx_argument *outputs, char *message) {
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "out of memory");
    struct nnb_openvino_call *call = calloc(1, sizeof *call);
    if (!call) {
        return NULL;
    }
    call->network = made;
    call->count = made->counts[0] + made->counts[1];
    call->tensors = calloc((size_t)call->count + 1, sizeof *call->tensors);
    call->staging = calloc((size_t)call->count + 1, sizeof *call->staging);
    call->before = calloc((size_t)call->count + 1, sizeof *call->before);
    call->after = calloc((size_t)call->count + 1, sizeof *call->after);
    snprintf(call->message, sizeof call->message, "out of memory");
    bool done = call->tensors && call->staging && call->before && call->after &&
                went_well(engine.compiled_model_create_infer_request(made->compiled, &call->request), call->message);
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t i = 0; done && i < made->counts[side]; i++) {
            done = bind_argument(call, side == 1, i, side ? &outputs[i] : &inputs[i]);
        }
    }
    if (!done) {
        memcpy(message, call->message, sizeof call->message);
        nnb_openvino_call_free(call);
        return NULL;
    }
    return call;
}

void nnb_openvino_call_free(struct nnb_openvino_call *call) {
    if (call->request) {
        engine.infer_request_free(call->request);
    }
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->tensors && call->tensors[i]) {
            engine.tensor_free(call->tensors[i]);
        }
        if (call->staging) {
            free(call->staging[i]);
        }
    }
    free(call->tensors);
    free(call->staging);
    free(call->before);
    free(call->after);
    free(call);
}

/* The sum of the nodes' times in the last run, in nanoseconds, or "not available". */
static uint64_t device_time(struct nnb_openvino_call *call) {
    struct profile found = {0};
    if (engine.infer_request_get_profiling_info(call->request, &found) != 0) {
        return NNBX_NOT_AVAILABLE;
    }
    uint64_t microseconds = 0;
    for (size_t i = 0; i < found.count; i++) {
        int64_t time = found.nodes[i].real_time_us;
        microseconds += time > 0 ? (uint64_t)time : 0;
    }
    engine.profiling_info_list_free(&found);
    return microseconds * 1000;
}

/* Runs the request. A run on this thread cannot be cancelled, so one with a deadline runs on a thread of the
 * engine. */
static int infer(struct nnb_openvino_call *call, bool has_deadline) {
    if (!has_deadline) {
        return engine.infer_request_infer(call->request);
    }
    int status = engine.infer_request_start_async(call->request);
    return status ? status : engine.infer_request_wait(call->request);
}

int32_t nnb_openvino_run(nnbx_execution *execution, const struct nnbx_run *how, struct nnbx_outcome *outcome) {
    struct nnb_openvino_call *call = (struct nnb_openvino_call *)(void *)execution;
    char *message = outcome->message ? outcome->message : call->message;
    /* TRUST: of this process; any value is a yes or a no */
    if (nnb_load_relaxed_u64(&call->stopped)) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "the run was stopped");
        return NNBX_GENERAL_FAILURE;
    }
    /* TRUST: values that another process may change are copied once, or decide nothing (executor.py) */
    nnb_copy_all(call->before, call->before_count);
    if (!went_well(infer(call, how->deadline_ns != NNBX_NO_DEADLINE), message)) {
        return NNBX_GENERAL_FAILURE;
    }
    nnb_copy_all(call->after, call->after_count);
    outcome->device_ns = NNBX_NOT_AVAILABLE;
    if (call->network->profiles && how->measure) {
        outcome->device_ns = device_time(call);
    }
    return NNBX_NONE;
}

void nnb_openvino_stop(struct nnb_openvino_call *call, int stop) {
    char message[NNB_ONNX_MESSAGE_BYTES];
    nnb_store_relaxed_u64(&call->stopped, stop != 0);
    if (stop) {
        (void)went_well(engine.infer_request_cancel(call->request), message);
    }
}

uint64_t nnb_openvino_copied_bytes(const struct nnb_openvino_call *call) {
    return nnb_copied_bytes(call->before, call->before_count, call->after, call->after_count);
}
