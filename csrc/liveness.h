/* Death word: shows another process at once that this one has died.
 *
 * A dedicated thread holds a 32-bit word in shared memory like a robust futex: when its process ends for any
 * reason, the kernel sets FUTEX_OWNER_DIED in the word and wakes a waiter, before it frees the address space
 * (end of file on a socket comes only after that). The robust list is private and empty, and the word is its
 * pending entry, so the kernel never follows an address that a peer wrote. The word is only an early hint;
 * the socket decides. */
#ifndef NNB_LIVENESS_H
#define NNB_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"

/* FUTEX_OWNER_DIED, which the kernel sets. */
#define NNB_DEATH_WORD_DIED 0x40000000u

/* The thread that holds a word; it ends with nnb_death_word_let_go or with its process. Several processes may
 * hold a word one after another. */
struct nnb_death_holder;

/* The value that a holder leaves when it releases the word; not a thread's number. */
#define NNB_DEATH_WORD_LET_GO 0x3fffffffu

/* Whether the holder of a word with this value has died. */
static inline bool nnb_death_word_is_dead(uint32_t value) {
    return (value & NNB_DEATH_WORD_DIED) != 0;
}

/* Takes `word` if it is `free` (0, or the value that an earlier holder left). Returns NULL after a failure,
 * with an errno in `*failed`: EBUSY if the word has another value, which is in `*found`. */
struct nnb_death_holder *nnb_death_word_take(nnb_atomic_u32 *word, uint32_t free_value,
                                             uint32_t *found, int *failed);

/* Leaves NNB_DEATH_WORD_LET_GO or 0 in the word, wakes its watcher, and ends the thread. */
void nnb_death_word_let_go(struct nnb_death_holder *holder, uint32_t leave);

/* Shows the watchers of the held word a death that is about to come; the process then ends. */
void nnb_death_word_announce(struct nnb_death_holder *holder);

/* Wakes all others that sleep on the word of a dead holder, since the kernel wakes only one of them. The word
 * may be mapped read-only. */
void nnb_death_word_pass_on(nnb_atomic_u32 *word);

/* Waits until the holder of `word` has died. Returns 0; 1 if `stop` was set; 2 after `timeout_ns`. The word
 * may be mapped read-only. */
int nnb_death_word_watch(nnb_atomic_u32 *word, nnb_atomic_u32 *stop, uint64_t timeout_ns);

/* Sets `stop` and wakes the watchers of `word`. */
void nnb_death_word_release(nnb_atomic_u32 *word, nnb_atomic_u32 *stop);

/* Has the kernel send `signal` to the calling process when its parent dies. Returns 0, or an errno. */
int nnb_die_with_parent(int signal);

/* Sets the name that ps and top show for the calling thread, or for the process if it is the first thread; at
 * most 15 bytes. */
void nnb_set_thread_name(const char *name);

/* Locks every page of this process in memory from its first use on, or unlocks all. Returns 0, or an errno.
 * */
int nnb_lock_memory(int on);

/* Returns freed pages of the heap to the system, if the C library can. */
void nnb_give_memory_back(void);

#endif
