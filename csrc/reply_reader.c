#include "reply_reader.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

/* A caller that is inside; lives on its stack. */
struct nnb_reply_waiter {
    struct nnb_reply_waiter *next;
    struct nnb_caller *caller;
    pthread_cond_t wake;
};

/* msgpack: an array of four, which every envelope is, and integers by their size. */
#define ENVELOPE 0x94u
#define UINT8 0xccu
#define UINT64 0xcfu
#define MOST_FIXINT 0x7fu

/* Sets whether the reader is woken for packets; does nothing if the setting stays the same. */
static void arm(struct nnb_reply_reader *replies, uint32_t armed) {
    if (replies->armed != armed) {
        struct epoll_event event = {.events = EPOLLONESHOT | (armed ? EPOLLIN : 0u)};
        replies->armed = armed;
        (void)epoll_ctl(replies->epoll, EPOLL_CTL_MOD, replies->socket, &event);
    }
}

static void lead(struct nnb_reply_reader *replies, struct nnb_reply_waiter *waiter) {
    replies->leader = waiter;
    if (waiter == NULL) {
        arm(replies, 1);
    } else {
        arm(replies, 0);
        (void)pthread_cond_signal(&waiter->wake);
    }
}

/* The reader has left: the next caller reads. */
static void pass_on(struct nnb_reply_reader *replies) { lead(replies, replies->reader ? NULL : replies->first); }

