#include "litert.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "copies.h"
#include "trace.h"

/* The used part of the declarations of libLiteRt.so 2.1. Handles are opaque pointers. */
typedef void *handle;

struct layout {
    uint32_t rank : 7;
    uint32_t has_strides : 1;
    int32_t dimensions[8];
    uint32_t strides[8];
};
struct tensor_type {
    int32_t element_type;
    struct layout layout;
};
_Static_assert(sizeof(struct tensor_type) == 72, "the layout of LiteRtRankedTensorType");

struct env_option {
    int64_t tag;
    int64_t value_type;
    int64_t value;
};
_Static_assert(sizeof(struct env_option) == 24, "the layout of LiteRtEnvOption");

enum { TYPE_INT = 2, TAG_ACCELERATORS = 24, TAG_LOG_SEVERITY = 25, ACCELERATOR_CPU = 1 };
enum { SEVERITY_SILENT = 4 };

static struct {
    handle library;
    handle environment;
    int (*create_environment)(int, const struct env_option *, handle *);
    int (*create_model)(handle, const void *, size_t, handle *);
    void (*destroy_model)(handle);
    int (*create_options)(handle *);
    void (*destroy_options)(handle);
    int (*set_accelerators)(handle, int);
    int (*create_opaque)(const char *, void *, void (*)(void *), handle *);
    int (*add_opaque)(handle, handle);
    int (*create_compiled)(handle, handle, handle, handle *);
    void (*destroy_compiled)(handle);
    int (*run)(handle, size_t, size_t, handle *, size_t, handle *);
    int (*get_layouts)(handle, size_t, size_t, struct layout *, bool);
    int (*get_errors)(handle, char **);
    int (*clear_errors)(handle);
    int (*create_buffer)(const struct tensor_type *, void *, size_t, void (*)(void *), handle *);
    void (*destroy_buffer)(handle);
} litert;

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"LiteRtCreateEnvironment", offsetof(__typeof__(litert), create_environment)},
    {"LiteRtCreateModelFromBuffer", offsetof(__typeof__(litert), create_model)},
    {"LiteRtDestroyModel", offsetof(__typeof__(litert), destroy_model)},
    {"LiteRtCreateOptions", offsetof(__typeof__(litert), create_options)},
    {"LiteRtDestroyOptions", offsetof(__typeof__(litert), destroy_options)},
    {"LiteRtSetOptionsHardwareAccelerators", offsetof(__typeof__(litert), set_accelerators)},
    {"LiteRtCreateOpaqueOptions", offsetof(__typeof__(litert), create_opaque)},
    {"LiteRtAddOpaqueOptions", offsetof(__typeof__(litert), add_opaque)},
    {"LiteRtCreateCompiledModel", offsetof(__typeof__(litert), create_compiled)},
    {"LiteRtDestroyCompiledModel", offsetof(__typeof__(litert), destroy_compiled)},
    {"LiteRtRunCompiledModel", offsetof(__typeof__(litert), run)},
    {"LiteRtGetCompiledModelOutputTensorLayouts", offsetof(__typeof__(litert), get_layouts)},
    {"LiteRtCompiledModelGetErrorMessages", offsetof(__typeof__(litert), get_errors)},
    {"LiteRtCompiledModelClearErrors", offsetof(__typeof__(litert), clear_errors)},
    {"LiteRtCreateTensorBufferFromHostMemory", offsetof(__typeof__(litert), create_buffer)},
    {"LiteRtDestroyTensorBuffer", offsetof(__typeof__(litert), destroy_buffer)},
};

struct nnb_litert_engine {
    handle model;
    handle options;
    handle compiled;
    pthread_mutex_t turn;
};

struct nnb_litert_call {
    struct nnb_litert_engine *engine;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t before_count;
    uint32_t after_count;
    uint32_t trace_name;
    handle *buffers; /* inputs, then outputs */
    uint8_t **staging;
    struct nnb_copy *before;
    struct nnb_copy *after;
    char message[NNB_LITERT_MESSAGE_BYTES];
};

