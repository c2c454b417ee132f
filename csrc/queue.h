/* One end of a message queue, for programs: writes or reads whole units, waits, and knows the other end.
 *
 * Beside the parts of the original (two counters, data, event flag) such a queue has the words of its ends, in a
 * grantor of their own, which the original ignores:
 *
 *     0       4      8       12     16      32      64      68     72      76     80      96     128
 *     | writer| pid  | reopen| 0    | name  | 0     | reader| pid  | reopen| 0    | name  | 0     |
 *
 * `writer` and `reader` are death words (liveness.h): 0 while no process has that end, then the number of the
 * thread that holds it, finally FUTEX_OWNER_DIED or NNB_DEATH_WORD_LET_GO. So a second writer or reader is
 * refused in any process, and an end that has died or was closed is noticed at once, even by a sleeping end.
 *
 * `reopen` is not 0 if another process may replace an end that has gone; it goes on where that one stopped.
 * If it is NNB_REOPEN_DROPS, a reader begins after the unread elements.
 *
 * In an unsynchronized queue only the writer's end has a word: readers map everything read-only except the
 * event flag, which lies in separate memory.
 *
 * `name` identifies the socket of an end that waits in an event loop: 16 random bytes, for an abstract socket
 * whose name begins with NNB_WAKE_UP_PREFIX, so that no other socket can be named. A datagram is sent there
 * only if the end has requested it in the event flag (NNB_FMQ_ASYNC, NNB_FMQ_WRITER_ASYNC), once for each
 * request. The readers of an unsynchronized queue share the name that its maker gave: each takes the first
 * free number after it, from 1 to NNB_MOST_LOOPS, and the bit of that number in the event flag
 * (NNB_FMQ_FIRST_LOOP) is set while it waits.
 *
 * The words of an end are not trusted, like all shared memory: they decide only whether to wait and to spin,
 * and are never an address or a size. One thread at a time: a second one gets NNB_END_BUSY. */
#ifndef NNB_QUEUE_H
#define NNB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "event_flag.h"
#include "gate.h"
#include "liveness.h"
#include "ring_buffer.h"
#include "waiter.h"

/* Outcomes beyond those of the ring (enum nnb_ring_status), which come first. */
enum nnb_end_status {
    NNB_END_TIMED_OUT = 16,
    NNB_END_INTERRUPTED = 17, /* look for signals, then go on */
    NNB_END_CLOSED = 18,      /* this end was closed, or this is a forked child */
    NNB_END_PEER_CLOSED = 19, /* the other end was closed, and nothing is left to read */
    NNB_END_PEER_DIED = 20,   /* likewise: its process has died */
    NNB_END_BUSY = 21,        /* another thread is using this end */
    NNB_END_MALFORMED = 22,   /* no message begins where one should: final */
    NNB_END_TAKEN = 23,       /* another process, or another object of this one, has this end */
    NNB_END_FAILED = 24,      /* the system refuses a thread: `failed` has the errno */
    NNB_END_UNWAITABLE = 25,  /* no event flag; in an event loop also: no words of the ends */
    NNB_END_BAD_TIMEOUT = 26, /* not a number of seconds, or negative */
    NNB_END_BAD_SIZE = 27,    /* memory is not a whole number of elements */
    NNB_END_WAS_CLOSED = 28,  /* the process that had this end has closed it */
    NNB_END_WAS_DEAD = 29,    /* likewise: its process has died */
    NNB_END_BAD_COUNT = 30,   /* not an integer of 64 bits without sign */
    NNB_END_UNCLAIMED = 31,   /* fewer elements are claimed, or the end has moved on since */
};

/* The words of one end in shared memory. */
struct nnb_end_words {
    nnb_atomic_u32 holder;
    nnb_atomic_u32 pid;
    nnb_atomic_u32 reopen;
    uint32_t unused;
    uint8_t name[16];
    uint8_t unused_too[32];
};

/* Bytes of the grantor: the writer's words, then the reader's. */
#define NNB_ENDS_BYTES 128u
#define NNB_REOPEN_DROPS 2u
/* Bytes before each message of a queue of messages. */
#define NNB_MESSAGE_HEADER 4u
#define NNB_WAKE_UP_PREFIX "nnburst-queue-"
/* Readers of an unsynchronized queue that can wait in event loops at once. */
#define NNB_MOST_LOOPS (9u * NNB_FMQ_LOOP_BITS)

/* Private memory of this process. */
struct nnb_end {
    struct nnb_ring *ring;
    nnb_atomic_u32 *flag;        /* the queue's event flag, or NULL */
    struct nnb_end_words *mine;  /* NULL if the queue has no words of ends, or for one of many readers */
    struct nnb_end_words *theirs;
    struct nnb_death_holder *holder;
    struct nnb_gate gate;    /* taken for waits alone, which let go of the interpreter lock */
    struct nnb_waiter waiter;
    uint64_t waits;          /* statistics: calls that had to wait */
    uint64_t spin_window_ns;
    uint32_t writes;         /* 1: the writer's end, 0: the reader's */
    int peer_state;          /* what its word has shown at the latest look: OK, PEER_CLOSED or PEER_DIED */
    uint32_t peer_pid;       /* whose cores `waiter.may_spin` has counted */
    uint32_t quota_allows;   /* whether the cgroup grants two cores */
    uint32_t closed;
    uint32_t generation;     /* nnb_process_generation when it was opened */
    int32_t failed;
    uint64_t claimed_at;    /* the ring's index at the claim that may be committed */
    uint64_t claimed;       /* its elements; 0 without one */
    uint64_t missed_before; /* what a broadcast's reader had missed then */
    int watched;            /* the socket that is woken, plus one; 0 before nnb_end_watch */
    int shown;              /* the epoll over it and the process at the other end, likewise */
    int process;            /* that process, likewise; 0 if it cannot be watched */
    uint32_t process_pid;   /* its number; 0 if it is not watched */
    int caller;             /* the socket that wakes others, likewise */
    uint32_t number;        /* of the socket behind its name: 0, or that of one of many readers */
};

