/* Opens LiteRT's C library at run time, compiles networks, binds requests, and runs them without Python.
 *
 * The library is part of the wheel `ai-edge-litert`, which ships no headers. The declarations in litert.c are
 * those of 2.1, and `nnb_litert_trial_begin` checks them in a child process.
 */
#ifndef NNB_LITERT_H
#define NNB_LITERT_H

#include <stdint.h>

#include <nnburst/executor.h>

#define NNB_LITERT_ALIGNMENT 64
#define NNB_LITERT_MAX_RANK 8
#define NNB_LITERT_MESSAGE_BYTES 512

/* An input or output of a bound request. `memory` is NULL for an output that is not used. An argument is
 * copied if it is not aligned or if `apart` (enum nnb_apart) requires it; otherwise the engine works in
 * place. */
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

/* Opens the library for this process, and compiles `content` once with stderr discarded; further calls do
 * nothing. Not thread-safe. */
int nnb_litert_open(const char *path, const uint8_t *content, uint64_t content_bytes);

/* Begins a trial in a child process: opens the library, runs `content` on one argument, and compares the
 * output with `expected`, byte for byte. A crash of the child does not affect this process. The arguments may
 * be freed after this call. Returns the child, or -1. */
int32_t nnb_litert_trial_begin(const char *path, const uint8_t *content, uint64_t content_bytes,
                               const struct nnb_litert_argument *input,
                               const struct nnb_litert_argument *output, const uint8_t *expected);

/* Waits for the end of a trial, at most 6 s. To be called once for each trial, in the process that began it.
 * */
int nnb_litert_trial_end(int32_t child);

/* Compiles a network. `content` must outlive the engine. Returns NULL, with the reason in `message`, if the
 * network is refused. An engine may be shared: its calls take turns.
 *
 * `packed_weights` is a descriptor for weights in the form that kernels read, or -1. An empty file is filled;
 * any other file is mapped read-only, and the engine trusts its content. */
struct nnb_litert_engine *nnb_litert_engine_new(const uint8_t *content, uint64_t content_bytes,
                                                uint32_t threads, int32_t packed_weights,
                                                char *message);
void nnb_litert_engine_free(struct nnb_litert_engine *);

/* Stores the extents of an engine's outputs in the ranks and dimensions of `outputs`. They are wrong for
 * outputs whose extents only a run determines; these must not be bound, since their memory would not be
 * written. NNB_LITERT_REFUSED if the engine does not report them. */
int nnb_litert_output_layouts(struct nnb_litert_engine *, struct nnb_litert_argument *outputs, uint32_t count);

/* Binds a request; NULL without enough memory, or if the engine refuses an argument. */
struct nnb_litert_call *nnb_litert_bind(struct nnb_litert_engine *,
                                        const struct nnb_litert_argument *inputs, uint32_t input_count,
                                        const struct nnb_litert_argument *outputs,
                                        uint32_t output_count);
void nnb_litert_call_free(struct nnb_litert_call *);

/* Runs a bound request (`call` is a struct nnb_litert_call *), in the form of the executors' header. */
int32_t nnb_litert_run(nnbx_execution *call, const struct nnbx_run *, struct nnbx_outcome *);

/* The trace's name for runs of the call, from nnb_trace_add_name. */
void nnb_litert_set_trace_name(struct nnb_litert_call *, uint32_t name);

/* The bytes that one run copies. */
uint64_t nnb_litert_copied_bytes(const struct nnb_litert_call *);

#endif
