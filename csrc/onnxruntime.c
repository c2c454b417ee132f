#include "onnxruntime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copies.h"

/* The used part of the declarations of libonnxruntime.so. Handles are opaque pointers; a status is NULL for
 * success, else an object with a message. The table's order never changes. */
typedef void *handle;
typedef void *status;

enum { API_VERSION = 18, PLUGIN_VERSION = 23 };
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION_FROM_ARRAY = 8,
    RUN = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_EXECUTION_MODE = 13,
    SET_LOG_SEVERITY = 22,
    SET_OPTIMIZATION_LEVEL = 23,
    SET_INTRA_OP_THREADS = 24,
    SET_INTER_OP_THREADS = 25,
    GET_INPUT_COUNT = 30,
    GET_OUTPUT_COUNT = 31,
    GET_INPUT_TYPE = 33,
    GET_OUTPUT_TYPE = 34,
    GET_INPUT_NAME = 36,
    GET_OUTPUT_NAME = 37,
    CREATE_RUN_OPTIONS = 39,
    SET_TERMINATE = 46,
    UNSET_TERMINATE = 47,
    CREATE_TENSOR_WITH_DATA = 49,
    GET_TENSOR_DATA = 51,
    CAST_TO_TENSOR_INFO = 55,
    GET_KIND = 56,
    GET_ELEMENT_TYPE = 60,
    GET_RANK = 61,
    GET_DIMENSIONS = 62,
    GET_TYPE_AND_SHAPE = 65,
    CREATE_CPU_MEMORY_INFO = 69,
    ALLOCATOR_FREE = 76,
    GET_ALLOCATOR = 78,
    RELEASE_STATUS = 93,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    RELEASE_RUN_OPTIONS = 97,
    RELEASE_TYPE_INFO = 98,
    RELEASE_TENSOR_INFO = 99,
    RELEASE_SESSION_OPTIONS = 100,
    GET_PROVIDERS = 125,
    RELEASE_PROVIDERS = 126,
    ADD_CONFIG_ENTRY = 130,
    RUN_WITH_BINDING = 133,
    CREATE_BINDING = 134,
    RELEASE_BINDING = 135,
    BIND_INPUT = 136,
    BIND_OUTPUT = 137,
    CUDA_APPEND = 204,
    CUDA_CREATE = 205,
    CUDA_RELEASE = 208,
    APPEND_PROVIDER = 216,
    ADD_EXTERNAL = 279,
    REGISTER_LIBRARY = 301, /* this and what follows from version 1.22 on */
    GET_DEVICES = 303,
    APPEND_DEVICES = 304,
    HARDWARE_KIND = 307,
    DEVICE_PROVIDER = 312,
    DEVICE_HARDWARE = 316,
};
enum { ALL_OPTIMIZATIONS = 99, SEQUENTIAL = 0, LOG_FATAL = 4, KIND_TENSOR = 1, ARENA = 1, DEFAULT_MEMORY = 0 };

struct api_base {
    void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

static struct {
    void *const *api;
    bool has_plugins;
    char plugged_name[NNB_ONNX_NAME_BYTES];
    handle plugged; /* the device that executes for the provider of this name; NULL if there is no plugin */
    handle environment;
    handle memory_info;
    handle allocator;
} engine;

/* The function at a place of the table, cast to these argument types. */
#define CALL(place, ...) (((status(*)(__VA_ARGS__))engine.api[place]))
#define RELEASE(place, object) (((void (*)(handle))engine.api[place])(object))

struct nnb_onnx_session {
    handle session;
    uint32_t counts[2]; /* inputs, outputs */
    char **names[2];
};

struct nnb_onnx_call {
    struct nnb_onnx_session *session;
    handle options;
    handle binding; /* NULL if the run finds out extents */
    handle *values[2];
    uint8_t **staging;
    struct nnb_onnx_argument *rooms; /* outputs as they were given; those that are ROOM are found by each run */
    struct nnbx_output_shape *shapes; /* of the last run, if an output is ROOM */
    bool finds;                       /* an output is ROOM */
    handle *kept;                     /* values of outputs whose extents a run finds although the file declares them */
    struct nnb_onnx_states *states;   /* NULL if it has none */
    const uint8_t *word;              /* names the slot; in memory of the client's */
    struct nnb_copy *before;
    struct nnb_copy *after;
    uint32_t before_count;
    uint32_t after_count;
    char message[NNB_ONNX_MESSAGE_BYTES];
};

/* Whether a call went well; keeps the message if it did not. */
static bool went_well(status failed, char *message) {
    if (!failed) {
        return true;
    }
    const char *said = ((const char *(*)(status))engine.api[GET_ERROR_MESSAGE])(failed);
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "%s", said ? said : "");
    RELEASE(RELEASE_STATUS, failed);
    return false;
}

