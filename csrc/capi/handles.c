#include "handles.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

/* Bits 63 to 48: no address of a program on x86-64 (4 or 5 levels) or aarch64 (48 or 52 bits, tagged or not). */
#define TAG UINT64_C(0x4E4E)
#define KIND_SHIFT 44
#define GENERATION_SHIFT 24
#define GENERATION_MASK UINT32_C(0xFFFFF)
#define INDEX_SHIFT 4 /* a handle looks as aligned as what malloc returns */
#define INDEX_MASK UINT32_C(0xFFFFF)

#define CHUNK_SLOTS 1024u
#define CHUNKS 1024u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nnb_atomic_u64 chunks[CHUNKS]; /* addresses of arrays of CHUNK_SLOTS slots */
static uint32_t slots_made;
static uint32_t first_free; /* index plus 1 */

static uint64_t compose(enum nnb_handle_kind kind, uint32_t generation, uint32_t index) {
    return TAG << 48 | (uint64_t)kind << KIND_SHIFT | (uint64_t)generation << GENERATION_SHIFT |
           (uint64_t)index << INDEX_SHIFT;
}

static struct nnb_slot *at(uint32_t index) {
    /* SYNC POINT P: the slots of a chunk are stored before its address.
     * TRUST: memory of this process. */
    uintptr_t chunk = (uintptr_t)nnb_load_acquire_u64(&chunks[index / CHUNK_SLOTS]);
    return chunk == 0 ? NULL : (struct nnb_slot *)chunk + index % CHUNK_SLOTS;
}

/* A free slot; NULL if the table is full. The list's lock is held. */
static struct nnb_slot *take(uint32_t *index) {
    if (first_free != 0) {
        *index = first_free - 1;
        struct nnb_slot *slot = at(*index);
        first_free = slot->next_free;
        return slot;
    }
    if (slots_made == CHUNKS * CHUNK_SLOTS) {
        return NULL;
    }
    *index = slots_made;
    if (slots_made % CHUNK_SLOTS == 0) {
        struct nnb_slot *chunk = calloc(CHUNK_SLOTS, sizeof *chunk);
        if (chunk == NULL) {
            return NULL;
        }
        /* SYNC POINT P: zeroed slots are visible to a thread that sees the chunk's address. */
        nnb_store_release_u64(&chunks[slots_made / CHUNK_SLOTS], (uint64_t)(uintptr_t)chunk);
    }
    slots_made++;
    return at(*index);
}

