"""Writes a C program that calls the interface's functions in random order: `random_calls SEED CALLS`.

Handles are living, freed, of another kind, wild or null; data, dimension and scale pointers are valid or
null; numbers are likely, borderline or absurd. It ends with 0 unless the library crashes; built with a
sanitizer it looks for more. It prints how many calls returned which code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nnburst.capi.functions import FUNCTIONS, Argument, Function, HandleKind, Pass

_HEAD: Final = r"""
#include <android/NeuralNetworksExtensions.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define KINDS 9
#define KEPT 64
#define ROOM 65536

static uint64_t state;
static uint32_t next(uint32_t limit) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * UINT64_C(2685821657736338717)) >> 33) % limit;
}
static bool once_in(uint32_t count) { return next(count) == 0; }

static void *handles[KINDS][KEPT]; /* living and freed ones */
static unsigned char room[ROOM];
static unsigned char results[ROOM] __attribute__((aligned(16)));
static int descriptors[4];

static unsigned long codes[16]; /* by result code; 15: no code */

static void keep(int kind, void *handle) {
    if (handle != NULL) {
        handles[kind][next(KEPT)] = handle;
    }
}
static void *any_handle(int kind) {
    switch (next(24)) {
    case 0: return NULL;
    case 1: return handles[1 + next(KINDS - 1)][next(KEPT)];
    case 2: return (void *)(uintptr_t)(((uint64_t)next(1u << 31) << 33) ^ next(1u << 31));
    case 3: return room;
    case 4: return (char *)handles[kind][next(KEPT)] + 1 + next(64);
    default: return handles[kind][next(once_in(2) ? 4 : KEPT)];
    }
}
static void *lists[4];
static void *any_list(int kind) {
    if (once_in(16)) {
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        lists[i] = any_handle(kind);
    }
    return lists;
}
static uint64_t any_number(void) {
    static const uint64_t numbers[] = {0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 8, 16, 16, 16, 20, 27, 90, 100,
                                       110, 128, 129, 4096, 10000, 65535, 65536, UINT32_MAX, INT32_MAX,
                                       UINT64_C(1) << 32, UINT64_MAX, UINT64_C(1) << 63, 1000000};
    return once_in(3) ? next(8) : numbers[next(sizeof numbers / sizeof *numbers)];
}
static uint64_t any_length(void) { return once_in(2) ? 16 : once_in(4) ? any_number() : next(33); }
static void *any_data(void) { return once_in(8) ? NULL : (void *)(room + next(64)); }
static void *any_result(void) { return once_in(16) ? NULL : (void *)results; }
static uint32_t indexes[64];
static void *any_indexes(void) {
    for (int i = 0; i < 4; i++) {
        indexes[i] = once_in(12) ? (uint32_t)any_number() : next(5);
    }
    return once_in(12) ? NULL : (void *)indexes;
}
static uint32_t any_count(void) { return once_in(24) ? (uint32_t)(1u << 30) : next(5); }
static int any_descriptor(void) { return once_in(6) ? -1 : descriptors[next(4)]; }
static ANeuralNetworksOperandType operand;
static void *any_operand(void) {
    static uint32_t dimensions[8];
    for (int i = 0; i < 8; i++) {
        dimensions[i] = once_in(8) ? (uint32_t)any_number() : 1 + next(4);
    }
    operand.type = once_in(10) ? (int32_t)any_number() : (int32_t)next(16);
    operand.dimensionCount = once_in(20) ? 6 : next(4);
    operand.dimensions = once_in(8) || operand.dimensionCount == 0 ? NULL : dimensions;
    operand.scale = once_in(3) ? 1.0f : once_in(12) ? -1.0f : 0.0f;
    operand.zeroPoint = once_in(12) ? (int32_t)any_number() : 0;
    return once_in(16) ? NULL : (void *)&operand;
}
static ANeuralNetworksSymmPerChannelQuantParams channels;
static void *any_channels(void) {
    static float scales[8] = {1.0f, 0.5f, 2.0f, 3.0f, 0.0f, -1.0f, 1.0f, 1.0f};
    channels.channelDim = next(5);
    channels.scaleCount = next(6);
    channels.scales = once_in(6) ? NULL : scales;
    return once_in(16) ? NULL : (void *)&channels;
}
static const char *any_string(void) {
    static const char *const strings[] = {"", "com.example.none", "/proc/nonexistent", "\xff\xfe", "/"};
    return once_in(8) ? NULL : strings[next(5)];
}
static float any_fraction(void) { return once_in(2) ? 1.0f : once_in(2) ? 0.5f : -1.0f; }

