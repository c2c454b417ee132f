/* Writes and reads the bytes of the control messages of a client of served networks, without sockets.
 * docs/wire_format.md describes the messages; they are those of nnburst.control.
 *
 * Readers work on a private copy of the received bytes and check while they read: counts against the bytes
 * left, numbers against their ranges. A reader skips unknown fields. */
#ifndef NNB_MESSAGES_H
#define NNB_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/msgpack.h"

#define NNB_PROTOCOL_VERSION 2
#define NNB_FEATURE_LEVEL 8 /* the highest that this client speaks: AIDL's fourth version */
#define NNB_MAX_FDS 64u
#define NNB_MAX_OTHER_FILES (NNB_MAX_FDS - 2u) /* of one that is prepared */
/* Bytes of a body that lies in the packet, and of one that lies in a memfd; room for the envelope around the first. */
#define NNB_MAX_INLINE_BYTES (64u * 1024u)
#define NNB_MAX_LARGE_BYTES (16u * 1024u * 1024u)
#define NNB_ENVELOPE_BYTES 64u
#define NNB_MAX_TEXT_BYTES 512u /* of a name in a call */

/* -- the envelope ----------------------------------------------------------------------------------------- */

struct nnb_envelope {
    uint64_t id;         /* matches an answer to its call; 0 wants none */
    uint32_t fds;        /* that belong to the message */
    uint64_t large_size; /* bytes of a body that lies in one more descriptor; 0 if it is `body` */
    struct nnb_unpack body;
};

/* Reads the envelope of a packet; false if it is malformed. The caller compares its sizes with the received
 * ones. */
bool nnb_read_envelope(const uint8_t *packet, size_t bytes, struct nnb_envelope *envelope);

/* Wraps a body of at most NNB_MAX_INLINE_BYTES: bytes of the packet, 0 if it does not fit `room`. */
size_t nnb_write_packet(uint8_t *packet, size_t room, uint64_t id, uint32_t fds, const uint8_t *body,
                        size_t bytes);

/* -- calls ------------------------------------------------------------------------------------------------ */

/* A queue in one region of memory, laid out as nnburst.fmq.descriptor.layout does. */
struct nnb_queue_layout {
    uint64_t read_counter;
    uint64_t write_counter;
    uint64_t data;
    uint64_t data_bytes;
    uint64_t event_flag;
    uint64_t size;
};

struct nnb_queue_layout nnb_layout_queue(uint32_t elements);

struct nnb_open_burst {
    uint64_t handle;
    uint64_t callback;
    struct nnb_queue_layout requests;
    struct nnb_queue_layout results;
    uint32_t max_in_flight;
    bool low_power;
    const uint32_t *cpus;
    uint32_t cpu_count;
};

void nnb_pack_hello(struct nnb_pack *pack);
void nnb_pack_get_served_models(struct nnb_pack *pack);
void nnb_pack_open_served_model(struct nnb_pack *pack, const char *name, uint32_t version);
void nnb_pack_prepare_graph(struct nnb_pack *pack, const char *const *names, uint32_t count, uint32_t num_threads);
void nnb_pack_open_burst(struct nnb_pack *pack, const struct nnb_open_burst *call);
void nnb_pack_free_memory(struct nnb_pack *pack, uint64_t burst, int32_t slot);
void nnb_pack_release(struct nnb_pack *pack, uint64_t handle);

/* -- answers ---------------------------------------------------------------------------------------------- */

struct nnb_reply {
    int32_t status; /* an ErrorStatus of NNAPI's */
    struct nnb_text message;
    struct nnb_unpack result; /* empty without one */
};

bool nnb_read_reply(struct nnb_unpack body, struct nnb_reply *reply);

struct nnb_welcome {
    int64_t protocol;
    int64_t feature_level;
    int32_t pid;
    bool death_word;
};

bool nnb_read_welcome(struct nnb_unpack result, struct nnb_welcome *welcome);

/* A name and the version that it is served in; terminated. */
struct nnb_served_name {
    char *name;
    uint32_t version;
};

/* Reads the names; the caller frees `*names` by nnb_free_names. */
bool nnb_read_served_models(struct nnb_unpack result, struct nnb_served_name **names, uint32_t *count);
void nnb_free_names(struct nnb_served_name *names, uint32_t count);

/* The description of an input or output. */
struct nnb_served_argument {
    char *name;
    uint32_t *dimensions;
    uint32_t rank;
    int32_t type;
    float scale;
    int32_t zero_point;
    char kind;          /* numpy's: 'f', 'i', 'u', 'b' or 'V' */
    uint32_t item_size; /* bytes of an element, at least 1 */
    bool is_scalar;
    uint64_t size; /* bytes; 0 if the shape is not known */
};

struct nnb_served_state {
    uint32_t input;
    uint32_t output;
};

struct nnb_served_model {
    uint64_t handle;
    char *name;
    uint32_t version;
    struct nnb_served_argument *inputs;
    struct nnb_served_argument *outputs;
    struct nnb_served_state *states;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t state_count;
};

/* Reads and checks a description: states are different inputs and outputs of known and equal size. The caller
 * frees the content of `*model` by nnb_free_served_model, even after a failure. */
bool nnb_read_served_model(struct nnb_unpack result, struct nnb_served_model *model);
void nnb_free_served_model(struct nnb_served_model *model);

/* The number of the state that an input (output) is; `state_count` for any other. */
uint32_t nnb_find_state(const struct nnb_served_model *model, bool output, uint32_t index);

/* Whether two descriptions are equal in names, types, shapes, quantisation and states. */
bool nnb_same_served_model(const struct nnb_served_model *one, const struct nnb_served_model *other);

/* Reads the handle of the object that a call has made; 0 without one. */
uint64_t nnb_read_handle(struct nnb_unpack result);

bool nnb_read_opened_burst(struct nnb_unpack result, uint64_t *handle, bool *may_spin);

/* Whether the result has this name and no fields. */
bool nnb_is_result(struct nnb_unpack result, const char *name);

/* -- upcalls ---------------------------------------------------------------------------------------------- */

enum nnb_upcall_kind { NNB_GET_MEMORIES, NNB_BURST_CLOSED, NNB_PING, NNB_OTHER_UPCALL };

struct nnb_upcall {
    enum nnb_upcall_kind kind;
    uint64_t callback; /* of the burst */
    uint32_t slot_count;
    int32_t slots[NNB_MAX_FDS];
};

/* Reads an upcall; false if it is malformed, or requests more slots than an answer can have. */
bool nnb_read_upcall(struct nnb_unpack body, struct nnb_upcall *upcall);

void nnb_pack_memories(struct nnb_pack *pack, const uint64_t *sizes, uint32_t count);
void nnb_pack_nothing(struct nnb_pack *pack);
void nnb_pack_failure(struct nnb_pack *pack, int32_t status, const char *message);

#endif
