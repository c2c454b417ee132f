#include "queue.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "event_flag.h"
#include "trace.h"

#define FIRST_POLLS 64u /* about two microseconds */
#define POLLS_PER_CLOCK 16u
#define CACHE_LINE 64u
#define PREFETCHED 1024u /* bytes, which most messages do not exceed */

_Static_assert(2 * sizeof(struct nnb_end_words) == NNB_ENDS_BYTES, "a cache line for each end");

uint32_t nnb_process_generation;

static void count_fork(void) { nnb_process_generation++; }

static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

void nnb_count_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
}

static bool may_spin_with(uint32_t pid, uint32_t quota_allows) {
    cpu_set_t mine;
    cpu_set_t theirs;
    if (quota_allows == 0 || sched_getaffinity(0, sizeof mine, &mine) != 0) {
        return false;
    }
    /* TRUST: a wrong process ID only makes this process spin in vain, or not at all. */
    if (pid != 0 && pid <= INT32_MAX && sched_getaffinity((pid_t)pid, sizeof theirs, &theirs) == 0) {
        CPU_OR(&mine, &mine, &theirs);
    }
    return CPU_COUNT(&mine) >= 2; /* with fewer a spinner only keeps the other from answering */
}

static bool is_held(uint32_t value) {
    return value != 0 && value != NNB_DEATH_WORD_LET_GO && !nnb_death_word_is_dead(value);
}

int nnb_end_look(struct nnb_end *end) {
    if (end->theirs == NULL) {
        return NNB_RING_OK;
    }
    /* SYNC POINT N: everything that the other end has published is visible to a thread that sees that it has
     * gone. TRUST: the worst that the word can claim is that the other end has gone. */
    uint32_t value = nnb_load_acquire_u32(&end->theirs->holder);
    end->waiter.peer = &end->theirs->holder;
    end->waiter.peer_value = value;
    uint32_t pid = nnb_end_peer(end);
    if (pid != end->peer_pid) { /* it is there a moment after the word is held */
        end->peer_pid = pid;
        end->waiter.may_spin = end->spin_window_ns != 0 && may_spin_with(pid, end->quota_allows);
    }
    int before = end->peer_state;
    end->peer_state = nnb_death_word_is_dead(value)    ? NNB_END_PEER_DIED
                      : value == NNB_DEATH_WORD_LET_GO ? NNB_END_PEER_CLOSED
                                                       : NNB_RING_OK;
    if (end->peer_state == NNB_END_PEER_DIED && before != NNB_END_PEER_DIED && !end->ring->synchronized) {
        nnb_death_word_pass_on(&end->theirs->holder); /* to the other readers of a broadcast */
    }
    return end->peer_state;
}

uint32_t nnb_end_peer(const struct nnb_end *end) {
    if (end->theirs == NULL) {
        return 0;
    }
    /* TRUST: both are shown, and decide about spinning. SYNC POINT G: nothing but the words. */
    return is_held(nnb_load_relaxed_u32(&end->theirs->holder)) ? nnb_load_relaxed_u32(&end->theirs->pid)
                                                              : 0;
}

static inline void notify(struct nnb_end *end, uint32_t bits);
static void call_loop(struct nnb_end *end);

