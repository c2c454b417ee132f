/* A lock for receiving: several threads receive from one socket, one after the other.
 *
 * The holder keeps the lock until it has dispatched what it received, so calls are handled in the order of
 * arrival. The other threads wait here, without the interpreter's lock, in one epoll, which wakes one of them
 * for each packet: the thread that came last, so spare threads stay asleep. */
#ifndef NNB_RECEIVE_LOCK_H
#define NNB_RECEIVE_LOCK_H

#include <pthread.h>

struct nnb_receive_lock {
    pthread_mutex_t lock;
    int epoll;
    int socket;
};

/* Waits for `socket`, and for the end of `other`, which may be -1; both stay open. 0, or an errno. */
int nnb_receive_lock_open(struct nnb_receive_lock *receive, int socket, int other);

/* Waits until a packet can be received, and takes the lock. */
void nnb_receive_lock_acquire(struct nnb_receive_lock *receive);

/* Lets the next thread receive. Called by the thread that holds the lock. */
void nnb_receive_lock_release(struct nnb_receive_lock *receive);

#endif
