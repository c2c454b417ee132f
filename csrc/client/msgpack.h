/* MessagePack, as much of it as control messages need, over memory of the caller's.
 *
 * A writer that is out of room and a reader that comes to something that it did not expect note that and go on doing
 * nothing, so that a message is written or read in one go and looked at once, at the end. Readers look at private
 * copies only. Nothing is allocated, and nothing takes longer than the bytes that there are. */
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
/* Bytes follow by nnb_pack_raw, or are at the end of what was written already. */
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

/* Pairs of the map (items of the array) that begins here. No more than can be there: each takes a byte at least. */
uint32_t nnb_unpack_map(struct nnb_unpack *unpack);
uint32_t nnb_unpack_array(struct nnb_unpack *unpack);

/* A whole number from `least` to `most`. */
int64_t nnb_unpack_int(struct nnb_unpack *unpack, int64_t least, int64_t most);
double nnb_unpack_number(struct nnb_unpack *unpack);
bool nnb_unpack_bool(struct nnb_unpack *unpack);
struct nnb_text nnb_unpack_text(struct nnb_unpack *unpack);

/* A reader of the bytes that lie here as one string of bytes. */
struct nnb_unpack nnb_unpack_bin(struct nnb_unpack *unpack);

/* Takes a nil, if one is here. */
bool nnb_unpack_nil(struct nnb_unpack *unpack);

/* Passes over one value, however deep. */
void nnb_unpack_skip(struct nnb_unpack *unpack);

/* A reader of the value that lies here, which is passed over. */
struct nnb_unpack nnb_unpack_value(struct nnb_unpack *unpack);

/* Whether everything was read and was as expected. */
bool nnb_unpack_ended(const struct nnb_unpack *unpack);

bool nnb_text_is(struct nnb_text text, const char *expected);

#endif
