/* Loops for benchmarks in C: simple exchanges between two processes, steps of a plan, bound executions, and
 * calls of the C interface. */
#ifndef NNB_BENCH_H
#define NNB_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "atomics.h"
#include "executor.h"
#include "ring_buffer.h"
#include "steps.h"

/* Two processes store to one 8-byte word in turn, without a pause. The client side stores odd numbers and
 * waits for even ones, `rounds` times, and stores the time of each round in `samples_ns` (may be NULL).
 * Returns the total in nanoseconds; 0 if the other side did not answer within the timeout. */
uint64_t nnb_bench_floor_client(nnb_atomic_u64 *word, uint64_t rounds, uint64_t *samples_ns);

/* The answering side: answers from 0 on, until the word is UINT64_MAX or did not change for
 * `patience_ns`. */
void nnb_bench_floor_server(nnb_atomic_u64 *word, uint64_t patience_ns);

/* Sends `request_count` elements and receives `result_count` through two queues, `rounds` times. */
uint64_t nnb_bench_queue_client(struct nnb_ring *requests, nnb_atomic_u32 *request_flag,
                                struct nnb_ring *results, nnb_atomic_u32 *result_flag,
                                uint32_t request_count, uint32_t result_count, uint64_t rounds,
                                uint64_t *samples_ns);

/* The answering side, until a request whose first byte is 255, or no request came for `patience_ns`. */
void nnb_bench_queue_server(struct nnb_ring *requests, nnb_atomic_u32 *request_flag,
                            struct nnb_ring *results, nnb_atomic_u32 *result_flag,
                            uint32_t result_count, uint64_t patience_ns);

/* A futex round trip alone: the client sets the word to odd numbers and wakes the server, which answers with
 * even ones, from 0 until UINT32_MAX; both sleep without spinning. */
uint64_t nnb_bench_futex_client(nnb_atomic_u32 *word, uint64_t rounds, uint64_t *samples_ns);
void nnb_bench_futex_server(nnb_atomic_u32 *word, uint64_t patience_ns);

/* Runs the steps of a plan that has already succeeded, `rounds` times: all by one call, or each request by
 * its own call. Returns 0 if a step had another status than before. */
uint64_t nnb_bench_steps(struct nnb_steps *steps, uint64_t rounds, uint64_t *samples_ns);
uint64_t nnb_bench_runs(const struct nnb_steps *steps, uint64_t rounds, uint64_t *samples_ns);

/* Runs a bound execution `rounds` times in this process. Returns 0 if it failed. */
uint64_t nnb_bench_run(nnb_run run, nnbx_execution *execution, uint64_t rounds, uint64_t *samples_ns);

/* Functions of libneuralnetworks.so and their arguments, for measuring the C interface from C: without the
 * interpreter lock, as in a program that has no interpreter. */
struct nnb_bench_interface {
    int (*create)(void *compilation, void **execution);
    int (*set_input)(void *execution, int32_t index, const void *type, const void *buffer, size_t length);
    int (*set_output)(void *execution, int32_t index, const void *type, void *buffer, size_t length);
    int (*set_input_from_memory)(void *execution, int32_t index, const void *type, const void *memory,
                                 size_t offset, size_t length);
    int (*set_output_from_memory)(void *execution, int32_t index, const void *type, const void *memory,
                                  size_t offset, size_t length);
    int (*compute)(void *execution);
    int (*burst_compute)(void *execution, void *burst);
    void (*free)(void *execution);
    void *compilation;
    void *burst; /* NULL: over none of the program's */
    void *execution; /* reusable, with all arguments set; NULL: one is made for each computation */
    void *memory; /* of input and output, one behind the other; NULL: they lie at addresses */
    void *input;
    void *output;
    size_t bytes;
};

/* Computes `rounds` times; returns 0 if a call failed. */
uint64_t nnb_bench_interface_run(const struct nnb_bench_interface *interface, uint64_t rounds,
                                 uint64_t *samples_ns);

#endif
