#include "ring_buffer.h"

#include <string.h>

#include "trap.h"

#define MOST_LOOKS 64u /* at counters that an honest reader and writer move while they are looked at */

/* Whether a distance between counters is possible: within the ring and whole elements. */
static bool plausible(const struct nnb_ring *ring, uint64_t distance) {
    return distance <= ring->capacity_bytes && distance % ring->quantum == 0;
}

static int corrupt(struct nnb_ring *ring) {
    ring->corrupted = 1;
    return NNB_RING_CORRUPT;
}

/* The bytes after the writer's counter `written` that an unsynchronized writer may have begun to write, by
 * `claim`. */
static uint64_t claimed_bytes(const struct nnb_ring *ring, uint64_t claim, uint64_t written) {
    uint64_t ahead = claim - written; /* a claim that lies before it is committed, or none is announced */
    return ahead <= ring->capacity_bytes ? ahead : 0;
}

/* Copies both counters, which the other threads move meanwhile. */
static void copy_counters(nnb_atomic_u64 *read_counter, nnb_atomic_u64 *write_counter, uint64_t capacity_bytes,
                          uint64_t *read, uint64_t *written) {
    uint32_t looks = 0;
    do { /* The writer's last, so that it is not behind; but the reader may have made room in between that the writer
          * has filled.
          * TRUST: the caller checks the last copies before anything uses them.
          * SYNC POINT A: elements written before are visible; SYNC POINT B: their reads are done. */
        *read = nnb_load_acquire_u64(read_counter);
        *written = nnb_load_acquire_u64(write_counter);
    } while (*written - *read > capacity_bytes && ++looks < MOST_LOOKS);
}

int nnb_ring_init(struct nnb_ring *ring, uint8_t *data, nnb_atomic_u64 *read_counter,
                  nnb_atomic_u64 *write_counter, uint64_t capacity_bytes, uint64_t quantum,
                  uint32_t synchronized) {
    uint64_t read;
    uint64_t written;
    if (synchronized) {
        copy_counters(read_counter, write_counter, capacity_bytes, &read, &written);
    } else {
        /* TRUST: checked below. SYNC POINT A: elements written before are visible. */
        read = written = nnb_load_acquire_u64(write_counter);
    }
    *ring = (struct nnb_ring){
        .data = data,
        .read_counter = read_counter,
        .write_counter = write_counter,
        .capacity_bytes = capacity_bytes,
        .quantum = quantum,
        .write_index = written,
        .write_offset = written % capacity_bytes,
        .read_index = read,
        .read_offset = read % capacity_bytes,
        .peer_read = read,
        .peer_write = written,
        .synchronized = synchronized,
    };
    if (!synchronized) { /* what a writer before this one has begun to write stays overwritten */
        /* TRUST: the worst that it can claim is that elements are lost. */
        ring->claimed = written + claimed_bytes(ring, nnb_load_relaxed_u64(read_counter), written);
    }
    if (written % quantum != 0 || !plausible(ring, written - read)) {
        return corrupt(ring);
    }
    return NNB_RING_OK;
}

static uint64_t advance(const struct nnb_ring *ring, uint64_t offset, uint64_t bytes) {
    uint64_t moved = offset + bytes;
    return moved >= ring->capacity_bytes ? moved - ring->capacity_bytes : moved;
}

/* Accepts the reader's present counter. */
static int refresh_reader(struct nnb_ring *ring) {
    /* SYNC POINT B: the reader has finished with every element before this counter.
     * TRUST: checked below: it can only be behind us by at most the whole ring, in whole elements. */
    uint64_t peer = nnb_load_acquire_u64(ring->read_counter);
    if (!plausible(ring, ring->write_index - peer)) {
        return corrupt(ring);
    }
    ring->peer_read = peer;
    return NNB_RING_OK;
}

