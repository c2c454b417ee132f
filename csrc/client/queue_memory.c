#include "client/queue_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <nnburst.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "client/failure.h"
#include "clock.h"
#include "pool_map.h"
#include "queue.h"
#include "received_fd.h"

enum { SYNCHRONIZED = 1, UNSYNCHRONIZED = 2 };
enum { READ_COUNTER, WRITE_COUNTER, DATA, FLAG, WORDS };

#define LINE 64u
#define HEADER 1024u
#define RECORD_AT 16u
#define MOST_DATA ((uint64_t)1 << 32)
#define LONGEST_NAME 254u
#define FOLDER "/dev/shm"
#define PORTION ((uint64_t)64 << 20) /* a signal makes the kernel give back one that it has begun */

_Static_assert(sizeof(struct nnb_queue_record) == NNB_QUEUE_RECORD_BYTES, "as Python packs it");

static const uint8_t MAGIC[8] = {'n', 'n', 'b', 'q', 'u', 'e', 'u', 'e'};

static uint64_t magic(void) {
    uint64_t word;
    memcpy(&word, MAGIC, sizeof word);
    return word;
}

static uint64_t to_line(uint64_t offset) { return (offset + LINE - 1) / LINE * LINE; }

/* -- layout ----------------------------------------------------------------------------------------------- */

static int lay_out(struct nnb_queue_record *record, uint64_t quantum, uint64_t capacity, bool is_broadcast,
                   uint64_t start, uint64_t flag_start) {
    if (quantum == 0 || capacity == 0 || quantum > MOST_DATA - 1 || capacity > MOST_DATA / quantum) {
        return nnb_fail(NNBURST_BAD_DATA,
                        "capacity: %llu elements of %llu bytes, expected positive sizes, at most 4 GiB in all",
                        (unsigned long long)capacity, (unsigned long long)quantum);
    }
    uint64_t data_end = start + 2 * LINE + quantum * capacity;
    uint64_t flag_at = is_broadcast ? flag_start : to_line(data_end);
    uint64_t words_at = to_line(is_broadcast ? data_end : flag_at + sizeof(uint32_t));
    *record = (struct nnb_queue_record){
        .count = NNB_QUEUE_GRANTORS,
        .quantum = (uint32_t)quantum,
        .flavor = is_broadcast ? UNSYNCHRONIZED : SYNCHRONIZED,
        .grantors = {{0, 0, start, sizeof(uint64_t)},
                     {0, 0, start + LINE, sizeof(uint64_t)},
                     {0, 0, start + 2 * LINE, quantum * capacity},
                     {0, is_broadcast, flag_at, sizeof(uint32_t)},
                     {0, 0, words_at, NNB_ENDS_BYTES}},
    };
    return NNBURST_NO_ERROR;
}

static uint64_t size_of(const struct nnb_queue_record *record) {
    return record->grantors[WORDS].offset + NNB_ENDS_BYTES;
}

static bool overlap(const struct nnb_grantor *one, const struct nnb_grantor *other) {
    return one->fd_index == other->fd_index && one->offset < other->offset + other->extent &&
           other->offset < one->offset + one->extent;
}

/* Checks that a record describes a queue with words of its ends in regions of these sizes. */
static int check(const struct nnb_queue_memory *memory, const uint64_t *sizes, uint64_t quantum) {
    static const uint64_t extents[NNB_QUEUE_GRANTORS] = {8, 8, 0, 4, NNB_ENDS_BYTES};
    const struct nnb_queue_record *record = &memory->record;
    bool fits = record->count == NNB_QUEUE_GRANTORS && record->quantum != 0 &&
                (record->flavor == SYNCHRONIZED || record->flavor == UNSYNCHRONIZED);
    for (uint32_t i = 0; fits && i < NNB_QUEUE_GRANTORS; i++) {
        const struct nnb_grantor *grantor = &record->grantors[i];
        bool apart = record->flavor == UNSYNCHRONIZED && i == FLAG;
        fits = grantor->flags == 0 && grantor->fd_index == apart && grantor->fd_index < memory->region_count &&
               grantor->offset % 8 == 0 && grantor->extent != 0 &&
               grantor->extent <= sizes[grantor->fd_index] &&
               grantor->offset <= sizes[grantor->fd_index] - grantor->extent &&
               (i == DATA ? grantor->extent % record->quantum == 0 && grantor->extent <= MOST_DATA
                          : grantor->extent == extents[i]);
    }
    for (uint32_t i = 1; fits && i < NNB_QUEUE_GRANTORS; i++) {
        for (uint32_t j = 0; j < i; j++) {
            fits = fits && !overlap(&record->grantors[i], &record->grantors[j]);
        }
    }
    if (!fits) {
        return nnb_fail(NNBURST_BAD_DATA, "the memory has no queue of one writer and one reader, or of a broadcast");
    }
    if (record->quantum != quantum) {
        return nnb_fail(NNBURST_BAD_DATA, "element_size: %llu, the queue's elements have %u bytes",
                        (unsigned long long)quantum, record->quantum);
    }
    return NNBURST_NO_ERROR;
}