/* Takes this end's word, even from a process that has gone, if the queue allows it. */
static int take_end(struct nnb_end *end) {
    uint32_t found = 0;
    int failed;
    end->holder = nnb_death_word_take(&end->mine->holder, 0, &found, &failed);
    /* TRUST: a hostile peer can only offer the ends of its own queue. SYNC POINT G: only the word. */
    uint32_t reopen = nnb_load_acquire_u32(&end->mine->reopen);
    if (end->holder == NULL && failed == EBUSY && !is_held(found) && reopen != 0) {
        end->holder = nnb_death_word_take(&end->mine->holder, found, &found, &failed);
        bool drops = reopen == NNB_REOPEN_DROPS && end->writes == 0;
        if (end->holder != NULL &&
            nnb_ring_take_over(end->ring, end->writes != 0, drops) != NNB_RING_OK) {
            nnb_death_word_let_go(end->holder, NNB_DEATH_WORD_LET_GO);
            end->holder = NULL;
            return NNB_RING_CORRUPT;
        }
        if (end->holder != NULL && drops) { /* a writer may have found this end held and the ring full in between */
            notify(end, NNB_FMQ_NOT_FULL);
        }
    }
    if (end->holder != NULL) {
        /* SYNC POINT G: publishes only the number. */
        nnb_store_release_u32(&end->mine->pid, (uint32_t)getpid());
        call_loop(end); /* so that a loop that waits for the first element watches this process, too */
        return NNB_RING_OK;
    }
    if (failed != EBUSY) {
        end->failed = failed;
        return NNB_END_FAILED;
    }
    return nnb_death_word_is_dead(found)    ? NNB_END_WAS_DEAD
           : found == NNB_DEATH_WORD_LET_GO ? NNB_END_WAS_CLOSED
                                            : NNB_END_TAKEN;
}

int nnb_end_open(struct nnb_end *end, struct nnb_ring *ring, nnb_atomic_u32 *flag, uint8_t *words,
                 uint32_t writes, uint32_t quota_allows, uint64_t spin_window_ns) {
    nnb_count_forks();
    struct nnb_end_words *both = (struct nnb_end_words *)(void *)words;
    *end = (struct nnb_end){
        .ring = ring,
        .flag = flag,
        .mine = both == NULL || !(writes || ring->synchronized) ? NULL : &both[writes ? 0 : 1],
        .theirs = both == NULL ? NULL : &both[writes ? 1 : 0],
        .spin_window_ns = spin_window_ns,
        .writes = writes,
        .quota_allows = quota_allows,
        .generation = nnb_process_generation,
    };
    bool spins = spin_window_ns != 0 && may_spin_with(0, quota_allows);
    nnb_waiter_init(&end->waiter, spins, spin_window_ns);
    return end->mine == NULL ? NNB_RING_OK : take_end(end);
}

/* Makes the socket address for a name and a number. */
static socklen_t address_of(const uint8_t name[16], uint32_t number, struct sockaddr_un *address) {
    static const char digits[] = "0123456789abcdef";
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *at = address->sun_path + 1; /* an abstract name begins with a zero */
    memcpy(at, NNB_WAKE_UP_PREFIX, sizeof NNB_WAKE_UP_PREFIX - 1);
    at += sizeof NNB_WAKE_UP_PREFIX - 1;
    for (int i = 0; i < 16; i++) {
        *at++ = digits[name[i] >> 4];
        *at++ = digits[name[i] & 15];
    }
    *at++ = digits[number >> 4 & 15];
    *at++ = digits[number & 15];
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(at - address->sun_path));
}