static void list_providers(char *providers) {
    char **names = NULL;
    int count = 0;
    char message[NNB_ONNX_MESSAGE_BYTES];
    providers[0] = '\0';
    if (!went_well(CALL(GET_PROVIDERS, char ***, int *)(&names, &count), message)) {
        return;
    }
    size_t used = 0;
    for (int i = 0; i < count && used < NNB_ONNX_MESSAGE_BYTES; i++) {
        int more = snprintf(providers + used, NNB_ONNX_MESSAGE_BYTES - used, "%s%s", i ? "," : "", names[i]);
        used += more > 0 ? (size_t)more : 0;
    }
    (void)went_well(CALL(RELEASE_PROVIDERS, char **, int)(names, count), message);
}

int nnb_onnx_open(const char *path, char *version, char *providers) {
    char message[NNB_ONNX_MESSAGE_BYTES];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return NNB_ONNX_NO_LIBRARY;
    }
    const struct api_base *(*get_base)(void) = NULL;
    void *found = dlsym(library, "OrtGetApiBase");
    memcpy(&get_base, &found, sizeof found);
    if (!get_base) {
        return NNB_ONNX_NO_SYMBOL;
    }
    const struct api_base *base = get_base();
    snprintf(version, NNB_ONNX_NAME_BYTES, "%s", base->get_version());
    if (!engine.api) {
        engine.api = base->get_api(API_VERSION);
        if (!engine.api) {
            return NNB_ONNX_TOO_OLD;
        }
        engine.has_plugins = base->get_api(PLUGIN_VERSION) != NULL;
        if (!went_well(CALL(CREATE_ENV, int, const char *, handle *)(LOG_FATAL, "nnburst", &engine.environment), message) ||
            !went_well(CALL(CREATE_CPU_MEMORY_INFO, int, int, handle *)(ARENA, DEFAULT_MEMORY, &engine.memory_info), message) ||
            !went_well(CALL(GET_ALLOCATOR, handle *)(&engine.allocator), message)) {
            engine.api = NULL;
            return NNB_ONNX_FAILED;
        }
    }
    list_providers(providers);
    return NNB_ONNX_OK;
}

