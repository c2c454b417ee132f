/* The first ten Fibonacci numbers by NNAPI's C interface, on a device that has the extension.
 *
 *     PYTHONPATH=. nnburst serve fibonacci --executor reference --extension nnburst_fibonacci:FIBONACCI
 *
 * In another terminal, once the service listens:
 *
 *     gcc main.c $(nnburst capi --cflags --libs) -o main && ./main
 */
#include <android/NeuralNetworksExtensions.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME "com.example.fibonacci"
enum { INT64 = 0, TENSOR_QUANT64_ASYMM = 1 }; /* operand types */
enum { FIBONACCI = 0 };                       /* operations */
enum { COUNT = 10 };

/* Parameters of TENSOR_QUANT64_ASYMM: value = scale * (stored - zero_point). */
struct quantization {
    double scale;
    int64_t zero_point;
};

static void check(int code, const char *call) {
    if (code != ANEURALNETWORKS_NO_ERROR) {
        fprintf(stderr, "%s: %d\n", call, code);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static ANeuralNetworksDevice *find_device(void) {
    uint32_t count = 0;
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t i = 0; i < count; i++) {
        ANeuralNetworksDevice *device = NULL;
        bool is_supported = false;
        CHECK(ANeuralNetworks_getDevice(i, &device));
        CHECK(ANeuralNetworksDevice_getExtensionSupport(device, NAME, &is_supported));
        if (is_supported) {
            return device;
        }
    }
    fprintf(stderr, "no device has the extension %s\n", NAME);
    exit(1);
}

static ANeuralNetworksModel *make_model(const struct quantization *quantization) {
    const uint32_t dimensions[] = {COUNT};
    const uint32_t n[] = {0}, numbers[] = {1};
    ANeuralNetworksOperandType scalar = {0, 0, NULL, 0.0f, 0};
    ANeuralNetworksOperandType tensor = {0, 1, dimensions, 0.0f, 0};
    ANeuralNetworksOperationType operation = 0;
    ANeuralNetworksModel *model = NULL;
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksModel_getExtensionOperandType(model, NAME, INT64, &scalar.type));
    CHECK(ANeuralNetworksModel_getExtensionOperandType(model, NAME, TENSOR_QUANT64_ASYMM, &tensor.type));
    CHECK(ANeuralNetworksModel_getExtensionOperationType(model, NAME, FIBONACCI, &operation));
    CHECK(ANeuralNetworksModel_addOperand(model, &scalar));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_setOperandExtensionData(model, 1, quantization, sizeof *quantization));
    CHECK(ANeuralNetworksModel_addOperation(model, operation, 1, n, 1, numbers));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, n, 1, numbers));
    CHECK(ANeuralNetworksModel_finish(model));
    return model;
}

int main(void) {
    const struct quantization quantization = {0.5, 7};
    const ANeuralNetworksDevice *device = find_device();
    ANeuralNetworksModel *model = make_model(&quantization);
    ANeuralNetworksCompilation *compilation = NULL;
    ANeuralNetworksExecution *execution = NULL;
    const int64_t n = COUNT;
    int64_t stored[COUNT] = {0};

    CHECK(ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, &n, sizeof n));
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, stored, sizeof stored));
    CHECK(ANeuralNetworksExecution_compute(execution));
    for (int i = 0; i < COUNT; i++) {
        printf("%g ", quantization.scale * (double)(stored[i] - quantization.zero_point));
    }
    printf("\n");
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    return 0;
}