uint8_t *nnb_queue_part(const struct nnb_queue_memory *memory, uint32_t grantor) {
    const struct nnb_grantor *found = &memory->record.grantors[grantor];
    return memory->regions[found->fd_index].data + found->offset;
}

/* Notes at both ends whether another process may take them later, and gives the readers of a broadcast a
 * name. */
static void prepare_ends(const struct nnb_queue_memory *memory, uint32_t reopen) {
    struct nnb_end_words *words = (struct nnb_end_words *)(void *)nnb_queue_part(memory, WORDS);
    for (int i = 0; i < 2; i++) {
        nnb_store_release_u32(&words[i].reopen, reopen); /* SYNC POINT G: publishes only the word */
    }
    if (memory->record.flavor == UNSYNCHRONIZED) {
        uint8_t name[sizeof words[1].name];
        if (getrandom(name, sizeof name, 0) == (ssize_t)sizeof name) { /* otherwise event loops share a name,
                                                                        * and wake without a reason */
            memcpy(words[1].name, name, sizeof name);
        }
    }
}

/* -- memory without a name -------------------------------------------------------------------------------- */

static int create_anonymous(struct nnb_queue_memory *memory, uint32_t reopen) {
    bool is_broadcast = memory->record.flavor == UNSYNCHRONIZED;
    int code = is_broadcast
                   ? nnb_region_create_protected(&memory->regions[0], size_of(&memory->record), "nnburst-queue")
                   : nnb_region_create(&memory->regions[0], size_of(&memory->record), "nnburst-queue");
    memory->region_count = 1;
    if (code == NNBURST_NO_ERROR && is_broadcast) {
        code = nnb_region_create(&memory->regions[1], sizeof(uint32_t), "nnburst-queue-flag");
        memory->region_count = 2;
    }
    if (code == NNBURST_NO_ERROR) {
        prepare_ends(memory, reopen);
    }
    return code;
}

/* -- memory with a name ----------------------------------------------------------------------------------- */

static int path_of(char *path, size_t room, const char *name) {
    size_t length = strlen(name);
    if (name[0] != '/' || length < 2 || length > LONGEST_NAME + 1 || strchr(name + 1, '/') != NULL ||
        strcmp(name, "/.") == 0 || strcmp(name, "/..") == 0) {
        return nnb_fail(NNBURST_BAD_DATA, "name: %.260s, expected '/' and 1 to 254 other characters, not /. or /..",
                        name);
    }
    (void)snprintf(path, room, FOLDER "%s", name);
    return NNBURST_NO_ERROR;
}

static bool is_same_file(const char *path, int fd) {
    struct stat named;
    struct stat open_one;
    return stat(path, &named) == 0 && fstat(fd, &open_one) == 0 && named.st_dev == open_one.st_dev &&
           named.st_ino == open_one.st_ino;
}

/* Whether no process holds the region any more; until `fd` is closed, no other process can get this answer.
 * */
static bool is_stale(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0; }

/* Opens the queue at a path: returns a descriptor, -1 if there is no complete queue of this user yet, -2 if
 * it is another user's, -3 if descriptors are lacking. */
static int open_path(const char *path, bool stale) {
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == EACCES ? -2 : errno == EMFILE || errno == ENFILE ? -3 : -1;
    }
    struct stat status;
    uint8_t begin[sizeof MAGIC];
    if (fstat(fd, &status) != 0 || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
        (void)close(fd);
        return -2;
    }
    /* TRUST: read once; the record is checked when the memory is used. */
    if (status.st_size < HEADER || pread(fd, begin, sizeof begin, 0) != sizeof begin ||
        memcmp(begin, MAGIC, sizeof MAGIC) != 0 || is_stale(fd) != stale) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Removes a name that a killed process has left. */
