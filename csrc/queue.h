/* One end of a message queue, for programs: writes or reads whole units, waits, and knows the other end.
 *
 * Beside the parts of the original (two counters, data, event flag) such a queue has the words of its ends, in a
 * grantor of their own, which the original ignores:
 *
 *     0       4      8       12     16      32      64      68     72      76     80      96     128
 *     | writer| pid  | reopen| 0    | name  | 0     | reader| pid  | reopen| 0    | name  | 0     |
 *
 * `writer` and `reader` are death words (liveness.h): 0 while no process has that end, then the number of the thread
 * that holds it, at last FUTEX_OWNER_DIED or NNB_DEATH_WORD_LET_GO. So a second writer or reader is refused in
 * whatever process it is, and an end that has died or was closed is noticed at once, asleep or not.
 *
 * `reopen` is not 0 if another process may take the place of an end that has gone; it goes on where that one stopped. A reader
 * begins behind what was unread if it is NNB_REOPEN_DROPS.
 *
 * Of an unsynchronized queue only the writer is held by a word: its readers map the words read-only, as all but the event
 * flag, which lies in memory of its own.
 *
 * `name` is where an end that waits in an event loop wants a datagram: 16 random bytes, which stand for an abstract socket
 * whose name begins with NNB_WAKE_UP_PREFIX, so that no other socket can be meant. It is sent only if the end has said so in
 * the event flag (NNB_FMQ_ASYNC, NNB_FMQ_WRITER_ASYNC), once for each time. The readers of an unsynchronized queue share the
 * name that its maker gave: each takes the first number behind it that no socket has, from 1 to NNB_MOST_LOOPS, and the
 * bit of that number in the event flag (NNB_FMQ_FIRST_LOOP) is set while it waits.
 *
 * The words of an end are as hostile as everything that is shared: they show whether to wait and to spin, and are
 * never an address or a size. One thread at a time: a second one gets NNB_END_BUSY. */
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
};

/* The words of one end, as they lie in shared memory. */
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
    int watched; /* the socket that is woken, plus one; 0 before nnb_end_watch */
    int caller;  /* the one that wakes others, likewise */
    uint32_t number; /* of the socket behind its name: 0, or that of one of many readers */
};

/* Counts the forks that lie between this process and the first one: what was mapped before is not mapped here. */
extern uint32_t nnb_process_generation;

/* Whether this end may be used: it is open, and this is no forked child. */
static inline bool nnb_end_is_open(const struct nnb_end *end) {
    return end->closed == 0 && end->generation == nnb_process_generation;
}

/* Whether it may be used by the caller, who has the interpreter lock or is the only one: OK, CLOSED or BUSY. */
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

/* Ends every call of this end and lets go of it; the other end learns it. Twice is fine. BUSY while a thread is inside: it
 * has been told to come out. */
int nnb_end_close(struct nnb_end *end);

/* Copies `count` elements as one unit, or nothing; wakes the other end if it sleeps. At once. */
int nnb_end_write(struct nnb_end *end, const void *elements, uint64_t count);
int nnb_end_read(struct nnb_end *end, void *elements, uint64_t count);

/* A message of any length as one unit; the ring's elements are bytes. */
int nnb_end_send(struct nnb_end *end, const void *bytes, uint64_t length);
/* The length of the next message in `*length`; nothing is taken. else EMPTY. */
int nnb_end_message(struct nnb_end *end, uint64_t *length);
/* Takes the next message, whose length nnb_end_message has returned. */
int nnb_end_receive(struct nnb_end *end, void *bytes, uint64_t length);

/* Claims in place, and publishes or releases what was claimed. */
int nnb_end_begin(struct nnb_end *end, uint64_t count, struct nnb_ring_regions *regions);
int nnb_end_commit(struct nnb_end *end, uint64_t count);

/* Looks at the other end's word: OK while it may still do something, else PEER_CLOSED or PEER_DIED; what it did before is
 * visible then. */
int nnb_end_look(struct nnb_end *end);

/* Looks for about two microseconds whether `count` elements can be written (read): true if so. */
bool nnb_end_expect(struct nnb_end *end, uint64_t count);

/* Waits until `count` elements can be written (read), at most until `deadline_ns`: OK (also if the ring is corrupt: try
 * again), TIMED_OUT, INTERRUPTED, CLOSED, PEER_CLOSED, PEER_DIED. */
int nnb_end_wait(struct nnb_end *end, uint64_t count, uint64_t deadline_ns);

/* The parts of nnb_end_wait: OK, CLOSED or BUSY; the wait by who has entered; the end of it. Between them none but this thread
 * changes the end. Who has an interpreter lock enters and leaves with it: what is checked and done with that lock alone
 * (nnb_end_check) then never comes beside a wait. */
int nnb_end_enter(struct nnb_end *end);
int nnb_end_wait_inside(struct nnb_end *end, uint64_t count, uint64_t deadline_ns);
static inline void nnb_end_leave(struct nnb_end *end) { nnb_gate_open(&end->gate); }

/* Elements that can be written (read) now. A broadcast's reader that was overtaken begins again by this, but not while a
 * thread is inside. */
uint64_t nnb_end_available(struct nnb_end *end);

/* Whether an event loop can wait with this end. */
static inline bool nnb_end_can_watch(const struct nnb_end *end) {
    return end->flag != NULL && end->theirs != NULL;
}

/* The descriptor that becomes readable after nnb_end_arm; -1 with `failed`, which is EUSERS if NNB_MOST_LOOPS readers have one. It is the end's, and closed with it. */
int nnb_end_watch(struct nnb_end *end);

/* Takes away what made the descriptor readable, and has the other end's next unit make it so again: true. False if that is
 * not needed: `count` elements can be written (read), or the other end has gone. */
bool nnb_end_arm(struct nnb_end *end, uint64_t count);

/* Makes this end's own descriptor readable. */
void nnb_end_wake_self(struct nnb_end *end);

/* Number of the process that has the other end; 0 if none has. */
uint32_t nnb_end_peer(const struct nnb_end *end);

#endif