/* The first network of a process makes the library write to stderr, whatever its settings. */
static void compile_quietly(const uint8_t *content, uint64_t content_bytes) {
    char message[NNB_LITERT_MESSAGE_BYTES];
    int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (kept >= 0 && nowhere >= 0) {
        dup2(nowhere, STDERR_FILENO);
    }
    struct nnb_litert_engine *engine = nnb_litert_engine_new(content, content_bytes, 1, -1, message);
    if (engine) {
        nnb_litert_engine_free(engine);
    }
    if (kept >= 0) {
        dup2(kept, STDERR_FILENO);
        close(kept);
    }
    if (nowhere >= 0) {
        close(nowhere);
    }
}

int nnb_litert_open(const char *path, const uint8_t *content, uint64_t content_bytes) {
    if (litert.environment) {
        return NNB_LITERT_OK;
    }
    litert.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!litert.library) {
        return NNB_LITERT_NO_LIBRARY;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(litert.library, symbols[i].name);
        if (!found) {
            return NNB_LITERT_NO_SYMBOL;
        }
        memcpy((char *)&litert + symbols[i].offset, &found, sizeof found);
    }
    /* Without the first option the library searches for graphics processors and prints messages about it. */
    const struct env_option options[] = {
        {TAG_ACCELERATORS, TYPE_INT, ACCELERATOR_CPU},
        {TAG_LOG_SEVERITY, TYPE_INT, SEVERITY_SILENT},
    };
    if (litert.create_environment(2, options, &litert.environment) != 0) {
        litert.environment = NULL;
        return NNB_LITERT_NO_ENVIRONMENT;
    }
    compile_quietly(content, content_bytes);
    return NNB_LITERT_OK;
}

/* Adds options that the library reads as lines of text; the library frees the copy. */
static bool add_options(handle options, const char *identifier, const char *text) {
    char *payload = strdup(text);
    handle opaque = NULL;
    if (!payload || litert.create_opaque(identifier, payload, free, &opaque) != 0) {
        free(payload);
        return false;
    }
    return litert.add_opaque(options, opaque) == 0;
}

static bool make_options(struct nnb_litert_engine *engine, uint32_t threads,
                         int32_t packed_weights) {
    char text[128];
    int length = snprintf(text, sizeof text, "num_threads = %u\n", threads);
    if (packed_weights >= 0) {
        snprintf(text + length, sizeof text - (size_t)length,
                 "weight_cache_file_path = \"/proc/self/fd/%d\"\n", packed_weights);
    }
    return litert.create_options(&engine->options) == 0 &&
           litert.set_accelerators(engine->options, ACCELERATOR_CPU) == 0 &&
           add_options(engine->options, "xnnpack", text) &&
           add_options(engine->options, "runtime_options_string", "error_reporter_mode = 2\n");
}

struct nnb_litert_engine *nnb_litert_engine_new(const uint8_t *content, uint64_t content_bytes,
                                                uint32_t threads, int32_t packed_weights,
                                                char *message) {
    struct nnb_litert_engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        snprintf(message, NNB_LITERT_MESSAGE_BYTES, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&engine->turn, NULL);
    int status = -1;
    if (make_options(engine, threads, packed_weights)) {
        status = litert.create_model(litert.environment, content, content_bytes, &engine->model);
    }
    if (status == 0) {
        status = litert.create_compiled(litert.environment, engine->model, engine->options,
                                        &engine->compiled);
    }
    if (status != 0) {
        snprintf(message, NNB_LITERT_MESSAGE_BYTES, "status %d", status);
        nnb_litert_engine_free(engine);
        return NULL;
    }
    return engine;
}

void nnb_litert_engine_free(struct nnb_litert_engine *engine) {
    if (engine->compiled) {
        litert.destroy_compiled(engine->compiled);
    }
    if (engine->model) {
        litert.destroy_model(engine->model);
    }
    if (engine->options) {
        litert.destroy_options(engine->options);
    }
    pthread_mutex_destroy(&engine->turn);
    free(engine);
}