int nnb_onnx_plug(const char *path, const char *name, uint32_t *hardware, char *message) {
    if (!engine.has_plugins) {
        snprintf(message, NNB_ONNX_MESSAGE_BYTES, "plugins need version 1.23 or a newer one");
        return NNB_ONNX_TOO_OLD;
    }
    handle *devices = NULL;
    size_t count = 0;
    if (!went_well(CALL(REGISTER_LIBRARY, handle, const char *, const char *)(engine.environment, path, path), message) ||
        !went_well(CALL(GET_DEVICES, handle, handle **, size_t *)(engine.environment, &devices, &count), message)) {
        return NNB_ONNX_FAILED;
    }
    size_t used = (size_t)snprintf(message, NNB_ONNX_MESSAGE_BYTES, "there are devices of");
    for (size_t i = 0; i < count; i++) {
        const char *found = ((const char *(*)(handle))engine.api[DEVICE_PROVIDER])(devices[i]);
        if (strcmp(found, name) == 0) {
            handle lies_on = ((handle(*)(handle))engine.api[DEVICE_HARDWARE])(devices[i]);
            *hardware = (uint32_t)((int (*)(handle))engine.api[HARDWARE_KIND])(lies_on);
            snprintf(engine.plugged_name, sizeof engine.plugged_name, "%s", name);
            engine.plugged = devices[i];
            return NNB_ONNX_OK;
        }
        if (used < NNB_ONNX_MESSAGE_BYTES) {
            used += (size_t)snprintf(message + used, NNB_ONNX_MESSAGE_BYTES - used, " %s", found);
        }
    }
    return NNB_ONNX_FAILED;
}

static bool append_provider(handle options, const struct nnb_onnx_provider *provider, char *message) {
    const char *const *keys = provider->keys;
    const char *const *values = provider->values;
    if (engine.plugged && strcmp(provider->name, engine.plugged_name) == 0) {
        return went_well(CALL(APPEND_DEVICES, handle, handle, const handle *, size_t, const char *const *, const char *const *,
                              size_t)(options, engine.environment, &engine.plugged, 1, keys, values, provider->option_count),
                         message);
    }
    if (strcmp(provider->name, "CUDA") == 0 && provider->option_count == 0) {
        handle cuda = NULL;
        if (!went_well(CALL(CUDA_CREATE, handle *)(&cuda), message)) {
            return false;
        }
        bool done = went_well(CALL(CUDA_APPEND, handle, handle)(options, cuda), message);
        RELEASE(CUDA_RELEASE, cuda);
        return done;
    }
    char name[NNB_ONNX_NAME_BYTES]; /* the short form is not always the one that providers are listed with */
    snprintf(name, sizeof name, "%sExecutionProvider", provider->name);
    return went_well(CALL(APPEND_PROVIDER, handle, const char *, const char *const *, const char *const *, size_t)(
                         options, name, keys, values, provider->option_count),
                     message);
}

static bool set_config(handle options, const char *key, const char *value, char *message) {
    return went_well(CALL(ADD_CONFIG_ENTRY, handle, const char *, const char *)(options, key, value), message);
}

static bool set_options(handle options, uint32_t threads, const struct nnb_onnx_provider *provider, const char *disabled,
                        char *message) {
    return went_well(CALL(SET_INTRA_OP_THREADS, handle, int)(options, (int)threads), message) &&
           went_well(CALL(SET_INTER_OP_THREADS, handle, int)(options, 1), message) &&
           went_well(CALL(SET_EXECUTION_MODE, handle, int)(options, SEQUENTIAL), message) &&
           went_well(CALL(SET_OPTIMIZATION_LEVEL, handle, int)(options, ALL_OPTIMIZATIONS), message) &&
           went_well(CALL(SET_LOG_SEVERITY, handle, int)(options, LOG_FATAL), message) &&
           set_config(options, "session.intra_op.allow_spinning", "0", message) &&
           set_config(options, "session.inter_op.allow_spinning", "0", message) &&
           (!disabled[0] ||
            set_config(options, "optimization.disable_specified_optimizers", disabled, message)) &&
           (!provider || append_provider(options, provider, message));
}

static bool add_external(handle options, const struct nnb_onnx_external *external, uint32_t count,
                         char *message) {
    if (!count) {
        return true;
    }
    const char **names = calloc(count, sizeof *names);
    char **memory = calloc(count, sizeof *memory);
    size_t *bytes = calloc(count, sizeof *bytes);
    bool done = names && memory && bytes;
    for (uint32_t i = 0; done && i < count; i++) {
        names[i] = external[i].name;
        memory[i] = external[i].memory;
        bytes[i] = external[i].bytes;
    }
    done = done && went_well(CALL(ADD_EXTERNAL, handle, const char *const *, char *const *, const size_t *, size_t)(
                                 options, names, memory, bytes, count),
                             message);
    free(names);
    free(memory);
    free(bytes);
    return done;
}

