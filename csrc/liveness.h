/* Death word: shows another process at once that this one has died.
 *
 * A dedicated thread holds a 32-bit word in shared memory the way a robust futex is held: when its
 * process ends for whatever reason, the kernel sets FUTEX_OWNER_DIED in the word and wakes a waiter,
 * before it tears down the address space (end of file on a socket comes only after that). The robust
 * list is private and empty and the word is its pending entry, so nothing a peer writes is ever
 * followed. The word is a hint that can only be early in being right; the socket is the authority. */
#ifndef NNB_LIVENESS_H
#define NNB_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"

/* FUTEX_OWNER_DIED, which the kernel sets. */
#define NNB_DEATH_WORD_DIED 0x40000000u

/* A word that one process after another may hold, by a thread that ends with nnb_death_word_let_go or its process. */
struct nnb_death_holder;

/* What a holder leaves that lets go in peace; no thread's number. */
#define NNB_DEATH_WORD_LET_GO 0x3fffffffu

/* Whether the holder of a word with this value has died. */
static inline bool nnb_death_word_is_dead(uint32_t value) {
    return (value & NNB_DEATH_WORD_DIED) != 0;
}

/* Takes `word` if it is `free` (0, or what an earlier holder left). NULL with an errno in `*failed`: EBUSY if it
 * has another value, which is in `*found`. */
struct nnb_death_holder *nnb_death_word_take(nnb_atomic_u32 *word, uint32_t free_value,
                                             uint32_t *found, int *failed);

/* Leaves NNB_DEATH_WORD_LET_GO or 0 in the word, wakes its watcher, and ends the thread. */
void nnb_death_word_let_go(struct nnb_death_holder *holder, uint32_t leave);

/* Wakes all others that sleep on the word of a holder that has died: the kernel wakes one of them. The word may be mapped
 * read-only. */
void nnb_death_word_pass_on(nnb_atomic_u32 *word);

/* Waits until the holder of `word` has died: 0; 1 when `stop` was set; 2 when `timeout_ns` passed. The
 * word may be mapped read-only. */
int nnb_death_word_watch(nnb_atomic_u32 *word, nnb_atomic_u32 *stop, uint64_t timeout_ns);

/* Sets `stop` and wakes the watchers of `word`. */
void nnb_death_word_release(nnb_atomic_u32 *word, nnb_atomic_u32 *stop);

/* The calling process is sent `signal` when its parent dies. 0, or an errno. */
int nnb_die_with_parent(int signal);

/* What ps and top call the calling thread, or its process if it is the first one; 15 bytes count. */
void nnb_set_thread_name(const char *name);

/* Keeps every page of this process in memory from its first use on, or no longer. 0, or an errno. */
int nnb_lock_memory(int on);

/* Gives freed pages of the heap back to the system, if the C library can. */
void nnb_give_memory_back(void);

#endif