int nnb_litert_output_layouts(struct nnb_litert_engine *engine, struct nnb_litert_argument *outputs,
                              uint32_t count) {
    struct layout *layouts = calloc(count ? count : 1, sizeof *layouts);
    if (!layouts) {
        return NNB_LITERT_REFUSED;
    }
    int status = litert.get_layouts(engine->compiled, 0, count, layouts, true);
    for (uint32_t i = 0; status == 0 && i < count; i++) {
        status = layouts[i].rank > NNB_LITERT_MAX_RANK;
        outputs[i].rank = layouts[i].rank;
        memcpy(outputs[i].dimensions, layouts[i].dimensions, sizeof outputs[i].dimensions);
    }
    free(layouts);
    return status == 0 ? NNB_LITERT_OK : NNB_LITERT_REFUSED;
}

static bool bind_argument(struct nnb_litert_call *call, uint32_t at,
                          const struct nnb_litert_argument *argument) {
    uint8_t *memory = argument->memory;
    bool aligned = (uintptr_t)memory % NNB_LITERT_ALIGNMENT == 0;
    if (!memory || argument->apart || !aligned) {
        uint8_t *own = call->staging[at] = nnb_room_for_copy(argument->bytes, NNB_LITERT_ALIGNMENT);
        if (!own) {
            return false;
        }
        if (memory && at < call->input_count) {
            call->before[call->before_count++] = (struct nnb_copy){
                own, memory, argument->bytes, argument->apart == NNB_COPIED_TRUTH};
        } else if (memory) {
            call->after[call->after_count++] = (struct nnb_copy){memory, own, argument->bytes, 0};
        }
        memory = own;
    }
    struct tensor_type type = {.element_type = argument->element_type};
    type.layout.rank = argument->rank & 0x7f;
    memcpy(type.layout.dimensions, argument->dimensions, sizeof argument->dimensions);
    return litert.create_buffer(&type, memory, argument->bytes, NULL, &call->buffers[at]) == 0;
}

struct nnb_litert_call *nnb_litert_bind(struct nnb_litert_engine *engine,
                                        const struct nnb_litert_argument *inputs, uint32_t input_count,
                                        const struct nnb_litert_argument *outputs,
                                        uint32_t output_count) {
    struct nnb_litert_call *call = calloc(1, sizeof *call);
    if (!call) {
        return NULL;
    }
    size_t count = (size_t)input_count + output_count;
    call->engine = engine;
    call->input_count = input_count;
    call->output_count = output_count;
    call->trace_name = NNB_SITE_LITERT_RUN;
    call->buffers = calloc(count, sizeof *call->buffers);
    call->staging = calloc(count, sizeof *call->staging);
    call->before = calloc(count, sizeof *call->before);
    call->after = calloc(count, sizeof *call->after);
    bool bound = call->buffers && call->staging && call->before && call->after;
    for (uint32_t i = 0; bound && i < count; i++) {
        bound = bind_argument(call, i, i < input_count ? &inputs[i] : &outputs[i - input_count]);
    }
    if (!bound) {
        nnb_litert_call_free(call);
        return NULL;
    }
    return call;
}

void nnb_litert_call_free(struct nnb_litert_call *call) {
    for (uint32_t i = 0; i < call->input_count + call->output_count; i++) {
        if (call->buffers && call->buffers[i]) {
            litert.destroy_buffer(call->buffers[i]);
        }
        if (call->staging) {
            free(call->staging[i]);
        }
    }
    free(call->buffers);
    free(call->staging);
    free(call->before);
    free(call->after);
    free(call);
}

/* The engine's message about a failure. */
static void tell_failure(struct nnb_litert_call *call, int status, char *message) {
    char *text = NULL;
    bool said = litert.get_errors(call->engine->compiled, &text) == 0 && text;
    if (message) {
        snprintf(message, NNBX_MESSAGE_BYTES, "status %d: %s", status, said ? text : "");
    }
    free(text);
    litert.clear_errors(call->engine->compiled);
}