int nnb_reply_reader_open(struct nnb_reply_reader *replies, int socket) {
    memset(replies, 0, sizeof *replies);
    replies->socket = socket;
    replies->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (replies->epoll < 0) {
        return errno;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    replies->armed = 1;
    if (epoll_ctl(replies->epoll, EPOLL_CTL_ADD, socket, &event) != 0) {
        int failed = errno;
        (void)close(replies->epoll);
        replies->epoll = -1;
        return failed;
    }
    return pthread_mutex_init(&replies->lock, NULL);
}

static void enter(struct nnb_reply_reader *replies, struct nnb_reply_waiter *me) {
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&me->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    struct nnb_reply_waiter **end = &replies->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = me;
    if (replies->leader == NULL && !replies->reader) {
        lead(replies, me);
    }
}

static void leave(struct nnb_reply_reader *replies, struct nnb_reply_waiter *me) {
    struct nnb_reply_waiter **link = &replies->first;
    while (*link != me) {
        link = &(*link)->next;
    }
    *link = me->next;
    if (replies->leader == me) {
        pass_on(replies);
    }
    (void)pthread_cond_destroy(&me->wake);
}

/* Finds the number of the call that a packet answers; false if its envelope is not an answer's.
 * TRUST: bytes are a private copy, read within their count. The number only selects a caller; the receiver of
 * the packet checks the envelope and its content. */
static bool answered_call(const uint8_t *bytes, size_t count, uint64_t *id) {
    if (count < 2 || bytes[0] != ENVELOPE) {
        return false;
    }
    if (bytes[1] <= MOST_FIXINT) {
        *id = bytes[1];
        return true;
    }
    if (bytes[1] < UINT8 || bytes[1] > UINT64) {
        return false;
    }
    size_t size = (size_t)1 << (bytes[1] - UINT8);
    if (count < 2 + size) {
        return false;
    }
    *id = 0;
    for (size_t i = 0; i < size; i++) {
        *id = *id << 8 | bytes[2 + i];
    }
    return true;
}

static struct nnb_reply_waiter *find(struct nnb_reply_reader *replies, uint64_t id) {
    struct nnb_reply_waiter *waiter = replies->first;
    while (waiter != NULL && (waiter->caller->id != id || waiter->caller->bytes != 0)) {
        waiter = waiter->next;
    }
    return waiter;
}

/* Takes the next packet if it answers a waiting caller; other packets are left to the reader.
 * Called by the leader, with the lock held. */
static void take(struct nnb_reply_reader *replies) {
    uint8_t seen[NNB_REPLY_PACKET_BYTES];
    struct iovec into = {seen, sizeof seen};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
    uint64_t id;
    /* TRUST: a private copy. Without room for descriptors the kernel reports whether there are some. */
    ssize_t count = recvmsg(replies->socket, &message, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    bool plain = count > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    struct nnb_reply_waiter *found =
        plain && answered_call(seen, (size_t)count, &id) ? find(replies, id) : NULL;
    if (found == NULL) {
        replies->reader = 1;
        pass_on(replies);
        return;
    }
    /* The same packet: no other thread reads. */
    count = recv(replies->socket, found->caller->packet, NNB_REPLY_PACKET_BYTES, MSG_DONTWAIT);
    found->caller->bytes = count > 0 ? (uint32_t)count : 0;
    (void)pthread_cond_signal(&found->wake);
}

/* Waits for packets for all callers; false if a signal came. Called with the lock held, which is released
 * meanwhile. */
static bool read_for_all(struct nnb_reply_reader *replies, uint64_t left_ns) {
    struct pollfd readable = {.fd = replies->socket, .events = POLLIN};
    struct timespec left = nnb_timespec_of(left_ns);
    (void)pthread_mutex_unlock(&replies->lock);
    int ready = ppoll(&readable, 1, &left, NULL);
    bool interrupted = ready < 0;
    (void)pthread_mutex_lock(&replies->lock);
    if (ready > 0) {
        take(replies);
    }
    return !interrupted;
}

static int await(struct nnb_reply_reader *replies, struct nnb_reply_waiter *me, uint64_t deadline_ns) {
    struct timespec deadline = nnb_timespec_of(deadline_ns);
    for (;;) {
        if (me->caller->bytes != 0) {
            return NNB_REPLY_ANSWERED;
        }
        if (me->caller->noticed) {
            return NNB_REPLY_NOTICED;
        }
        if (replies->ended) {
            return NNB_REPLY_ENDED;
        }
        uint64_t now_ns = nnb_now_ns();
        if (now_ns >= deadline_ns) {
            return NNB_REPLY_TIMED_OUT;
        }
        if (replies->leader != me) {
            (void)pthread_cond_timedwait(&me->wake, &replies->lock, &deadline);
        } else if (!read_for_all(replies, deadline_ns - now_ns)) {
            return NNB_REPLY_INTERRUPTED;
        }
    }
}

int nnb_reply_reader_call(struct nnb_reply_reader *replies, struct nnb_caller *caller,
                          const uint8_t *packet, uint32_t bytes, uint64_t timeout_ns) {
    uint64_t deadline_ns = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    struct nnb_reply_waiter me = {.caller = caller};
    int outcome;
    (void)pthread_mutex_lock(&replies->lock);
    if (replies->ended) {
        outcome = NNB_REPLY_ENDED;
    } else {
        enter(replies, &me); /* first, so that no thread is woken for its answer */
        (void)pthread_mutex_unlock(&replies->lock);
        ssize_t sent = packet == NULL
                           ? 0
                           : send(replies->socket, packet, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        int error = errno;
        (void)pthread_mutex_lock(&replies->lock);
        caller->error = sent < 0 ? error : 0;
        outcome = sent < 0 ? NNB_REPLY_NOT_SENT : await(replies, &me, deadline_ns);
        leave(replies, &me);
    }
    (void)pthread_mutex_unlock(&replies->lock);
    return outcome;
}

void nnb_reply_reader_notice(struct nnb_reply_reader *replies, struct nnb_caller *caller) {
    (void)pthread_mutex_lock(&replies->lock);
    caller->noticed = 1;
    for (struct nnb_reply_waiter *waiter = replies->first; waiter != NULL; waiter = waiter->next) {
        if (waiter->caller == caller) {
            (void)pthread_cond_signal(&waiter->wake);
        }
    }
    (void)pthread_mutex_unlock(&replies->lock);
}

int nnb_reply_reader_wait(struct nnb_reply_reader *replies) {
    for (;;) {
        struct epoll_event event;
        int ready = epoll_wait(replies->epoll, &event, 1, -1);
        if (ready < 0 && errno != EINTR) {
            return NNB_REPLY_ENDED;
        }
        (void)pthread_mutex_lock(&replies->lock);
        bool mine = ready > 0 && replies->leader == NULL;
        if (ready > 0) {
            replies->armed = 0;
        }
        if (mine) {
            replies->reader = 1;
        }
        (void)pthread_mutex_unlock(&replies->lock);
        if (mine) {
            return NNB_REPLY_READABLE;
        }
    }
}

void nnb_reply_reader_done(struct nnb_reply_reader *replies) {
    (void)pthread_mutex_lock(&replies->lock);
    replies->reader = 0;
    pass_on(replies);
    (void)pthread_mutex_unlock(&replies->lock);
}

void nnb_reply_reader_end(struct nnb_reply_reader *replies) {
    (void)pthread_mutex_lock(&replies->lock);
    replies->ended = 1;
    for (struct nnb_reply_waiter *waiter = replies->first; waiter != NULL; waiter = waiter->next) {
        (void)pthread_cond_signal(&waiter->wake);
    }
    (void)pthread_mutex_unlock(&replies->lock);
}

void nnb_reply_reader_close(struct nnb_reply_reader *replies) {
    (void)close(replies->epoll);
    replies->epoll = -1;
    (void)pthread_mutex_destroy(&replies->lock);
}
