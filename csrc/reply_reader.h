/* Reads the replies on one socket for all waiting threads: the first waiting thread reads, and gives the
 * others their replies.
 *
 *   a caller queues up, sends its call and waits. Without a reader it leads: it reads until its own answer is
 *   there, copies those of others to them, and passes the lead on to the next in the queue.
 *   the reader is a thread of its own that reads while no caller waits, and whatever the callers cannot
 *   take: packets with descriptors, large ones, those that answer no waiting caller, the end.
 *
 * So no caller has to wait until another thread gets a processor. The reader sleeps on an epoll that leaders
 * switch off and on again, so it is not woken for packets that they read. A leader finishes each answer
 * within one C call, so that no Python signal handler can interrupt it half-way. */
#ifndef NNB_REPLY_READER_H
#define NNB_REPLY_READER_H

#include <pthread.h>
#include <stdint.h>

/* Greatest size of an answer that a leader reads, in bytes. */
#define NNB_REPLY_PACKET_BYTES 1024

enum nnb_reply_status {
    NNB_REPLY_ANSWERED = 0,    /* `packet` is the answer */
    NNB_REPLY_NOTICED = 1,     /* nnb_reply_reader_notice was called for this caller */
    NNB_REPLY_ENDED = 2,       /* nnb_reply_reader_end was called */
    NNB_REPLY_TIMED_OUT = 3,
    NNB_REPLY_INTERRUPTED = 4, /* a signal came: wait again after its handler */
    NNB_REPLY_NOT_SENT = 5,    /* the packet could not be sent; `error` has the reason */
    NNB_REPLY_READABLE = 6,    /* for the reader: read, then nnb_reply_reader_done */
};

struct nnb_caller {
    uint64_t id;      /* of the call, as it stands in its answer's envelope */
    uint32_t noticed; /* its answer came by the reader, or there will be none; guarded by the lock */
    uint32_t bytes;   /* of `packet`; 0 while it is empty */
    int32_t error;
    uint8_t packet[NNB_REPLY_PACKET_BYTES];
};

struct nnb_reply_waiter;
struct nnb_reply_reader {
    pthread_mutex_t lock;
    struct nnb_reply_waiter *first; /* in the order of coming */
    struct nnb_reply_waiter *leader;
    int socket; /* the caller's; open until nnb_reply_reader_close */
    int epoll;
    uint32_t armed;  /* the reader would be woken */
    uint32_t reader; /* the reader has the word: no caller leads */
    uint32_t ended;
};

/* Begins without callers. 0, or an errno. */
int nnb_reply_reader_open(struct nnb_reply_reader *replies, int socket);

/* Sends a packet, unless it is NULL, and waits until its answer is there or `timeout_ns` has passed. Any thread;
 * `caller` is in use until it returns. */
int nnb_reply_reader_call(struct nnb_reply_reader *replies, struct nnb_caller *caller,
                          const uint8_t *packet, uint32_t bytes, uint64_t timeout_ns);

/* Lets a caller return, now or when it waits: its answer is elsewhere, or will not come. */
void nnb_reply_reader_notice(struct nnb_reply_reader *replies, struct nnb_caller *caller);

/* For the reader: waits until there is a packet that it must read, and keeps all callers from reading. */
int nnb_reply_reader_wait(struct nnb_reply_reader *replies);

/* Called by the reader after it has read and delivered the packet. */
void nnb_reply_reader_done(struct nnb_reply_reader *replies);

/* Lets all present and future callers return. */
void nnb_reply_reader_end(struct nnb_reply_reader *replies);

/* Frees the resources. No thread may be inside or come later. */
void nnb_reply_reader_close(struct nnb_reply_reader *replies);

#endif
