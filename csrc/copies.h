/* Copies before and after a computation, for arguments that do not lie as an engine needs them. */
#ifndef NNB_COPIES_H
#define NNB_COPIES_H

#include <stdint.h>
#include <string.h>

struct nnb_copy {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
};

static inline void nnb_copy_all(const struct nnb_copy *copies, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    }
}

#endif
