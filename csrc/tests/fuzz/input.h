/* A fuzzer's input as a stream of choices; zeros once it is used up. */
#ifndef NNB_FUZZ_INPUT_H
#define NNB_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PROMISE(condition) \
    do { \
        if (!(condition)) { \
            __builtin_trap(); \
        } \
    } while (0)

struct input {
    const uint8_t *data;
    size_t left;
};

static inline void take_bytes(struct input *input, void *to, size_t bytes) {
    size_t some = bytes < input->left ? bytes : input->left;
    memset(to, 0, bytes);
    if (some != 0) {
        memcpy(to, input->data, some);
    }
    input->data += some;
    input->left -= some;
}

static inline uint8_t take_u8(struct input *input) {
    uint8_t value;
    take_bytes(input, &value, sizeof value);
    return value;
}

/* Memory of exactly `bytes`, so that the sanitizers see every byte beyond. */
static inline void *exactly(size_t bytes) {
    void *memory = calloc(1, bytes);
    PROMISE(memory != NULL);
    return memory;
}

/* A value that is `near` some counter, or anything. */
static inline uint64_t take_counter(struct input *input, uint64_t near, uint64_t capacity) {
    uint8_t how = take_u8(input);
    uint64_t value;
    switch (how & 7) {
    case 0: return near;
    case 1: return near + take_u8(input);
    case 2: return near - take_u8(input);
    case 3: return near + capacity;
    case 4: return near + capacity + 1;
    case 5: return UINT64_MAX - take_u8(input);
    case 6: return near + (uint64_t)(take_u8(input)) * 24;
    default: take_bytes(input, &value, sizeof value); return value;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
