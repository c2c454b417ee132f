#include "turn.h"

#include <poll.h>

int nnb_turn_init(struct nnb_turn *turn) { return pthread_mutex_init(&turn->lock, NULL); }

void nnb_turn_take(struct nnb_turn *turn, int socket, int other) {
    struct pollfd ends[2] = {{.fd = socket, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    (void)pthread_mutex_lock(&turn->lock);
    (void)poll(ends, 2, -1); /* what it finds, and where a signal came, is for who receives */
}

void nnb_turn_pass(struct nnb_turn *turn) { (void)pthread_mutex_unlock(&turn->lock); }
