#include "liveness.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

struct holder {
    struct robust_list_head head;
    nnb_atomic_u32 *word;
    nnb_atomic_u32 ready;
};

static void *hold(void *argument) {
    struct holder *holder = argument;
    nnb_atomic_u32 *word = holder->word;
    /* Lives as long as the thread does: on its stack, in memory that no peer maps. */
    struct robust_list_head head;
    head.list.next = &head.list;
    head.futex_offset = 0;
    head.list_op_pending = (struct robust_list *)(void *)word;
    uint32_t tid = (uint32_t)syscall(SYS_gettid);
    /* SYNC POINT G: nothing but the word itself; its watchers and the kernel read it alone. */
    nnb_store_release_u32(word, tid | FUTEX_WAITERS);
    long failed = syscall(SYS_set_robust_list, &head, sizeof head);
    /* SYNC POINT E: the word is held, or could not be, before the starter returns. */
    nnb_store_release_u32(&holder->ready, failed == 0 ? 1 : 2);
    for (;;) {
        (void)pause();
    }
    return NULL;
}

int nnb_death_word_hold(nnb_atomic_u32 *word) {
    struct holder holder = {.word = word};
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int failed = pthread_attr_init(&attributes);
    if (failed != 0) {
        return failed;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, 65536);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the other threads */
    failed = pthread_create(&thread, &attributes, hold, &holder);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (failed != 0) {
        return failed;
    }
    uint32_t ready;
    /* SYNC POINT E: `holder` is not touched by the thread after this. */
    while ((ready = nnb_load_acquire_u32(&holder.ready)) == 0) {
        struct timespec moment = {.tv_nsec = 20000};
        (void)nanosleep(&moment, NULL);
    }
    return ready == 1 ? 0 : ENOSYS;
}

int nnb_death_word_watch(nnb_atomic_u32 *word, nnb_atomic_u32 *stop, uint64_t timeout_ns) {
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000u),
                             .tv_nsec = (long)(deadline % 1000000000u)};
    for (bool woken = false;; woken = true) {
        /* TRUST: written by the other process; the worst it can claim is that it is dead.
         * SYNC POINT G: only the word itself is looked at, so relaxed is enough. */
        uint32_t value = nnb_load_relaxed_u32(word);
        if ((value & FUTEX_OWNER_DIED) != 0) {
            return 0;
        }
        /* SYNC POINT F: pairs with nnb_death_word_release. */
        if (nnb_load_acquire_u32(stop) != 0) {
            return 1;
        }
        if (nnb_now_ns() >= deadline) {
            return 2;
        }
        if (woken) { /* the word changes once; a peer that changes or wakes it all the time costs no more than this */
            struct timespec moment = {.tv_nsec = 1000000};
            (void)nanosleep(&moment, NULL);
        }
        (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, &until, NULL,
                      FUTEX_BITSET_MATCH_ANY);
    }
}

void nnb_death_word_release(nnb_atomic_u32 *word, nnb_atomic_u32 *stop) {
    /* SYNC POINT F: the watcher that sees this does not touch the word again. */
    nnb_store_release_u32(stop, 1);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int nnb_die_with_parent(int signal) {
    return prctl(PR_SET_PDEATHSIG, signal) == 0 ? 0 : errno;
}

void nnb_set_thread_name(const char *name) {
    (void)prctl(PR_SET_NAME, name);
}

void nnb_give_memory_back(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
