/* Runs the sample without Python, as a driver would: for sanitizers, which do not come along well with one.
 *
 *     harness [RUNS]
 *
 * Everything is asserted: results, times, shapes of refusals, deadlines, caches, memory of the device, threads. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <nnburst/executor.h>

#include "accelerator.h"

#define MUST(condition)                                                             \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

enum { FLOAT32_TENSOR = 3, INT32_SCALAR = 1, ADD = 0, FULLY_CONNECTED = 9, RELU = 19 };
enum { BATCH = 3, SIZE = 5, UNITS = 4, THREADS = 4 };

static const struct nnburst_executor *sample;
static char message[NNBX_MESSAGE_BYTES];

static nnbx_device *open_with(const struct nnbx_option *options, uint32_t count, int32_t wanted) {
    nnbx_device *device = NULL;
    const struct nnbx_options all = {sizeof all, options, count};
    MUST(sample->open(&all, &device, message) == wanted);
    return device;
}

/* relu(x * weights + bias) + y, with a temporary of each kind. */
struct network {
    float weights[UNITS * SIZE], bias[UNITS];
    uint32_t x_dims[2], w_dims[2], b_dims[1], y_dims[2];
    int32_t none, relu;
    struct nnbx_operand operands[9];
    uint32_t fc_in[4], fc_out[1], relu_in[1], relu_out[1], add_in[3], add_out[1], inputs[2], outputs[1];
    struct nnbx_operation operations[3];
    struct nnbx_model model;
};

static struct nnbx_operand tensor(const uint32_t *dimensions, uint32_t rank, int32_t lifetime, const void *value) {
    return (struct nnbx_operand){.size = sizeof(struct nnbx_operand), .type = FLOAT32_TENSOR,
                                    .lifetime = lifetime, .dimensions = dimensions, .rank = rank, .value = value,
                                    .value_bytes = value ? 4 * nnbx_elements(dimensions, rank) : 0};
}

static void make_network(struct network *net) {
    memset(net, 0, sizeof *net);
    for (uint32_t i = 0; i < UNITS * SIZE; i++) {
        net->weights[i] = (float)i - 7;
    }
    for (uint32_t i = 0; i < UNITS; i++) {
        net->bias[i] = (float)i * 0.5f;
    }
    memcpy(net->x_dims, (uint32_t[]){BATCH, SIZE}, sizeof net->x_dims);
    memcpy(net->w_dims, (uint32_t[]){UNITS, SIZE}, sizeof net->w_dims);
    net->b_dims[0] = UNITS;
    memcpy(net->y_dims, (uint32_t[]){BATCH, UNITS}, sizeof net->y_dims);
    net->operands[0] = tensor(net->x_dims, 2, NNBX_SUBGRAPH_INPUT, NULL);
    net->operands[1] = tensor(net->w_dims, 2, NNBX_CONSTANT_REFERENCE, net->weights);
    net->operands[2] = tensor(net->b_dims, 1, NNBX_CONSTANT_COPY, net->bias);
    net->operands[3] = (struct nnbx_operand){.size = sizeof net->operands[3], .type = INT32_SCALAR,
                                                .lifetime = NNBX_CONSTANT_COPY, .value = &net->none,
                                                .value_bytes = sizeof net->none};
    net->operands[4] = tensor(net->y_dims, 2, NNBX_TEMPORARY_VARIABLE, NULL);
    net->operands[5] = tensor(net->y_dims, 2, NNBX_TEMPORARY_VARIABLE, NULL);
    net->operands[6] = tensor(net->b_dims, 1, NNBX_SUBGRAPH_INPUT, NULL);
    net->operands[7] = tensor(net->y_dims, 2, NNBX_SUBGRAPH_OUTPUT, NULL);
    memcpy(net->fc_in, (uint32_t[]){0, 1, 2, 3}, sizeof net->fc_in);
    net->fc_out[0] = net->relu_in[0] = 4;
    net->relu_out[0] = 5;
    memcpy(net->add_in, (uint32_t[]){5, 6, 3}, sizeof net->add_in);
    net->add_out[0] = net->outputs[0] = 7;
    memcpy(net->inputs, (uint32_t[]){0, 6}, sizeof net->inputs);
    net->operations[0] = (struct nnbx_operation){FULLY_CONNECTED, 4, net->fc_in, 1, net->fc_out};
    net->operations[1] = (struct nnbx_operation){RELU, 1, net->relu_in, 1, net->relu_out};
    net->operations[2] = (struct nnbx_operation){ADD, 3, net->add_in, 1, net->add_out};
    net->model = (struct nnbx_model){
        .size = sizeof net->model,
        .main = {.operand_size = sizeof net->operands[0], .operands = net->operands, .operand_count = 8,
                 .operations = net->operations, .operation_count = 3, .inputs = net->inputs, .input_count = 2,
                 .outputs = net->outputs, .output_count = 1}};
}