static int new_socket(void) { return socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

/* Sends a byte to the socket with that name; a full socket has a byte already. */
static void send_byte(struct nnb_end *end, const uint8_t *shared_name, uint32_t number) {
    uint8_t name[16];
    struct sockaddr_un address;
    memcpy(name, shared_name, sizeof name); /* TRUST: copied once; it can only stand for a socket of a queue */
    socklen_t length = address_of(name, number, &address);
    if (end->caller == 0) {
        end->caller = new_socket() + 1;
    }
    if (end->caller > 0) {
        (void)sendto(end->caller - 1, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address, length);
    }
}

/* The words with the name of this end's socket: a broadcast's readers, which have no words, share the
 * reader's. */
static struct nnb_end_words *named_words(const struct nnb_end *end) {
    return end->mine != NULL ? end->mine : end->theirs + 1;
}

/* The bits that are set while this end waits in an event loop. */
static uint32_t loop_bits(const struct nnb_end *end) {
    if (end->mine != NULL) {
        return end->writes ? NNB_FMQ_WRITER_ASYNC : NNB_FMQ_ASYNC;
    }
    return NNB_FMQ_ASYNC | NNB_FMQ_FIRST_LOOP << (end->number - 1) % NNB_FMQ_LOOP_BITS;
}

/* Wakes the readers of a broadcast that wait in event loops. */
static void call_readers(struct nnb_end *end, uint32_t bits) {
    for (uint32_t number = 1; number <= NNB_MOST_LOOPS; number++) {
        if ((bits & NNB_FMQ_FIRST_LOOP << (number - 1) % NNB_FMQ_LOOP_BITS) != 0) {
            send_byte(end, end->theirs->name, number);
        }
    }
}

/* Wakes the other end's event loop if it wants that. */
static void call_loop(struct nnb_end *end) {
    uint32_t bit = end->writes ? NNB_FMQ_ASYNC : NNB_FMQ_WRITER_ASYNC;
    uint32_t others = end->ring->synchronized ? 0 : NNB_FMQ_LOOPS;
    if (end->theirs == NULL) {
        return;
    }
    /* SYNC POINT J: the name of the end that has set the bits is visible; bits are cleared only with bytes
     * sent. TRUST: a bit that is set without a reason costs a byte, in a broadcast at most NNB_MOST_LOOPS
     * bytes. */
    uint32_t before = nnb_fetch_and_u32(end->flag, ~(bit | others));
    if ((before & bit) == 0) {
        return;
    }
    if (end->ring->synchronized) {
        send_byte(end, end->theirs->name, 0);
    } else {
        call_readers(end, before & others);
    }
}

/* Binds a socket to the first free number after a broadcast's name. */
static bool bind_to_number(struct nnb_end *end, int fd) {
    uint8_t name[16];
    struct sockaddr_un address;
    /* TRUST: copied once; only the queue's maker writes it, and it can only name sockets of a queue. */
    memcpy(name, named_words(end)->name, sizeof name);
    for (uint32_t number = 1; number <= NNB_MOST_LOOPS; number++) {
        if (bind(fd, (struct sockaddr *)&address, address_of(name, number, &address)) == 0) {
            end->number = number;
            return true;
        }
        if (errno != EADDRINUSE) {
            return false;
        }
    }
    errno = EUSERS;
    return false;
}

static bool bind_to_name(struct nnb_end *end, int fd) {
    uint8_t name[16];
    struct sockaddr_un address;
    if (getrandom(name, sizeof name, 0) != sizeof name ||
        bind(fd, (struct sockaddr *)&address, address_of(name, 0, &address)) != 0) {
        return false;
    }
    memcpy(end->mine->name, name, sizeof name);
    return true;
}

static void close_one(int *fd_plus_one) {
    if (*fd_plus_one > 0) {
        (void)close(*fd_plus_one - 1);
    }
    *fd_plus_one = 0;
}

static bool show(const struct nnb_end *end, int fd, uint32_t events) {
    struct epoll_event event = {.events = events};
    return epoll_ctl(end->shown - 1, EPOLL_CTL_ADD, fd, &event) == 0;
}

int nnb_end_watch(struct nnb_end *end) {
    if (end->shown == 0 && nnb_end_can_watch(end)) {
        end->watched = new_socket() + 1;
        end->shown = end->watched == 0 ? 0 : epoll_create1(EPOLL_CLOEXEC) + 1;
        if (end->shown == 0 || !show(end, end->watched - 1, EPOLLIN) ||
            !(end->mine != NULL ? bind_to_name(end, end->watched - 1)
                                : bind_to_number(end, end->watched - 1))) {
            end->failed = errno;
            close_one(&end->watched);
            close_one(&end->shown);
            return -1;
        }
    }
    return end->shown - 1;
}

/* Has the descriptor show the end of the process at the other end, which sends no byte if it is killed.
 * TRUST: the number may be wrong, or that of another process if the other end is in another namespace; so such an
 * end is shown once, and only the word decides. */
static void watch_process(struct nnb_end *end) {
    uint32_t pid = nnb_end_peer(end);
    if (pid == end->process_pid) {
        return;
    }
    if (end->process > 0) { /* a forked child may have a copy, which would be shown on */
        (void)epoll_ctl(end->shown - 1, EPOLL_CTL_DEL, end->process - 1, NULL);
        close_one(&end->process);
    }
    if (pid != 0 && pid <= INT32_MAX) {
        end->process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) + 1;
    }
    if (end->process > 0 && !show(end, end->process - 1, EPOLLIN | EPOLLONESHOT)) {
        close_one(&end->process);
    }
    end->process_pid = end->process > 0 ? pid : 0; /* otherwise the next call tries again */
}

