#include "client/connection.h"

#include <errno.h>
#include <limits.h>
#include <nnburst.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/failure.h"
#include "client/shared_memory.h"
#include "clock.h"
#include "liveness.h"
#include "received_fd.h"
#include "wire.h"

#define PACKET_BYTES (NNB_MAX_INLINE_BYTES + NNB_ENVELOPE_BYTES)
#define SEND_TIMEOUT_NS 5000000000u
#define SCARCE_PAUSE_NS 5000000 /* before trying again what the kernel lacked resources for */
#define STACK_BYTES (256u * 1024u)
#define LOWEST_LEVEL 3 /* bursts came with 1.2 */
#define ONE_WAY 0

static int dead(const struct nnb_connection *connection) {
    return nnb_fail(NNBURST_DEAD_OBJECT, "the driver (pid %d) has died or has ended the connection",
                    (int)connection->welcome.pid);
}

/* -- packets ---------------------------------------------------------------------------------------------- */

/* Waits until a socket is ready for `events`: returns 1, 0 after the deadline, -1 if the socket cannot be
 * polled. */
static int wait_for(int fd, short events, uint64_t deadline_ns) {
    for (;;) {
        uint64_t now = nnb_now_ns();
        if (now >= deadline_ns) {
            return 0;
        }
        uint64_t left = (deadline_ns - now) / 1000000u + 1;
        struct pollfd item = {.fd = fd, .events = events};
        int ready = poll(&item, 1, left < 86400000u ? (int)left : 86400000);
        if (ready > 0) {
            return item.revents & POLLNVAL ? -1 : 1;
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
    }
}

static bool is_scarce(int error) {
    return error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM;
}

/* Sends a packet with descriptors. Returns a ResultCode. */
static int send_packet(const struct nnb_connection *connection, int socket, const uint8_t *packet,
                       size_t bytes, const int *fds, uint32_t fd_count, uint64_t deadline_ns) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(NNB_MAX_FDS * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count != 0) {
        memset(&control, 0, sizeof control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    for (;;) {
        if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            return NNBURST_NO_ERROR;
        }
        int error = errno;
        if (error == EINTR) {
            continue;
        }
        if (error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == EBADF) {
            return dead(connection);
        }
        if (error != EAGAIN && !is_scarce(error)) {
            return nnb_fail(NNBURST_OP_FAILED, "a message cannot be sent: %s", strerror(error));
        }
        if (is_scarce(error)) {
            struct timespec pause = {.tv_nsec = SCARCE_PAUSE_NS};
            (void)nanosleep(&pause, NULL);
        }
        if (nnb_now_ns() >= deadline_ns || wait_for(socket, POLLOUT, deadline_ns) == 0) {
            return nnb_fail(NNBURST_MISSED_DEADLINE, "timeout: the driver did not take a call in time");
        }
    }
}

enum received { RECEIVED, NOTHING_THERE, ENDED, BROKEN };

static void close_all(int *fds, uint32_t *count) {
    while (*count != 0) {
        int fd = fds[--*count];
        if (fd >= 0) {
            nnb_close_received(fd);
        }
    }
}

/* Receives a packet with its descriptors; sets `*lost_fds` if this process had no room for them. */
static enum received receive_packet(int socket, int flags, uint8_t *packet, struct nnb_envelope *envelope,
                                    int *fds, uint32_t *fd_count, bool *lost_fds) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE((NNB_MAX_FDS + 1) * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = PACKET_BYTES};
    /* Not the whole room, whose padding has room for one more descriptor than `fds`. */
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN((NNB_MAX_FDS + 1) * sizeof(int))};
    *fd_count = 0;
    ssize_t bytes;
    do {
        bytes = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        return errno == EAGAIN ? NOTHING_THERE : ENDED;
    }
    /* All descriptors of a packet come in one header, and no other control data were requested. */
    const struct cmsghdr *found = CMSG_FIRSTHDR(&message);
    if (found != NULL && found->cmsg_level == SOL_SOCKET && found->cmsg_type == SCM_RIGHTS) {
        uint32_t more = (uint32_t)((found->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (uint32_t i = 0; i < more && *fd_count <= NNB_MAX_FDS; i++) {
            memcpy(&fds[(*fd_count)++], CMSG_DATA(found) + i * sizeof(int), sizeof(int));
        }
    }
    *lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
    if (bytes == 0 && *fd_count == 0) {
        return ENDED;
    }
    /* TRUST: the packet was copied out of the socket; its declared sizes are compared with the received ones.
     * */
    bool fits = !(message.msg_flags & MSG_TRUNC) && nnb_read_envelope(packet, (size_t)bytes, envelope) &&
                (*lost_fds || *fd_count == envelope->fds + (envelope->large_size != 0));
    if (!fits || (*lost_fds && *fd_count > NNB_MAX_FDS)) {
        close_all(fds, fd_count);
        return BROKEN;
    }
    if (*lost_fds) {
        close_all(fds, fd_count);
    }
    return RECEIVED;
}

/* -- the thread that answers ------------------------------------------------------------------------------ */

static void answer_upcall(struct nnb_connection *connection, const struct nnb_envelope *envelope) {
    uint8_t body[1024];
    uint8_t packet[sizeof body + NNB_ENVELOPE_BYTES];
    struct nnb_pack pack = NNB_PACK_INTO(body);
    int fds[NNB_MAX_FDS];
    uint32_t fd_count = 0;
    struct nnb_upcall upcall;
    if (nnb_read_upcall(envelope->body, &upcall)) {
        connection->server.answer(connection->server.owner, &upcall, &pack, fds, &fd_count);
    } else {
        nnb_pack_failure(&pack, NNB_STATUS_INVALID_ARGUMENT, "malformed upcall");
    }
    size_t bytes = nnb_write_packet(packet, sizeof packet, envelope->id, fd_count, body,
                                    (size_t)(pack.at - body));
    if (envelope->id != ONE_WAY && bytes != 0) {
        uint64_t deadline = nnb_now_ns() + SEND_TIMEOUT_NS;
        if (send_packet(connection, connection->upcalls, packet, bytes, fds, fd_count, deadline) !=
            NNBURST_NO_ERROR) {
            (void)shutdown(connection->upcalls, SHUT_RDWR); /* without answers it cannot go on */
        }
    }
    close_all(fds, &fd_count);
}

static void *serve_upcalls(void *argument) {
    struct nnb_connection *connection = argument;
    nnb_set_thread_name("nnburst upcalls");
    for (;;) {
        int fds[NNB_MAX_FDS + 1];
        uint32_t fd_count;
        bool lost_fds;
        struct nnb_envelope envelope;
        if (receive_packet(connection->upcalls, 0, connection->upcall, &envelope, fds, &fd_count,
                           &lost_fds) != RECEIVED) {
            break;
        }
        close_all(fds, &fd_count); /* no upcall brings any */
        answer_upcall(connection, &envelope);
    }
    /* SYNC POINT D: a thread that sees the end also sees what was noted about it. */
    nnb_store_release_u32(&connection->ended, 1);
    (void)shutdown(connection->socket, SHUT_RDWR);
    connection->server.ended(connection->server.owner);
    return NULL;
}

static int start_thread(struct nnb_connection *connection) {
    sigset_t all;
    sigset_t before;
    pthread_attr_t attributes;
    (void)sigfillset(&all);
    if (pthread_attr_init(&attributes) != 0) {
        return nnb_fail(NNBURST_OUT_OF_MEMORY, "a thread cannot be started");
    }
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* The program's signal handlers run on its own threads. */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&connection->thread, &attributes, serve_upcalls, connection);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (failed != 0) {
        return nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "a thread cannot be started: %s", strerror(failed));
    }
    connection->has_thread = true;
    return NNBURST_NO_ERROR;
}

