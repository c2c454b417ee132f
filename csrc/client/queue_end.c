/* Message queues for programs in C, over csrc/queue.h; an object is one end of a queue. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/queue_memory.h"
#include "clock.h"
#include "queue.h"

#define DEFAULT_SPIN_WINDOW_NS 200000u
#define LONGEST_SPIN_WINDOW_NS 1000000000u
#define FLAGS (NNBURST_BROADCAST | NNBURST_REOPEN | NNBURST_DROP_UNREAD)

struct nnburst_queue {
    struct nnb_queue_memory memory;
    struct nnb_ring ring;
    struct nnb_end end;
    uint32_t forks; /* nnb_process_generation when it was opened */
    bool writes;
};

/* Checks which end a program opens, and reads the options. */
static int read_options(nnburst_queue_options *read, uint32_t role, const nnburst_queue_options *options, size_t size) {
    *read = (nnburst_queue_options){0};
    if (role != NNBURST_WRITER && role != NNBURST_READER) {
        return nnb_fail(NNBURST_BAD_DATA, "role: %u, expected NNBURST_WRITER or NNBURST_READER", role);
    }
    if (options != NULL) {
        memcpy(read, options, size < sizeof *read ? size : sizeof *read);
    }
    if ((read->flags & ~FLAGS) != 0) {
        return nnb_fail(NNBURST_BAD_DATA, "flags: %u, expected those of nnburst_create_queue", read->flags);
    }
    if ((read->flags & (NNBURST_REOPEN | NNBURST_DROP_UNREAD)) == NNBURST_DROP_UNREAD) {
        return nnb_fail(NNBURST_BAD_DATA, "flags: NNBURST_DROP_UNREAD without NNBURST_REOPEN, expected both");
    }
    read->spin_window_ns = read->spin_window_ns == 0 ? DEFAULT_SPIN_WINDOW_NS : read->spin_window_ns;
    if (read->spin_window_ns > LONGEST_SPIN_WINDOW_NS) {
        return nnb_fail(NNBURST_BAD_DATA, "spin_window_ns: %llu, expected at most 1 s",
                        (unsigned long long)read->spin_window_ns);
    }
    return NNBURST_NO_ERROR;
}

/* Whether the cgroup's quota grants two cores; a program without one may use all of them. */
static bool quota_allows(void) {
    char line[512];
    char path[600] = "";
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s/cpu.max", line + 4);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    file = path[0] == '\0' ? NULL : fopen(path, "re");
    if (file == NULL) {
        return true;
    }
    long long limit;
    long long period;
    bool is_limited = fscanf(file, "%lld %lld", &limit, &period) == 2;
    (void)fclose(file);
    return !is_limited || limit >= 2 * period;
}

static int fail_to_open(int status, bool writes) {
    const char *mine = writes ? "writer" : "reader";
    switch (status) {
    case NNB_RING_CORRUPT:
        return nnb_fail(NNBURST_OP_FAILED, "the queue's counters contradict its size");
    case NNB_END_WAS_CLOSED:
        return nnb_fail(NNBURST_BAD_STATE, "the queue's %s was closed", mine);
    case NNB_END_WAS_DEAD:
        return nnb_fail(NNBURST_BAD_STATE, "the process of the queue's %s has died", mine);
    case NNB_END_TAKEN:
        return nnb_fail(NNBURST_BAD_STATE, "the queue has a %s already: one at a time", mine);
    default:
        return nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "cannot start the thread that holds the queue's end");
    }
}

