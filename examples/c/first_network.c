/* A first network by NNAPI's C interface: y = x + 1 on four numbers. */
#include <android/NeuralNetworks.h>
#include <stdio.h>

/* Ends the program with the call that failed: every function returns its outcome. */
#define CHECK(call)                                                 \
    do {                                                            \
        int code = (call);                                          \
        if (code != ANEURALNETWORKS_NO_ERROR) {                     \
            fprintf(stderr, "%s: result code %d\n", #call, code);   \
            return 1;                                               \
        }                                                           \
    } while (0)

int main(void) {
    /* Which devices are there? The last one is the CPU. */
    uint32_t count = 0;
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t i = 0; i < count; i++) {
        ANeuralNetworksDevice *device = NULL;
        const char *name = NULL;
        CHECK(ANeuralNetworks_getDevice(i, &device));
        CHECK(ANeuralNetworksDevice_getName(device, &name));
        printf("device %u: %s\n", i, name);
    }

    /* The model: operands first, then the operation, then which operands are inputs and outputs. */
    const uint32_t dimensions[] = {1, 4};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 2, dimensions, 0.0f, 0};
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0.0f, 0};
    const float ones[] = {1.0f, 1.0f, 1.0f, 1.0f};
    const int32_t no_activation = ANEURALNETWORKS_FUSED_NONE;
    enum { X, ONES, ACTIVATION, Y };

    ANeuralNetworksModel *model = NULL;
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor)); /* X */
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor)); /* ONES */
    CHECK(ANeuralNetworksModel_addOperand(model, &scalar)); /* ACTIVATION */
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor)); /* Y */
    CHECK(ANeuralNetworksModel_setOperandValue(model, ONES, ones, sizeof ones));
    CHECK(ANeuralNetworksModel_setOperandValue(model, ACTIVATION, &no_activation, sizeof no_activation));
    const uint32_t operation_inputs[] = {X, ONES, ACTIVATION};
    const uint32_t inputs[] = {X};
    const uint32_t outputs[] = {Y};
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, operation_inputs, 1, outputs));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, inputs, 1, outputs));
    CHECK(ANeuralNetworksModel_finish(model));

    /* The compilation places every operation on the device that suits it best. */
    ANeuralNetworksCompilation *compilation = NULL;
    CHECK(ANeuralNetworksCompilation_create(model, &compilation));
    CHECK(ANeuralNetworksCompilation_setPreference(compilation, ANEURALNETWORKS_PREFER_SUSTAINED_SPEED));
    CHECK(ANeuralNetworksCompilation_finish(compilation));

    /* One execution: where its input is read from and its output written to, then the computation. */
    const float x[] = {0.5f, 1.5f, 2.5f, 3.5f};
    float y[4];
    ANeuralNetworksExecution *execution = NULL;
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, x, sizeof x));
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, y, sizeof y));
    CHECK(ANeuralNetworksExecution_compute(execution));
    printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);

    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    return 0;
}
