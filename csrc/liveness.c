#include "liveness.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

_Static_assert(NNB_DEATH_WORD_DIED == FUTEX_OWNER_DIED, "the kernel's bit");
_Static_assert(NNB_DEATH_WORD_LET_GO == FUTEX_TID_MASK, "beyond every thread's number");

struct nnb_death_holder {
    nnb_atomic_u32 *word;
    nnb_atomic_u32 ready; /* 1 once the word is held, else an errno and READY_FAILED */
    nnb_atomic_u32 stop;  /* LEAVE and the value to leave, once the thread is to end */
    uint32_t free_value;  /* of the word, to be taken */
    uint32_t found;       /* what it was instead */
    pthread_t thread;
};

enum { HELD = 1, READY_FAILED = 0x10000 };

#define LEAVE 0x80000000u

/* Waits until the starter asks the thread to end. */
static uint32_t until_stopped(struct nnb_death_holder *holder) {
    uint32_t stop;
    /* SYNC POINT G: pairs with nnb_death_word_let_go; only the word itself. TRUST: private memory. */
    while ((stop = nnb_load_acquire_u32(&holder->stop)) == 0) {
        (void)syscall(SYS_futex, &holder->stop, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    return stop & ~LEAVE;
}

static void *hold(void *argument) {
    struct nnb_death_holder *holder = argument;
    nnb_atomic_u32 *word = holder->word;
    /* On the thread's stack, so it exists as long as the thread, in memory that no peer maps. */
    struct robust_list_head head;
    head.list.next = &head.list;
    head.futex_offset = 0;
    head.list_op_pending = (struct robust_list *)(void *)word;
    uint32_t mine = (uint32_t)syscall(SYS_gettid) | FUTEX_WAITERS;
    /* Before the word is taken, so that the kernel covers all the time for which the word is held. */
    uint32_t failed = syscall(SYS_set_robust_list, &head, sizeof head) == 0 ? 0 : ENOSYS;
    if (failed == 0) {
        holder->found = holder->free_value;
        failed = nnb_try_replace_u32(word, &holder->found, mine) ? 0 : EBUSY;
    }
    /* SYNC POINT E: the starter returns only after the word is held, or taking it has failed. */
    nnb_store_release_u32(&holder->ready, failed == 0 ? HELD : READY_FAILED | failed);
    if (failed == 0) {
        uint32_t leave = until_stopped(holder);
        /* SYNC POINT N: everything that this process did before is visible to a thread that sees the word. */
        nnb_store_release_u32(word, leave);
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    head.list_op_pending = NULL;
    return NULL;
}

/* Starts the thread and waits until it holds the word. Returns 0, or an errno. */
static int start_holder(struct nnb_death_holder *holder) {
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    int failed = pthread_attr_init(&attributes);
    if (failed != 0) {
        return failed;
    }
    (void)pthread_attr_setstacksize(&attributes, 65536);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the other threads */
    failed = pthread_create(&holder->thread, &attributes, hold, holder);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (failed != 0) {
        return failed;
    }
    uint32_t ready;
    /* SYNC POINT E: the word is held, or taking it has failed. */
    while ((ready = nnb_load_acquire_u32(&holder->ready)) == 0) {
        struct timespec moment = {.tv_nsec = 20000};
        (void)nanosleep(&moment, NULL);
    }
    if (ready == HELD) {
        return 0;
    }
    (void)pthread_join(holder->thread, NULL);
    return (int)(ready & ~(uint32_t)READY_FAILED);
}

struct nnb_death_holder *nnb_death_word_take(nnb_atomic_u32 *word, uint32_t free_value,
                                             uint32_t *found, int *failed) {
    struct nnb_death_holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL) {
        *failed = ENOMEM;
        return NULL;
    }
    holder->word = word;
    holder->free_value = free_value;
    *failed = start_holder(holder);
    *found = holder->found;
    if (*failed != 0) {
        free(holder);
        return NULL;
    }
    return holder;
}

void nnb_death_word_let_go(struct nnb_death_holder *holder, uint32_t leave) {
    /* SYNC POINT G: pairs with until_stopped. */
    nnb_store_release_u32(&holder->stop, LEAVE | leave);
    (void)syscall(SYS_futex, &holder->stop, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    (void)pthread_join(holder->thread, NULL);
    free(holder);
}

void nnb_death_word_announce(struct nnb_death_holder *holder) {
    /* SYNC POINT N: everything that this process did before is visible to a thread that sees the word. */
    nnb_store_release_u32(holder->word, NNB_DEATH_WORD_DIED);
    nnb_death_word_pass_on(holder->word);
}

void nnb_death_word_pass_on(nnb_atomic_u32 *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int nnb_death_word_watch(nnb_atomic_u32 *word, nnb_atomic_u32 *stop, uint64_t timeout_ns) {
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    struct timespec until = nnb_timespec_of(deadline);
    for (bool woken = false;; woken = true) {
        /* TRUST: written by the other process; the worst it can claim is that it is dead.
         * SYNC POINT G: only the word itself is read, so relaxed is enough. */
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

int nnb_lock_memory(int on) {
    /* From the first use only: a client may send a sparse pool, which locking must not fill. */
    int done = on ? mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) : munlockall();
    return done == 0 ? 0 : errno;
}

void nnb_give_memory_back(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