static bool read_names(struct nnb_onnx_session *made, int outputs, char *message) {
    size_t count = 0;
    int place = outputs ? GET_OUTPUT_COUNT : GET_INPUT_COUNT;
    if (!went_well(CALL(place, handle, size_t *)(made->session, &count), message) || count > 4096) {
        return false;
    }
    made->names[outputs] = calloc(count + 1, sizeof *made->names[outputs]);
    if (!made->names[outputs]) {
        return false;
    }
    made->counts[outputs] = (uint32_t)count;
    place = outputs ? GET_OUTPUT_NAME : GET_INPUT_NAME;
    for (size_t i = 0; i < count; i++) {
        char *name = NULL;
        if (!went_well(CALL(place, handle, size_t, handle, char **)(made->session, i, engine.allocator, &name), message)) {
            return false;
        }
        made->names[outputs][i] = strdup(name);
        (void)went_well(CALL(ALLOCATOR_FREE, handle, void *)(engine.allocator, name), message);
        if (!made->names[outputs][i]) {
            return false;
        }
    }
    return true;
}

struct nnb_onnx_session *nnb_onnx_session_new(const uint8_t *content, uint64_t bytes, uint32_t threads,
                                              const struct nnb_onnx_external *external,
                                              uint32_t external_count,
                                              const struct nnb_onnx_provider *provider,
                                              const char *disabled, char *message) {
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "out of memory");
    struct nnb_onnx_session *made = calloc(1, sizeof *made);
    handle options = NULL;
    if (!made) {
        return NULL;
    }
    bool done = went_well(CALL(CREATE_SESSION_OPTIONS, handle *)(&options), message) &&
                set_options(options, threads, provider, disabled, message) &&
                add_external(options, external, external_count, message) &&
                went_well(CALL(CREATE_SESSION_FROM_ARRAY, handle, const void *, size_t, handle, handle *)(
                              engine.environment, content, bytes, options, &made->session),
                          message) &&
                read_names(made, 0, message) && read_names(made, 1, message);
    if (options) {
        RELEASE(RELEASE_SESSION_OPTIONS, options);
    }
    if (!done) {
        nnb_onnx_session_free(made);
        return NULL;
    }
    return made;
}

void nnb_onnx_session_free(struct nnb_onnx_session *made) {
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < made->counts[side]; i++) {
            free(made->names[side][i]);
        }
        free(made->names[side]);
    }
    if (made->session) {
        RELEASE(RELEASE_SESSION, made->session);
    }
    free(made);
}

uint32_t nnb_onnx_count(const struct nnb_onnx_session *made, int outputs) {
    return made->counts[outputs != 0];
}

/* Reads element type and extents of a tensor from the library's `info`. */
static bool read_shape(handle info, int32_t *element, uint32_t *rank, int64_t *dimensions, char *message) {
    size_t count = 0;
    int32_t kind = 0;
    if (!went_well(CALL(GET_ELEMENT_TYPE, handle, int32_t *)(info, &kind), message) ||
        !went_well(CALL(GET_RANK, handle, size_t *)(info, &count), message) ||
        count > NNB_ONNX_MAX_RANK ||
        !went_well(CALL(GET_DIMENSIONS, handle, int64_t *, size_t)(info, dimensions, count), message)) {
        return false;
    }
    *element = kind;
    *rank = (uint32_t)count;
    return true;
}