uint64_t nnb_handle_new(enum nnb_handle_kind kind) {
    uint64_t handle = 0;
    pthread_mutex_lock(&lock);
    uint32_t index;
    struct nnb_slot *slot = take(&index);
    if (slot != NULL) {
        slot->generation++;
        handle = compose(kind, slot->generation, index);
        /* SYNC POINT Q: a thread that sees this handle does not see the slot's content for the handle before.
         * */
        nnb_store_release_u64(&slot->handle, handle);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

struct nnb_slot *nnb_handle_slot(uint64_t handle, enum nnb_handle_kind kind) {
    if (handle >> KIND_SHIFT != (TAG << 4 | (uint64_t)kind)) {
        return NULL;
    }
    uint32_t index = (uint32_t)(handle >> INDEX_SHIFT) & INDEX_MASK;
    struct nnb_slot *slot = at(index);
    if (slot == NULL) {
        return NULL;
    }
    /* SYNC POINT Q: see nnb_handle_new. TRUST: memory of this process. */
    return nnb_load_acquire_u64(&slot->handle) == handle ? slot : NULL;
}

struct nnb_slot *nnb_handle_try_lock(uint64_t handle, enum nnb_handle_kind kind) {
    struct nnb_slot *slot = nnb_handle_slot(handle, kind);
    /* SYNC POINT R: what is offered is complete. */
    if (slot == NULL || !nnb_try_lock(&slot->fast.busy)) {
        return NULL;
    }
    if (nnb_handle_slot(handle, kind) != slot) { /* it has ended, and the slot may have got another */
        nnb_handle_unlock(slot);
        return NULL;
    }
    return slot;
}

struct nnb_slot *nnb_handle_lock(uint64_t handle, enum nnb_handle_kind kind) {
    while (nnb_handle_slot(handle, kind) != NULL) {
        struct nnb_slot *slot = nnb_handle_try_lock(handle, kind);
        if (slot != NULL) {
            return slot;
        }
        (void)sched_yield();
    }
    return NULL;
}

void nnb_handle_unlock(struct nnb_slot *slot) {
    /* SYNC POINT R: the slot's content is complete for the next thread that takes the lock. */
    nnb_unlock(&slot->fast.busy);
}

struct nnb_native_execution *nnb_slot_native(struct nnb_slot *slot) {
    /* SYNC POINT W: the native execution is stored before its address. TRUST: memory of this process. */
    return (struct nnb_native_execution *)(uintptr_t)nnb_load_acquire_u64(&slot->fast.native);
}

void nnb_slot_set_native(struct nnb_slot *slot, struct nnb_native_execution *native) {
    /* SYNC POINT W: see nnb_slot_native; or the Python side has adopted the whole native execution. */
    nnb_store_release_u64(&slot->fast.native, (uint64_t)(uintptr_t)native);
}

void nnb_slot_drop_native(struct nnb_slot *slot) {
    struct nnb_native_execution *native = nnb_slot_native(slot);
    if (native == NULL) {
        return;
    }
    nnb_slot_set_native(slot, NULL);
    /* SYNC POINT U: this execution no longer reads the argument sizes. */
    nnb_fence();
    (void)nnb_count_u32(&native->sizes->executions, UINT32_MAX); /* one less */
    free(native);
}

void nnb_slot_withdraw(struct nnb_slot *slot) {
    slot->fast.offer = NULL;
    slot->fast.sizes = NULL;
    slot->fast.cached = NULL;
    slot->fast.cached_count = 0;
    /* SYNC POINT Y: see offer_memory. */
    nnb_store_release_u64(&slot->fast.size, 0);
}

uint32_t nnb_handles_visit(void (*visit)(struct nnb_slot *slot)) {
    pthread_mutex_lock(&lock);
    uint32_t count = slots_made;
    pthread_mutex_unlock(&lock);
    uint32_t left_out = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct nnb_slot *slot = at(i);
        /* SYNC POINT R: what is offered is complete. */
        if (slot == NULL || !nnb_try_lock(&slot->fast.busy)) {
            left_out++;
            continue;
        }
        visit(slot);
        nnb_handle_unlock(slot);
    }
    return left_out;
}

bool nnb_slot_computes(struct nnb_slot *slot) {
    /* SYNC POINT X: only whether a run is inside. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&slot->fast.computing) != 0;
}

void nnb_slot_set_computing(struct nnb_slot *slot, bool computes) {
    /* SYNC POINT X: see nnb_slot_computes. */
    nnb_store_release_u32(&slot->fast.computing, computes ? 1 : 0);
}

/* Makes a slot free for another object after its handle has ended; the list's lock is held. */
static void give_back(struct nnb_slot *slot, uint64_t handle) {
    if (slot->generation < GENERATION_MASK) { /* otherwise a handle's value would occur twice */
        slot->next_free = first_free;
        first_free = ((uint32_t)(handle >> INDEX_SHIFT) & INDEX_MASK) + 1;
    }
}

void nnb_handle_end(uint64_t handle, enum nnb_handle_kind kind) {
    pthread_mutex_lock(&lock);
    struct nnb_slot *slot = nnb_handle_slot(handle, kind);
    if (slot != NULL) {
        /* SYNC POINT Q: publishes only that the handle has ended. */
        nnb_store_release_u64(&slot->handle, 0);
        give_back(slot, handle);
    }
    pthread_mutex_unlock(&lock);
}

void nnb_handle_end_locked(struct nnb_slot *slot, uint64_t handle) {
    /* SYNC POINT Q: as in nnb_handle_end. */
    nnb_store_release_u64(&slot->handle, 0);
    nnb_handle_unlock(slot); /* before the slot is free, so that its next object finds it unlocked */
    pthread_mutex_lock(&lock);
    give_back(slot, handle);
    pthread_mutex_unlock(&lock);
}