static void expect(const struct network *net, const float *x, const float *y, float *to) {
    for (uint32_t batch = 0; batch < BATCH; batch++) {
        for (uint32_t unit = 0; unit < UNITS; unit++) {
            double sum = (double)net->bias[unit];
            for (uint32_t i = 0; i < SIZE; i++) {
                sum += (double)(x[batch * SIZE + i] * net->weights[unit * SIZE + i]);
            }
            to[batch * UNITS + unit] = (float)(sum > 0 ? sum : 0) + y[unit];
        }
    }
}

struct bound {
    const struct network *net;
    nnbx_execution *execution;
    float x[BATCH * SIZE], y[UNITS], to[BATCH * UNITS];
    uint64_t runs;
};

static void bind(struct bound *bound, nnbx_prepared *prepared) {
    const struct nnbx_argument inputs[2] = {
        {sizeof inputs[0], bound->x, sizeof bound->x, NULL, bound->net->x_dims, 2},
        {sizeof inputs[0], bound->y, sizeof bound->y, NULL, bound->net->b_dims, 1}};
    const struct nnbx_argument output = {sizeof output, bound->to, sizeof bound->to, NULL, bound->net->y_dims, 2};
    const struct nnbx_request request = {sizeof request, sizeof inputs[0], inputs, 2, &output, 1, NULL, 0};
    MUST(sample->bind(prepared, &request, &bound->execution, message) == NNBX_NONE);
}