void nnb_end_wake_self(struct nnb_end *end) {
    if (end->watched != 0) {
        send_byte(end, named_words(end)->name, end->number);
    }
}

static void close_sockets(struct nnb_end *end) {
    close_one(&end->process);
    close_one(&end->shown);
    close_one(&end->watched);
    close_one(&end->caller);
}

int nnb_end_close(struct nnb_end *end) {
    if (!nnb_end_is_open(end)) {
        close_sockets(end); /* a forked child's copies */
        return NNB_RING_OK;
    }
    if (!nnb_gate_enter(&end->gate, nnb_this_thread())) {
        nnb_waiter_call(&end->waiter, end->flag); /* its wait ends as CLOSED */
        (void)nnb_event_flag_wake(end->flag, NNB_FMQ_WRITER_ATTENTION);
        return NNB_END_BUSY;
    }
    end->closed = 1;
    if (end->holder != NULL) {
        nnb_death_word_let_go(end->holder, NNB_DEATH_WORD_LET_GO);
        end->holder = NULL;
        call_loop(end);
    }
    close_sockets(end);
    nnb_gate_open(&end->gate);
    return NNB_RING_OK;
}

/* Wakes the other end if it sleeps. */
static inline void notify(struct nnb_end *end, uint32_t bits) {
    if (nnb_trace_records()) {
        nnb_trace_write(end->writes ? NNB_SITE_QUEUE_WRITE : NNB_SITE_QUEUE_READ, NNB_TRACE_INSTANT, 0, 0);
    }
    if (end->flag == NULL || !(end->writes || end->ring->synchronized)) {
        return; /* an unsynchronized writer waits for no reader */
    }
    uint32_t loop = end->writes ? NNB_FMQ_ASYNC : NNB_FMQ_WRITER_ASYNC;
    /* SYNC POINT C: as in nnb_event_flag_notify. SYNC POINT J: the same for an end that waits in an event
     * loop. TRUST: a peer that sets or clears bits without a reason wakes or delays only itself. */
    nnb_fence();
    uint32_t seen = nnb_load_relaxed_u32(end->flag) & (bits | loop);
    if (seen != bits) {
        if ((seen & loop) != 0) {
            call_loop(end);
        }
        (void)nnb_event_flag_wake(end->flag, bits);
    }
}

/* The reason why nothing more may be written, because the reader has gone; found by one read of its word. */
static inline int reader_gone(struct nnb_end *end) {
    return nnb_waiter_peer_changed(&end->waiter) || end->waiter.peer == NULL ? nnb_end_look(end)
                                                                            : end->peer_state;
}

int nnb_end_write(struct nnb_end *end, const void *elements, uint64_t count) {
    int status = reader_gone(end);
    if (status == NNB_RING_OK) {
        status = nnb_ring_write(end->ring, elements, count);
    }
    if (status == NNB_RING_OK) {
        notify(end, NNB_FMQ_NOT_EMPTY);
    }
    return status;
}

int nnb_end_read(struct nnb_end *end, void *elements, uint64_t count) {
    int status = nnb_ring_read(end->ring, elements, count);
    if (status == NNB_RING_OK) {
        notify(end, NNB_FMQ_NOT_FULL);
    }
    return status;
}

/* Copies into (out of) regions, from byte `at` of them on. */
static void copy_in(const struct nnb_ring_regions *regions, uint64_t at, const void *bytes, uint64_t length) {
    uint64_t before = at < regions->first_bytes ? regions->first_bytes - at : 0;
    uint64_t first = length < before ? length : before;
    if (first != 0) {
        memcpy(regions->first + at, bytes, first);
    }
    if (length != first) {
        memcpy(regions->second + (at + first - regions->first_bytes), (const uint8_t *)bytes + first,
               length - first);
    }
}

