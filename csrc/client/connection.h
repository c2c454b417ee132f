/* A connection to a driver: calls over one socket, one at a time, and a thread that answers the driver's upcalls on
 * another and notices its end. Any thread may call. */
#ifndef NNB_CONNECTION_H
#define NNB_CONNECTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"
#include "client/messages.h"

/* What a driver asks or notifies of; runs on the connection's thread. */
struct nnb_upcalls {
    void *owner;
    /* Writes the answer's body, and descriptors that go with it, which are closed afterwards. */
    void (*answer)(void *owner, const struct nnb_upcall *upcall, struct nnb_pack *answer, int *fds,
                   uint32_t *fd_count);
    /* The driver is gone. The last call. */
    void (*ended)(void *owner);
};

struct nnb_connection {
    int socket;  /* -1 without a connection */
    int upcalls; /* this side's end */
    int process; /* pidfd of the driver's process; -1 without one */
    struct nnb_welcome welcome;
    struct nnb_upcalls server;
    nnb_atomic_u32 ended;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool is_calling; /* guarded by lock; who set it has `packet` for itself */
    bool has_thread;
    uint64_t calls;
    pthread_t thread;
    uint8_t *packet; /* room for one of each socket's packets */
    uint8_t *upcall;
};

/* What a call was answered with. */
struct nnb_answer {
    struct nnb_unpack result; /* in `packet` or `large` */
    uint8_t *large;
    int fds[NNB_MAX_FDS + 1];
    uint32_t fd_count;
};

/* A closed connection, which nnb_connection_destroy ends. A ResultCode. */
int nnb_connection_init(struct nnb_connection *connection);
void nnb_connection_destroy(struct nnb_connection *connection);

/* Introduces this process over a connected socket, which it owns from here on. A ResultCode; the connection is closed as
 * before if it is not NO_ERROR. */
int nnb_connection_open(struct nnb_connection *connection, int socket, uint64_t deadline_ns,
                        const struct nnb_upcalls *server);

/* Ends it and its thread; fine if it is closed already. Not from its own thread. */
void nnb_connection_close(struct nnb_connection *connection);

/* In a forked child: closes the descriptors, and makes every call fail from then on. The rest is the parent's. */
void nnb_connection_abandon(struct nnb_connection *connection);

/* Makes a call and waits for its answer: a ResultCode, that of the driver's status if it refuses. After NO_ERROR the
 * connection is the caller's until nnb_connection_done. `fds` stay the caller's. */
int nnb_connection_call(struct nnb_connection *connection, const struct nnb_pack *body,
                        const uint8_t *begin, const int *fds, uint32_t fd_count, uint64_t deadline_ns,
                        struct nnb_answer *answer);

/* Closes what is left of an answer's descriptors, and lets the next caller in. */
void nnb_connection_done(struct nnb_connection *connection, struct nnb_answer *answer);

/* Hands a descriptor over; -1 if it is not there. */
int nnb_answer_take(struct nnb_answer *answer, uint32_t index);

/* Whether the driver is there. Any thread. */
static inline bool nnb_connection_is_alive(struct nnb_connection *connection) {
    /* SYNC POINT D: what was noted about the end is visible to who sees it.
     * TRUST: memory of this process. */
    return nnb_load_acquire_u32(&connection->ended) == 0;
}

#endif
