/* A lock for receiving: several threads receive from one socket, one after the other.
 *
 * Its holder keeps it until it has decided what becomes of what it received, so calls are dealt with in the order
 * of coming. The others wait here, without the interpreter's lock, and in one epoll, which wakes
 * one of them for what comes: the one that came last, so those that only stand by sleep on. */
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

/* Waits until there is something to receive, and for the lock. */
void nnb_receive_lock_acquire(struct nnb_receive_lock *receive);

/* Lets the next thread receive. By the thread that holds the lock. */
void nnb_receive_lock_release(struct nnb_receive_lock *receive);

#endif
