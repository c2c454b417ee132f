#include "turn.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

static int watch(struct nnb_turn *turn, int operation, int fd, uint32_t how) {
    struct epoll_event event = {.events = EPOLLIN | how, .data.fd = fd};
    return epoll_ctl(turn->epoll, operation, fd, &event) == 0 ? 0 : errno;
}

int nnb_turn_open(struct nnb_turn *turn, int socket, int other) {
    turn->socket = socket;
    turn->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (turn->epoll < 0) {
        return errno;
    }
    /* Wakes once until the turn is passed on: who receives takes all that comes meanwhile. */
    int failed = watch(turn, EPOLL_CTL_ADD, socket, EPOLLONESHOT);
    if (failed == 0 && other >= 0) {
        failed = watch(turn, EPOLL_CTL_ADD, other, 0); /* an end stays one, for all */
    }
    if (failed == 0) {
        failed = pthread_mutex_init(&turn->lock, NULL);
    }
    if (failed != 0) {
        (void)close(turn->epoll);
    }
    return failed;
}

void nnb_turn_take(struct nnb_turn *turn) {
    struct epoll_event event;
    (void)epoll_wait(turn->epoll, &event, 1, -1); /* a signal, too, is for who receives */
    (void)pthread_mutex_lock(&turn->lock);
}

void nnb_turn_pass(struct nnb_turn *turn) {
    (void)pthread_mutex_unlock(&turn->lock);
    (void)watch(turn, EPOLL_CTL_MOD, turn->socket, EPOLLONESHOT);
}