static bool take_stale_away(const char *path) {
    int fd = open_path(path, true);
    if (fd < 0) {
        return false;
    }
    bool gone = is_same_file(path, fd) && unlink(path) == 0;
    (void)close(fd);
    return gone;
}

static int cannot(int code, const char *what) { return nnb_fail(code, "%s: %s", what, strerror(errno)); }

/* Maps the second region of a broadcast: the same file again, of which only the flag's page is writable. */
static int map_apart(struct nnb_queue_memory *memory, int fd, uint64_t size, bool writes) {
    char self[64];
    memory->region_count = 2;
    memory->regions[1].fd = fd;
    memory->regions[1].size = HEADER + sizeof(uint32_t);
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    memory->regions[0].size = size;
    memory->regions[0].fd = open(self, O_RDONLY | O_CLOEXEC);
    if (memory->regions[0].fd < 0) {
        return cannot(NNBURST_RESOURCE_EXHAUSTED, "the queue cannot be opened again");
    }
    memory->regions[0].data = nnb_pool_map(writes ? fd : memory->regions[0].fd, size, writes);
    memory->regions[1].data = nnb_pool_map(fd, memory->regions[1].size, 1);
    memory->is_read_only = !writes;
    return memory->regions[0].data == NULL || memory->regions[1].data == NULL
               ? cannot(NNBURST_OUT_OF_MEMORY, "the queue cannot be mapped")
               : NNBURST_NO_ERROR;
}

static int map_whole(struct nnb_queue_memory *memory, int fd, uint64_t size) {
    memory->region_count = 1;
    memory->regions[0] = (struct nnb_region){.fd = fd, .size = size, .data = nnb_pool_map(fd, size, 1)};
    return memory->regions[0].data == NULL ? cannot(NNBURST_OUT_OF_MEMORY, "the queue cannot be mapped")
                                           : NNBURST_NO_ERROR;
}

/* Gives memory a name that is free, or was left by a process that has ended. */
static int give_name(const char *path, int fd, const char *name) {
    char self[64];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    bool given = linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
    bool exists = !given && errno == EEXIST;
    if (exists && take_stale_away(path)) {
        given = linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
    }
    if (given) {
        return NNBURST_NO_ERROR;
    }
    return exists ? nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "name: %s exists already", name)
                  : cannot(NNBURST_RESOURCE_EXHAUSTED, "the name cannot be given");
}

/* Gives memory its size and all its pages: a write into a page that a full folder cannot give is a SIGBUS.
 * Returns 0 or an errno. */
static int reserve(int fd, uint64_t size) {
    int failed = 0;
    for (uint64_t done = 0; done < size && (failed == 0 || failed == EINTR);) {
        uint64_t portion = size - done < PORTION ? size - done : PORTION;
        failed = posix_fallocate(fd, (off_t)done, (off_t)portion);
        done += failed == 0 ? portion : 0;
    }
    return failed;
}

static int create_named(struct nnb_queue_memory *memory, const char *name, uint32_t reopen) {
    char path[sizeof FOLDER + LONGEST_NAME + 2];
    int code = path_of(path, sizeof path, name);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    uint64_t size = size_of(&memory->record);
    bool is_broadcast = memory->record.flavor == UNSYNCHRONIZED;
    int fd = open(FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        return cannot(NNBURST_RESOURCE_EXHAUSTED, "shared memory cannot be made");
    }
    int failed = reserve(fd, size);
    if (failed != 0 || flock(fd, LOCK_SH) != 0) {
        failed = failed != 0 ? failed : errno;
        (void)close(fd);
        return nnb_fail(NNBURST_OUT_OF_MEMORY, "%llu bytes in " FOLDER " cannot be had: %s", (unsigned long long)size,
                        strerror(failed));
    }
    code = is_broadcast ? map_apart(memory, fd, size, true) : map_whole(memory, fd, size);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    uint8_t *begin = memory->regions[0].data;
    uint32_t pid = (uint32_t)getpid();
    prepare_ends(memory, reopen);
    memcpy(begin + sizeof MAGIC, &pid, sizeof pid);
    memcpy(begin + RECORD_AT, &memory->record, sizeof memory->record);
    /* SYNC POINT A: everything before it is visible to a process that sees the magic. */
    nnb_store_release_u64((nnb_atomic_u64 *)(void *)begin, magic());
    memory->name = strdup(path);
    if (memory->name == NULL) {
        return nnb_fail_short_of_memory();
    }
    return give_name(path, fd, name); /* complete, so that a kill leaves either nothing or a queue */
}

