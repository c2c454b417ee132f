"""A program in C that makes the calls of TFLite's own NNAPI delegate in its order, with pools of its kind."""

from __future__ import annotations

import os

import pytest

from capi.conftest import Compile, Run
from capi.programs import HEAD

PROGRAM = (
    HEAD
    + r"""
enum { ROWS = 2, WIDTH = 8, HEIGHT = 4, ALIGNMENT = 64, RUNS = 4 };

/* A pool as that delegate makes one where there is no ashmem: by shm_open, which nothing can seal. */
struct pool {
    int fd;
    size_t size;
    float *data;
    ANeuralNetworksMemory *memory;
};

static struct pool make_pool(const char *name, size_t size) {
    struct pool pool = {shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), size, NULL, NULL};
    if (pool.fd < 0 || shm_unlink(name) != 0 || ftruncate(pool.fd, (off_t)size) != 0) {
        perror(name);
        exit(1);
    }
    pool.data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd, 0);
    CHECK(ANeuralNetworksMemory_createFromFd(size, PROT_READ | PROT_WRITE, pool.fd, 0, &pool.memory));
    return pool;
}

static void free_pool(struct pool *pool) {
    munmap(pool->data, pool->size);
    ANeuralNetworksMemory_free(pool->memory);
    close(pool->fd);
}

static uint32_t operands;

static uint32_t add_operand(ANeuralNetworksModel *model, int32_t type, uint32_t rank,
                            const uint32_t *extents) {
    const ANeuralNetworksOperandType operand = {type, rank, extents, 0.0f, 0};
    CHECK(ANeuralNetworksModel_addOperand(model, &operand));
    return operands++;
}

static size_t padded(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The file of a network, which is mapped for reading; its constants are at these places. */
static float weights[HEIGHT * WIDTH + HEIGHT];

static int open_file(void) {
    int fd = open("network.tflite", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < HEIGHT * WIDTH + HEIGHT; i++) {
        weights[i] = (float)(i % 7) - 3.0f;
    }
    if (fd < 0 || write(fd, weights, sizeof weights) != (ssize_t)sizeof weights) {
        exit(1);
    }
    return fd;
}

static void check_result(const float *x, const float *y) {
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < HEIGHT; i++) {
            float sum = weights[HEIGHT * WIDTH + i];
            for (int k = 0; k < WIDTH; k++) {
                sum += x[row * WIDTH + k] * weights[i * WIDTH + k];
            }
            sum = sum < 0.0f ? 0.0f : sum;
            if (y[row * HEIGHT + i] - sum > 1e-4f || sum - y[row * HEIGHT + i] > 1e-4f) {
                fprintf(stderr, "row %d, column %d: %g, expected %g\n", row, i,
                        (double)y[row * HEIGHT + i], (double)sum);
                exit(1);
            }
        }
    }
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "";
    char name[64];
    uint32_t count = 0;
    ANeuralNetworksDevice *device = NULL;

    /* Which devices there are. */
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t i = 0; i < count; i++) {
        ANeuralNetworksDevice *each = NULL;
        const char *found = NULL;
        const char *version = NULL;
        int32_t type = 0;
        int64_t level = 0;
        CHECK(ANeuralNetworks_getDevice(i, &each));
        CHECK(ANeuralNetworksDevice_getName(each, &found));
        CHECK(ANeuralNetworksDevice_getVersion(each, &version));
        CHECK(ANeuralNetworksDevice_getType(each, &type));
        CHECK(ANeuralNetworksDevice_getFeatureLevel(each, &level));
        device = strcmp(found, wanted) == 0 ? each : device;
    }
    if (device == NULL) {
        fprintf(stderr, "no device %s\n", wanted);
        return 1;
    }

    /* Nodes first, then inputs and outputs. */
    const uint32_t x_extents[] = {ROWS, WIDTH}, w_extents[] = {HEIGHT, WIDTH}, b_extents[] = {HEIGHT};
    const uint32_t y_extents[] = {ROWS, HEIGHT};
    const int32_t fused = ANEURALNETWORKS_FUSED_RELU;
    const int file = open_file();
    ANeuralNetworksModel *model = NULL;
    ANeuralNetworksMemory *mapped = NULL;
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksMemory_createFromFd(sizeof weights, PROT_READ, file, 0, &mapped));
    const uint32_t x = add_operand(model, ANEURALNETWORKS_TENSOR_FLOAT32, 2, x_extents);
    const uint32_t w = add_operand(model, ANEURALNETWORKS_TENSOR_FLOAT32, 2, w_extents);
    const size_t w_bytes = sizeof(float) * HEIGHT * WIDTH, b_bytes = sizeof(float) * HEIGHT;
    CHECK(ANeuralNetworksModel_setOperandValueFromMemory(model, (int32_t)w, mapped, 0, w_bytes));
    const uint32_t b = add_operand(model, ANEURALNETWORKS_TENSOR_FLOAT32, 1, b_extents);
    CHECK(ANeuralNetworksModel_setOperandValueFromMemory(model, (int32_t)b, mapped, w_bytes, b_bytes));
    const uint32_t activation = add_operand(model, ANEURALNETWORKS_INT32, 0, NULL);
    CHECK(ANeuralNetworksModel_setOperandValue(model, (int32_t)activation, &fused, sizeof fused));
    const uint32_t y = add_operand(model, ANEURALNETWORKS_TENSOR_FLOAT32, 2, y_extents);
    const uint32_t inputs[] = {x, w, b, activation};
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_FULLY_CONNECTED, 4, inputs, 1, &y));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &x, 1, &y));
    CHECK(ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, false));
    CHECK(ANeuralNetworksModel_finish(model));

    /* Pools for all inputs and outputs. */
    snprintf(name, sizeof name, "/input_pool_%d", (int)getpid());
    struct pool input = make_pool(name, padded(sizeof(float) * ROWS * WIDTH));
    snprintf(name, sizeof name, "/output_pool_%d", (int)getpid());
    struct pool output = make_pool(name, padded(sizeof(float) * ROWS * HEIGHT));

    /* Whether the device takes all of it, then the compilation. */
    const ANeuralNetworksDevice *const devices[] = {device};
    bool supported[1] = {false};
    ANeuralNetworksCompilation *compilation = NULL;
    ANeuralNetworksBurst *burst = NULL;
    CHECK(ANeuralNetworksModel_getSupportedOperationsForDevices(model, devices, 1, supported));
    if (!supported[0]) {
        fprintf(stderr, "the device does not support the node\n");
        return 1;
    }
    CHECK(ANeuralNetworksCompilation_createForDevices(model, devices, 1, &compilation));
    CHECK(ANeuralNetworksCompilation_setPreference(compilation, ANEURALNETWORKS_PREFER_SUSTAINED_SPEED));
    CHECK(ANeuralNetworksCompilation_setPriority(compilation, ANEURALNETWORKS_PRIORITY_DEFAULT));
    CHECK(ANeuralNetworksCompilation_setTimeout(compilation, 60000000000u));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    CHECK(ANeuralNetworksBurst_create(compilation, &burst));

    /* Executions: copied in, computed in each of its ways, copied out. */
    for (int run = 0; run < RUNS; run++) {
        float x_values[ROWS * WIDTH], y_values[ROWS * HEIGHT];
        ANeuralNetworksExecution *execution = NULL;
        for (int i = 0; i < ROWS * WIDTH; i++) {
            x_values[i] = (float)((i + run) % 5) - 2.0f;
        }
        CHECK(ANeuralNetworksExecution_create(compilation, &execution));
        CHECK(ANeuralNetworksExecution_setTimeout(execution, 60000000000u));
        CHECK(ANeuralNetworksExecution_setLoopTimeout(execution, 1000000000u));
        memcpy(input.data, x_values, sizeof x_values);
        CHECK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, input.memory, 0,
                                                          sizeof x_values));
        CHECK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, output.memory, 0,
                                                           sizeof y_values));
        if (run % 3 == 0) {
            CHECK(ANeuralNetworksExecution_burstCompute(execution, burst));
        } else if (run % 3 == 1) {
            CHECK(ANeuralNetworksExecution_compute(execution));
        } else {
            ANeuralNetworksEvent *event = NULL;
            CHECK(ANeuralNetworksExecution_startCompute(execution, &event));
            CHECK(ANeuralNetworksEvent_wait(event));
            ANeuralNetworksEvent_free(event);
        }
        memcpy(y_values, output.data, sizeof y_values);
        check_result(x_values, y_values);
        ANeuralNetworksExecution_free(execution);
    }
    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    free_pool(&input);
    free_pool(&output);
    ANeuralNetworksMemory_free(mapped);
    close(file);
    printf("%d runs\n", RUNS);
    return 0;
}
"""
)

DEVICES = {
    "nnapi-reference": {},
    "own": {
        "NNBURST_CPUONLY": "0",
        "NNBURST_DEVICES": "own=reference",
        "XDG_RUNTIME_DIR": "/proc/nonexistent",
    },
}


@pytest.mark.every_day("own")
@pytest.mark.parametrize("device", DEVICES)
def test_calls_in_the_order_of_tflites_delegate_compute_from_pools_that_nothing_seals(
    compile_program: Compile, run_compiled: Run, device: str
) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    done = run_compiled(compile_program(PROGRAM), device, **DEVICES[device])
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 runs\n", "")
