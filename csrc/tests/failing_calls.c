/* Preloaded into a program: lets the n-th call of one function fail, as if the kernel lacked something.
 *
 * Built by tests/faults/nth_call.py. Nothing fails until nnb_fail_arm. Calls that the C library makes of itself are
 * not seen. Allocations and mappings without a file count only if they come from code that nnb_fail_code has named,
 * that of the project in C: Python makes some for each thread, and a thread that gets none never runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum call { THREAD, FORK, OPEN, MEMFD, MMAP, SOCKET, SEND, RECV, POLL, EVENTFD, MALLOC };

static _Atomic int armed = -1;
static _Atomic long seen;
static long chosen;

#define MOST_RANGES 8
struct ranges {
    struct {
        uintptr_t from, to;
    } found[MOST_RANGES];
    int count;
};
static struct ranges ours, others;

void nnb_fail_code(uintptr_t from, uintptr_t to);
void nnb_fail_skip(uintptr_t from, uintptr_t to);
void nnb_fail_arm(int call, long n);
long nnb_fail_disarm(void);

static void add(struct ranges *ranges, uintptr_t from, uintptr_t to) {
    if (ranges->count < MOST_RANGES) {
        ranges->found[ranges->count].from = from;
        ranges->found[ranges->count].to = to;
        ranges->count++;
    }
}

/* Count the allocations of the code between two addresses, too; before anything is armed. */
void nnb_fail_code(uintptr_t from, uintptr_t to) { add(&ours, from, to); }

/* Let no call of this code fail: a library that is not the project's; before anything is armed. */
void nnb_fail_skip(uintptr_t from, uintptr_t to) { add(&others, from, to); }

/* Let the n-th call fail from now on. */
void nnb_fail_arm(int call, long n) {
    chosen = n;
    atomic_store(&seen, 0);
    atomic_store(&armed, call);
}

/* Let everything succeed again; how many calls were seen. */
long nnb_fail_disarm(void) {
    atomic_store(&armed, -1);
    return atomic_load(&seen);
}

static int is_of(const struct ranges *ranges, const void *caller) {
    for (int i = 0; i < ranges->count; i++) {
        if ((uintptr_t)caller >= ranges->found[i].from && (uintptr_t)caller < ranges->found[i].to) {
            return 1;
        }
    }
    return 0;
}

static int fails_for(const void *caller, enum call call, int error) {
    if (atomic_load(&armed) != (int)call || is_of(&others, caller) ||
        atomic_fetch_add(&seen, 1) + 1 != chosen) {
        return 0;
    }
    errno = error;
    return 1;
}

#define FAILS(call, error) fails_for(__builtin_return_address(0), call, error)

/* The function behind this one, which is found before the first call. */
#define BEHIND(type, name, ...)                                                                    \
    typedef type (*name##_type)(__VA_ARGS__);                                                      \
    static name##_type name##_behind;                                                              \
    __attribute__((constructor)) static void find_##name(void) {                                   \
        *(void **)&name##_behind = dlsym(RTLD_NEXT, #name);                                        \
    }

BEHIND(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    return FAILS(THREAD, EAGAIN) ? EAGAIN : pthread_create_behind(thread, attributes, start, argument);
}

BEHIND(pid_t, fork, void)
pid_t fork(void) { return FAILS(FORK, EAGAIN) ? -1 : fork_behind(); }

BEHIND(int, posix_spawn, pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
       char *const[], char *const[])
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    return FAILS(FORK, EAGAIN) ? EAGAIN
                               : posix_spawn_behind(pid, path, actions, attributes, arguments, environment);
}

static mode_t mode_of(int flags, va_list list) {
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

#define OPENS(name)                                                                                \
    BEHIND(int, name, const char *, int, ...)                                                      \
    int name(const char *path, int flags, ...) {                                                   \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode_t mode = mode_of(flags, list);                                                        \
        va_end(list);                                                                              \
        return FAILS(OPEN, EMFILE) ? -1 : name##_behind(path, flags, mode);                        \
    }
OPENS(open)
OPENS(open64)

BEHIND(int, memfd_create, const char *, unsigned)
int memfd_create(const char *name, unsigned flags) {
    return FAILS(MEMFD, EMFILE) ? -1 : memfd_create_behind(name, flags);
}

#define MAPS(name)                                                                                 \
    BEHIND(void *, name, void *, size_t, int, int, int, off_t)                                     \
    void *name(void *at, size_t length, int protection, int flags, int fd, off_t offset) {         \
        int counts = fd >= 0 || is_of(&ours, __builtin_return_address(0));                              \
        return counts && FAILS(MMAP, ENOMEM)                                                       \
                   ? MAP_FAILED                                                                    \
                   : name##_behind(at, length, protection, flags, fd, offset);                     \
    }
MAPS(mmap)
MAPS(mmap64)

BEHIND(int, socket, int, int, int)
int socket(int domain, int type, int protocol) {
    return FAILS(SOCKET, EMFILE) ? -1 : socket_behind(domain, type, protocol);
}

BEHIND(int, socketpair, int, int, int, int *)
int socketpair(int domain, int type, int protocol, int pair[2]) {
    return FAILS(SOCKET, EMFILE) ? -1 : socketpair_behind(domain, type, protocol, pair);
}

BEHIND(ssize_t, send, int, const void *, size_t, int)
ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    return FAILS(SEND, ENOBUFS) ? -1 : send_behind(fd, bytes, size, flags);
}

BEHIND(ssize_t, sendmsg, int, const struct msghdr *, int)
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    return FAILS(SEND, ENOBUFS) ? -1 : sendmsg_behind(fd, message, flags);
}

BEHIND(ssize_t, recv, int, void *, size_t, int)
ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    return FAILS(RECV, ENOMEM) ? -1 : recv_behind(fd, bytes, size, flags);
}

BEHIND(ssize_t, recvmsg, int, struct msghdr *, int)
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    return FAILS(RECV, ENOMEM) ? -1 : recvmsg_behind(fd, message, flags);
}

BEHIND(int, poll, struct pollfd *, nfds_t, int)
int poll(struct pollfd *fds, nfds_t count, int timeout) {
    return FAILS(POLL, ENOMEM) ? -1 : poll_behind(fds, count, timeout);
}

BEHIND(int, ppoll, struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)
int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    return FAILS(POLL, ENOMEM) ? -1 : ppoll_behind(fds, count, timeout, mask);
}

BEHIND(int, eventfd, unsigned, int)
int eventfd(unsigned value, int flags) { return FAILS(EVENTFD, EMFILE) ? -1 : eventfd_behind(value, flags); }

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);

void *malloc(size_t size) {
    const void *caller = __builtin_return_address(0);
    return is_of(&ours, caller) && FAILS(MALLOC, ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    const void *caller = __builtin_return_address(0);
    return is_of(&ours, caller) && FAILS(MALLOC, ENOMEM) ? NULL : __libc_calloc(count, size);
}