int nnb_queue_memory_create(struct nnb_queue_memory *memory, const char *name, uint64_t quantum,
                            uint64_t capacity, bool is_broadcast, uint32_t reopen) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t apart = page > 4096 ? page : 4096;
    *memory = (struct nnb_queue_memory){.regions = {{.fd = -1}, {.fd = -1}}};
    int code = name == NULL
                   ? lay_out(&memory->record, quantum, capacity, is_broadcast, 0, 0)
                   : lay_out(&memory->record, quantum, capacity, is_broadcast, is_broadcast ? apart : HEADER, HEADER);
    if (code == NNBURST_NO_ERROR) {
        code = name == NULL ? create_anonymous(memory, reopen) : create_named(memory, name, reopen);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_queue_memory_close(memory, true);
    }
    return code;
}

/* Uses memory that was found under a name. */
static int use_named(struct nnb_queue_memory *memory, const char *path, int fd, uint64_t quantum) {
    struct stat status;
    if (fstat(fd, &status) != 0 ||
        pread(fd, &memory->record, sizeof memory->record, RECORD_AT) != sizeof memory->record) {
        (void)close(fd);
        return cannot(NNBURST_BAD_DATA, "the queue cannot be looked at");
    }
    uint64_t size = (uint64_t)status.st_size;
    /* TRUST: the record was copied once, and is checked before it is used. */
    memory->region_count = memory->record.flavor == UNSYNCHRONIZED ? 2 : 1;
    int code = check(memory, (uint64_t[2]){size, size}, quantum);
    if (code != NNBURST_NO_ERROR) {
        (void)close(fd);
        return code;
    }
    if (memory->record.flavor == UNSYNCHRONIZED) {
        return map_apart(memory, fd, size, false);
    }
    code = map_whole(memory, fd, size);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    struct nnb_end_words *words = (struct nnb_end_words *)(void *)nnb_queue_part(memory, WORDS);
    /* TRUST: the word decides about the name alone. */
    if (nnb_load_relaxed_u32(&words->reopen) != 0) {
        (void)flock(fd, LOCK_SH);
        return NNBURST_NO_ERROR;
    }
    memory->is_opened = true;
    memory->name = strdup(path);
    return memory->name != NULL ? NNBURST_NO_ERROR : nnb_fail_short_of_memory();
}

/* Removes a name unless it stands for another file by now. */
static void remove_name(struct nnb_queue_memory *memory) {
    int fd = memory->regions[memory->region_count == 2 ? 1 : 0].fd;
    if (memory->name != NULL && fd >= 0 && is_same_file(memory->name, fd)) {
        (void)unlink(memory->name);
    }
    free(memory->name);
    memory->name = NULL;
}

void nnb_queue_memory_take_name(struct nnb_queue_memory *memory) {
    if (memory->is_opened) {
        remove_name(memory);
    }
}

int nnb_queue_memory_open(struct nnb_queue_memory *memory, const char *name, uint64_t quantum,
                          uint64_t deadline_ns) {
    char path[sizeof FOLDER + LONGEST_NAME + 2];
    *memory = (struct nnb_queue_memory){.regions = {{.fd = -1}, {.fd = -1}}};
    int code = path_of(path, sizeof path, name);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    int fd;
    while ((fd = open_path(path, false)) == -1) {
        struct timespec moment = {.tv_nsec = 1000000};
        if (nnb_now_ns() >= deadline_ns) {
            return nnb_fail(NNBURST_UNAVAILABLE_DEVICE, "name: %s was not created in time", name);
        }
        (void)nanosleep(&moment, NULL);
    }
    if (fd < 0) {
        return fd == -3 ? cannot(NNBURST_RESOURCE_EXHAUSTED, "the queue cannot be opened")
                        : nnb_fail(NNBURST_BAD_DATA, "name: %s belongs to another user or is open to others", name);
    }
    code = use_named(memory, path, fd, quantum);
    if (code != NNBURST_NO_ERROR) {
        nnb_queue_memory_close(memory, true);
    }
    return code;
}

/* -- over a socket ---------------------------------------------------------------------------------------- */

union fds_message {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr aligned;
};

/* Refuses what carries no descriptors: the kernel drops those that are sent over other sockets. */
static int check_connection(int connection) {
    int domain;
    socklen_t size = sizeof domain;
    return getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX
               ? NNBURST_NO_ERROR
               : nnb_fail(NNBURST_BAD_DATA, "connection: %d is no open Unix socket", connection);
}