static void copy_out(const struct nnb_ring_regions *regions, uint64_t at, void *bytes, uint64_t length) {
    uint64_t before = at < regions->first_bytes ? regions->first_bytes - at : 0;
    uint64_t first = length < before ? length : before;
    /* TRUST: copied once, within the region that this side's counters give. */
    if (first != 0) {
        memcpy(bytes, regions->first + at, first);
    }
    if (length != first) {
        memcpy((uint8_t *)bytes + first, regions->second + (at + first - regions->first_bytes),
               length - first);
    }
}

int nnb_end_send(struct nnb_end *end, const void *bytes, uint64_t length) {
    int status = reader_gone(end);
    if (status != NNB_RING_OK) {
        return status;
    }
    if (length > UINT32_MAX || length > end->ring->capacity_bytes ||
        length + NNB_MESSAGE_HEADER > end->ring->capacity_bytes) {
        return NNB_RING_TOO_LARGE;
    }
    struct nnb_ring_regions regions;
    uint32_t header = (uint32_t)length;
    status = nnb_ring_begin_write(end->ring, length + sizeof header, &regions);
    if (status != NNB_RING_OK) {
        return status;
    }
    copy_in(&regions, 0, &header, sizeof header);
    copy_in(&regions, sizeof header, bytes, length);
    status = nnb_ring_commit_write(end->ring, length + sizeof header);
    if (status == NNB_RING_OK) {
        notify(end, NNB_FMQ_NOT_EMPTY);
    }
    return status;
}

/* Prefetches the bytes to read, so that a message's bytes come from the other core together with its header.
 * */
static inline void prefetch(const struct nnb_ring *ring, uint64_t there) {
    uint64_t until_end = ring->capacity_bytes - ring->read_offset;
    uint64_t near = there < until_end ? there : until_end;
    for (uint64_t at = 0; at < near && at < PREFETCHED; at += CACHE_LINE) {
        __builtin_prefetch(ring->data + ring->read_offset + at);
    }
}

int nnb_end_message(struct nnb_end *end, uint64_t *length) {
    uint32_t header = 0;
    uint64_t there = nnb_ring_available_to_read(end->ring);
    if (there == 0) {
        return end->ring->corrupted ? NNB_RING_CORRUPT : NNB_RING_EMPTY;
    }
    prefetch(end->ring, there);
    if (there < sizeof header) { /* a message is published whole */
        return NNB_END_MALFORMED;
    }
    int status = nnb_ring_peek(end->ring, &header, sizeof header);
    if (status != NNB_RING_OK) {
        return status;
    }
    if (!end->ring->synchronized) { /* overtaken meanwhile, the header is torn */
        uint64_t before = end->ring->read_index;
        there = nnb_ring_available_to_read(end->ring);
        if (end->ring->read_index != before) {
            return NNB_RING_OVERRUN;
        }
    }
    /* TRUST: the header was copied once; the message must not be longer than the readable bytes. */
    if (header > there - sizeof header) {
        return NNB_END_MALFORMED;
    }
    *length = header;
    return NNB_RING_OK;
}

int nnb_end_receive(struct nnb_end *end, void *bytes, uint64_t length) {
    struct nnb_ring_regions regions;
    uint64_t whole = length + NNB_MESSAGE_HEADER;
    int status = nnb_ring_begin_read(end->ring, whole, &regions);
    if (status == NNB_RING_OK) {
        copy_out(&regions, NNB_MESSAGE_HEADER, bytes, length);
        status = nnb_ring_commit_read(end->ring, whole);
    }
    if (status == NNB_RING_OK) {
        notify(end, NNB_FMQ_NOT_FULL);
    }
    return status;
}

static uint64_t index_of(const struct nnb_end *end) {
    return end->writes ? end->ring->write_index : end->ring->read_index;
}

