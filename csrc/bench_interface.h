/* What a program pays for the C interface, measured from C: with the interpreter lock let go, as in a program
 * that has no interpreter. */
#ifndef NNB_BENCH_INTERFACE_H
#define NNB_BENCH_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

/* Functions of libneuralnetworks.so as found in it, and what they are called with. */
struct nnb_bench_interface {
    int (*create)(void *compilation, void **execution);
    int (*set_input)(void *execution, int32_t index, const void *type, const void *buffer, size_t length);
    int (*set_output)(void *execution, int32_t index, const void *type, void *buffer, size_t length);
    int (*set_input_from_memory)(void *execution, int32_t index, const void *type, const void *memory,
                                 size_t offset, size_t length);
    int (*set_output_from_memory)(void *execution, int32_t index, const void *type, const void *memory,
                                  size_t offset, size_t length);
    int (*burst_compute)(void *execution, void *burst);
    void (*free)(void *execution);
    void *compilation;
    void *burst;
    void *execution; /* reusable, with all arguments set; NULL: one is made for each computation */
    void *memory; /* of input and output, one behind the other; NULL: they lie at addresses */
    void *input;
    void *output;
    size_t bytes;
};

/* Computes `rounds` times; 0 if a call failed. */
uint64_t nnb_bench_interface_run(const struct nnb_bench_interface *interface, uint64_t rounds,
                                 uint64_t *samples_ns);

#endif
