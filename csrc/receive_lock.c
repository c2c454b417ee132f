#include "receive_lock.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

static int watch(struct nnb_receive_lock *receive, int operation, int fd, uint32_t how) {
    struct epoll_event event = {.events = EPOLLIN | how, .data.fd = fd};
    return epoll_ctl(receive->epoll, operation, fd, &event) == 0 ? 0 : errno;
}

int nnb_receive_lock_open(struct nnb_receive_lock *receive, int socket, int other) {
    receive->socket = socket;
    receive->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (receive->epoll < 0) {
        return errno;
    }
    /* Wakes once until the lock is released; the holder receives all packets that come meanwhile. */
    int failed = watch(receive, EPOLL_CTL_ADD, socket, EPOLLONESHOT);
    if (failed == 0 && other >= 0) {
        failed = watch(receive, EPOLL_CTL_ADD, other, 0); /* an end stays one, for all */
    }
    if (failed == 0) {
        failed = pthread_mutex_init(&receive->lock, NULL);
    }
    if (failed != 0) {
        (void)close(receive->epoll);
    }
    return failed;
}

void nnb_receive_lock_acquire(struct nnb_receive_lock *receive) {
    struct epoll_event event;
    (void)epoll_wait(receive->epoll, &event, 1, -1); /* a signal, too, is for the thread that receives */
    (void)pthread_mutex_lock(&receive->lock);
}

void nnb_receive_lock_release(struct nnb_receive_lock *receive) {
    (void)pthread_mutex_unlock(&receive->lock);
    (void)watch(receive, EPOLL_CTL_MOD, receive->socket, EPOLLONESHOT);
}
