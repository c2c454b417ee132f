/* Opens onnxruntime's C library at run time, makes sessions of whole graphs, binds requests, and runs them
 * without Python.
 *
 * The library is part of the wheel `onnxruntime`, which ships no headers. Its functions are in a table that
 * only grows: onnxruntime.c names the places that it uses, and requests the version that has them all.
 */
#ifndef NNB_ONNXRUNTIME_H
#define NNB_ONNXRUNTIME_H

#include <stdint.h>

#include <nnburst/executor.h>

#define NNB_ONNX_ALIGNMENT 64
#define NNB_ONNX_MAX_RANK 16
#define NNB_ONNX_MESSAGE_BYTES NNBX_MESSAGE_BYTES
#define NNB_ONNX_NAME_BYTES 256

/* An input or output of a session, as in its graph. `element` is ONNX's number, 0 if it is not a tensor; an
 * extent is -1 if it is open. `name` is of any length, and freed by nnb_onnx_border_free. */
struct nnb_onnx_border {
    char *name;
    int32_t element;
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
};

/* The memory of an argument: memory of its extents; room (or NULL) for a copy of an output whose extents the
 * run determines; or no memory, since it is a state in the engine (`nnb_onnx_states`). */
enum nnb_onnx_place { NNB_ONNX_WHOLE, NNB_ONNX_ROOM, NNB_ONNX_STATE };

/* One argument of a bound request. Memory of its extents is copied if it is not aligned or if `apart` (enum
 * nnb_apart) requires it; otherwise the engine works in place. */
struct nnb_onnx_argument {
    uint8_t *memory;
    uint64_t bytes;
    uint64_t room; /* bytes for an output of other extents than these; 0 if it must have these */
    int32_t element;
    uint32_t element_bytes;
    uint32_t apart;
    uint32_t place; /* enum nnb_onnx_place */
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
};

/* External values of tensors, to which a graph's bytes refer by name. */
struct nnb_onnx_external {
    const char *name;
    char *memory;
    uint64_t bytes;
};

/* An execution provider other than the CPU, with its options. `name` is one of those that the library lists,
 * or that of a registered plugin. */
struct nnb_onnx_provider {
    const char *name;
    const char *const *keys;
    const char *const *values;
    uint32_t option_count;
};

/* Kinds of hardware of a plugin's device. */
enum nnb_onnx_hardware { NNB_ONNX_CPU, NNB_ONNX_GPU, NNB_ONNX_NPU };

struct nnb_onnx_session;
struct nnb_onnx_call;

enum nnb_onnx_status { NNB_ONNX_OK, NNB_ONNX_NO_LIBRARY, NNB_ONNX_NO_SYMBOL, NNB_ONNX_TOO_OLD, NNB_ONNX_FAILED };

/* Opens the library for this process; further calls do nothing. Not thread-safe. Writes the library's version
 * and the names of its providers, separated by commas, if there is room. */
int nnb_onnx_open(const char *path, char *version, char *providers);

/* Registers a plugin's library, and uses its first device of the provider with this name for all later
 * sessions that name the provider; `hardware` is set to the device's kind (enum nnb_onnx_hardware). Not
 * thread-safe. NNB_ONNX_FAILED with the reason in `message`; NNB_ONNX_TOO_OLD before version 1.23, whose
 * plugins are called with other arguments than later ones. */
int nnb_onnx_plug(const char *path, const char *name, uint32_t *hardware, char *message);

/* Makes a session of a graph: `threads` compute, and do not spin while they are idle. `content` and
 * `external` are not needed afterwards. `provider` is NULL for the CPU. `disabled` names passes of the
 * engine's optimiser to leave out, separated by semicolons. Returns NULL after a failure, with the reason in
 * `message`. */
struct nnb_onnx_session *nnb_onnx_session_new(const uint8_t *content, uint64_t bytes, uint32_t threads,
                                              const struct nnb_onnx_external *external,
                                              uint32_t external_count,
                                              const struct nnb_onnx_provider *provider,
                                              const char *disabled, char *message);
void nnb_onnx_session_free(struct nnb_onnx_session *);
uint32_t nnb_onnx_count(const struct nnb_onnx_session *, int outputs);
int nnb_onnx_describe(const struct nnb_onnx_session *, int outputs, uint32_t at, struct nnb_onnx_border *);
void nnb_onnx_border_free(struct nnb_onnx_border *);

/* Binds a request; NULL after a failure, with the reason in `message`. The calls of a session may run at
 * once. */
struct nnb_onnx_call *nnb_onnx_bind(struct nnb_onnx_session *, const struct nnb_onnx_argument *inputs,
                                    const struct nnb_onnx_argument *outputs, char *message);
void nnb_onnx_call_free(struct nnb_onnx_call *);

/* States: pairs of an input and an output of a session whose values stay in the engine's memory between runs,
 * separately for each slot. A run writes a state in place, alternately to two places, or to memory that the
 * engine allocates. */
enum nnb_onnx_kind { NNB_ONNX_IN_PLACE, NNB_ONNX_IN_TURNS, NNB_ONNX_GROWING };

struct nnb_onnx_state {
    uint32_t input;
    uint32_t output;
    int32_t element;
    uint32_t element_bytes;
    uint32_t kind; /* enum nnb_onnx_kind */
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK]; /* at first, of zeros */
};

/* A request names its slot by two words of 64 bits: the slot's number, which is not 0, and the number of its
 * runs. Special values of the second word open the slot (anew if it is open) or close it, without a run. */
#define NNB_ONNX_OPEN_SLOT UINT64_MAX
#define NNB_ONNX_CLOSE_SLOT (UINT64_MAX - 1)

struct nnb_onnx_states;

/* Makes states for a limited number of slots; NULL without enough memory. The session must outlive them.
 * Thread-safe. */
struct nnb_onnx_states *nnb_onnx_states_new(struct nnb_onnx_session *, const struct nnb_onnx_state *,
                                            uint32_t count, uint32_t most);
void nnb_onnx_states_free(struct nnb_onnx_states *);

/* Lets a call whose state arguments are NNB_ONNX_STATE run with these states; the slot's words lie at `word`.
 * */
void nnb_onnx_use_states(struct nnb_onnx_call *, struct nnb_onnx_states *, const uint8_t *word);

/* The address of a slot's state that the next run reads, or of the place that it writes; 0 without such a
 * place. */
uint64_t nnb_onnx_state_address(struct nnb_onnx_states *, uint64_t number, uint32_t state, int next);

/* Runs a bound request (`call` is a struct nnb_onnx_call *), in the form of the executors' header. */
int32_t nnb_onnx_run(nnbx_execution *call, const struct nnbx_run *, struct nnbx_outcome *);

/* Makes the run under way and every later one end soon, or stops doing so. Any thread may call this. */
void nnb_onnx_stop(struct nnb_onnx_call *, int stop);

/* The bytes that one run copies. */
uint64_t nnb_onnx_copied_bytes(const struct nnb_onnx_call *);

#endif
