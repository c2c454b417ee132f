/* The turn of receiving: several threads receive from one socket, one after the other.
 *
 * The holder of the turn keeps it until it has decided what becomes of what it received, so calls are dealt with
 * in the order of coming. Those who wait for it do so here, without the interpreter's lock: a thread that gets
 * the turn receives, whatever the one that passed it on computes. */
#ifndef NNB_TURN_H
#define NNB_TURN_H

#include <pthread.h>

struct nnb_turn {
    pthread_mutex_t lock;
};

/* 0, or an errno. */
int nnb_turn_init(struct nnb_turn *turn);

/* Waits for the turn, then until one of two descriptors is readable or at its end; `other` may be -1. */
void nnb_turn_take(struct nnb_turn *turn, int socket, int other);

/* Passes the turn on. By the thread that has it. */
void nnb_turn_pass(struct nnb_turn *turn);

#endif
