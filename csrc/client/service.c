#include "client/service.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nnburst.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capi/environment.h"
#include "child.h"
#include "client/failure.h"
#include "clock.h"

#define MAX_NAME 64u
#define RETRY_NS 1000000
#define GRACE_NS 2000000000u /* of a driver after its socket was closed, and after SIGTERM */
#define CHILD_FD 3           /* the driver's end, in the driver */
#define ABOVE 10             /* descriptors from here on are different from those that the driver gets */

extern char **environ;

/* -- addresses -------------------------------------------------------------------------------------------- */

static bool is_name(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > MAX_NAME || !isalnum((unsigned char)name[0])) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* Finds the directory of this user's drivers, as nnburst.control.address does; a privileged program ignores
 * its environment. False if the path does not fit. */
static bool find_directory(char *path, size_t room) {
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (runtime != NULL && runtime[0] != '\0') {
        return (size_t)snprintf(path, room, "%s/nnburst", runtime) < room;
    }
    const char *const variables[] = {"TMPDIR", "TEMP", "TMP"};
    const char *temporary = "/tmp";
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = secure_getenv(variables[i]);
        if (value != NULL && value[0] != '\0' && access(value, W_OK | X_OK) == 0) {
            temporary = value;
            break;
        }
    }
    return (size_t)snprintf(path, room, "%s/nnburst-%u", temporary, (unsigned)geteuid()) < room;
}

/* The path of a service's socket, which the caller frees. */
static int find_path(const char *name_or_path, char **path) {
    if (strchr(name_or_path, '/') != NULL) {
        *path = strdup(name_or_path);
        return *path != NULL ? NNBURST_NO_ERROR : nnb_fail_short_of_memory();
    }
    if (!is_name(name_or_path)) {
        return nnb_fail(NNBURST_BAD_DATA,
                        "name_or_path: %.80s, expected 1 to 64 letters, digits, '.', '_' or '-', beginning with a"
                        " letter or digit, or a path with a '/'",
                        name_or_path);
    }
    char directory[4096];
    if (!find_directory(directory, sizeof directory)) {
        return nnb_fail(NNBURST_BAD_DATA, "name_or_path: the directory's name is too long");
    }
    struct stat status;
    if (lstat(directory, &status) == 0 &&
        (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0)) {
        return nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "%s must be a directory of mode 0700 that you own",
                        directory);
    }
    size_t room = strlen(directory) + MAX_NAME + sizeof "/.sock";
    *path = malloc(room);
    if (*path == NULL) {
        return nnb_fail_short_of_memory();
    }
    (void)snprintf(*path, room, "%s/%s.sock", directory, name_or_path);
    return NNBURST_NO_ERROR;
}

/* -- services --------------------------------------------------------------------------------------------- */

static int unavailable(const char *path, int error) {
    return nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "no driver serves %s: %s", path, strerror(error));
}

static int connect_to(const char *path, bool any_user, uint64_t deadline_ns, int *found) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return nnb_fail(NNBURST_BAD_DATA, "name_or_path: %s is longer than the %zu bytes of a socket", path,
                        sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path, strlen(path));
    *found = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*found < 0) {
        return nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "a socket cannot be made: %s", strerror(errno));
    }
    /* A full backlog gives EAGAIN at once, and no descriptor becomes ready when there is room again. */
    while (connect(*found, (struct sockaddr *)&address, sizeof address) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || nnb_now_ns() >= deadline_ns) {
            return unavailable(path, errno);
        }
        struct timespec pause = {.tv_nsec = RETRY_NS};
        (void)nanosleep(&pause, NULL);
    }
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(*found, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return unavailable(path, errno);
    }
    if (peer.uid != geteuid() && !any_user) {
        return nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "%s is served by user %u", path, (unsigned)peer.uid);
    }
    return NNBURST_NO_ERROR;
}

/* -- drivers of one's own --------------------------------------------------------------------------------- */

/* The next one of the open descriptors, or without /proc of all numbers below the limit; -1 at the end. */
static long next_fd(DIR *folder, long fd, long limit) {
    if (folder == NULL) {
        return fd + 1 < limit ? fd + 1 : -1;
    }
    const struct dirent *entry = readdir(folder);
    return entry == NULL ? -1 : strtol(entry->d_name, NULL, 10);
}

/* Finds the descriptors behind CHILD_FD that a new process would inherit, for the caller to free: programs in C open
 * most of theirs without close-on-exec. Those at or beyond the limit are left out, since posix_spawn refuses to close
 * them: the driver does. Returns 0 or an errno. */