/* -- calls ------------------------------------------------------------------------------------------------ */

/* Waits until no other thread has a call under way. */
static int enter(struct nnb_connection *connection, uint64_t deadline_ns) {
    struct timespec until = nnb_timespec_of(deadline_ns);
    bool in_time = true;
    (void)pthread_mutex_lock(&connection->lock);
    while (connection->is_calling && in_time) {
        in_time = pthread_cond_timedwait(&connection->idle, &connection->lock, &until) == 0;
    }
    bool entered = !connection->is_calling;
    connection->is_calling = true;
    (void)pthread_mutex_unlock(&connection->lock);
    return entered ? NNBURST_NO_ERROR
                   : nnb_fail(NNBURST_MISSED_DEADLINE, "timeout: another thread's call is under way");
}

void nnb_connection_done(struct nnb_connection *connection, struct nnb_answer *answer) {
    close_all(answer->fds, &answer->fd_count);
    free(answer->large);
    answer->large = NULL;
    (void)pthread_mutex_lock(&connection->lock);
    connection->is_calling = false;
    (void)pthread_cond_signal(&connection->idle);
    (void)pthread_mutex_unlock(&connection->lock);
}

int nnb_answer_take(struct nnb_answer *answer, uint32_t index) {
    if (index >= answer->fd_count) {
        return -1;
    }
    int fd = answer->fds[index];
    answer->fds[index] = -1;
    return fd;
}

