/* Random hostile counters against the ring, over exact-size buffers so that the sanitizers see every byte
 * beyond. Usage: hostile_counters ROUNDS [SEED]; one line at the end, exit 1 if a promise broke. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ring_buffer.h"
#include "random.h"

static uint64_t state;

/* A counter that tends towards the values where arithmetic goes wrong. */
static uint64_t hostile(uint64_t near, uint64_t capacity, uint64_t quantum) {
    switch (next_random(&state) % 8) {
    case 0: return near;
    case 1: return near + next_random(&state) % (capacity + 2 * quantum);
    case 2: return near - next_random(&state) % (capacity + 2 * quantum);
    case 3: return near + capacity + (next_random(&state) % 3 - 1) * quantum;
    case 4: return near + next_random(&state) % (capacity / quantum + 1) * quantum;
    case 5: return UINT64_MAX - next_random(&state) % 64;
    case 6: return (uint64_t)1 << (next_random(&state) % 64);
    default: return next_random(&state);
    }
}

#define PROMISE(condition) \
    do { \
        if (!(condition)) { \
            (void)fprintf(stderr, "broken: %s (line %d)\n", #condition, __LINE__); \
            exit(1); \
        } \
    } while (0)

static void check_regions(const struct nnb_ring *ring, const struct nnb_ring_regions *regions,
                          uint64_t count) {
    PROMISE(regions->first_bytes + regions->second_bytes == count * ring->quantum);
    PROMISE(regions->first >= ring->data);
    PROMISE(regions->first + regions->first_bytes <= ring->data + ring->capacity_bytes);
    PROMISE(regions->second_bytes <= ring->capacity_bytes);
}

static uint64_t outcomes[8];

static void note(int status) {
    PROMISE(status >= NNB_RING_OK && status <= NNB_RING_OVERRUN);
    outcomes[status]++;
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 88172645463325252u;
    static const uint64_t quanta[] = {1, 4, 24, 24, 24, 40};
    nnb_atomic_u64 *read_counter = malloc(sizeof *read_counter);
    nnb_atomic_u64 *write_counter = malloc(sizeof *write_counter);
    uint8_t *data = NULL;
    uint8_t *copy = NULL;
    struct nnb_ring ring;
    PROMISE(read_counter != NULL && write_counter != NULL);
    for (uint64_t i = 0; i < rounds; i++) {
        if (i % 4096 == 0 || ring.corrupted) { /* a new ring, now and then of another size */
            uint64_t quantum = i % 4096 == 0 ? quanta[next_random(&state) % 6] : ring.quantum;
            uint64_t capacity =
                i % 4096 == 0 ? quantum * (1 + next_random(&state) % 33) : ring.capacity_bytes;
            if (i % 4096 == 0) {
                free(data);
                free(copy);
                data = calloc(1, capacity);
                copy = calloc(1, capacity);
                PROMISE(data != NULL && copy != NULL);
            }
            uint64_t start = next_random(&state) % 4 == 0 ? UINT64_MAX / quantum * quantum
                                                    : next_random(&state) % 1000 * quantum;
            nnb_store_relaxed_u64(write_counter, start);
            nnb_store_relaxed_u64(read_counter, start);
            PROMISE(nnb_ring_init(&ring, data, read_counter, write_counter, capacity, quantum,
                                  next_random(&state) % 4 != 0) == NNB_RING_OK);
        }
        nnb_store_relaxed_u64(write_counter, hostile(ring.read_index, ring.capacity_bytes, ring.quantum));
        nnb_store_relaxed_u64(read_counter, hostile(ring.write_index, ring.capacity_bytes, ring.quantum));
        uint64_t elements = ring.capacity_bytes / ring.quantum;
        uint64_t count = next_random(&state) % (elements + 2);
        struct nnb_ring_regions regions;
        int status;
        switch (next_random(&state) % 6) {
        case 0:
            PROMISE(nnb_ring_available_to_read(&ring) <= elements);
            break;
        case 1:
            PROMISE(nnb_ring_available_to_write(&ring) <= elements);
            break;
        case 2:
            note(nnb_ring_read(&ring, copy, count <= elements ? count : UINT64_MAX));
            break;
        case 3:
            note(nnb_ring_write(&ring, copy, count <= elements ? count : UINT64_MAX / 24 + 1));
            break;
        case 4:
            note(status = nnb_ring_begin_read(&ring, count, &regions));
            if (status == NNB_RING_OK) {
                check_regions(&ring, &regions, count);
                memcpy(copy, regions.first, regions.first_bytes);
                memcpy(copy + regions.first_bytes, regions.second, regions.second_bytes);
                note(nnb_ring_commit_read(&ring, count));
            }
            break;
        default:
            note(status = nnb_ring_begin_write(&ring, count, &regions));
            if (status == NNB_RING_OK) {
                check_regions(&ring, &regions, count);
                memset(regions.first, 1, regions.first_bytes);
                memset(regions.second, 2, regions.second_bytes);
                note(nnb_ring_commit_write(&ring, count));
            }
            break;
        }
    }
    (void)printf("%" PRIu64 " hostile counter pairs:", rounds);
    for (int s = 0; s <= NNB_RING_OVERRUN; s++) {
        (void)printf(" %s %" PRIu64,
                     (const char *[]){"ok", "full", "empty", "too-large", "corrupt", "overrun"}[s],
                     outcomes[s]);
    }
    (void)printf("\n");
    free(data);
    free(copy);
    free(read_counter);
    free(write_counter);
    return 0;
}
