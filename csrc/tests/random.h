/* Random numbers for the C tests: the same ones for the same seed on every machine. */
#ifndef NNB_TESTS_RANDOM_H
#define NNB_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Du;
}

#endif