static uint64_t moment(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int32_t run(nnbx_execution *execution, uint64_t deadline_ns, struct nnbx_outcome *outcome) {
    const struct nnbx_run how = {sizeof how, deadline_ns, 2000000000u, 1};
    static _Thread_local struct nnbx_output_shape shapes[1];
    *outcome = (struct nnbx_outcome){sizeof *outcome, NNBX_NOT_AVAILABLE, NNBX_MEASURED, shapes, 0, NULL};
    return sample->run(execution, &how, outcome);
}

static void *run_often(void *argument) {
    struct bound *bound = argument;
    float wanted[BATCH * UNITS];
    for (uint64_t i = 0; i < bound->runs; i++) {
        struct nnbx_outcome outcome;
        for (uint32_t k = 0; k < BATCH * SIZE; k++) {
            bound->x[k] = (float)((i + k) % 17) - 8;
        }
        for (uint32_t k = 0; k < UNITS; k++) {
            bound->y[k] = (float)(i % 5) - (float)k;
        }
        expect(bound->net, bound->x, bound->y, wanted);
        uint64_t began = moment(CLOCK_MONOTONIC);
        MUST(run(bound->execution, NNBX_NO_DEADLINE, &outcome) == NNBX_NONE);
        uint64_t took = moment(CLOCK_MONOTONIC) - began;
        MUST(memcmp(bound->to, wanted, sizeof wanted) == 0);
        MUST(outcome.device_ns <= outcome.driver_ns && outcome.driver_ns <= took);
    }
    return NULL;
}

static const struct nnbx_preparation plain = {sizeof plain, 1, 1, NNBX_NO_DEADLINE, 0, NULL, 0};

static nnbx_prepared *prepare(nnbx_device *device, const struct network *net) {
    nnbx_prepared *prepared = NULL;
    uint8_t supported[3] = {0};
    MUST(sample->supported(device, &net->model, supported) == NNBX_NONE);
    MUST(supported[0] == 1 && supported[1] == 1 && supported[2] == 1);
    MUST(sample->prepare(device, &net->model, &plain, &prepared, message) == NNBX_NONE);
    return prepared;
}

static void many_threads_get_right_results(nnbx_device *device, const struct network *net, uint64_t runs) {
    static struct bound bound[THREADS];
    pthread_t threads[THREADS];
    nnbx_prepared *prepared = prepare(device, net);
    for (int i = 0; i < THREADS; i++) {
        bound[i].net = net;
        bound[i].runs = runs / THREADS;
        bind(&bound[i], prepared);
        MUST(pthread_create(&threads[i], NULL, run_often, &bound[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL) == 0);
        sample->destroy_execution(bound[i].execution);
    }
    sample->destroy_prepared(prepared);
}

struct file {
    struct nnbx_writer writer;
    uint8_t bytes[65536];
    uint64_t count;
};

static int32_t append(struct nnbx_writer *writer, const void *data, uint64_t bytes) {
    struct file *file = (struct file *)(void *)writer;
    MUST(bytes <= sizeof file->bytes - file->count);
    memcpy(file->bytes + file->count, data, bytes);
    file->count += bytes;
    return NNBX_NONE;
}

static void saved_models_compute_the_same(nnbx_device *device, const struct network *net) {
    static struct file program = {.writer = {append}}, constants = {.writer = {append}};
    static struct bound bound;
    nnbx_prepared *prepared = prepare(device, net), *again = NULL;
    MUST(sample->save(prepared, &program.writer, &constants.writer) == NNBX_NONE);
    sample->destroy_prepared(prepared);
    struct nnbx_cached cached = {sizeof cached, program.bytes, program.count, constants.bytes, constants.count};
    for (uint64_t cut = 0; cut < program.count; cut += 1 + program.count / 64) {
        cached.program_bytes = cut;
        MUST(sample->prepare_from_cache(device, &cached, &plain, &again, message) != NNBX_NONE);
    }
    cached.program_bytes = program.count;
    for (uint64_t cut = 0; cut < constants.count; cut += 1 + constants.count / 16) {
        cached.constant_bytes = cut;
        MUST(sample->prepare_from_cache(device, &cached, &plain, &again, message) != NNBX_NONE);
    }
    cached.constant_bytes = constants.count;
    MUST(sample->prepare_from_cache(device, &cached, &plain, &again, message) == NNBX_NONE);
    bound.net = net;
    bound.runs = 20;
    bind(&bound, again);
    (void)run_often(&bound);
    sample->destroy_execution(bound.execution);
    sample->destroy_prepared(again);
}

static nnbx_memory *allocate(nnbx_device *device, const uint32_t *dimensions, uint32_t rank) {
    nnbx_memory *memory = NULL;
    const struct nnbx_memory_desc desc = {sizeof desc, FLOAT32_TENSOR, dimensions, rank,
                                             4 * nnbx_elements(dimensions, rank), NULL, 0};
    MUST(sample->allocate(device, &desc, &memory, message) == NNBX_NONE);
    return memory;
}

static void arguments_stay_on_the_device(nnbx_device *device, const struct network *net) {
    float x[BATCH * SIZE], y[UNITS], to[BATCH * UNITS], wanted[BATCH * UNITS];
    nnbx_prepared *prepared = prepare(device, net);
    nnbx_memory *memories[3] = {allocate(device, net->x_dims, 2), allocate(device, net->b_dims, 1),
                                   allocate(device, net->y_dims, 2)};
    for (uint32_t i = 0; i < BATCH * SIZE; i++) {
        x[i] = (float)i;
    }
    for (uint32_t i = 0; i < UNITS; i++) {
        y[i] = (float)i * 2;
    }
    const struct nnbx_argument inputs[2] = {{sizeof inputs[0], NULL, sizeof x, memories[0], net->x_dims, 2},
                                               {sizeof inputs[0], NULL, sizeof y, memories[1], net->b_dims, 1}};
    const struct nnbx_argument output = {sizeof output, NULL, sizeof to, memories[2], net->y_dims, 2};
    const struct nnbx_request request = {sizeof request, sizeof inputs[0], inputs, 2, &output, 1, NULL, 0};
    nnbx_execution *execution = NULL;
    struct nnbx_outcome outcome;
    MUST(sample->bind(prepared, &request, &execution, message) == NNBX_NONE);
    MUST(sample->copy_in(memories[0], x, sizeof x) == NNBX_NONE);
    MUST(sample->copy_in(memories[1], y, sizeof y) == NNBX_NONE);
    MUST(sample->copy_in(memories[1], y, sizeof y + 1) == NNBX_INVALID_ARGUMENT);
    MUST(run(execution, NNBX_NO_DEADLINE, &outcome) == NNBX_NONE);
    MUST(sample->copy_out(memories[2], to, sizeof to) == NNBX_NONE);
    expect(net, x, y, wanted);
    MUST(memcmp(to, wanted, sizeof to) == 0);
    sample->destroy_execution(execution);
    for (int i = 0; i < 3; i++) {
        sample->destroy_memory(memories[i]);
    }
    sample->destroy_prepared(prepared);
}

static void deadlines_end_what_hangs(const struct network *net) {
    static struct bound bound;
    const struct nnbx_option options[] = {{"fault", "hang"}, {"fault_at", "1"}};
    nnbx_device *device = open_with(options, 2, NNBX_NONE);
    nnbx_prepared *prepared = prepare(device, net);
    struct nnbx_outcome outcome;
    bound.net = net;
    bind(&bound, prepared);
    MUST(run(bound.execution, NNBX_NO_DEADLINE, &outcome) == NNBX_NONE);
    uint64_t deadline = moment(CLOCK_BOOTTIME) + 20000000;
    MUST(run(bound.execution, deadline, &outcome) == NNBX_MISSED_DEADLINE_PERSISTENT);
    MUST(moment(CLOCK_BOOTTIME) >= deadline);
    MUST(run(bound.execution, 1, &outcome) == NNBX_MISSED_DEADLINE_PERSISTENT); /* long ago */
    MUST(run(bound.execution, NNBX_NO_DEADLINE, &outcome) == NNBX_NONE);
    sample->destroy_execution(bound.execution);
    sample->destroy_prepared(prepared);
    sample->close(device);
}

static void nothing_is_unsupported_or_oversized_by_mistake(nnbx_device *device, const struct network *good) {
    struct network net = *good;
    uint8_t supported[3];
    nnbx_prepared *prepared = NULL;
    make_network(&net);
    memset(supported, 0, sizeof supported);
    net.relu = 9;
    net.operands[3].value = &net.relu; /* no activation has this code */
    MUST(sample->supported(device, &net.model, supported) == NNBX_NONE);
    MUST(supported[0] == 0 && supported[1] == 1 && supported[2] == 0);
    MUST(sample->prepare(device, &net.model, &plain, &prepared, message) == NNBX_INVALID_ARGUMENT);
    make_network(&net);
    net.y_dims[0] = 0; /* not known */
    memset(supported, 0, sizeof supported);
    MUST(sample->supported(device, &net.model, supported) == NNBX_NONE);
    MUST(supported[0] == 0 && supported[1] == 0 && supported[2] == 0);
}

static void memory_is_given_back(nnbx_device *device, const struct network *net) {
    for (int i = 0; i < 2000; i++) { /* 64 MiB would last for some 50 of them */
        static const uint32_t mebibyte[] = {256, 1024};
        nnbx_memory *memory = allocate(device, mebibyte, 2);
        nnbx_prepared *prepared = prepare(device, net);
        sample->destroy_memory(memory);
        sample->destroy_prepared(prepared);
    }
    nnbx_memory *memory = NULL;
    static const uint32_t all[] = {1, 1};
    const struct nnbx_memory_desc desc = {sizeof desc, FLOAT32_TENSOR, all, 2, UINT64_C(1) << 40, NULL, 0};
    MUST(sample->allocate(device, &desc, &memory, message) == NNBX_RESOURCE_EXHAUSTED_TRANSIENT);
}

static void a_second_owner_is_refused(void) {
    char path[] = "/tmp/nnburst-node-XXXXXX";
    int file = mkstemp(path);
    MUST(file >= 0);
    const struct nnbx_option node[] = {{"node", path}, {"warm_up_ms", "20"}};
    uint64_t began = moment(CLOCK_MONOTONIC);
    nnbx_device *owner = open_with(node, 2, NNBX_NONE);
    MUST(moment(CLOCK_MONOTONIC) - began >= 20000000);
    (void)open_with(node, 1, NNBX_DEVICE_UNAVAILABLE);
    sample->close(owner);
    sample->close(open_with(node, 1, NNBX_NONE));
    const struct nnbx_option unknown[] = {{"color", "red"}};
    (void)open_with(unknown, 1, NNBX_INVALID_ARGUMENT);
    close(file);
    unlink(path);
}

int main(int argc, char **argv) {
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    static struct network net;
    sample = nnburst_get_executor();
    MUST(sample->abi == NNBURST_EXECUTOR_ABI && sample->size == sizeof *sample);
    make_network(&net);
    nnbx_device *device = open_with(NULL, 0, NNBX_NONE);
    many_threads_get_right_results(device, &net, runs);
    saved_models_compute_the_same(device, &net);
    arguments_stay_on_the_device(device, &net);
    nothing_is_unsupported_or_oversized_by_mistake(device, &net);
    memory_is_given_back(device, &net);
    sample->close(device);
    deadlines_end_what_hangs(&net);
    a_second_owner_is_refused();
    printf("%" PRIu64 " runs by %d threads, each right and in time\n", runs, THREADS);
    return 0;
}
