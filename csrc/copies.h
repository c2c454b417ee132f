/* Copies before and after a computation, for arguments whose alignment or padding an engine cannot use, or
 * that their owner must not change meanwhile. */
#ifndef NNB_COPIES_H
#define NNB_COPIES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct nnb_copy {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
    uint32_t truth; /* every byte is made 0 or 1: engines index by truth values, and compare them with 1 */
};

/* The way to give an argument to an engine: in place, as a copy, or as a copy whose bytes are truth values. */
enum nnb_apart { NNB_IN_ITS_PLACE, NNB_COPIED, NNB_COPIED_TRUTH };

/* Allocates zeroed memory for the copy of an argument, with up to two units of `alignment` after it, since
 * kernels read a little past their inputs. The caller frees it; NULL without enough memory. */
static inline uint8_t *nnb_room_for_copy(uint64_t bytes, uint64_t alignment) {
    uint64_t room = (bytes / alignment + 2) * alignment;
    uint8_t *memory = aligned_alloc(alignment, room);
    if (memory) {
        memset(memory, 0, room);
    }
    return memory;
}

static inline void nnb_copy_all(const struct nnb_copy *copies, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        memcpy(copies[i].to, copies[i].from, copies[i].bytes);
        /* TRUST: the copy is changed, which no other process can write */
        for (uint64_t at = 0; copies[i].truth && at < copies[i].bytes; at++) {
            copies[i].to[at] = copies[i].to[at] != 0;
        }
    }
}

/* The bytes that the copies before and after a computation have together. */
static inline uint64_t nnb_copied_bytes(const struct nnb_copy *before, uint32_t before_count,
                                        const struct nnb_copy *after, uint32_t after_count) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < before_count; i++) {
        bytes += before[i].bytes;
    }
    for (uint32_t i = 0; i < after_count; i++) {
        bytes += after[i].bytes;
    }
    return bytes;
}

#endif