static int find_inheritable(int32_t **found, uint32_t *count) {
    long limit = sysconf(_SC_OPEN_MAX);
    DIR *folder = opendir("/proc/self/fd");
    uint32_t room = 0;
    int failed = 0;
    *found = NULL;
    *count = 0;
    for (long fd = CHILD_FD; failed == 0 && fd >= 0; fd = next_fd(folder, fd, limit)) {
        int flags = fd > CHILD_FD && fd < limit ? fcntl((int)fd, F_GETFD) : -1;
        if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
            continue;
        }
        if (*count == room) {
            room = 2 * room + 16;
            int32_t *more = realloc(*found, room * sizeof *more);
            failed = more == NULL ? ENOMEM : 0;
            *found = more == NULL ? *found : more;
        }
        if (failed == 0) {
            (*found)[(*count)++] = (int32_t)fd;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return failed;
}

/* Starts `python -m nnburst.driver`, whose log goes to this process's stderr; it gets no other descriptor of this
 * process's. */
static int spawn(struct nnb_service *service, const char *program, int socket) {
    char fd[16];
    (void)snprintf(fd, sizeof fd, "%d", CHILD_FD);
    const char *const words[] = {program,       "-P", "-m",      "nnburst.driver", "--executor",
                                 service->executor, "--fd", fd, NULL};
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int above = fcntl(socket, F_DUPFD_CLOEXEC, ABOVE);
    int high = nothing < 0 ? -1 : fcntl(nothing, F_DUPFD_CLOEXEC, ABOVE);
    const int32_t source[] = {high, high, above};
    const int32_t target[] = {0, 1, CHILD_FD};
    struct nnb_spawn spawned = {
        .path = program,
        .arguments = (char *const *)(uintptr_t)words,
        .environment = environ,
        .source = source,
        .target = target,
        .count = 3,
    };
    int32_t *inherited = NULL;
    int failed = above < 0 || high < 0 ? errno : find_inheritable(&inherited, &spawned.close_count);
    if (failed == 0) {
        spawned.close = inherited;
        failed = nnb_spawn(&spawned);
    }
    free(inherited);
    const int fds[] = {nothing, above, high};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    if (failed != 0) {
        return nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "%s cannot be started: %s", program, strerror(failed));
    }
    service->child = spawned.pid;
    return NNBURST_NO_ERROR;
}

static int launch(struct nnb_service *service, int *found) {
    if (getauxval(AT_SECURE) != 0) {
        return nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "a privileged program starts no driver: connect to a service");
    }
    struct nnb_environment *environment = calloc(1, sizeof *environment); /* too large for a stack */
    if (environment == NULL) {
        return nnb_fail_short_of_memory();
    }
    int pair[2];
    int code = NNBURST_NO_ERROR;
    if (!nnb_environment_find(environment)) {
        code = nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "%s", environment->problem);
    } else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        code = nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "a socket cannot be made: %s", strerror(errno));
    } else {
        code = spawn(service, environment->program, pair[1]);
        (void)close(pair[1]);
        if (code == NNBURST_NO_ERROR) {
            *found = pair[0];
        } else {
            (void)close(pair[0]);
        }
    }
    free(environment);
    return code;
}

/* Waits up to `patience_ns` for the child's end and reaps it; returns whether it has ended. */
static bool reap(pid_t child, int process, uint64_t patience_ns) {
    uint64_t deadline = nnb_now_ns() + patience_ns;
    for (;;) {
        pid_t ended = waitpid(child, NULL, WNOHANG);
        if (ended != 0 && errno != EINTR) {
            return true; /* reaped, or another part of the program has */
        }
        uint64_t now = nnb_now_ns();
        if (now >= deadline) {
            return false;
        }
        /* Without a pidfd there is no signal for it. */
        struct pollfd item = {.fd = process, .events = POLLIN};
        uint64_t left = (deadline - now) / 1000000u + 1;
        (void)poll(&item, 1, process < 0 ? 2 : (int)left);
    }
}

/* How long a driver may take to end, of GRACE_NS, until a deadline. */
static uint64_t patience_until(uint64_t deadline_ns) {
    uint64_t now = nnb_now_ns();
    uint64_t left = now < deadline_ns ? deadline_ns - now : 0;
    return left < GRACE_NS ? left : GRACE_NS;
}

void nnb_service_end(struct nnb_service *service, bool is_ours, uint64_t deadline_ns) {
    pid_t child = service->child;
    service->child = 0;
    if (child <= 0 || !is_ours) {
        return;
    }
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    if (!reap(child, process, patience_until(deadline_ns))) {
        (void)kill(child, SIGTERM);
        if (!reap(child, process, patience_until(deadline_ns))) {
            (void)kill(child, SIGKILL);
            (void)reap(child, process, GRACE_NS);
        }
    }
    if (process >= 0) {
        (void)close(process);
    }
}

/* -- both ------------------------------------------------------------------------------------------------- */

int nnb_service_find(struct nnb_service *service, const char *name_or_path, bool any_user) {
    *service = (struct nnb_service){.any_user = any_user};
    return find_path(name_or_path, &service->path);
}

int nnb_service_launched(struct nnb_service *service, const char *executor) {
    *service = (struct nnb_service){.executor = strdup(executor)};
    return service->executor != NULL ? NNBURST_NO_ERROR : nnb_fail_short_of_memory();
}

int nnb_service_reach(struct nnb_service *service, uint64_t deadline_ns, int *socket) {
    *socket = -1;
    if (service->executor != NULL) {
        nnb_service_end(service, true, deadline_ns);
        return launch(service, socket);
    }
    int code = connect_to(service->path, service->any_user, deadline_ns, socket);
    if (code != NNBURST_NO_ERROR && *socket >= 0) {
        (void)close(*socket);
        *socket = -1;
    }
    return code;
}

void nnb_service_free(struct nnb_service *service) {
    free(service->path);
    free(service->executor);
    *service = (struct nnb_service){0};
}