int nnb_end_begin(struct nnb_end *end, uint64_t count, struct nnb_ring_regions *regions) {
    int status = end->writes ? reader_gone(end) : NNB_RING_OK;
    if (status == NNB_RING_OK) {
        status = end->writes ? nnb_ring_begin_write(end->ring, count, regions)
                             : nnb_ring_begin_read(end->ring, count, regions);
    }
    if (status == NNB_RING_OK) { /* else an earlier claim stays */
        end->claimed = count;
        end->claimed_at = index_of(end);
        end->missed_before = end->ring->missed;
    }
    return status;
}

int nnb_end_commit(struct nnb_end *end, uint64_t count) {
    if (end->ring->missed != end->missed_before) { /* a look has skipped what the writer had overwritten */
        end->claimed = 0;
        end->missed_before = end->ring->missed;
        return NNB_RING_OVERRUN;
    }
    if (count > end->claimed || end->claimed_at != index_of(end)) {
        return NNB_END_UNCLAIMED;
    }
    int status = end->writes ? nnb_ring_commit_write(end->ring, count)
                             : nnb_ring_commit_read(end->ring, count);
    if (status == NNB_RING_OK) {
        end->claimed -= count;
        end->claimed_at = index_of(end);
        notify(end, end->writes ? NNB_FMQ_NOT_EMPTY : NNB_FMQ_NOT_FULL);
    }
    return status;
}

/* Whether a call for `count` elements need not wait: it would succeed, or the ring is corrupt. */
static bool is_ready(struct nnb_end *end, uint64_t count) {
    uint64_t there = end->writes ? nnb_ring_available_to_write(end->ring)
                                 : nnb_ring_available_to_read(end->ring);
    return there >= count || end->ring->corrupted;
}

bool nnb_end_arm(struct nnb_end *end, uint64_t count) {
    struct epoll_event shown[2];
    uint8_t byte;
    if (epoll_wait(end->shown - 1, shown, 2, 0) > 0) {
        while (recv(end->watched - 1, &byte, 1, MSG_DONTWAIT) > 0) {
        }
    }
    /* SYNC POINT J: a publication after this finds the bit and sends a byte; one before is visible to the
     * check that follows.
     * TRUST: the bit decides only about a byte, never about the data that are read. */
    (void)nnb_fetch_or_u32(end->flag, loop_bits(end));
    nnb_fence();
    watch_process(end); /* a process that takes the other end from here on sends a byte, too */
    return nnb_end_look(end) == NNB_RING_OK && !is_ready(end, count);
}

bool nnb_end_expect(struct nnb_end *end, uint64_t count) {
    if (end->waiter.peer == NULL || nnb_waiter_peer_changed(&end->waiter)) {
        (void)nnb_end_look(end);
    }
    if (!nnb_waiter_spins(&end->waiter)) {
        return false;
    }
    if (!end->writes && !nnb_spin_briefly(end->ring, FIRST_POLLS)) {
        return false;
    }
    for (uint32_t i = 0; i < FIRST_POLLS; i++) {
        if (is_ready(end, count)) {
            return true;
        }
        nnb_pause();
    }
    return false;
}

/* Spins for a window until `count` elements can be written, or read if some are there already. */
static bool spin_for_count(struct nnb_end *end, uint64_t count, uint64_t deadline_ns) {
    uint64_t began = nnb_now_ns();
    if (!end->waiter.may_spin || nnb_waiter_cpu_is_contended(&end->waiter, began)) {
        return false;
    }
    uint64_t until = nnb_deadline_after(began, end->waiter.window_now_ns);
    uint64_t now = began;
    bool ready = false;
    while (!ready && now < until && now < deadline_ns && !nnb_waiter_has_attention(&end->waiter)) {
        for (uint32_t i = 0; !ready && i < POLLS_PER_CLOCK; i++) {
            ready = is_ready(end, count);
            nnb_pause();
        }
        now = nnb_now_ns();
    }
    end->waiter.spun_ns += now - began;
    if (!ready) {
        nnb_cpu_contention_check(&end->waiter.contention, now);
    }
    return ready;
}