/* Number of forks between the first process and this one, as far as they are counted; mappings from before a fork
 * do not exist here. */
extern uint32_t nnb_process_generation;

/* Counts forks from now on. Call it before the generation of an object is noted. */
void nnb_count_forks(void);

/* Whether this end may be used: it is open, and this is not a forked child. */
static inline bool nnb_end_is_open(const struct nnb_end *end) {
    return end->closed == 0 && end->generation == nnb_process_generation;
}

/* Whether the caller, which has the interpreter lock or is the only thread, may use the end: OK, CLOSED or
 * BUSY. */
static inline int nnb_end_check(const struct nnb_end *end) {
    if (!nnb_end_is_open(end)) {
        return NNB_END_CLOSED;
    }
    /* TRUST: memory of this process. */
    return nnb_load_relaxed_u64((nnb_atomic_u64 *)&end->gate.holder) == 0 ? NNB_RING_OK : NNB_END_BUSY;
}

/* Opens an end over `ring`; `words` are those of both ends, or NULL. OK, TAKEN, WAS_CLOSED, WAS_DEAD or
 * FAILED. */
int nnb_end_open(struct nnb_end *end, struct nnb_ring *ring, nnb_atomic_u32 *flag, uint8_t *words,
                 uint32_t writes, uint32_t quota_allows, uint64_t spin_window_ns);

/* Ends every call on this end and closes it; the other end notices. Twice is fine. BUSY while a thread is
 * inside, which was asked to leave. */
int nnb_end_close(struct nnb_end *end);

/* Copies `count` elements as one unit, or nothing, without waiting; wakes the other end if it sleeps. */
int nnb_end_write(struct nnb_end *end, const void *elements, uint64_t count);
int nnb_end_read(struct nnb_end *end, void *elements, uint64_t count);

/* Sends a message of any length as one unit; the ring's elements are bytes. */
int nnb_end_send(struct nnb_end *end, const void *bytes, uint64_t length);
/* Stores the length of the next message in `*length`, without taking the message; EMPTY without one. */
int nnb_end_message(struct nnb_end *end, uint64_t *length);
/* Takes the next message, whose length nnb_end_message has returned. */
int nnb_end_receive(struct nnb_end *end, void *bytes, uint64_t length);

/* Claims in place, and publishes or releases what was claimed. A claim ends when another one is made, or when
 * the end writes or reads otherwise: committing it then is UNCLAIMED, since it would publish or release others. */
int nnb_end_begin(struct nnb_end *end, uint64_t count, struct nnb_ring_regions *regions);
int nnb_end_commit(struct nnb_end *end, uint64_t count);

/* Reads the other end's word: OK while that end may still act, else PEER_CLOSED or PEER_DIED; its earlier
 * actions are visible then. */
int nnb_end_look(struct nnb_end *end);

/* Waits about two microseconds until `count` elements can be written (read); returns whether they can. */
bool nnb_end_expect(struct nnb_end *end, uint64_t count);

/* Waits until `count` elements can be written (read), at most until `deadline_ns`: OK (also if the ring is corrupt: try
 * again), TIMED_OUT, INTERRUPTED, CLOSED, PEER_CLOSED, PEER_DIED. */
int nnb_end_wait(struct nnb_end *end, uint64_t count, uint64_t deadline_ns);

/* The parts of nnb_end_wait: entering (OK, CLOSED or BUSY), waiting, and leaving. In between only this thread
 * changes the end. A thread with an interpreter lock enters and leaves with that lock held, so operations
 * that are checked only under the lock (nnb_end_check) never run beside a wait. */
int nnb_end_enter(struct nnb_end *end);
int nnb_end_wait_inside(struct nnb_end *end, uint64_t count, uint64_t deadline_ns);
static inline void nnb_end_leave(struct nnb_end *end) { nnb_gate_open(&end->gate); }

/* The number of elements that can be written (read) now. This call lets a broadcast's overtaken reader begin
 * again, unless a thread is inside. */
uint64_t nnb_end_available(struct nnb_end *end);

/* Whether an event loop can wait with this end. */
static inline bool nnb_end_can_watch(const struct nnb_end *end) {
    return end->flag != NULL && end->theirs != NULL;
}

/* The descriptor that becomes readable after nnb_end_arm; -1 with `failed`, which is EUSERS if NNB_MOST_LOOPS readers have one. It is the end's,
 * and closed with it. */
int nnb_end_watch(struct nnb_end *end);

/* Makes the descriptor unreadable until the other end's next unit, close or death, and returns true. Returns
 * false if there is no need to wait: `count` elements can be written (read), or the other end has gone. */
bool nnb_end_arm(struct nnb_end *end, uint64_t count);

/* Makes this end's own descriptor readable. */
void nnb_end_wake_self(struct nnb_end *end);

/* The process ID of the other end; 0 without one. */
uint32_t nnb_end_peer(const struct nnb_end *end);

#endif