int nnb_onnx_describe(const struct nnb_onnx_session *made, int outputs, uint32_t at,
                      struct nnb_onnx_border *border) {
    char message[NNB_ONNX_MESSAGE_BYTES];
    handle type = NULL;
    handle info = NULL;
    int32_t kind = 0;
    memset(border, 0, sizeof *border);
    border->name = strdup(made->names[outputs != 0][at]);
    int place = outputs ? GET_OUTPUT_TYPE : GET_INPUT_TYPE;
    if (!border->name || !went_well(CALL(place, handle, size_t, handle *)(made->session, at, &type), message)) {
        return NNB_ONNX_FAILED;
    }
    bool done = went_well(CALL(GET_KIND, handle, int32_t *)(type, &kind), message);
    if (done && kind == KIND_TENSOR) {
        done = went_well(CALL(CAST_TO_TENSOR_INFO, handle, handle *)(type, &info), message) &&
               read_shape(info, &border->element, &border->rank, border->dimensions, message);
    }
    RELEASE(RELEASE_TYPE_INFO, type);
    return done ? NNB_ONNX_OK : NNB_ONNX_FAILED;
}

void nnb_onnx_border_free(struct nnb_onnx_border *border) {
    free(border->name);
    border->name = NULL;
}

static bool bind_argument(struct nnb_onnx_call *call, int outputs, uint32_t at,
                          const struct nnb_onnx_argument *argument) {
    uint32_t number = at + (outputs ? call->session->counts[0] : 0);
    uint8_t *memory = argument->memory;
    if (argument->apart || (uintptr_t)memory % NNB_ONNX_ALIGNMENT != 0) {
        uint8_t *own = call->staging[number] = nnb_room_for_copy(argument->bytes, NNB_ONNX_ALIGNMENT);
        if (!own) {
            return false;
        }
        if (outputs) {
            call->after[call->after_count++] = (struct nnb_copy){memory, own, argument->bytes, 0};
        } else {
            call->before[call->before_count++] = (struct nnb_copy){
                own, memory, argument->bytes, argument->apart == NNB_COPIED_TRUTH};
        }
        memory = own;
    }
    return went_well(CALL(CREATE_TENSOR_WITH_DATA, handle, void *, size_t, const int64_t *, size_t, int, handle *)(
                         engine.memory_info, memory, argument->bytes, argument->dimensions,
                         argument->rank, argument->element, &call->values[outputs][at]),
                     call->message);
}

/* Binds output `at`, which has memory. The engine writes one of the outputs that have the same name, so they
 * share the memory of the first, and the others are copied from it. */
static bool bind_output(struct nnb_onnx_call *call, uint32_t at, const struct nnb_onnx_argument *outputs) {
    struct nnb_onnx_session *made = call->session;
    struct nnb_onnx_argument output = outputs[at];
    for (uint32_t i = 0; i < at; i++) {
        if (outputs[i].place == NNB_ONNX_WHOLE && outputs[i].bytes == output.bytes &&
            strcmp(made->names[1][i], made->names[1][at]) == 0) {
            uint8_t *own = call->staging[made->counts[0] + i];
            output.memory = own ? own : outputs[i].memory;
            output.apart = NNB_IN_ITS_PLACE;
            call->after[call->after_count++] = (struct nnb_copy){outputs[at].memory, output.memory, output.bytes, 0};
            break;
        }
    }
    return bind_argument(call, 1, at, &output);
}

/* Has output `at` copied from the input that it is, if there is one, since the engine writes no such output. */
static void copy_if_input(struct nnb_onnx_call *call, uint32_t at, const struct nnb_onnx_argument *inputs,
                          const struct nnb_onnx_argument *output) {
    struct nnb_onnx_session *made = call->session;
    for (uint32_t i = 0; i < made->counts[0]; i++) {
        const uint8_t *from = call->staging[i] ? call->staging[i] : inputs[i].memory;
        if (from && inputs[i].bytes == output->bytes && strcmp(made->names[0][i], made->names[1][at]) == 0) {
            call->after[call->after_count++] = (struct nnb_copy){output->memory, from, output->bytes, 0};
            return;
        }
    }
}