/* Accepts an unsynchronized writer's present counter. */
static int refresh_overwriter(struct nnb_ring *ring) {
    /* SYNC POINT K: if a later claim's bytes were read before this, that claim is seen here. */
    nnb_fence_reads();
    /* TRUST: the worst that it can claim is that elements are lost. */
    uint64_t claim = nnb_load_relaxed_u64(ring->read_counter);
    /* SYNC POINT A: every element before this counter is completely written.
     * TRUST: checked below for whole elements; the writer's counter may have any value. If it is behind, the
     * distance back is checked, since the remainder of a distance that has wrapped around is meaningless. */
    uint64_t peer = nnb_load_acquire_u64(ring->write_counter);
    uint64_t unread = peer - ring->read_index;
    bool behind = unread > INT64_MAX;
    uint64_t leap = behind ? 0 - unread : unread;
    if (leap % ring->quantum != 0) {
        return corrupt(ring);
    }
    ring->peer_write = peer;
    if (unread + claimed_bytes(ring, claim, peer) <= ring->capacity_bytes &&
        unread <= ring->capacity_bytes) {
        return NNB_RING_OK;
    }
    /* NNAPI: an overtaken unsynchronized reader loses what it had not read and starts again. */
    uint64_t moved = leap % ring->capacity_bytes;
    ring->missed += behind ? 0 : unread;
    ring->read_index = peer;
    ring->read_offset =
        advance(ring, ring->read_offset, behind ? ring->capacity_bytes - moved : moved);
    return NNB_RING_OVERRUN;
}

/* Accepts the writer's present counter. */
static int refresh_writer(struct nnb_ring *ring) {
    if (!ring->synchronized) {
        return refresh_overwriter(ring);
    }
    /* SYNC POINT A: every element before this counter is completely written.
     * TRUST: checked below: it can only be ahead of us by at most the whole ring, in whole elements. */
    uint64_t peer = nnb_load_acquire_u64(ring->write_counter);
    uint64_t unread = peer - ring->read_index;
    if (plausible(ring, unread)) {
        ring->peer_write = peer;
        return NNB_RING_OK;
    }
    return corrupt(ring);
}

static uint64_t free_bytes(const struct nnb_ring *ring) {
    return ring->synchronized ? ring->capacity_bytes - (ring->write_index - ring->peer_read)
                              : ring->capacity_bytes;
}

uint64_t nnb_ring_available_to_write(struct nnb_ring *ring) {
    if (ring->corrupted || (ring->synchronized && refresh_reader(ring) != NNB_RING_OK)) {
        return 0;
    }
    return free_bytes(ring) / ring->quantum;
}

uint64_t nnb_ring_available_to_read(struct nnb_ring *ring) {
    if (ring->corrupted || refresh_writer(ring) == NNB_RING_CORRUPT) {
        return 0;
    }
    return (ring->peer_write - ring->read_index) / ring->quantum;
}

uint64_t nnb_ring_look(struct nnb_ring *ring, uint32_t writes) {
    if (!ring->synchronized) {
        return writes ? nnb_ring_available_to_write(ring) : nnb_ring_available_to_read(ring);
    }
    uint64_t read;
    uint64_t written;
    copy_counters(ring->read_counter, ring->write_counter, ring->capacity_bytes, &read, &written);
    uint64_t unread = written - read;
    if (!plausible(ring, unread)) {
        return NNB_RING_IMPOSSIBLE;
    }
    return (writes ? ring->capacity_bytes - unread : unread) / ring->quantum;
}

uint64_t nnb_ring_glance_to_read(struct nnb_ring *ring) {
    /* SYNC POINT A: as in refresh_writer; nothing is read after this.
     * TRUST: checked below; it is only shown, and decides no access. */
    uint64_t unread = nnb_load_acquire_u64(ring->write_counter) - ring->read_index;
    return plausible(ring, unread) ? unread / ring->quantum : 0;
}

static void split(const struct nnb_ring *ring, uint64_t offset, uint64_t bytes,
                  struct nnb_ring_regions *regions) {
    uint64_t until_end = ring->capacity_bytes - offset;
    uint64_t first = bytes < until_end ? bytes : until_end;
    *regions = (struct nnb_ring_regions){
        .first = ring->data + offset,
        .second = ring->data,
        .first_bytes = first,
        .second_bytes = bytes - first,
    };
}