/* Ends a connection whose peer has broken a rule, since it can no longer be trusted. */
static int broken(struct nnb_connection *connection) {
    (void)shutdown(connection->socket, SHUT_RDWR);
    (void)shutdown(connection->upcalls, SHUT_RDWR);
    return nnb_fail(NNBURST_OP_FAILED, "the driver broke a rule of the channel: the connection is ended");
}

/* Copies a large body out of its memfd, the last descriptor, before anything reads it. */
static int copy_large(struct nnb_answer *answer, uint64_t size, struct nnb_unpack *body) {
    struct nnb_region region;
    int code = nnb_region_adopt(&region, answer->fds[--answer->fd_count], false);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    if (size <= region.size && size <= NNB_MAX_LARGE_BYTES) {
        answer->large = malloc(size);
    }
    if (answer->large != NULL) {
        memcpy(answer->large, region.data, size);
        *body = (struct nnb_unpack){answer->large, answer->large + size, false};
    }
    nnb_region_close(&region, true);
    return answer->large != NULL ? NNBURST_NO_ERROR
                                 : nnb_fail(NNBURST_OP_FAILED, "the driver's answer is too large");
}

/* Releases the object that a call has made whose caller did not wait for it. */
static void release_late(struct nnb_connection *connection, struct nnb_unpack body) {
    struct nnb_reply reply;
    uint64_t handle = nnb_read_reply(body, &reply) ? nnb_read_handle(reply.result) : 0;
    if (handle != 0) {
        uint8_t bytes[64];
        uint8_t packet[sizeof bytes + NNB_ENVELOPE_BYTES];
        struct nnb_pack pack = NNB_PACK_INTO(bytes);
        nnb_pack_release(&pack, handle);
        size_t count = nnb_write_packet(packet, sizeof packet, ONE_WAY, 0, bytes,
                                        (size_t)(pack.at - bytes));
        (void)send(connection->socket, packet, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* Waits for the answer to call `id`; answers to abandoned calls are dropped. */
static int receive_answer(struct nnb_connection *connection, uint64_t id, uint64_t deadline_ns,
                          struct nnb_answer *answer) {
    for (;;) {
        struct nnb_envelope envelope;
        bool lost_fds;
        switch (receive_packet(connection->socket, MSG_DONTWAIT, connection->packet, &envelope, answer->fds,
                               &answer->fd_count, &lost_fds)) {
        case RECEIVED:
            break;
        case NOTHING_THERE:
            if (wait_for(connection->socket, POLLIN, deadline_ns) != 0) {
                continue;
            }
            return nnb_fail(NNBURST_MISSED_DEADLINE, "timeout: the driver did not answer in time");
        case ENDED:
            return dead(connection);
        default:
            return broken(connection);
        }
        if (envelope.id != id) {
            close_all(answer->fds, &answer->fd_count);
            release_late(connection, envelope.body);
            continue;
        }
        if (lost_fds) {
            return nnb_fail(NNBURST_RESOURCE_EXHAUSTED,
                            "this process has no descriptors left for those of a message");
        }
        struct nnb_unpack body = envelope.body;
        int code = envelope.large_size == 0 ? NNBURST_NO_ERROR
                                            : copy_large(answer, envelope.large_size, &body);
        struct nnb_reply reply;
        if (code != NNBURST_NO_ERROR) {
            return code;
        }
        if (!nnb_read_reply(body, &reply)) {
            return broken(connection);
        }
        answer->result = reply.result;
        int length = reply.message.length < 256 ? (int)reply.message.length : 256;
        return reply.status == NNB_STATUS_NONE
                   ? NNBURST_NO_ERROR
                   : nnb_fail(nnb_code_of_status(reply.status), "%.*s", length, reply.message.at);
    }
}

int nnb_connection_call(struct nnb_connection *connection, const struct nnb_pack *body,
                        const uint8_t *begin, const int *fds, uint32_t fd_count, uint64_t deadline_ns,
                        struct nnb_answer *answer) {
    answer->large = NULL;
    answer->fd_count = 0;
    if (body->full) {
        return nnb_fail(NNBURST_BAD_DATA, "the call is longer than a message may be");
    }
    if (!nnb_connection_is_alive(connection)) {
        return dead(connection);
    }
    int code = enter(connection, deadline_ns);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    uint64_t id = ++connection->calls;
    size_t bytes = nnb_write_packet(connection->packet, PACKET_BYTES, id, fd_count, begin,
                                    (size_t)(body->at - begin));
    uint64_t soon = nnb_deadline_after(nnb_now_ns(), SEND_TIMEOUT_NS);
    code = send_packet(connection, connection->socket, connection->packet, bytes, fds, fd_count,
                       soon < deadline_ns ? soon : deadline_ns);
    if (code == NNBURST_NO_ERROR) {
        code = receive_answer(connection, id, deadline_ns, answer);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_connection_done(connection, answer);
    }
    return code;
}

/* -- beginning and end ------------------------------------------------------------------------------------ */

static int introduce(struct nnb_connection *connection, uint64_t deadline_ns) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "a socket cannot be made: %s", strerror(errno));
    }
    connection->upcalls = pair[0];
    uint8_t body[128];
    struct nnb_pack pack = NNB_PACK_INTO(body);
    struct nnb_answer answer;
    nnb_pack_hello(&pack);
    int code = nnb_connection_call(connection, &pack, body, &pair[1], 1, deadline_ns, &answer);
    (void)close(pair[1]);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    struct nnb_welcome *welcome = &connection->welcome;
    if (!nnb_read_welcome(answer.result, welcome)) {
        code = nnb_fail(NNBURST_OP_FAILED, "the driver's welcome is malformed");
    } else if (welcome->protocol != NNB_PROTOCOL_VERSION || welcome->feature_level < LOWEST_LEVEL ||
               welcome->feature_level > NNB_FEATURE_LEVEL) {
        code = nnb_fail(NNBURST_UNAVAILABLE_DEVICE,
                        "the driver speaks protocol %lld at feature level %lld, expected %d at %d to %d",
                        (long long)welcome->protocol, (long long)welcome->feature_level,
                        NNB_PROTOCOL_VERSION, LOWEST_LEVEL, NNB_FEATURE_LEVEL);
    }
    connection->process = nnb_answer_take(&answer, 0);
    nnb_connection_done(connection, &answer);
    return code;
}