/* Makes an object with everything bound, if all outputs have memory: the fastest way to run. */
static bool make_binding(struct nnb_onnx_call *call) {
    struct nnb_onnx_session *made = call->session;
    for (uint32_t i = 0; i < made->counts[1]; i++) {
        if (call->rooms[i].place != NNB_ONNX_WHOLE) {
            return true;
        }
    }
    bool done = went_well(CALL(CREATE_BINDING, handle, handle *)(made->session, &call->binding), call->message);
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; done && i < made->counts[side]; i++) {
            done = went_well(CALL(side ? BIND_OUTPUT : BIND_INPUT, handle, const char *, handle)(
                                 call->binding, made->names[side][i], call->values[side][i]),
                             call->message);
        }
    }
    return done;
}

struct nnb_onnx_call *nnb_onnx_bind(struct nnb_onnx_session *made, const struct nnb_onnx_argument *inputs,
                                    const struct nnb_onnx_argument *outputs, char *message) {
    snprintf(message, NNB_ONNX_MESSAGE_BYTES, "out of memory");
    struct nnb_onnx_call *call = calloc(1, sizeof *call);
    if (!call) {
        return NULL;
    }
    size_t count = (size_t)made->counts[0] + made->counts[1] + 1;
    call->session = made;
    call->values[0] = calloc(count, sizeof *call->values[0]);
    call->values[1] = calloc(count, sizeof *call->values[1]);
    call->staging = calloc(count, sizeof *call->staging);
    call->rooms = calloc(count, sizeof *call->rooms);
    call->shapes = calloc(count, sizeof *call->shapes);
    call->kept = calloc(count, sizeof *call->kept);
    call->before = calloc(count, sizeof *call->before);
    call->after = calloc(2 * count, sizeof *call->after); /* an output's own, and that of the input that it is */
    snprintf(call->message, sizeof call->message, "out of memory");
    bool done = call->values[0] && call->values[1] && call->staging && call->rooms && call->shapes &&
                call->kept && call->before && call->after &&
                went_well(CALL(CREATE_RUN_OPTIONS, handle *)(&call->options), call->message);
    for (uint32_t i = 0; done && i < made->counts[0]; i++) {
        done = inputs[i].place == NNB_ONNX_STATE || bind_argument(call, 0, i, &inputs[i]);
    }
    for (uint32_t i = 0; done && i < made->counts[1]; i++) {
        call->rooms[i] = outputs[i];
        call->finds = call->finds || outputs[i].place == NNB_ONNX_ROOM;
        if (outputs[i].place == NNB_ONNX_WHOLE) {
            done = bind_output(call, i, outputs);
            copy_if_input(call, i, inputs, &outputs[i]);
        }
    }
    if (!done || !make_binding(call)) {
        memcpy(message, call->message, sizeof call->message);
        nnb_onnx_call_free(call);
        return NULL;
    }
    return call;
}

static void release_found(struct nnb_onnx_call *call) {
    for (uint32_t i = 0; i < call->session->counts[1]; i++) {
        if (call->rooms[i].place == NNB_ONNX_ROOM && call->values[1][i]) {
            RELEASE(RELEASE_VALUE, call->values[1][i]);
            call->values[1][i] = NULL;
        }
    }
}

void nnb_onnx_call_free(struct nnb_onnx_call *call) {
    if (call->binding) {
        RELEASE(RELEASE_BINDING, call->binding);
    }
    if (call->options) {
        RELEASE(RELEASE_RUN_OPTIONS, call->options);
    }
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; call->values[side] && i < call->session->counts[side]; i++) {
            if (call->values[side][i]) {
                RELEASE(RELEASE_VALUE, call->values[side][i]);
            }
        }
        free(call->values[side]);
    }
    for (uint32_t i = 0; call->kept && i < call->session->counts[1]; i++) {
        if (call->kept[i]) {
            RELEASE(RELEASE_VALUE, call->kept[i]);
        }
    }
    free(call->kept);
    for (uint32_t i = 0; call->staging && i < call->session->counts[0] + call->session->counts[1]; i++) {
        free(call->staging[i]);
    }
    free(call->staging);
    free(call->rooms);
    free(call->shapes);
    free(call->before);
    free(call->after);
    free(call);
}

