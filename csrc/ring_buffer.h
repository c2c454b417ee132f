/* Single-producer ring of fixed-size elements over memory shared by two processes.
 *
 * Counters are 64-bit byte counts that only grow and are never reduced modulo, so an empty and a full ring
 * differ and every element is usable. Each side keeps its own counter in private memory; the shared word is
 * output only. The peer's counter is copied, checked (0 <= w - r <= capacity, whole elements) and only then
 * used; an impossible one makes this ring unusable.
 *
 * Flavours (NNAPI: fmq/MessageQueue.h):
 *   synchronized    one writer, one reader; a full ring refuses writes.
 *   unsynchronized  one writer that never waits; each reader has its own counter and loses everything
 *                   unread when it is overtaken. DEVIATES: the writer announces in the read counter's word, which
 *                   are not needed there, up to where it is about to write, so that a reader never takes elements
 *                   that are being overwritten. An original writer leaves the word alone, and its readers can.
 *
 * Not thread-safe: one thread writes and one thread reads through one struct nnb_ring. */
#ifndef NNB_RING_BUFFER_H
#define NNB_RING_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "atomics.h"

/* Outcomes; 0 is success, everything else leaves the ring as it was. */
enum nnb_ring_status {
    NNB_RING_OK = 0,
    NNB_RING_FULL = 1,      /* fewer free elements than asked for */
    NNB_RING_EMPTY = 2,     /* fewer readable elements than asked for */
    NNB_RING_TOO_LARGE = 3, /* more elements than the ring has */
    NNB_RING_CORRUPT = 4,   /* the peer's counter is impossible; final */
    NNB_RING_OVERRUN = 5,   /* unsynchronized reader was overtaken; unread elements are lost */
};

/* Contiguous parts of the ring: two if the range wraps, else `second_bytes` is 0. */
struct nnb_ring_regions {
    uint8_t *first;
    uint8_t *second;
    uint64_t first_bytes;
    uint64_t second_bytes;
};

struct nnb_ring {
    uint8_t *data;
    nnb_atomic_u64 *read_counter;
    nnb_atomic_u64 *write_counter;
    uint64_t capacity_bytes;
    uint64_t quantum;
    uint64_t write_index; /* private truth, when this side writes */
    uint64_t write_offset; /* write_index % capacity_bytes, unless counters have wrapped meanwhile */
    uint64_t read_index;  /* private truth, when this side reads */
    uint64_t read_offset;
    uint64_t peer_read;  /* last accepted copy of the reader's counter */
    uint64_t peer_write; /* last accepted copy of the writer's counter */
    uint64_t missed;     /* bytes that an unsynchronized reader lost when it was overtaken */
    uint64_t claimed;    /* up to where an unsynchronized writer may have written, committed or not */
    uint32_t synchronized;
    uint32_t corrupted;
};

/* Opens a ring over mapped memory. `capacity_bytes` is a multiple of `quantum`, neither is 0; the caller
 * keeps the memory mapped. Starts at the counters in the memory (an unsynchronized reader at the writer's).
 * Returns NNB_RING_CORRUPT if they are impossible. */
int nnb_ring_init(struct nnb_ring *ring, uint8_t *data, nnb_atomic_u64 *read_counter,
                  nnb_atomic_u64 *write_counter, uint64_t capacity_bytes, uint64_t quantum,
                  uint32_t synchronized);

/* Continues as the writer (reader) after another one that stopped after this ring was opened: takes that
 * side's counter from the shared word. `drops`: as a reader that skips unread elements. NNB_RING_CORRUPT if
 * the counter is impossible. */
int nnb_ring_take_over(struct nnb_ring *ring, bool writes, bool drops);

/* The number of elements that can be written (read) now; 0 for a corrupt ring. */
uint64_t nnb_ring_available_to_write(struct nnb_ring *ring);
uint64_t nnb_ring_available_to_read(struct nnb_ring *ring);

/* The same for an object that is not at the side that writes (reads): by the counters of a synchronized ring, since
 * its own index is not that side's, which changes nothing. NNB_RING_IMPOSSIBLE if they are impossible. */
#define NNB_RING_IMPOSSIBLE UINT64_MAX
uint64_t nnb_ring_look(struct nnb_ring *ring, uint32_t writes);

/* The same as nnb_ring_available_to_read for the reader, while another thread uses it: changes nothing. 0 if the writer has overtaken the
 * reader. */
uint64_t nnb_ring_glance_to_read(struct nnb_ring *ring);

/* Claims `count` elements for writing (reading) in place. Nothing is visible to the peer before the commit,
 * and a claim without a commit has no effect. */
int nnb_ring_begin_write(struct nnb_ring *ring, uint64_t count, struct nnb_ring_regions *regions);
int nnb_ring_commit_write(struct nnb_ring *ring, uint64_t count);
int nnb_ring_begin_read(struct nnb_ring *ring, uint64_t count, struct nnb_ring_regions *regions);
int nnb_ring_commit_read(struct nnb_ring *ring, uint64_t count);

/* Copies `count` elements in (out) as one unit. */
int nnb_ring_write(struct nnb_ring *ring, const void *elements, uint64_t count);
int nnb_ring_read(struct nnb_ring *ring, void *elements, uint64_t count);

/* Copies all readable elements out as one unit, and stores their number in `*count`, which is 0 for every
 * outcome but OK. `elements` has room for the whole ring. */
int nnb_ring_read_all(struct nnb_ring *ring, void *elements, uint64_t *count);

/* Copies `count` elements out without consuming them. */
int nnb_ring_peek(struct nnb_ring *ring, void *elements, uint64_t count);

/* Consumes `count` elements, of which `elements` has the first `peeked` already: only the others are copied,
 * after them. For synchronized rings. */
int nnb_ring_read_on(struct nnb_ring *ring, void *elements, uint64_t peeked, uint64_t count);

/* Whether the writer's counter has moved past the elements that were read: the cheapest poll, without a check
 * or copy. */
static inline int nnb_ring_poll(struct nnb_ring *ring) {
    /* TRUST: only causes another read of the counter, which is checked then. */
    return nnb_load_relaxed_u64(ring->write_counter) != ring->read_index;
}

#endif