int nnb_connection_init(struct nnb_connection *connection) {
    *connection = (struct nnb_connection){.socket = -1, .upcalls = -1, .process = -1, .ended = 1};
    connection->packet = malloc(PACKET_BYTES);
    connection->upcall = malloc(PACKET_BYTES);
    pthread_condattr_t attributes;
    if (connection->packet == NULL || connection->upcall == NULL || pthread_condattr_init(&attributes) != 0) {
        free(connection->packet);
        free(connection->upcall);
        return nnb_fail_short_of_memory();
    }
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&connection->idle, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&connection->lock, NULL);
    return NNBURST_NO_ERROR;
}

void nnb_connection_destroy(struct nnb_connection *connection, bool is_ours) {
    if (is_ours) {
        (void)pthread_cond_destroy(&connection->idle); /* in a forked child it waits for the parent's threads */
    }
    (void)pthread_mutex_destroy(&connection->lock);
    free(connection->packet);
    free(connection->upcall);
}

int nnb_connection_open(struct nnb_connection *connection, int socket, uint64_t deadline_ns,
                        const struct nnb_upcalls *server) {
    connection->socket = socket;
    connection->server = *server;
    connection->is_calling = false;
    nnb_store_release_u32(&connection->ended, 0); /* SYNC POINT D: nothing has ended yet. */
    int code = introduce(connection, deadline_ns);
    if (code == NNBURST_NO_ERROR) {
        code = start_thread(connection);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_connection_close(connection);
    }
    return code;
}

static void close_fd(int *fd) {
    int old = *fd;
    *fd = -1;
    if (old >= 0) {
        nnb_close_received(old); /* the driver's process may be any descriptor */
    }
}

void nnb_connection_abandon(struct nnb_connection *connection) {
    nnb_store_release_u32(&connection->ended, 1); /* SYNC POINT D: no call is made any more. */
    connection->has_thread = false;
    close_fd(&connection->socket);
    close_fd(&connection->upcalls);
    close_fd(&connection->process);
}

void nnb_connection_hang_up(struct nnb_connection *connection) {
    nnb_store_release_u32(&connection->ended, 1); /* SYNC POINT D: no call is made any more. */
    (void)shutdown(connection->socket, SHUT_RDWR);
    (void)shutdown(connection->upcalls, SHUT_RDWR);
}

void nnb_connection_close(struct nnb_connection *connection) {
    nnb_connection_hang_up(connection);
    if (connection->has_thread) {
        (void)pthread_join(connection->thread, NULL);
    }
    nnb_connection_abandon(connection);
}
