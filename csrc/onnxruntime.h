/* onnxruntime's C library, opened at run time: sessions of whole graphs, requests bound, run without Python.
 *
 * The library is part of the wheel `onnxruntime`, which ships no headers. Its functions are a table that only
 * grows: onnxruntime.c names the places that it uses, and asks for the version that has them all.
 */
#ifndef NNB_ONNXRUNTIME_H
#define NNB_ONNXRUNTIME_H

#include <stdint.h>

#define NNB_ONNX_ALIGNMENT 64
#define NNB_ONNX_MAX_RANK 16
#define NNB_ONNX_MESSAGE_BYTES 1024
#define NNB_ONNX_NAME_BYTES 256

/* An input or output of a session, as in its graph. `element` is ONNX's number, 0 for what is no
 * tensor; an extent is -1 if it is open. */
struct nnb_onnx_border {
    char name[NNB_ONNX_NAME_BYTES];
    int32_t element;
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
};

/* One argument of a bound request. `memory` is NULL for an output whose extents the run finds out. It is
 * copied if it is not aligned or if `apart` asks for it; otherwise the engine works in place. */
struct nnb_onnx_argument {
    uint8_t *memory;
    uint64_t bytes;
    int32_t element;
    uint32_t apart;
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
};

/* What a graph's bytes may refer to by name: the values of tensors that lie elsewhere. */
struct nnb_onnx_external {
    const char *name;
    char *memory;
    uint64_t bytes;
};

struct nnb_onnx_session;
struct nnb_onnx_call;

enum nnb_onnx_status { NNB_ONNX_OK, NNB_ONNX_NO_LIBRARY, NNB_ONNX_NO_SYMBOL, NNB_ONNX_TOO_OLD, NNB_ONNX_FAILED };

/* Open the library for this process; further calls do nothing. Not thread-safe. Its version and the names
 * of its providers, separated by commas, are written if there is room. */
int nnb_onnx_open(const char *path, char *version, char *providers);

/* Make a session of a graph: `threads` compute, none spins while it is idle. `content` and `external` are
 * not needed afterwards. A provider is named if it is not the CPU. NULL, and why in `message`. */
struct nnb_onnx_session *nnb_onnx_session_new(const uint8_t *content, uint64_t bytes, uint32_t threads,
                                              const struct nnb_onnx_external *external,
                                              uint32_t external_count, const char *provider,
                                              char *message);
void nnb_onnx_session_free(struct nnb_onnx_session *);
uint32_t nnb_onnx_count(const struct nnb_onnx_session *, int outputs);
int nnb_onnx_describe(const struct nnb_onnx_session *, int outputs, uint32_t at, struct nnb_onnx_border *);

/* Bind a request; NULL, and why in `message`. The calls of a session may run at once. */
struct nnb_onnx_call *nnb_onnx_bind(struct nnb_onnx_session *, const struct nnb_onnx_argument *inputs,
                                    const struct nnb_onnx_argument *outputs, char *message);
void nnb_onnx_call_free(struct nnb_onnx_call *);

/* Run a bound request (a struct nnb_onnx_call *): an ErrorStatus of the HAL. */
int32_t nnb_onnx_run(void *call);

/* Have the run that is under way, and every later one, end soon; or no longer. Any thread may ask. */
void nnb_onnx_stop(struct nnb_onnx_call *, int stop);

/* What the last run gave an output without memory: its bytes, which stay until the next run, how many
 * elements they are, and its extents. */
const uint8_t *nnb_onnx_result(const struct nnb_onnx_call *, uint32_t output, uint64_t *elements,
                               uint32_t *rank, int64_t *dimensions);

/* Why the last run of the call failed. */
void nnb_onnx_message(const struct nnb_onnx_call *, char *message);

/* Bytes that one run copies. */
uint64_t nnb_onnx_copied_bytes(const struct nnb_onnx_call *);

#endif
