/* The part of MessagePack that control messages need, over the caller's memory.
 *
 * A writer without room, and a reader that finds an unexpected value, are marked as bad and then do nothing.
 * So a message is written or read without checks in between, and checked once at the end. Readers work only
 * on private copies. Nothing is allocated, and the time is bounded by the number of bytes. */
#ifndef NNB_MSGPACK_H
#define NNB_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nnb_pack {
    uint8_t *at;
    uint8_t *end;
    bool full; /* something did not fit */
};

/* A writer over a local array. */
#define NNB_PACK_INTO(bytes) ((struct nnb_pack){(bytes), (bytes) + sizeof(bytes), false})

void nnb_pack_map(struct nnb_pack *pack, uint32_t pairs);
void nnb_pack_array(struct nnb_pack *pack, uint32_t items);
void nnb_pack_uint(struct nnb_pack *pack, uint64_t value);
void nnb_pack_int(struct nnb_pack *pack, int64_t value);
void nnb_pack_text(struct nnb_pack *pack, const char *text);
/* Begins a byte string; the bytes follow by nnb_pack_raw, or are already after the written part. */
void nnb_pack_bin(struct nnb_pack *pack, uint32_t bytes);
void nnb_pack_raw(struct nnb_pack *pack, const void *bytes, size_t count);

struct nnb_unpack {
    const uint8_t *at;
    const uint8_t *end;
    bool bad; /* not what was expected, or cut off */
};

/* Text in the bytes that are read; not terminated. */
struct nnb_text {
    const char *at;
    uint32_t length;
};

/* Reads the number of pairs (items) of a map (array). It is bounded by the bytes left: each takes at least a
 * byte. */
uint32_t nnb_unpack_map(struct nnb_unpack *unpack);
uint32_t nnb_unpack_array(struct nnb_unpack *unpack);

/* Reads an integer from `least` to `most`. */
int64_t nnb_unpack_int(struct nnb_unpack *unpack, int64_t least, int64_t most);
double nnb_unpack_number(struct nnb_unpack *unpack);
bool nnb_unpack_bool(struct nnb_unpack *unpack);
struct nnb_text nnb_unpack_text(struct nnb_unpack *unpack);

/* Makes a reader of the byte string at this place. */
struct nnb_unpack nnb_unpack_bin(struct nnb_unpack *unpack);

/* Skips a nil, if it is next; returns whether it was. */
bool nnb_unpack_nil(struct nnb_unpack *unpack);

/* Skips one value of any depth. */
void nnb_unpack_skip(struct nnb_unpack *unpack);

/* Makes a reader of the value at this place, and skips the value. */
struct nnb_unpack nnb_unpack_value(struct nnb_unpack *unpack);

/* Whether everything was read and was valid. */
bool nnb_unpack_ended(const struct nnb_unpack *unpack);

bool nnb_text_is(struct nnb_text text, const char *expected);

#endif
