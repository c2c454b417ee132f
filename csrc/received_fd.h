/* Descriptors that another process has sent, which may be of any kind. */
#ifndef NNB_RECEIVED_FD_H
#define NNB_RECEIVED_FD_H

#include <sys/socket.h>
#include <unistd.h>

/* Lets close() return at once: that of a socket whose sender has set SO_LINGER waits until its peer has taken
 * all bytes. Does nothing for what is no socket. */
static inline void nnb_forbid_linger(int fd) {
    const struct linger none = {0, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

static inline void nnb_close_received(int fd) {
    nnb_forbid_linger(fd);
    (void)close(fd);
}

#endif
