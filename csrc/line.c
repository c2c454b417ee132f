#include "line.h"

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
struct nnb_line_place {
    struct nnb_line_place *next;
    struct nnb_caller *caller;
    pthread_cond_t wake;
};

/* msgpack: an array of four, which every envelope is, and integers by their size. */
#define ENVELOPE 0x94u
#define UINT8 0xccu
#define UINT64 0xcfu
#define MOST_FIXINT 0x7fu

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* Has the reader woken for what there is to read, or not. Only if the answer changes. */
static void arm(struct nnb_line *line, uint32_t armed) {
    if (line->armed != armed) {
        struct epoll_event event = {.events = EPOLLONESHOT | (armed ? EPOLLIN : 0u)};
        line->armed = armed;
        (void)epoll_ctl(line->epoll, EPOLL_CTL_MOD, line->socket, &event);
    }
}

static void lead(struct nnb_line *line, struct nnb_line_place *place) {
    line->leader = place;
    if (place == NULL) {
        arm(line, 1);
    } else {
        arm(line, 0);
        (void)pthread_cond_signal(&place->wake);
    }
}

/* The reader has left: the next caller reads. */
static void pass_on(struct nnb_line *line) { lead(line, line->reader ? NULL : line->first); }

int nnb_line_open(struct nnb_line *line, int socket) {
    memset(line, 0, sizeof *line);
    line->socket = socket;
    line->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (line->epoll < 0) {
        return errno;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    line->armed = 1;
    if (epoll_ctl(line->epoll, EPOLL_CTL_ADD, socket, &event) != 0) {
        int failed = errno;
        (void)close(line->epoll);
        line->epoll = -1;
        return failed;
    }
    return pthread_mutex_init(&line->lock, NULL);
}

static void enter(struct nnb_line *line, struct nnb_line_place *me) {
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&me->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    struct nnb_line_place **end = &line->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = me;
    if (line->leader == NULL && !line->reader) {
        lead(line, me);
    }
}

static void leave(struct nnb_line *line, struct nnb_line_place *me) {
    struct nnb_line_place **place = &line->first;
    while (*place != me) {
        place = &(*place)->next;
    }
    *place = me->next;
    if (line->leader == me) {
        pass_on(line);
    }
    (void)pthread_cond_destroy(&me->wake);
}

/* The number of the call that a packet answers; false if its envelope is not like one.
 * TRUST: bytes are a private copy, read within their count. The number only finds a caller; the envelope and
 * all in it are checked by whom the packet is given to. */
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

static struct nnb_line_place *find(struct nnb_line *line, uint64_t id) {
    struct nnb_line_place *place = line->first;
    while (place != NULL && (place->caller->id != id || place->caller->bytes != 0)) {
        place = place->next;
    }
    return place;
}

/* Takes the packet that is there, if it is an answer of one in the line; all else is the reader's.
 * Called by the leader, with the lock. */
static void take(struct nnb_line *line) {
    uint8_t seen[NNB_LINE_PACKET_BYTES];
    struct iovec place = {seen, sizeof seen};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
    uint64_t id;
    /* TRUST: a private copy. Without room for descriptors the kernel reports whether there are some. */
    ssize_t count = recvmsg(line->socket, &message, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    bool plain = count > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    struct nnb_line_place *found =
        plain && answered_call(seen, (size_t)count, &id) ? find(line, id) : NULL;
    if (found == NULL) {
        line->reader = 1;
        pass_on(line);
        return;
    }
    /* The same packet: no other thread reads. */
    count = recv(line->socket, found->caller->packet, NNB_LINE_PACKET_BYTES, MSG_DONTWAIT);
    found->caller->bytes = count > 0 ? (uint32_t)count : 0;
    (void)pthread_cond_signal(&found->wake);
}

/* Reads for all until there is something; false if a signal came. With the lock, which is given up
 * meanwhile. */
static bool read_for_all(struct nnb_line *line, uint64_t left_ns) {
    struct pollfd readable = {.fd = line->socket, .events = POLLIN};
    struct timespec left = timespec_of(left_ns);
    (void)pthread_mutex_unlock(&line->lock);
    int ready = ppoll(&readable, 1, &left, NULL);
    bool interrupted = ready < 0;
    (void)pthread_mutex_lock(&line->lock);
    if (ready > 0) {
        take(line);
    }
    return !interrupted;
}

static int await(struct nnb_line *line, struct nnb_line_place *me, uint64_t deadline_ns) {
    struct timespec deadline = timespec_of(deadline_ns);
    for (;;) {
        if (me->caller->bytes != 0) {
            return NNB_LINE_ANSWERED;
        }
        if (me->caller->noticed) {
            return NNB_LINE_NOTICED;
        }
        if (line->ended) {
            return NNB_LINE_ENDED;
        }
        uint64_t now_ns = nnb_now_ns();
        if (now_ns >= deadline_ns) {
            return NNB_LINE_TIMED_OUT;
        }
        if (line->leader != me) {
            (void)pthread_cond_timedwait(&me->wake, &line->lock, &deadline);
        } else if (!read_for_all(line, deadline_ns - now_ns)) {
            return NNB_LINE_INTERRUPTED;
        }
    }
}

int nnb_line_call(struct nnb_line *line, struct nnb_caller *caller, const uint8_t *packet,
                  uint32_t bytes, uint64_t timeout_ns) {
    uint64_t deadline_ns = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    struct nnb_line_place me = {.caller = caller};
    int outcome;
    (void)pthread_mutex_lock(&line->lock);
    if (line->ended) {
        outcome = NNB_LINE_ENDED;
    } else {
        enter(line, &me); /* first, so that no thread is woken for its answer */
        (void)pthread_mutex_unlock(&line->lock);
        ssize_t sent = packet == NULL
                           ? 0
                           : send(line->socket, packet, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        int error = errno;
        (void)pthread_mutex_lock(&line->lock);
        caller->error = sent < 0 ? error : 0;
        outcome = sent < 0 ? NNB_LINE_NOT_SENT : await(line, &me, deadline_ns);
        leave(line, &me);
    }
    (void)pthread_mutex_unlock(&line->lock);
    return outcome;
}

void nnb_line_notice(struct nnb_line *line, struct nnb_caller *caller) {
    (void)pthread_mutex_lock(&line->lock);
    caller->noticed = 1;
    for (struct nnb_line_place *place = line->first; place != NULL; place = place->next) {
        if (place->caller == caller) {
            (void)pthread_cond_signal(&place->wake);
        }
    }
    (void)pthread_mutex_unlock(&line->lock);
}

int nnb_line_turn(struct nnb_line *line) {
    for (;;) {
        struct epoll_event event;
        int ready = epoll_wait(line->epoll, &event, 1, -1);
        if (ready < 0 && errno != EINTR) {
            return NNB_LINE_ENDED;
        }
        (void)pthread_mutex_lock(&line->lock);
        bool mine = ready > 0 && line->leader == NULL;
        if (ready > 0) {
            line->armed = 0;
        }
        if (mine) {
            line->reader = 1;
        }
        (void)pthread_mutex_unlock(&line->lock);
        if (mine) {
            return NNB_LINE_READABLE;
        }
    }
}

void nnb_line_done(struct nnb_line *line) {
    (void)pthread_mutex_lock(&line->lock);
    line->reader = 0;
    pass_on(line);
    (void)pthread_mutex_unlock(&line->lock);
}

void nnb_line_end(struct nnb_line *line) {
    (void)pthread_mutex_lock(&line->lock);
    line->ended = 1;
    for (struct nnb_line_place *place = line->first; place != NULL; place = place->next) {
        (void)pthread_cond_signal(&place->wake);
    }
    (void)pthread_mutex_unlock(&line->lock);
}

void nnb_line_close(struct nnb_line *line) {
    (void)close(line->epoll);
    line->epoll = -1;
    (void)pthread_mutex_destroy(&line->lock);
}
