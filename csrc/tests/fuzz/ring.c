/* Ring operations while the peer's counters take any value: what is accepted lies in the ring, what was written
 * by an honest peer is read as it was, and a ring that is corrupt stays so. */
#include "../../ring_buffer.h"
#include "input.h"

/* A queue of what an honest peer would expect, as long as no peer lied. */
struct model {
    uint8_t *bytes;
    uint64_t length;
    int honest;
};

struct fuzzed {
    struct nnb_ring writer;
    struct nnb_ring reader;
    nnb_atomic_u64 *read_counter;
    nnb_atomic_u64 *write_counter;
    uint8_t *data;
    uint8_t *copy;
    uint64_t elements;
    uint64_t quantum;
    struct model model;
};

static void check_regions(const struct nnb_ring *ring, const struct nnb_ring_regions *regions,
                          uint64_t count) {
    PROMISE(regions->first_bytes + regions->second_bytes == count * ring->quantum);
    PROMISE(regions->first >= ring->data);
    PROMISE(regions->first + regions->first_bytes <= ring->data + ring->capacity_bytes);
    PROMISE(regions->second_bytes <= ring->capacity_bytes);
}

static void write_some(struct fuzzed *fuzzed, struct input *input, uint64_t count) {
    uint64_t bytes = count <= fuzzed->elements ? count * fuzzed->quantum : 0;
    for (uint64_t i = 0; i < bytes; i++) {
        fuzzed->copy[i] = take_u8(input);
    }
    int status = nnb_ring_write(&fuzzed->writer, fuzzed->copy, count);
    PROMISE(status != NNB_RING_OK || count <= fuzzed->elements);
    if (status == NNB_RING_OK && fuzzed->model.honest) {
        PROMISE(fuzzed->model.length + bytes <= fuzzed->elements * fuzzed->quantum ||
                !fuzzed->writer.synchronized);
        if (fuzzed->model.length + bytes <= fuzzed->elements * fuzzed->quantum) {
            memcpy(fuzzed->model.bytes + fuzzed->model.length, fuzzed->copy, bytes);
            fuzzed->model.length += bytes;
        } else {
            fuzzed->model.honest = 0; /* overtaken: the reader will lose what it had not read */
        }
    }
}

static void check_read(struct fuzzed *fuzzed, int status, uint64_t count, int consumes) {
    PROMISE(status >= NNB_RING_OK && status <= NNB_RING_OVERRUN);
    if (status != NNB_RING_OK) {
        return;
    }
    PROMISE(count <= fuzzed->elements);
    if (fuzzed->model.honest) {
        uint64_t bytes = count * fuzzed->quantum;
        PROMISE(bytes <= fuzzed->model.length);
        PROMISE(memcmp(fuzzed->copy, fuzzed->model.bytes, bytes) == 0);
        if (consumes) {
            fuzzed->model.length -= bytes;
            memmove(fuzzed->model.bytes, fuzzed->model.bytes + bytes, fuzzed->model.length);
        }
    }
}

static void step(struct fuzzed *fuzzed, struct input *input) {
    uint8_t operation = take_u8(input);
    uint64_t count = take_u8(input) % (fuzzed->elements + 2);
    struct nnb_ring_regions regions;
    if (count > fuzzed->elements) {
        count = UINT64_MAX - take_u8(input);
    }
    switch (operation % 10) {
    case 0:
        write_some(fuzzed, input, count);
        break;
    case 1:
        check_read(fuzzed, nnb_ring_read(&fuzzed->reader, fuzzed->copy, count), count, 1);
        break;
    case 2: {
        int status = nnb_ring_read_all(&fuzzed->reader, fuzzed->copy, &count);
        check_read(fuzzed, status, count, 1);
        PROMISE(status == NNB_RING_OK || count == 0);
        break;
    }
    case 3:
        check_read(fuzzed, nnb_ring_peek(&fuzzed->reader, fuzzed->copy, count), count, 0);
        break;
    case 4:
        if (nnb_ring_begin_read(&fuzzed->reader, count, &regions) == NNB_RING_OK) {
            check_regions(&fuzzed->reader, &regions, count);
            memcpy(fuzzed->copy, regions.first, regions.first_bytes);
            memcpy(fuzzed->copy + regions.first_bytes, regions.second, regions.second_bytes);
            check_read(fuzzed, nnb_ring_commit_read(&fuzzed->reader, count), count, 1);
        }
        break;
    case 5:
        if (nnb_ring_begin_write(&fuzzed->writer, count, &regions) == NNB_RING_OK) {
            check_regions(&fuzzed->writer, &regions, count);
            memset(regions.first, operation, regions.first_bytes);
            memset(regions.second, operation, regions.second_bytes);
            (void)nnb_ring_commit_write(&fuzzed->writer, count);
            fuzzed->model.honest = 0;
        }
        break;
    case 6:
        PROMISE(nnb_ring_available_to_read(&fuzzed->reader) <= fuzzed->elements);
        break;
    case 7:
        PROMISE(nnb_ring_available_to_write(&fuzzed->writer) <= fuzzed->elements);
        break;
    case 8:
        nnb_store_relaxed_u64(fuzzed->write_counter,
                              take_counter(input, fuzzed->reader.read_index, fuzzed->reader.capacity_bytes));
        fuzzed->model.honest = 0;
        break;
    default:
        nnb_store_relaxed_u64(fuzzed->read_counter,
                              take_counter(input, fuzzed->writer.write_index, fuzzed->writer.capacity_bytes));
        fuzzed->model.honest = 0;
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    static const uint8_t quanta[] = {24, 24, 1, 40};
    uint8_t kind = take_u8(&input);
    struct fuzzed fuzzed = {.quantum = quanta[kind & 3], .elements = 1u + (kind >> 3) % 17u};
    uint64_t capacity = fuzzed.elements * fuzzed.quantum;
    uint32_t synchronized = (kind >> 2 & 1) == 0;
    fuzzed.read_counter = exactly(sizeof *fuzzed.read_counter);
    fuzzed.write_counter = exactly(sizeof *fuzzed.write_counter);
    fuzzed.data = exactly(capacity);
    fuzzed.copy = exactly(capacity);
    fuzzed.model = (struct model){.bytes = exactly(capacity), .honest = 1};
    uint64_t start = kind >> 7 ? UINT64_MAX / fuzzed.quantum * fuzzed.quantum : 0;
    nnb_store_relaxed_u64(fuzzed.read_counter, start);
    nnb_store_relaxed_u64(fuzzed.write_counter, start);
    PROMISE(nnb_ring_init(&fuzzed.writer, fuzzed.data, fuzzed.read_counter, fuzzed.write_counter,
                          capacity, fuzzed.quantum, synchronized) == NNB_RING_OK);
    PROMISE(nnb_ring_init(&fuzzed.reader, fuzzed.data, fuzzed.read_counter, fuzzed.write_counter,
                          capacity, fuzzed.quantum, synchronized) == NNB_RING_OK);
    while (input.left != 0) {
        uint32_t writer_was = fuzzed.writer.corrupted;
        uint32_t reader_was = fuzzed.reader.corrupted;
        step(&fuzzed, &input);
        PROMISE(fuzzed.writer.corrupted >= writer_was && fuzzed.reader.corrupted >= reader_was);
        PROMISE(!fuzzed.model.honest || (!fuzzed.writer.corrupted && !fuzzed.reader.corrupted));
    }
    free(fuzzed.read_counter);
    free(fuzzed.write_counter);
    free(fuzzed.data);
    free(fuzzed.copy);
    free(fuzzed.model.bytes);
    return 0;
}
