"""Pieces of C that the tests' programs are put together from."""

from __future__ import annotations

#: Includes, and CHECK, which ends the program with the call that failed.
HEAD = r"""
#include <android/NeuralNetworks.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                      \
    do {                                                                 \
        int code_ = (call);                                              \
        if (code_ != ANEURALNETWORKS_NO_ERROR) {                         \
            fprintf(stderr, "%s: %d\n", #call, code_);                   \
            exit(1);                                                     \
        }                                                                \
    } while (0)
"""

#: `compiled(&model)`: a finished compilation of y = a + b on `ELEMENTS` floats.
ADD = r"""
#ifndef ELEMENTS
#define ELEMENTS 4
#endif
static ANeuralNetworksModel *add_model(void) {
    const uint32_t dimensions[] = {ELEMENTS};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, dimensions, 0.0f, 0};
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0.0f, 0};
    const int32_t none = ANEURALNETWORKS_FUSED_NONE;
    const uint32_t all[] = {0, 1, 2};
    const uint32_t out[] = {3};
    ANeuralNetworksModel *model = NULL;
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_addOperand(model, &scalar));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_setOperandValue(model, 2, &none, sizeof none));
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, all, 1, out));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, all, 1, out));
    CHECK(ANeuralNetworksModel_finish(model));
    return model;
}

static ANeuralNetworksCompilation *compiled(ANeuralNetworksModel *model) {
    ANeuralNetworksCompilation *compilation = NULL;
    CHECK(ANeuralNetworksCompilation_create(model, &compilation));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    return compilation;
}

static float a[ELEMENTS], b[ELEMENTS], sum[ELEMENTS];

static ANeuralNetworksExecution *ready(ANeuralNetworksCompilation *compilation, bool reusable) {
    ANeuralNetworksExecution *execution = NULL;
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    CHECK(ANeuralNetworksExecution_setReusable(execution, reusable));
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, a, sizeof a));
    CHECK(ANeuralNetworksExecution_setInput(execution, 1, NULL, b, sizeof b));
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, sizeof sum));
    return execution;
}
"""
