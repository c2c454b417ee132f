/* A program in C that runs a network by onnxruntime's CPU and by the plugin execution provider, and compares every byte, some
 * cycles of loading and unloading. Inputs lie in shared memory of the plugin every second cycle. It prints how many
 * threads, descriptors, children and mappings of the plugin are left after all but the first.
 *
 * Usage: onnxruntime_host LIBONNXRUNTIME PLUGIN OPTION VALUE NETWORK CYCLES */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leftovers.h"
#include "random.h"

enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_OPTIONS = 10,
    SET_INTRA_THREADS = 24,
    COUNT_INPUTS = 30,
    COUNT_OUTPUTS = 31,
    INPUT_TYPE = 33,
    INPUT_NAME = 36,
    OUTPUT_NAME = 37,
    CREATE_TENSOR = 48,
    TENSOR_DATA = 51,
    AS_TENSOR = 55,
    ELEMENT = 60,
    RANK = 61,
    DIMENSIONS = 62,
    FREE = 76,
    DEFAULT_ALLOCATOR = 78,
    RELEASE_ENV = 92,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    RELEASE_TYPE = 98,
    RELEASE_OPTIONS = 100,
    REGISTER = 301,
    UNREGISTER = 302,
    EP_DEVICES = 303,
    APPEND = 304,
    EP_NAME = 312,
    TENSOR_BYTES = 318,
    SHARED_ALLOCATOR = 375,
    RELEASE_SHARED_ALLOCATOR = 377,
};
enum { VERSION = 23, MOST = 16, ERROR = 3, HOST_ACCESSIBLE = 5, DEVICE_ALLOCATOR = 0, INT64 = 7, FLOAT = 1 };

#define PLUGIN_NAME "nnburst"
#define PROVIDER_NAME "NnburstExecutionProvider"

typedef void *handle;
static void *const *api;

#define CALL(place, ...) ((handle(*)(__VA_ARGS__))api[place])
#define RELEASE(place, object) (((void (*)(handle))api[place])(object))

static void check(handle status) {
    if (status != NULL) {
        (void)fprintf(stderr, "%s\n", ((const char *(*)(handle))api[GET_ERROR_MESSAGE])(status));
        exit(1);
    }
}

/* A session, and one run of it. */
struct run {
    handle session;
    size_t inputs;
    size_t outputs;
    char *input_names[MOST];
    char *output_names[MOST];
    handle given[MOST];
    handle taken[MOST];
};

static void open_session(struct run *run, handle env, handle options, const char *network) {
    handle allocator;
    *run = (struct run){0};
    check(CALL(CREATE_SESSION, handle, const char *, handle, handle *)(env, network, options, &run->session));
    check(CALL(DEFAULT_ALLOCATOR, handle *)(&allocator));
    check(CALL(COUNT_INPUTS, handle, size_t *)(run->session, &run->inputs));
    check(CALL(COUNT_OUTPUTS, handle, size_t *)(run->session, &run->outputs));
    for (size_t i = 0; i < run->inputs; i++) {
        check(CALL(INPUT_NAME, handle, size_t, handle, char **)(run->session, i, allocator, &run->input_names[i]));
    }
    for (size_t i = 0; i < run->outputs; i++) {
        check(CALL(OUTPUT_NAME, handle, size_t, handle, char **)(run->session, i, allocator, &run->output_names[i]));
    }
}

/* An input with numbers that depend on the seed; open extents are 2. */
static handle make_input(const struct run *run, size_t index, handle allocator, uint64_t seed) {
    handle type;
    handle tensor;
    handle value;
    int element;
    size_t rank;
    int64_t dimensions[MOST] = {0};
    uint8_t *data;
    size_t bytes;
    check(CALL(INPUT_TYPE, handle, size_t, handle *)(run->session, index, &type));
    check(CALL(AS_TENSOR, handle, handle *)(type, &tensor));
    check(CALL(ELEMENT, handle, int *)(tensor, &element));
    check(CALL(RANK, handle, size_t *)(tensor, &rank));
    check(CALL(DIMENSIONS, handle, int64_t *, size_t)(tensor, dimensions, rank));
    RELEASE(RELEASE_TYPE, type);
    for (size_t i = 0; i < rank; i++) {
        dimensions[i] = dimensions[i] < 1 ? 2 : dimensions[i];
    }
    check(CALL(CREATE_TENSOR, handle, const int64_t *, size_t, int, handle *)(allocator, dimensions, rank, element, &value));
    check(CALL(TENSOR_DATA, handle, uint8_t **)(value, &data));
    check(CALL(TENSOR_BYTES, handle, size_t *)(value, &bytes));
    memset(data, 0, bytes);
    for (size_t at = 0; element == FLOAT && at + sizeof(float) <= bytes; at += sizeof(float)) {
        float number = (float)(next_random(&seed) % 1000) / 500.0f - 1.0f;
        memcpy(data + at, &number, sizeof number);
    }
    for (size_t at = 0; element != FLOAT && at < bytes; at += element == INT64 ? 8 : 1) {
        data[at] = (uint8_t)(next_random(&seed) % 2);
    }
    return value;
}

static void execute(struct run *run, handle allocator, uint64_t seed) {
    for (size_t i = 0; i < run->inputs; i++) {
        run->given[i] = make_input(run, i, allocator, seed + i);
    }
    check(CALL(RUN, handle, handle, char *const *, handle *, size_t, char *const *, size_t, handle *)(
        run->session, NULL, run->input_names, run->given, run->inputs, run->output_names, run->outputs, run->taken));
}