/* Whether `count` elements are more than the ring has; compared without multiplying. */
static bool too_large(const struct nnb_ring *ring, uint64_t count) {
    return count > ring->capacity_bytes / ring->quantum;
}

/* Makes sure that `count` elements can be written. */
static int claim_write(struct nnb_ring *ring, uint64_t count) {
    if (ring->corrupted) {
        return NNB_RING_CORRUPT;
    }
    if (too_large(ring, count)) {
        return NNB_RING_TOO_LARGE;
    }
    uint64_t bytes = count * ring->quantum;
    if (bytes > free_bytes(ring)) {
        if (refresh_reader(ring) != NNB_RING_OK) {
            return NNB_RING_CORRUPT;
        }
        if (bytes > free_bytes(ring)) {
            return NNB_RING_FULL;
        }
    }
    return NNB_RING_OK;
}

/* Makes sure that `count` elements can be read. */
static int claim_read(struct nnb_ring *ring, uint64_t count) {
    if (ring->corrupted) {
        return NNB_RING_CORRUPT;
    }
    if (too_large(ring, count)) {
        return NNB_RING_TOO_LARGE;
    }
    uint64_t bytes = count * ring->quantum;
    if (!ring->synchronized || bytes > ring->peer_write - ring->read_index) {
        int status = refresh_writer(ring);
        if (status != NNB_RING_OK) {
            return status;
        }
        if (bytes > ring->peer_write - ring->read_index) {
            return NNB_RING_EMPTY;
        }
    }
    return NNB_RING_OK;
}

static void announce_claim(struct nnb_ring *ring, uint64_t bytes) {
    if (bytes > claimed_bytes(ring, ring->claimed, ring->write_index)) {
        ring->claimed = ring->write_index + bytes;
    }
    /* SYNC POINT K: the claim is seen by every reader that has seen one of the writes after it. */
    nnb_store_relaxed_u64(ring->read_counter, ring->claimed);
    nnb_fence_writes();
}

int nnb_ring_begin_write(struct nnb_ring *ring, uint64_t count, struct nnb_ring_regions *regions) {
    int status = claim_write(ring, count);
    if (status == NNB_RING_OK) {
        split(ring, ring->write_offset, count * ring->quantum, regions);
        if (!ring->synchronized) {
            announce_claim(ring, count * ring->quantum);
        }
    }
    return status;
}

int nnb_ring_commit_write(struct nnb_ring *ring, uint64_t count) {
    int status = claim_write(ring, count);
    if (status != NNB_RING_OK) {
        return status;
    }
    uint64_t bytes = count * ring->quantum;
    ring->write_index += bytes;
    ring->write_offset = advance(ring, ring->write_offset, bytes);
    /* SYNC POINT A: the elements written before this are visible to the reader that sees the counter:
     * one store per packet, so a packet is seen whole or not at all. */
    nnb_store_release_u64(ring->write_counter, ring->write_index);
    NNB_TRAP("ring.write.committed");
    return NNB_RING_OK;
}

int nnb_ring_begin_read(struct nnb_ring *ring, uint64_t count, struct nnb_ring_regions *regions) {
    int status = claim_read(ring, count);
    if (status == NNB_RING_OK) {
        split(ring, ring->read_offset, count * ring->quantum, regions);
    }
    return status;
}

static void release_read(struct nnb_ring *ring, uint64_t bytes) {
    NNB_TRAP("ring.read.copied");
    ring->read_index += bytes;
    ring->read_offset = advance(ring, ring->read_offset, bytes);
    if (ring->synchronized) {
        /* SYNC POINT B: the reads before this are done; the writer that sees the counter may reuse the
         * elements. */
        nnb_store_release_u64(ring->read_counter, ring->read_index);
    }
    NNB_TRAP("ring.read.released");
}

