/* Which operations the accelerator computes, and how: float32 alone. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <nnburst/executor.h>

/* 16 MiB. */
#define MAX_TENSOR_ELEMENTS (UINT64_C(1) << 22)

/* A tensor of a program. */
struct tensor {
    uint64_t at; /* of its first byte in the accelerator's memory */
    uint64_t elements;
    uint32_t rank;
    uint32_t dimensions[NNBX_MAX_RANK];
};

/* One operation, with all that steers it: nothing of a client's memory is looked at when it runs. */
struct step {
    int32_t type;
    int32_t activation;
    float beta;
    uint32_t axis;
    uint32_t inputs[3]; /* tensors by number */
    uint32_t output;
};

struct program {
    const struct step *steps;
    const struct tensor *tensors;
};

/* Whether an operation of a graph can be run; if so, what it comes to. Constants that steer it are read once. */
bool compile_operation(const struct nnbx_subgraph *, const struct nnbx_operation *, struct step *);

/* An accelerator_step of a struct program. */
void run_step(const void *program, uint32_t step, uint8_t *memory);

#endif
