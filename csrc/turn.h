/* The turn of receiving: several threads receive from one socket, one after the other.
 *
 * The holder of the turn keeps it until it has decided what becomes of what it received, so calls are dealt with
 * in the order of coming. Those who wait do so here, without the interpreter's lock, and in one epoll, which wakes
 * one of them for what comes: the one that came last, so those that only stand by sleep on. */
#ifndef NNB_TURN_H
#define NNB_TURN_H

#include <pthread.h>

struct nnb_turn {
    pthread_mutex_t lock;
    int epoll;
    int socket;
};

/* Waits for `socket`, and for the end of `other`, which may be -1; both stay open. 0, or an errno. */
int nnb_turn_open(struct nnb_turn *turn, int socket, int other);

/* Waits until there is something to receive, and for the turn. */
void nnb_turn_take(struct nnb_turn *turn);

/* Passes the turn on. By the thread that has it. */
void nnb_turn_pass(struct nnb_turn *turn);

#endif
