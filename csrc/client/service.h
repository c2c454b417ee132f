/* Finds or starts drivers: services that listen at a socket, and drivers that this process starts. */
#ifndef NNB_SERVICE_H
#define NNB_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A service, or the parameters of a driver to start. One thread at a time. */
struct nnb_service {
    char *path;     /* of a service's socket; NULL for a driver of its own */
    char *executor; /* of a driver of its own */
    bool any_user;
    pid_t child; /* the process that was started last and is not reaped; 0 without one */
};

/* A service by its name or by the path of its socket. A ResultCode; likewise below. */
int nnb_service_find(struct nnb_service *service, const char *name_or_path, bool any_user);

/* A driver of this process's own, which is started when it is reached. */
int nnb_service_launched(struct nnb_service *service, const char *executor);

/* Connects, or starts a driver. The caller owns the socket. */
int nnb_service_reach(struct nnb_service *service, uint64_t deadline_ns, int *socket);

/* Waits until a driver that was started has ended, after its socket was closed; makes it end if it does not, and kills
 * it at the deadline. Fine without one, and in a forked child, whose process it is not. */
void nnb_service_end(struct nnb_service *service, bool is_ours, uint64_t deadline_ns);

/* Frees what was found. */
void nnb_service_free(struct nnb_service *service);

#endif