static status run(struct nnb_onnx_call *call) {
    struct nnb_onnx_session *made = call->session;
    if (call->binding && !call->finds) {
        return CALL(RUN_WITH_BINDING, handle, handle, handle)(made->session, call->options, call->binding);
    }
    return CALL(RUN, handle, handle, const char *const *, const handle *, size_t, const char *const *, size_t,
                handle *)(made->session, call->options, (const char *const *)made->names[0], call->values[0],
                          made->counts[0], (const char *const *)made->names[1], made->counts[1],
                          call->values[1]);
}

/* Copies an output whose extents a run determined to its room, if there is enough; false if the engine cannot
 * describe it. */
static bool take(struct nnb_onnx_call *call, uint32_t output, char *message) {
    const struct nnb_onnx_argument *room = &call->rooms[output];
    struct nnbx_output_shape *shape = &call->shapes[output];
    int64_t dimensions[NNB_ONNX_MAX_RANK];
    int32_t element = 0;
    uint32_t rank = 0;
    handle info = NULL;
    void *data = NULL;
    if (!went_well(CALL(GET_TYPE_AND_SHAPE, handle, handle *)(call->values[1][output], &info), message)) {
        return false;
    }
    bool done = read_shape(info, &element, &rank, dimensions, message) &&
                went_well(CALL(GET_TENSOR_DATA, handle, void **)(call->values[1][output], &data), message);
    RELEASE(RELEASE_TENSOR_INFO, info);
    if (!done || rank > NNBX_MAX_RANK) {
        return false;
    }
    uint64_t bytes = room->element_bytes;
    for (uint32_t i = 0; i < rank; i++) {
        shape->dimensions[i] = (uint32_t)dimensions[i];
        bytes *= (uint64_t)dimensions[i];
    }
    shape->rank = rank;
    if (rank == 0) { /* NNAPI's tensors have a rank */
        shape->rank = 1;
        shape->dimensions[0] = 1;
    }
    shape->is_sufficient = bytes <= room->room;
    if (shape->is_sufficient && bytes != 0) {
        memcpy(room->memory, data, bytes);
    }
    return true;
}

/* NNAPI's tensors have a rank, so one of rank 0 becomes (1,). */
static void describe_whole(const struct nnb_onnx_argument *room, struct nnbx_output_shape *shape) {
    shape->rank = room->rank ? room->rank : 1;
    shape->dimensions[0] = 1;
    for (uint32_t axis = 0; axis < room->rank; axis++) {
        shape->dimensions[axis] = (uint32_t)room->dimensions[axis];
    }
    shape->is_sufficient = 1;
}

/* Stores the shapes of all outputs after a run that determined some; `fits` is set to whether all had room.
 * */
static bool take_all(struct nnb_onnx_call *call, bool *fits, char *message) {
    bool done = true;
    *fits = true;
    for (uint32_t i = 0; done && i < call->session->counts[1]; i++) {
        const struct nnb_onnx_argument *room = &call->rooms[i];
        struct nnbx_output_shape *shape = &call->shapes[i];
        if (room->place == NNB_ONNX_ROOM) {
            done = take(call, i, message);
        } else {
            describe_whole(room, shape); /* a state's is not looked at */
        }
        *fits = *fits && shape->is_sufficient;
    }
    release_found(call);
    return done;
}

/* Reports the shapes of the request's outputs, in order, without states. */
static void report_shapes(struct nnb_onnx_call *call, struct nnbx_outcome *outcome) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->session->counts[1]; i++) {
        if (call->rooms[i].place != NNB_ONNX_STATE) {
            call->shapes[count++] = call->shapes[i];
        }
    }
    outcome->shapes = call->shapes;
    outcome->shape_count = count;
}