/* Opens an end over memory that this takes over. */
static int open_end(const struct nnb_queue_memory *memory, uint32_t role, const nnburst_queue_options *options,
                    nnburst_queue **queue) {
    struct nnb_queue_memory taken = *memory;
    bool writes = role == NNBURST_WRITER;
    nnburst_queue *made = taken.is_read_only && writes ? NULL : calloc(1, sizeof *made);
    if (made == NULL) {
        nnb_queue_memory_close(&taken, true);
        return writes && taken.is_read_only
                   ? nnb_fail(NNBURST_BAD_STATE, "the queue is a broadcast: only its maker can write")
                   : nnb_fail_short_of_memory();
    }
    made->memory = taken;
    made->writes = writes;
    const struct nnb_queue_record *record = &made->memory.record;
    int status = nnb_ring_init(&made->ring, nnb_queue_part(&taken, 2),
                               (nnb_atomic_u64 *)(void *)nnb_queue_part(&taken, 0),
                               (nnb_atomic_u64 *)(void *)nnb_queue_part(&taken, 1), record->grantors[2].extent,
                               record->quantum, record->flavor == 1);
    if (status == NNB_RING_OK) {
        uint64_t window = options->low_power != 0 ? 0 : options->spin_window_ns;
        status = nnb_end_open(&made->end, &made->ring, (nnb_atomic_u32 *)(void *)nnb_queue_part(&taken, 3),
                              nnb_queue_part(&taken, 4), writes, quota_allows(), window);
    }
    made->forks = nnb_process_generation;
    if (status != NNB_RING_OK) {
        nnb_queue_memory_close(&made->memory, true);
        free(made);
        return fail_to_open(status, writes);
    }
    nnb_queue_memory_take_name(&made->memory);
    *queue = made;
    return NNBURST_NO_ERROR;
}

int nnburst_create_queue(const char *name, uint32_t role, size_t element_size, size_t capacity,
                         const nnburst_queue_options *options, size_t options_size, nnburst_queue **queue) {
    nnburst_queue_options read;
    struct nnb_queue_memory memory;
    if (queue == NULL) {
        return nnb_fail_null("queue");
    }
    int code = read_options(&read, role, options, options_size);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    uint32_t reopen = (read.flags & NNBURST_REOPEN) == 0        ? 0
                      : (read.flags & NNBURST_DROP_UNREAD) == 0 ? 1
                                                                : NNB_REOPEN_DROPS;
    bool is_broadcast = (read.flags & NNBURST_BROADCAST) != 0;
    if (is_broadcast && (role != NNBURST_WRITER || reopen != 0)) {
        return nnb_fail(NNBURST_BAD_DATA, "flags: the maker of a broadcast is its only writer");
    }
    code = nnb_queue_memory_create(&memory, name, element_size, capacity, is_broadcast, reopen);
    return code == NNBURST_NO_ERROR ? open_end(&memory, role, &read, queue) : code;
}

int nnburst_open_queue(const char *name, uint32_t role, size_t element_size,
                       const nnburst_queue_options *options, size_t options_size, uint64_t timeout_ns,
                       nnburst_queue **queue) {
    nnburst_queue_options read;
    struct nnb_queue_memory memory;
    if (name == NULL || queue == NULL) {
        return nnb_fail_null(name == NULL ? "name" : "queue");
    }
    int code = read_options(&read, role, options, options_size);
    if (code == NNBURST_NO_ERROR) {
        uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
        code = nnb_queue_memory_open(&memory, name, element_size, deadline);
    }
    return code == NNBURST_NO_ERROR ? open_end(&memory, role, &read, queue) : code;
}

int nnburst_receive_queue(int connection, uint32_t role, size_t element_size,
                          const nnburst_queue_options *options, size_t options_size, uint64_t timeout_ns,
                          nnburst_queue **queue) {
    nnburst_queue_options read;
    struct nnb_queue_memory memory;
    if (queue == NULL) {
        return nnb_fail_null("queue");
    }
    int code = read_options(&read, role, options, options_size);
    if (code == NNBURST_NO_ERROR) {
        uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
        code = nnb_queue_memory_receive(&memory, connection, element_size, deadline);
    }
    return code == NNBURST_NO_ERROR ? open_end(&memory, role, &read, queue) : code;
}

int nnburst_send_queue(int connection, const nnburst_queue *queue) {
    if (queue == NULL) {
        return nnb_fail_null("queue");
    }
    return queue->forks == nnb_process_generation
               ? nnb_queue_memory_send(&queue->memory, connection)
               : nnb_fail(NNBURST_BAD_STATE, "queue: it was opened by the process that forked this one");
}

void nnburst_close_queue(nnburst_queue *queue) {
    if (queue != NULL) {
        bool is_ours = queue->forks == nnb_process_generation;
        while (nnb_end_close(&queue->end) == NNB_END_BUSY) {
            (void)sched_yield();
        }
        nnb_queue_memory_close(&queue->memory, is_ours);
        free(queue);
    }
}

/* -- reading and writing ---------------------------------------------------------------------------------- */

