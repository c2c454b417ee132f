/* LiteRT's C library, opened at run time: networks compiled, requests bound, run without Python.
 *
 * The library is part of the wheel `ai-edge-litert`, which ships no headers; the declarations in litert.c
 * are those of 2.1, and `nnb_litert_trial_begin` finds out in a child process whether they hold.
 */
#ifndef NNB_LITERT_H
#define NNB_LITERT_H

#include <stdint.h>

#include <nnburst/executor.h>

#define NNB_LITERT_ALIGNMENT 64
#define NNB_LITERT_MAX_RANK 8
#define NNB_LITERT_MESSAGE_BYTES 512

/* One input or output of a bound request. `memory` is NULL for an output that is not taken. An argument
 * is copied if it is not aligned or if `apart` (enum nnb_apart) asks for it; otherwise the engine works in place. */
struct nnb_litert_argument {
    uint8_t *memory;
    uint64_t bytes;
    int32_t element_type;
    uint32_t apart;
    uint32_t rank;
    int32_t dimensions[NNB_LITERT_MAX_RANK];
};

struct nnb_litert_engine;
struct nnb_litert_call;

enum nnb_litert_status {
    NNB_LITERT_OK,
    NNB_LITERT_NO_LIBRARY,
    NNB_LITERT_NO_SYMBOL,
    NNB_LITERT_NO_ENVIRONMENT,
    NNB_LITERT_CRASHED,
    NNB_LITERT_REFUSED,
    NNB_LITERT_WRONG_RESULT
};

/* Open the library for this process, and compile `content` once while stderr leads nowhere; further calls
 * do nothing. Not thread-safe. */
int nnb_litert_open(const char *path, const uint8_t *content, uint64_t content_bytes);

/* Begin a trial in a child process: open the library, run `content` on one argument, compare the output
 * with `expected`, byte for byte. Whatever happens to the child, this process goes on; what is given here
 * need not live longer than this call. Returns the child, or -1. */
int32_t nnb_litert_trial_begin(const char *path, const uint8_t *content, uint64_t content_bytes,
                               const struct nnb_litert_argument *input,
                               const struct nnb_litert_argument *output, const uint8_t *expected);

/* Wait for the end of a trial, at most 6 s; once for each, in the process that began it. */
int nnb_litert_trial_end(int32_t child);

/* Compile a network. `content` must outlive the engine. NULL, and why in `message`, if it is refused.
 * An engine may be shared: its calls take turns.
 *
 * `packed_weights` is a descriptor of the weights in the form in which kernels read them, or -1: an empty
 * file is filled, any other is mapped read-only, and what the engine finds in it, it believes. */
struct nnb_litert_engine *nnb_litert_engine_new(const uint8_t *content, uint64_t content_bytes,
                                                uint32_t threads, int32_t packed_weights,
                                                char *message);
void nnb_litert_engine_free(struct nnb_litert_engine *);

/* The extents of an engine's outputs, in the ranks and dimensions of `outputs`. Wrong for those that a run finds
 * out, which must not be bound: their memory stays as it was. NNB_LITERT_REFUSED if they cannot be had. */
int nnb_litert_output_layouts(struct nnb_litert_engine *, struct nnb_litert_argument *outputs, uint32_t count);

/* Bind a request; NULL if memory is short or the engine refuses an argument. */
struct nnb_litert_call *nnb_litert_bind(struct nnb_litert_engine *,
                                        const struct nnb_litert_argument *inputs, uint32_t input_count,
                                        const struct nnb_litert_argument *outputs,
                                        uint32_t output_count);
void nnb_litert_call_free(struct nnb_litert_call *);

/* Run a bound request (`call` is a struct nnb_litert_call *), as the header of executors has it. */
int32_t nnb_litert_run(nnbx_execution *call, const struct nnbx_run *, struct nnbx_outcome *);

/* The trace's name for runs of the call, from nnb_trace_add_name. */
void nnb_litert_set_trace_name(struct nnb_litert_call *, uint32_t name);

/* Bytes that one run copies. */
uint64_t nnb_litert_copied_bytes(const struct nnb_litert_call *);

#endif
