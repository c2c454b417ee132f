/* A connection to a driver: calls over one socket, one at a time, and a thread that answers the driver's
 * upcalls on another socket and notices the driver's end. Any thread may call. */
#ifndef NNB_CONNECTION_H
#define NNB_CONNECTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"
#include "client/messages.h"

/* Handlers of a driver's upcalls and notifications; they run on the connection's thread. */
struct nnb_upcalls {
    void *owner;
    /* Writes the answer's body, and the descriptors for it, which are closed after sending. */
    void (*answer)(void *owner, const struct nnb_upcall *upcall, struct nnb_pack *answer, int *fds,
                   uint32_t *fd_count);
    /* Called last, when the driver is gone. */
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
    bool is_calling; /* guarded by lock; its holder may use `packet` */
    bool has_thread;
    uint64_t calls;
    pthread_t thread;
    uint8_t *packet; /* room for one of each socket's packets */
    uint8_t *upcall;
};

/* The answer to a call. */
struct nnb_answer {
    struct nnb_unpack result; /* in `packet` or `large` */
    uint8_t *large;
    int fds[NNB_MAX_FDS + 1];
    uint32_t fd_count;
};

/* Makes a closed connection, which nnb_connection_destroy frees. Returns a ResultCode. */
int nnb_connection_init(struct nnb_connection *connection);
void nnb_connection_destroy(struct nnb_connection *connection, bool is_ours);

/* Introduces this process over a connected socket, which the connection owns from then on. Returns a
 * ResultCode: DEAD_OBJECT if the driver ends before its answer. The connection stays closed if it is not
 * NO_ERROR. */
int nnb_connection_open(struct nnb_connection *connection, int socket, uint64_t deadline_ns,
                        const struct nnb_upcalls *server);

/* Ends the calls under way, and makes every later call fail; descriptors stay open. Any thread. */
void nnb_connection_hang_up(struct nnb_connection *connection);

/* Closes the connection and ends its thread; may be called twice. Not from the connection's own thread. */
void nnb_connection_close(struct nnb_connection *connection);

/* In a forked child: closes the descriptors, and makes every later call fail. Everything else belongs to the
 * parent. */
void nnb_connection_abandon(struct nnb_connection *connection);

/* Makes a call and waits for the answer. Returns a ResultCode: that of the driver's status if the driver
 * refuses. After NO_ERROR no other thread can call until nnb_connection_done. `fds` stay the caller's. */
int nnb_connection_call(struct nnb_connection *connection, const struct nnb_pack *body,
                        const uint8_t *begin, const int *fds, uint32_t fd_count, uint64_t deadline_ns,
                        struct nnb_answer *answer);

/* Closes the remaining descriptors of an answer, and admits the next caller. */
void nnb_connection_done(struct nnb_connection *connection, struct nnb_answer *answer);

/* Takes a descriptor of the answer, which the caller closes; -1 if there is no such descriptor. */
int nnb_answer_take(struct nnb_answer *answer, uint32_t index);

/* Whether the driver is there. Any thread. */
static inline bool nnb_connection_is_alive(struct nnb_connection *connection) {
    /* SYNC POINT D: a thread that sees the end also sees what was noted about it.
     * TRUST: memory of this process. */
    return nnb_load_acquire_u32(&connection->ended) == 0;
}

#endif