/* Stores shapes for a request that was not run, so that its answer is complete. */
static void describe_nothing(struct nnb_onnx_call *call, struct nnbx_outcome *outcome) {
    for (uint32_t i = 0; i < call->session->counts[1]; i++) {
        call->shapes[i] = (struct nnbx_output_shape){.rank = 1, .is_sufficient = 1, .dimensions = {1}};
        if (call->rooms[i].place == NNB_ONNX_WHOLE) {
            describe_whole(&call->rooms[i], &call->shapes[i]);
        }
    }
    report_shapes(call, outcome);
}

/* Has the next runs find the extents of outputs that have memory of the declared ones, or have that memory back;
 * returns whether there are such outputs. */
static bool find_declared(struct nnb_onnx_call *call, bool finds) {
    bool any = false;
    call->finds = false;
    for (uint32_t i = 0; i < call->session->counts[1]; i++) {
        struct nnb_onnx_argument *room = &call->rooms[i];
        if (finds ? room->place == NNB_ONNX_WHOLE && room->room != 0 : call->kept[i] != NULL) {
            handle value = call->values[1][i];
            call->values[1][i] = call->kept[i];
            call->kept[i] = value;
            room->place = finds ? NNB_ONNX_ROOM : NNB_ONNX_WHOLE;
            any = true;
        }
        call->finds = call->finds || room->place == NNB_ONNX_ROOM;
    }
    return any;
}

/* Runs, and once more if that fails, since an output may have other extents than the file declares: the engine
 * then refuses memory of the declared ones. States are not written twice. */
static bool run_as_declared_or_not(struct nnb_onnx_call *call, char *message) {
    if (went_well(run(call), message)) {
        return true;
    }
    if (call->states || !find_declared(call, true)) {
        return false;
    }
    if (went_well(run(call), message)) {
        call->after_count = 0; /* copies of outputs with memory */
        return true;
    }
    (void)find_declared(call, false);
    return false;
}

static int32_t run_and_take(struct nnb_onnx_call *call, struct nnbx_outcome *outcome, char *message) {
    /* TRUST: values that another process may change are copied once, or decide nothing (executor.py) */
    nnb_copy_all(call->before, call->before_count);
    if (!run_as_declared_or_not(call, message)) {
        return NNBX_GENERAL_FAILURE;
    }
    nnb_copy_all(call->after, call->after_count);
    bool fits = true;
    if (call->finds) {
        if (!take_all(call, &fits, message)) {
            return NNBX_GENERAL_FAILURE;
        }
        report_shapes(call, outcome);
    }
    return fits ? NNBX_NONE : NNBX_OUTPUT_INSUFFICIENT_SIZE;
}

#include "onnx_states.h"

int32_t nnb_onnx_run(nnbx_execution *execution, const struct nnbx_run *how,
                     struct nnbx_outcome *outcome) {
    (void)how; /* a caller that knows a deadline calls nnb_onnx_stop when it comes */
    struct nnb_onnx_call *call = (struct nnb_onnx_call *)(void *)execution;
    char *message = outcome->message ? outcome->message : call->message;
    outcome->device_ns = NNBX_MEASURED;
    return call->states ? run_with_states(call, outcome, message) : run_and_take(call, outcome, message);
}

void nnb_onnx_stop(struct nnb_onnx_call *call, int stop) {
    char message[NNB_ONNX_MESSAGE_BYTES];
    (void)went_well(CALL(stop ? SET_TERMINATE : UNSET_TERMINATE, handle)(call->options), message);
}

uint64_t nnb_onnx_copied_bytes(const struct nnb_onnx_call *call) {
    return nnb_copied_bytes(call->before, call->before_count, call->after, call->after_count);
}