static int code_of(int status) {
    switch (status) {
    case NNB_RING_OK:
        return NNBURST_NO_ERROR;
    case NNB_RING_FULL:
    case NNB_RING_EMPTY:
    case NNB_RING_OVERRUN:
    case NNB_END_TIMED_OUT:
        return NNBURST_MISSED_DEADLINE;
    case NNB_RING_TOO_LARGE:
        return NNBURST_BAD_DATA;
    case NNB_END_CLOSED:
    case NNB_END_UNCLAIMED:
        return NNBURST_BAD_STATE;
    case NNB_END_PEER_CLOSED:
        return NNBURST_CLOSED;
    case NNB_END_PEER_DIED:
        return NNBURST_DEAD_OBJECT;
    case NNB_END_BUSY:
        return NNBURST_BUSY;
    default:
        return NNBURST_OP_FAILED;
    }
}

static bool is_not_yet(int status) {
    return status == NNB_RING_FULL || status == NNB_RING_EMPTY || status == NNB_RING_OVERRUN;
}

struct nnb_transfer {
    int (*act)(struct nnb_end *end, struct nnb_transfer *transfer);
    const void *from;
    void *to;
    uint64_t count; /* elements, or bytes of a message */
    uint64_t room;
    struct nnb_ring_regions regions;
};

/* Transfers at once or within the timeout; `wanted` is the number of elements that must be free or readable.
 * */