int nnb_ring_take_over(struct nnb_ring *ring, bool writes, bool drops) {
    struct nnb_ring now;
    int status = nnb_ring_init(&now, ring->data, ring->read_counter, ring->write_counter,
                               ring->capacity_bytes, ring->quantum, ring->synchronized);
    if (status != NNB_RING_OK) {
        return corrupt(ring);
    }
    if (writes) {
        ring->write_index = now.write_index;
        ring->write_offset = now.write_offset;
        ring->peer_read = now.peer_read;
        ring->claimed = now.claimed;
    } else {
        ring->read_index = now.read_index;
        ring->read_offset = now.read_offset;
        ring->peer_write = now.peer_write;
        if (drops) {
            release_read(ring, now.peer_write - now.read_index);
        }
    }
    return NNB_RING_OK;
}

int nnb_ring_commit_read(struct nnb_ring *ring, uint64_t count) {
    int status = claim_read(ring, count);
    if (status == NNB_RING_OK) { /* else: an unsynchronized reader overtaken since begin read torn bytes */
        release_read(ring, count * ring->quantum);
    }
    return status;
}

int nnb_ring_write(struct nnb_ring *ring, const void *elements, uint64_t count) {
    struct nnb_ring_regions regions;
    int status = nnb_ring_begin_write(ring, count, &regions);
    if (status != NNB_RING_OK || count == 0) {
        return status;
    }
    NNB_TRAP("ring.write.claimed");
    memcpy(regions.first, elements, regions.first_bytes);
    if (regions.second_bytes != 0) {
        NNB_TRAP("ring.write.half");
        memcpy(regions.second, (const uint8_t *)elements + regions.first_bytes, regions.second_bytes);
    }
    NNB_TRAP("ring.write.copied");
    return nnb_ring_commit_write(ring, count);
}

static void copy_out(const struct nnb_ring *ring, uint64_t offset, void *elements, uint64_t bytes) {
    struct nnb_ring_regions regions;
    split(ring, offset, bytes, &regions);
    /* TRUST: the bytes are copied exactly once, here; everything later works on the private copy. */
    memcpy(elements, regions.first, regions.first_bytes);
    if (regions.second_bytes != 0) {
        memcpy((uint8_t *)elements + regions.first_bytes, regions.second, regions.second_bytes);
    }
}

int nnb_ring_peek(struct nnb_ring *ring, void *elements, uint64_t count) {
    int status = claim_read(ring, count);
    if (status == NNB_RING_OK) {
        copy_out(ring, ring->read_offset, elements, count * ring->quantum);
    }
    return status;
}

int nnb_ring_read_on(struct nnb_ring *ring, void *elements, uint64_t peeked, uint64_t count) {
    int status = peeked > count ? NNB_RING_EMPTY : claim_read(ring, count);
    if (status == NNB_RING_OK) {
        uint64_t before = peeked * ring->quantum;
        copy_out(ring, advance(ring, ring->read_offset, before), (uint8_t *)elements + before,
                 count * ring->quantum - before);
        release_read(ring, count * ring->quantum);
    }
    return status;
}

int nnb_ring_read_all(struct nnb_ring *ring, void *elements, uint64_t *count) {
    *count = 0;
    int status = ring->corrupted ? NNB_RING_CORRUPT : refresh_writer(ring);
    if (status != NNB_RING_OK) {
        return status;
    }
    uint64_t bytes = ring->peer_write - ring->read_index;
    if (bytes == 0) {
        return NNB_RING_EMPTY;
    }
    copy_out(ring, ring->read_offset, elements, bytes);
    if (!ring->synchronized) { /* overtaken meanwhile, what was copied is torn */
        status = refresh_writer(ring);
        if (status != NNB_RING_OK) {
            return status;
        }
    }
    release_read(ring, bytes);
    *count = bytes / ring->quantum;
    return NNB_RING_OK;
}

int nnb_ring_read(struct nnb_ring *ring, void *elements, uint64_t count) {
    int status = nnb_ring_peek(ring, elements, count);
    return status == NNB_RING_OK ? nnb_ring_commit_read(ring, count) : status;
}