static void release_values(struct run *run) {
    for (size_t i = 0; i < MOST; i++) {
        RELEASE(RELEASE_VALUE, run->given[i]);
        RELEASE(RELEASE_VALUE, run->taken[i]);
        run->given[i] = run->taken[i] = NULL;
    }
}

static void close_session(struct run *run) {
    handle allocator;
    check(CALL(DEFAULT_ALLOCATOR, handle *)(&allocator));
    release_values(run);
    for (size_t i = 0; i < MOST; i++) {
        char *const names[] = {run->input_names[i], run->output_names[i]};
        for (size_t k = 0; k < 2; k++) {
            if (names[k] != NULL) {
                check(CALL(FREE, handle, void *)(allocator, names[k]));
            }
        }
    }
    RELEASE(RELEASE_SESSION, run->session);
}

static void compare(const struct run *one, const struct run *other) {
    for (size_t i = 0; i < one->outputs; i++) {
        void *data[2];
        size_t bytes[2];
        const struct run *const both[2] = {one, other};
        for (size_t k = 0; k < 2; k++) {
            check(CALL(TENSOR_BYTES, handle, size_t *)(both[k]->taken[i], &bytes[k]));
            check(CALL(TENSOR_DATA, handle, void **)(both[k]->taken[i], &data[k]));
        }
        if (bytes[0] != bytes[1] || memcmp(data[0], data[1], bytes[0]) != 0) {
            (void)fprintf(stderr, "output %s differs\n", one->output_names[i]);
            exit(1);
        }
    }
}

static handle find_device(handle env) {
    handle const *devices;
    size_t count;
    check(CALL(EP_DEVICES, handle, handle const **, size_t *)(env, &devices, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(((const char *(*)(handle))api[EP_NAME])(devices[i]), PROVIDER_NAME) == 0) {
            return devices[i];
        }
    }
    (void)fprintf(stderr, "no device of the provider\n");
    exit(1);
}

static void cycle(handle env, char **words, int in_place) {
    handle options;
    handle plain;
    handle allocator;
    struct run expected;
    struct run run;
    check(CALL(REGISTER, handle, const char *, const char *)(env, PLUGIN_NAME, words[2]));
    handle device = find_device(env);
    check(CALL(CREATE_OPTIONS, handle *)(&plain));
    check(CALL(CREATE_OPTIONS, handle *)(&options));
    check(CALL(SET_INTRA_THREADS, handle, int)(plain, 1));
    check(CALL(SET_INTRA_THREADS, handle, int)(options, 1));
    const char *const names[] = {words[3], "num_threads"};
    const char *const values[] = {words[4], "1"};
    check(CALL(APPEND, handle, handle, handle *, size_t, const char *const *, const char *const *, size_t)(
        options, env, &device, 1, names, values, 2));
    open_session(&expected, env, plain, words[5]);
    open_session(&run, env, options, words[5]);
    check(CALL(DEFAULT_ALLOCATOR, handle *)(&allocator));
    execute(&expected, allocator, 1);
    if (in_place) {
        check(CALL(SHARED_ALLOCATOR, handle, handle, int, int, handle, handle *)(env, device, HOST_ACCESSIBLE,
                                                                                 DEVICE_ALLOCATOR, NULL, &allocator));
    }
    for (int i = 0; i < 3; i++) {
        execute(&run, allocator, 1);
        compare(&expected, &run);
        release_values(&run);
    }
    close_session(&run);
    close_session(&expected);
    RELEASE(RELEASE_OPTIONS, options);
    RELEASE(RELEASE_OPTIONS, plain);
    if (in_place) {
        check(CALL(RELEASE_SHARED_ALLOCATOR, handle, handle, int)(env, device, HOST_ACCESSIBLE));
    }
    check(CALL(UNREGISTER, handle, const char *)(env, PLUGIN_NAME));
}

/* Lines of a file of /proc that have a word. */
static int lines(const char *path, const char *word) {
    char line[8192];
    int found = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        found += strstr(line, word) != NULL;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

int main(int argc, char **argv) {
    if (argc != 7) {
        (void)fprintf(stderr, "usage: %s LIBONNXRUNTIME PLUGIN OPTION VALUE NETWORK CYCLES\n", argv[0]);
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    void *found = library == NULL ? NULL : dlsym(library, "OrtGetApiBase");
    if (found == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    struct base {
        void *const *(*get_api)(uint32_t);
    } const *(*get_base)(void);
    memcpy(&get_base, &found, sizeof found);
    api = get_base()->get_api(VERSION);
    if (api == NULL) {
        return 1;
    }
    handle env;
    check(CALL(CREATE_ENV, int, const char *, handle *)(ERROR, "host", &env));
    cycle(env, argv, 0);
    cycle(env, argv, 1);
    int threads = entries("/proc/self/task");
    int descriptors = entries("/proc/self/fd");
    for (int i = 0; i < atoi(argv[6]); i++) {
        cycle(env, argv, i % 2);
    }
    (void)printf("%d %d %d %d\n", entries("/proc/self/task") - threads, entries("/proc/self/fd") - descriptors,
                 children(), lines("/proc/self/maps", "ep_nnburst") + lines("/proc/self/maps", "memfd:"));
    RELEASE(RELEASE_ENV, env);
    return 0;
}