static int transfer(nnburst_queue *queue, bool writes, struct nnb_transfer *what, uint64_t wanted,
                    uint64_t timeout_ns) {
    if (queue == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    struct nnb_end *end = &queue->end;
    int status = queue->writes == writes ? nnb_end_check(end) : NNB_END_CLOSED;
    if (status != NNB_RING_OK) {
        return code_of(status);
    }
    status = what->act(end, what);
    if (!is_not_yet(status)) {
        return code_of(status);
    }
    if (timeout_ns == 0) {
        int peer = nnb_end_look(end);
        if (peer != NNB_RING_OK) { /* the other end may have written or read just before it ended */
            status = what->act(end, what);
        }
        return code_of(is_not_yet(status) && peer != NNB_RING_OK ? peer : status);
    }
    uint64_t deadline = 0;
    for (bool first = true;; first = false) {
        int waited = NNB_RING_OK;
        if (!first || !nnb_end_expect(end, wanted)) {
            deadline = deadline == 0 ? nnb_deadline_after(nnb_now_ns(), timeout_ns) : deadline;
            waited = nnb_end_wait(end, wanted, deadline);
        }
        if (waited != NNB_RING_OK && waited != NNB_END_INTERRUPTED) {
            return code_of(waited);
        }
        status = what->act(end, what);
        if (!is_not_yet(status) || (deadline != 0 && nnb_now_ns() >= deadline)) {
            return code_of(status);
        }
    }
}

static int act_write(struct nnb_end *end, struct nnb_transfer *what) {
    return nnb_end_write(end, what->from, what->count);
}

static int act_read(struct nnb_end *end, struct nnb_transfer *what) {
    return nnb_end_read(end, what->to, what->count);
}

static int act_begin(struct nnb_end *end, struct nnb_transfer *what) {
    return nnb_end_begin(end, what->count, &what->regions);
}

static int act_send(struct nnb_end *end, struct nnb_transfer *what) {
    return nnb_end_send(end, what->from, what->count);
}

static int act_receive(struct nnb_end *end, struct nnb_transfer *what) {
    int status = nnb_end_message(end, &what->count);
    if (status != NNB_RING_OK) {
        return status;
    }
    return what->count > what->room ? NNB_RING_TOO_LARGE : nnb_end_receive(end, what->to, what->count);
}

int nnburst_write(nnburst_queue *queue, const void *elements, size_t count, uint64_t timeout_ns) {
    struct nnb_transfer what = {.act = act_write, .from = elements, .count = count};
    return elements == NULL ? NNBURST_UNEXPECTED_NULL : transfer(queue, true, &what, count, timeout_ns);
}

int nnburst_read(nnburst_queue *queue, void *elements, size_t count, uint64_t timeout_ns) {
    struct nnb_transfer what = {.act = act_read, .to = elements, .count = count};
    return elements == NULL ? NNBURST_UNEXPECTED_NULL : transfer(queue, false, &what, count, timeout_ns);
}

static int begin(nnburst_queue *queue, bool writes, size_t count, uint64_t timeout_ns, nnburst_claim *claim) {
    struct nnb_transfer what = {.act = act_begin, .count = count};
    int code = claim == NULL ? NNBURST_UNEXPECTED_NULL : transfer(queue, writes, &what, count, timeout_ns);
    if (code == NNBURST_NO_ERROR) {
        size_t quantum = queue->memory.record.quantum;
        *claim = (nnburst_claim){what.regions.first, what.regions.second, what.regions.first_bytes / quantum,
                                 what.regions.second_bytes / quantum};
    }
    return code;
}

int nnburst_begin_write(nnburst_queue *queue, size_t count, uint64_t timeout_ns, nnburst_claim *claim) {
    return begin(queue, true, count, timeout_ns, claim);
}

int nnburst_begin_read(nnburst_queue *queue, size_t count, uint64_t timeout_ns, nnburst_claim *claim) {
    return begin(queue, false, count, timeout_ns, claim);
}

static int commit(nnburst_queue *queue, bool writes, size_t count) {
    if (queue == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    int status = queue->writes == writes ? nnb_end_check(&queue->end) : NNB_END_CLOSED;
    return code_of(status == NNB_RING_OK ? nnb_end_commit(&queue->end, count) : status);
}

int nnburst_commit_write(nnburst_queue *queue, size_t count) { return commit(queue, true, count); }

int nnburst_commit_read(nnburst_queue *queue, size_t count) { return commit(queue, false, count); }

int nnburst_send_message(nnburst_queue *queue, const void *bytes, size_t length, uint64_t timeout_ns) {
    struct nnb_transfer what = {.act = act_send, .from = bytes, .count = length};
    if (queue == NULL || (bytes == NULL && length != 0)) {
        return NNBURST_UNEXPECTED_NULL;
    }
    return queue->memory.record.quantum != 1 || length > UINT32_MAX
               ? NNBURST_BAD_DATA
               : transfer(queue, true, &what, length + NNB_MESSAGE_HEADER, timeout_ns);
}

int nnburst_receive_message(nnburst_queue *queue, void *bytes, size_t *length, uint64_t timeout_ns) {
    if (queue == NULL || bytes == NULL || length == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    if (queue->memory.record.quantum != 1) {
        return NNBURST_BAD_DATA;
    }
    struct nnb_transfer what = {.act = act_receive, .to = bytes, .room = *length};
    int code = transfer(queue, false, &what, 1, timeout_ns);
    if (code == NNBURST_NO_ERROR || code == NNBURST_BAD_DATA) {
        *length = what.count;
    }
    return code;
}

/* -- what there is to know -------------------------------------------------------------------------------- */

size_t nnburst_queue_available(nnburst_queue *queue) {
    if (queue == NULL || nnb_end_check(&queue->end) != NNB_RING_OK) {
        return 0;
    }
    return nnb_end_available(&queue->end);
}

uint64_t nnburst_queue_missed(const nnburst_queue *queue) {
    return queue == NULL ? 0 : queue->ring.missed / queue->memory.record.quantum;
}

int32_t nnburst_queue_peer(const nnburst_queue *queue) {
    return queue == NULL || !nnb_end_is_open(&queue->end) ? 0 : (int32_t)nnb_end_peer(&queue->end);
}

int nnburst_queue_fd(nnburst_queue *queue) {
    return queue == NULL || nnb_end_check(&queue->end) != NNB_RING_OK ? -1 : nnb_end_watch(&queue->end);
}

int nnburst_arm_queue(nnburst_queue *queue, size_t count) {
    if (queue == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    int status = nnb_end_check(&queue->end);
    if (status != NNB_RING_OK) {
        return code_of(status);
    }
    if (nnb_end_watch(&queue->end) < 0) {
        return NNBURST_RESOURCE_EXHAUSTED;
    }
    if (count > queue->ring.capacity_bytes / queue->ring.quantum) {
        return NNBURST_BAD_DATA; /* the descriptor would never become readable */
    }
    return nnb_end_arm(&queue->end, count) ? NNBURST_INCOMPLETE : NNBURST_NO_ERROR;
}