/* Objects that are as they should be, so that calls get far. */
static void good_ones(void) {
    const uint32_t dimensions[] = {4};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, dimensions, 0.0f, 0};
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0.0f, 0};
    const int32_t none = 0;
    const uint32_t all[] = {0, 1, 2}, out[] = {3};
    ANeuralNetworksModel *model = NULL;
    ANeuralNetworksCompilation *compilation = NULL;
    ANeuralNetworksExecution *execution = NULL;
    ANeuralNetworksBurst *burst = NULL;
    ANeuralNetworksDevice *device = NULL;
    (void)ANeuralNetworks_getDevice(0, &device);
    keep(NNB_DEVICE, device);
    (void)ANeuralNetworksModel_create(&model);
    keep(NNB_MODEL, model);
    (void)ANeuralNetworksModel_addOperand(model, &tensor);
    (void)ANeuralNetworksModel_addOperand(model, &tensor);
    (void)ANeuralNetworksModel_addOperand(model, &scalar);
    (void)ANeuralNetworksModel_addOperand(model, &tensor);
    (void)ANeuralNetworksModel_setOperandValue(model, 2, &none, sizeof none);
    if (once_in(4)) {
        return;
    }
    (void)ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, all, 1, out);
    (void)ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, all, 1, out);
    if (once_in(4)) {
        return;
    }
    (void)ANeuralNetworksModel_finish(model);
    if (once_in(2)) {
        const ANeuralNetworksDevice *one[] = {device};
        (void)ANeuralNetworksCompilation_createForDevices(model, one, 1, &compilation);
    } else {
        (void)ANeuralNetworksCompilation_create(model, &compilation);
    }
    keep(NNB_COMPILATION, compilation);
    if (once_in(4)) {
        return;
    }
    (void)ANeuralNetworksCompilation_finish(compilation);
    (void)ANeuralNetworksBurst_create(compilation, &burst);
    keep(NNB_BURST, burst);
    for (int i = 0; i < 3; i++) {
        (void)ANeuralNetworksExecution_create(compilation, &execution);
        keep(NNB_EXECUTION, execution);
        (void)ANeuralNetworksExecution_setReusable(execution, once_in(2));
        (void)ANeuralNetworksExecution_setInput(execution, 0, NULL, room, 16);
        (void)ANeuralNetworksExecution_setInput(execution, 1, NULL, room, 16);
        (void)ANeuralNetworksExecution_setOutput(execution, 0, NULL, results + 1024, 16);
    }
}
"""

_MAIN: Final = r"""
int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) * 2 + 1 : 1;
    unsigned long calls = argc > 2 ? strtoul(argv[2], NULL, 10) : 10000;
    descriptors[0] = memfd_create("random", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    descriptors[1] = eventfd(1, EFD_CLOEXEC); /* has signalled */
    descriptors[2] = 1 << 20;                 /* not open */
    descriptors[3] = descriptors[0];
    if (ftruncate(descriptors[0], ROOM) != 0) {
        return 2;
    }
    for (unsigned long i = 0; i < calls; i++) {
        if (i % 200 == 0) {
            good_ones();
        }
        call(next(FUNCTIONS));
    }
    printf("%lu calls:", calls);
    for (int code = 0; code < 16; code++) {
        printf(" %lu", codes[code]);
    }
    printf("\n");
    return 0;
}
"""


def program() -> str:
    """The program's text."""
    kinds = "".join(f"#define NNB_{kind.name.upper()} {int(kind)}\n" for kind in HandleKind)
    cases = "".join(
        f"    case {index}: {{\n{''.join(_case(function))}        break;\n    }}\n"
        for index, function in enumerate(FUNCTIONS)
    )
    return (
        f"{kinds}#define FUNCTIONS {len(FUNCTIONS)}\n{_HEAD}\n"
        f"static void call(uint32_t number) {{\n    switch (number) {{\n{cases}    }}\n}}\n{_MAIN}"
    )


def _case(function: Function) -> Iterator[str]:
    made = [a for a in function.arguments if a.passing is Pass.NEW_HANDLE]
    yield from (f"        {a.ctype[:-1]} made = NULL;\n" for a in made)
    words = ", ".join(_value(function, argument) for argument in function.arguments)
    if function.result == "int":
        yield f"        codes[{function.name}({words})]++;\n"
    else:
        yield f"        (void){function.name}({words});\n        codes[15]++;\n"
    yield from (f"        keep({_kind(a)}, made);\n" for a in made)


def _kind(argument: Argument) -> str:
    assert argument.kind is not None
    return f"NNB_{argument.kind.name.upper()}"


#: What an argument is made of, by the parts of its name or type that come first here.
_BY_NAME: Final = {
    "extensionName": "any_string()",
    "cacheDir": "any_string()",
    "inputs": "any_indexes()",
    "outputs": "any_indexes()",
    "dimensions[": "any_indexes()",
    "fd": "any_descriptor()",
    "sync_fence_fd": "any_descriptor()",
    "frequency": "any_fraction()",
    "length": "any_length()",
}


def _value(function: Function, argument: Argument) -> str:
    if argument.passing is Pass.NEW_HANDLE:
        return "once_in(24) ? NULL : &made"
    if argument.passing is Pass.HANDLE:
        return f"({argument.ctype})any_handle({_kind(argument)})"
    if argument.passing is Pass.HANDLES:
        return f"({argument.ctype})any_list({_kind(argument)})"
    if argument.passing is Pass.RESULT:
        return f"({argument.ctype})any_result()"
    if argument.passing is Pass.POINTER:
        return f"({argument.ctype}){_pointer(argument)}"
    if argument.name in _BY_NAME:
        return f"({argument.ctype}){_BY_NAME[argument.name]}"
    counted = [other.name for other in function.arguments if other.count == argument.name]
    if counted or argument.name.endswith("Count"):
        return "any_count()"
    return f"({argument.ctype})any_number()"


def _pointer(argument: Argument) -> str:
    if argument.name in _BY_NAME:
        return _BY_NAME[argument.name]
    if "OperandType" in argument.ctype:
        return "any_operand()"
    if "SymmPerChannel" in argument.ctype:
        return "any_channels()"
    if argument.name == "dimensions":
        return "any_indexes()"
    return "any_data()"