void nnb_litert_set_trace_name(struct nnb_litert_call *call, uint32_t name) {
    call->trace_name = name;
}

static int32_t run(struct nnb_litert_call *call, char *message) {
    nnb_copy_all(call->before, call->before_count);
    /* Two threads in one compiled model give wrong results without an error. */
    pthread_mutex_lock(&call->engine->turn);
    int status = litert.run(call->engine->compiled, 0, call->input_count, call->buffers,
                            call->output_count, call->buffers + call->input_count);
    if (status != 0) {
        tell_failure(call, status, message);
    }
    pthread_mutex_unlock(&call->engine->turn);
    if (status != 0) {
        return NNBX_GENERAL_FAILURE;
    }
    nnb_copy_all(call->after, call->after_count);
    return NNBX_NONE;
}

int32_t nnb_litert_run(nnbx_execution *execution, const struct nnbx_run *how,
                       struct nnbx_outcome *outcome) {
    (void)how; /* a run cannot be stopped at its deadline */
    struct nnb_litert_call *call = (struct nnb_litert_call *)(void *)execution;
    outcome->device_ns = NNBX_MEASURED;
    nnb_trace_mark(call->trace_name, NNB_TRACE_BEGIN, 0, 0);
    int32_t status = run(call, outcome->message);
    nnb_trace_mark(call->trace_name, NNB_TRACE_END, 0, 0);
    return status;
}

uint64_t nnb_litert_copied_bytes(const struct nnb_litert_call *call) {
    return nnb_copied_bytes(call->before, call->before_count, call->after, call->after_count);
}

static int try_here(const char *path, const uint8_t *content, uint64_t content_bytes,
                    const struct nnb_litert_argument *input,
                    const struct nnb_litert_argument *output, const uint8_t *expected) {
    char message[NNB_LITERT_MESSAGE_BYTES];
    int status = nnb_litert_open(path, content, content_bytes);
    if (status != NNB_LITERT_OK) {
        return status;
    }
    struct nnb_litert_engine *engine = nnb_litert_engine_new(content, content_bytes, 1, -1, message);
    struct nnb_litert_call *call = engine ? nnb_litert_bind(engine, input, 1, output, 1) : NULL;
    if (!call || run(call, NULL) != NNBX_NONE || run(call, NULL) != NNBX_NONE) {
        return NNB_LITERT_REFUSED;
    }
    bool same = memcmp(output->memory, expected, output->bytes) == 0;
    nnb_litert_call_free(call);
    nnb_litert_engine_free(engine);
    return same ? NNB_LITERT_OK : NNB_LITERT_WRONG_RESULT;
}

int32_t nnb_litert_trial_begin(const char *path, const uint8_t *content, uint64_t content_bytes,
                               const struct nnb_litert_argument *input,
                               const struct nnb_litert_argument *output, const uint8_t *expected) {
    pid_t child = fork();
    if (child == 0) {
        /* A child of a process with threads may hang on a lock that one of them held. It ends itself after 5
         * s, since a process in a sandbox cannot kill it. */
        sigset_t none;
        (void)sigemptyset(&none);
        (void)signal(SIGALRM, SIG_DFL);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)alarm(5);
        _exit(try_here(path, content, content_bytes, input, output, expected));
    }
    return child;
}

int nnb_litert_trial_end(int32_t child) {
    if (child < 0) {
        return NNB_LITERT_CRASHED;
    }
    for (int tries = 0; tries < 60000; tries++) {
        int ended = 0;
        pid_t found = waitpid(child, &ended, WNOHANG);
        if (found == child) {
            return WIFEXITED(ended) ? WEXITSTATUS(ended) : NNB_LITERT_CRASHED;
        }
        if (found < 0) { /* the process ignores SIGCHLD: the child has ended, and how is unknown */
            return NNB_LITERT_CRASHED;
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NNB_LITERT_CRASHED;
}
