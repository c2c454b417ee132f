/* onnxruntime's C library, opened at run time: sessions of whole graphs, requests bound, run without Python.
 *
 * The library is part of the wheel `onnxruntime`, which ships no headers. Its functions are a table that only
 * grows: onnxruntime.c names the places that it uses, and asks for the version that has them all.
 */
#ifndef NNB_ONNXRUNTIME_H
#define NNB_ONNXRUNTIME_H

#include <stdint.h>

#include <nnburst/executor.h>

#define NNB_ONNX_ALIGNMENT 64
#define NNB_ONNX_MAX_RANK 16
#define NNB_ONNX_MESSAGE_BYTES NNBX_MESSAGE_BYTES
#define NNB_ONNX_NAME_BYTES 256

/* An input or output of a session, as in its graph. `element` is ONNX's number, 0 for what is no
 * tensor; an extent is -1 if it is open. */
struct nnb_onnx_border {
    char name[NNB_ONNX_NAME_BYTES];
    int32_t element;
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
};

/* What the memory of an argument is: of its extents; room for an output whose extents the run finds out, and
 * which is copied there, NULL for none; nothing, since it is a state of the engine's (`nnb_onnx_states`). */
enum nnb_onnx_place { NNB_ONNX_WHOLE, NNB_ONNX_ROOM, NNB_ONNX_STATE };

/* One argument of a bound request. Memory of its extents is copied if it is not aligned or if `apart`
 * (enum nnb_apart) asks for it; otherwise the engine works in place. */
struct nnb_onnx_argument {
    uint8_t *memory;
    uint64_t bytes;
    int32_t element;
    uint32_t element_bytes;
    uint32_t apart;
    uint32_t place; /* enum nnb_onnx_place */
    uint32_t rank;
    int64_t dimensions[NNB_ONNX_MAX_RANK];
};

/* What a graph's bytes may refer to by name: the values of tensors that lie elsewhere. */
struct nnb_onnx_external {
    const char *name;
    char *memory;
    uint64_t bytes;
};

/* What executes graphs if it is not the CPU, with the options that it is opened with. `name` is one of those that the
 * library lists, or that of a plugin which was registered. */
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

/* Open the library for this process; further calls do nothing. Not thread-safe. Its version and the names
 * of its providers, separated by commas, are written if there is room. */
int nnb_onnx_open(const char *path, char *version, char *providers);

/* Register a plugin's library, and take its first device of the provider with this name for all later sessions that name
 * it; `hardware` is the device's kind (enum nnb_onnx_hardware). Not thread-safe; needs version 1.22. NNB_ONNX_FAILED and why in
 * `message`. */
int nnb_onnx_plug(const char *path, const char *name, uint32_t *hardware, char *message);

/* Make a session of a graph: `threads` compute, none spins while it is idle. `content` and `external` are
 * not needed afterwards. `provider` is NULL for the CPU. `disabled` names passes of the engine's
 * optimiser that are left out, separated by semicolons. NULL, and why in `message`. */
struct nnb_onnx_session *nnb_onnx_session_new(const uint8_t *content, uint64_t bytes, uint32_t threads,
                                              const struct nnb_onnx_external *external,
                                              uint32_t external_count,
                                              const struct nnb_onnx_provider *provider,
                                              const char *disabled, char *message);
void nnb_onnx_session_free(struct nnb_onnx_session *);
uint32_t nnb_onnx_count(const struct nnb_onnx_session *, int outputs);
int nnb_onnx_describe(const struct nnb_onnx_session *, int outputs, uint32_t at, struct nnb_onnx_border *);

/* Bind a request; NULL, and why in `message`. The calls of a session may run at once. */
struct nnb_onnx_call *nnb_onnx_bind(struct nnb_onnx_session *, const struct nnb_onnx_argument *inputs,
                                    const struct nnb_onnx_argument *outputs, char *message);
void nnb_onnx_call_free(struct nnb_onnx_call *);

/* States: pairs of an input and an output of a session that stay in the engine's memory from run to run, for each
 * slot apart. A state is written over what is read, by turns to one of two places, or where the engine makes room. */
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

/* A request names its slot by two words of 64 bits: its number, which is not 0, and how many runs it has had.
 * In place of these: open the slot, anew if it is open; close it. Nothing is run then. */
#define NNB_ONNX_OPEN_SLOT UINT64_MAX
#define NNB_ONNX_CLOSE_SLOT (UINT64_MAX - 1)

struct nnb_onnx_states;

/* For at most so many slots; NULL if memory is short. The session outlives them. Thread-safe. */
struct nnb_onnx_states *nnb_onnx_states_new(struct nnb_onnx_session *, const struct nnb_onnx_state *,
                                            uint32_t count, uint32_t most);
void nnb_onnx_states_free(struct nnb_onnx_states *);

/* Have a call whose state arguments are NNB_ONNX_STATE run with these; its words lie at `word`. */
void nnb_onnx_use_states(struct nnb_onnx_call *, struct nnb_onnx_states *, const uint8_t *word);

/* Where a slot's state lies that the next run reads, or the place that it writes to; 0 if it has no such place. */
uint64_t nnb_onnx_state_address(struct nnb_onnx_states *, uint64_t number, uint32_t state, int next);

/* Run a bound request (`call` is a struct nnb_onnx_call *), as the header of executors has it. */
int32_t nnb_onnx_run(nnbx_execution *call, const struct nnbx_run *, struct nnbx_outcome *);

/* Have the run that is under way, and every later one, end soon; or no longer. Any thread may ask. */
void nnb_onnx_stop(struct nnb_onnx_call *, int stop);

/* Bytes that one run copies. */
uint64_t nnb_onnx_copied_bytes(const struct nnb_onnx_call *);

#endif