/* Sleeps until `count` elements can be read, of which some are there. */
static int sleep_for_count(struct nnb_end *end, uint64_t count, uint64_t deadline_ns) {
    const uint32_t bits = NNB_FMQ_NOT_EMPTY | NNB_FMQ_ATTENTION;
    struct nnb_waiter *waiter = &end->waiter;
    for (;;) {
        uint32_t was_set;
        uint32_t seen = nnb_event_flag_prepare_among(end->flag, bits, &was_set);
        if (is_ready(end, count)) {
            return NNB_WAIT_READY;
        }
        if (nnb_waiter_has_attention(waiter)) {
            return NNB_WAIT_ATTENTION;
        }
        if (nnb_waiter_peer_changed(waiter)) {
            return NNB_WAIT_PEER_CHANGED;
        }
        if (nnb_now_ns() >= deadline_ns) {
            return NNB_WAIT_TIMED_OUT;
        }
        waiter->sleeps++;
        if (nnb_event_flag_sleep_beside(end->flag, seen, bits, deadline_ns, waiter->peer,
                                        waiter->peer_value, false) == NNB_EVENT_FLAG_INTERRUPTED) {
            return is_ready(end, count) ? NNB_WAIT_READY : NNB_WAIT_INTERRUPTED;
        }
    }
}

static int wait_once(struct nnb_end *end, uint64_t count, uint64_t deadline_ns) {
    if (end->writes) {
        return spin_for_count(end, count, deadline_ns)
                   ? NNB_WAIT_READY
                   : nnb_wait_writable(&end->waiter, end->ring, count, end->flag, deadline_ns);
    }
    if (!nnb_ring_poll(end->ring)) {
        return nnb_wait_readable(&end->waiter, end->ring, end->flag, deadline_ns);
    }
    return spin_for_count(end, count, deadline_ns) ? NNB_WAIT_READY
                                                   : sleep_for_count(end, count, deadline_ns);
}

static int wait_for_count(struct nnb_end *end, uint64_t count, uint64_t deadline_ns) {
    for (;;) {
        int peer = nnb_end_look(end); /* before the check of the ring, so that its last elements are found */
        if (is_ready(end, count)) {
            return NNB_RING_OK;
        }
        if (peer != NNB_RING_OK) {
            return peer;
        }
        switch (wait_once(end, count, deadline_ns)) {
        case NNB_WAIT_TIMED_OUT:
            return is_ready(end, count) ? NNB_RING_OK : NNB_END_TIMED_OUT;
        case NNB_WAIT_INTERRUPTED:
            return NNB_END_INTERRUPTED;
        case NNB_WAIT_ATTENTION:
            return NNB_END_CLOSED;
        default: /* only a part may be there, or the other end has opened or gone */
            if (is_ready(end, count)) {
                return NNB_RING_OK;
            }
            if (nnb_now_ns() >= deadline_ns) {
                return NNB_END_TIMED_OUT;
            }
        }
    }
}

int nnb_end_enter(struct nnb_end *end) {
    if (!nnb_end_is_open(end)) {
        return NNB_END_CLOSED;
    }
    return nnb_gate_enter(&end->gate, nnb_this_thread()) ? NNB_RING_OK : NNB_END_BUSY;
}

int nnb_end_wait_inside(struct nnb_end *end, uint64_t count, uint64_t deadline_ns) {
    end->waits++;
    NNB_TRACE(QUEUE_WAIT, BEGIN);
    int status = wait_for_count(end, count, deadline_ns);
    NNB_TRACE(QUEUE_WAIT, END);
    return status;
}

int nnb_end_wait(struct nnb_end *end, uint64_t count, uint64_t deadline_ns) {
    int status = nnb_end_enter(end);
    if (status == NNB_RING_OK) {
        status = nnb_end_wait_inside(end, count, deadline_ns);
        nnb_end_leave(end);
    }
    return status;
}

uint64_t nnb_end_available(struct nnb_end *end) {
    if (end->writes) {
        return nnb_ring_available_to_write(end->ring);
    }
    return nnb_end_check(end) == NNB_END_BUSY ? nnb_ring_glance_to_read(end->ring)
                                              : nnb_ring_available_to_read(end->ring);
}