int nnb_queue_memory_send(const struct nnb_queue_memory *memory, int connection) {
    int code = check_connection(connection);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    struct iovec part = {(void *)(uintptr_t)&memory->record, sizeof memory->record};
    union fds_message control = {0};
    size_t fds_bytes = memory->region_count * sizeof(int);
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(fds_bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds_bytes);
    for (uint32_t i = 0; i < memory->region_count; i++) {
        if (!nnb_is_sealed(memory->regions[i].fd)) {
            return nnb_fail(NNBURST_BAD_STATE, "queue: its memory has a name, and cannot be sealed");
        }
        memcpy(CMSG_DATA(header) + i * sizeof(int), &memory->regions[i].fd, sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof memory->record ? NNBURST_NO_ERROR
                                                  : cannot(NNBURST_OP_FAILED, "the queue cannot be sent");
}

/* Takes descriptors out of a message, and closes excess ones. */
static void take_fds(struct msghdr *message, int *fds, uint32_t *count) {
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
            if (*count < 2) {
                fds[(*count)++] = fd;
            } else {
                nnb_close_received(fd);
            }
        }
    }
}

/* Receives a whole record and its descriptors. */
static int receive_record(struct nnb_queue_memory *memory, int connection, int *fds, uint32_t *count,
                          uint64_t deadline_ns) {
    bool lost_fds = false;
    for (size_t got = 0; got < sizeof memory->record;) {
        union fds_message control;
        struct iovec part = {(uint8_t *)&memory->record + got, sizeof memory->record - got};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        struct pollfd ready = {.fd = connection, .events = POLLIN};
        uint64_t now = nnb_now_ns();
        uint64_t left_ms = now >= deadline_ns ? 0 : (deadline_ns - now) / 1000000u + 1;
        if (poll(&ready, 1, left_ms > 1000 ? 1000 : (int)left_ms) == 0) {
            if (left_ms == 0) {
                return nnb_fail(NNBURST_MISSED_DEADLINE, "no queue came in time");
            }
            continue;
        }
        ssize_t more = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (more < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (more <= 0) {
            return nnb_fail(NNBURST_DEAD_OBJECT, "the other process has closed the socket");
        }
        take_fds(&message, fds, count);
        got += (size_t)more;
        /* Of more than two, which no queue has, the kernel leaves out some, too. */
        lost_fds = lost_fds || ((message.msg_flags & MSG_CTRUNC) != 0 && *count < 2);
    }
    return !lost_fds ? NNBURST_NO_ERROR
                     : nnb_fail(NNBURST_RESOURCE_EXHAUSTED,
                                "this process has no descriptors left for those of the queue");
}

int nnb_queue_memory_receive(struct nnb_queue_memory *memory, int connection, uint64_t quantum,
                             uint64_t deadline_ns) {
    int fds[2] = {-1, -1};
    uint64_t sizes[2] = {0, 0};
    *memory = (struct nnb_queue_memory){.regions = {{.fd = -1}, {.fd = -1}}};
    uint32_t count = 0;
    int code = check_connection(connection);
    if (code == NNBURST_NO_ERROR) {
        code = receive_record(memory, connection, fds, &count, deadline_ns);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (code != NNBURST_NO_ERROR) {
            (void)close(fds[i]);
            continue;
        }
        bool is_writable = nnb_may_write(fds[i]);
        bool is_needed = memory->record.flavor != UNSYNCHRONIZED || i == 1;
        memory->is_read_only = memory->is_read_only || (!is_writable && !is_needed);
        code = nnb_region_adopt(&memory->regions[i], fds[i], is_writable);
        memory->region_count = i + 1;
        sizes[i] = memory->regions[i].size;
        if (code == NNBURST_NO_ERROR && !is_writable && is_needed) {
            code = nnb_fail(NNBURST_BAD_DATA, "the memory is read-only that an end of the queue writes to");
        }
    }
    /* TRUST: the record was copied once, and is checked before it is used. */
    code = code == NNBURST_NO_ERROR ? check(memory, sizes, quantum) : code;
    if (code != NNBURST_NO_ERROR) {
        nnb_queue_memory_close(memory, true);
    }
    return code;
}

void nnb_queue_memory_close(struct nnb_queue_memory *memory, bool is_mapped_here) {
    if (is_mapped_here && !memory->is_opened) {
        remove_name(memory);
    }
    free(memory->name);
    memory->name = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        nnb_region_close(&memory->regions[i], is_mapped_here);
    }
}
