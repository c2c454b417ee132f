/* Makes, finds and ends handles, the opaque pointers that programs hold.
 *
 * A handle is not an address but a number that no pointer of the program can equal. It consists of a tag that
 * makes it non-canonical, the object's kind, the slot's generation, and the slot. So a freed, foreign or wild
 * handle is recognised without a memory access, and is never taken for a newer object in the same slot.
 *
 * Any thread. */
#ifndef NNB_CAPI_HANDLES_H
#define NNB_CAPI_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "../atomics.h"
#include "fast.h"
#include "functions.h"

/* The address in a call's word that is not a handle. */
static inline void *nnb_address(int64_t word) { return (void *)(uintptr_t)word; }

struct nnb_slot {
    nnb_atomic_u64 handle; /* 0 while the slot is free */
    uint32_t generation;   /* of the latest handle */
    uint32_t next_free;    /* index of the next free slot, plus 1 */
    struct nnb_fast fast;  /* of an execution: the way that needs no interpreter */
};

/* Makes a new handle; 0 if the table is full. */
uint64_t nnb_handle_new(enum nnb_handle_kind kind);

/* The slot of a valid handle of this kind; NULL for any other value. A slot's memory is never freed, so it may be
 * read even if another thread frees the handle meanwhile. */
struct nnb_slot *nnb_handle_slot(uint64_t handle, enum nnb_handle_kind kind);

/* As nnb_handle_slot, but locks `fast`, for which it waits; NULL if the handle has ended. */
struct nnb_slot *nnb_handle_lock(uint64_t handle, enum nnb_handle_kind kind);

/* As nnb_handle_lock, but without waiting: also NULL if another thread has locked the slot. */
struct nnb_slot *nnb_handle_try_lock(uint64_t handle, enum nnb_handle_kind kind);

void nnb_handle_unlock(struct nnb_slot *slot);

/* The native execution of a slot; NULL if the Python side has the execution. */
struct nnb_native_execution *nnb_slot_native(struct nnb_slot *slot);
void nnb_slot_set_native(struct nnb_slot *slot, struct nnb_native_execution *native);

/* Frees a native execution that has been adopted, or whose handle is freed; does nothing for other slots. The slot is
 * locked. */
void nnb_slot_drop_native(struct nnb_slot *slot);

/* Clears everything that the Python side has entered for a handle, except a native execution; the slot is
 * locked. */
void nnb_slot_withdraw(struct nnb_slot *slot);

/* Calls `visit` with each slot, locked. Returns the number of slots that it skipped, since other threads had locked
 * them. */
uint32_t nnb_handles_visit(void (*visit)(struct nnb_slot *slot));

/* Whether C computes an execution now; its slot is locked meanwhile. */
bool nnb_slot_computes(struct nnb_slot *slot);

/* Notes whether C computes the execution; the slot is locked. */
void nnb_slot_set_computing(struct nnb_slot *slot, bool computes);

/* Makes a handle invalid; does nothing for a handle that has ended. */
void nnb_handle_end(uint64_t handle, enum nnb_handle_kind kind);

/* As nnb_handle_end, for a slot that this thread has locked; unlocks it. */
void nnb_handle_end_locked(struct nnb_slot *slot, uint64_t handle);

#endif
