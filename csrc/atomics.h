/* The only file that names memory orders. All memory shared with another process or thread is accessed
 * through these functions; each names what it orders.
 *
 * A release store pairs with an acquire load of the same word; both ends carry a comment
 * "SYNC POINT <letter>" at their call sites with what becomes visible to whom. */
#ifndef NNB_ATOMICS_H
#define NNB_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint32_t nnb_atomic_u32;
typedef _Atomic uint64_t nnb_atomic_u64;

_Static_assert(sizeof(nnb_atomic_u32) == 4, "shared words have no hidden lock");
_Static_assert(sizeof(nnb_atomic_u64) == 8, "shared words have no hidden lock");

static inline uint64_t nnb_load_acquire_u64(nnb_atomic_u64 *word) {
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline uint64_t nnb_load_relaxed_u64(nnb_atomic_u64 *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void nnb_store_release_u64(nnb_atomic_u64 *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

static inline void nnb_store_relaxed_u64(nnb_atomic_u64 *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline uint32_t nnb_load_acquire_u32(nnb_atomic_u32 *word) {
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline uint32_t nnb_load_relaxed_u32(nnb_atomic_u32 *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void nnb_store_release_u32(nnb_atomic_u32 *word, uint32_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

/* Adds to a counter; orders nothing. */
static inline uint32_t nnb_count_u32(nnb_atomic_u32 *word, uint32_t more) {
    return atomic_fetch_add_explicit(word, more, memory_order_relaxed);
}

static inline uint64_t nnb_count_u64(nnb_atomic_u64 *word, uint64_t more) {
    return atomic_fetch_add_explicit(word, more, memory_order_relaxed);
}

/* Releases a reference; returns the count before. The caller that gets 1 sees all writes before the other
 * releases. */
static inline uint32_t nnb_drop_u32(nnb_atomic_u32 *word) {
    return atomic_fetch_sub_explicit(word, 1, memory_order_acq_rel);
}

/* Sets bits; totally ordered with every other read-modify-write and with nnb_fence. */
static inline uint32_t nnb_fetch_or_u32(nnb_atomic_u32 *word, uint32_t bits) {
    return atomic_fetch_or_explicit(word, bits, memory_order_seq_cst);
}

/* Keeps only `mask`; totally ordered with every other read-modify-write and with nnb_fence. */
static inline uint32_t nnb_fetch_and_u32(nnb_atomic_u32 *word, uint32_t mask) {
    return atomic_fetch_and_explicit(word, mask, memory_order_seq_cst);
}

/* Replaces a word equal to `*expected` by `value`; else returns false with the word in `*expected`. Totally
 * ordered. */
static inline bool nnb_try_replace_u32(nnb_atomic_u32 *word, uint32_t *expected, uint32_t value) {
    return atomic_compare_exchange_strong_explicit(word, expected, value, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* Takes a lock word: true if it was 0. All writes of the last holder are visible then. */
static inline bool nnb_try_lock(nnb_atomic_u32 *word) {
    return atomic_exchange_explicit(word, 1, memory_order_acquire) == 0;
}

static inline void nnb_unlock(nnb_atomic_u32 *word) {
    atomic_store_explicit(word, 0, memory_order_release);
}

/* Takes a word for `holder`: true if it was 0. All writes of the last holder before it stored 0 are visible
 * then. */
static inline bool nnb_try_claim(nnb_atomic_u64 *word, uint64_t holder) {
    uint64_t open = 0;
    return atomic_compare_exchange_strong_explicit(word, &open, holder, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Orders everything before it with everything after it, also a store with a later load (the half
 * that release and acquire leave out): "publish, then look whether the other side sleeps". */
static inline void nnb_fence(void) {
#ifdef __SANITIZE_THREAD__
    /* ThreadSanitizer does not support fences; a read-modify-write orders at least as much here. */
    _Atomic uint32_t word = 0;
    (void)atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Between a store that announces writes and these non-atomic writes: a reader that sees one of them and calls
 * nnb_fence_reads then sees the announcement. */
static inline void nnb_fence_writes(void) {
#ifdef __SANITIZE_THREAD__
    nnb_fence();
#else
    atomic_thread_fence(memory_order_release);
#endif
}

/* Between non-atomic reads and a load that shows whether a writer has disturbed them. */
static inline void nnb_fence_reads(void) {
#ifdef __SANITIZE_THREAD__
    nnb_fence();
#else
    atomic_thread_fence(memory_order_acquire);
#endif
}

/* Tells the core that this is a spin loop. */
static inline void nnb_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

#endif
