/* The line of threads that wait for answers on one socket: the first one reads, and hands the others theirs.
 *
 *   a caller enters the line, sends its call and waits. Without a reader it leads: it reads until its own
 *   answer is there, copies those of others to them, and passes the lead on to the next in the line.
 *   the reader is a thread of its own that reads while the line is empty, and whatever the callers cannot
 *   take: packets with descriptors, large ones, those that belong to no caller in the line, the end.
 *
 * So an answer costs its caller no other thread's turn. The reader sleeps on an epoll that leaders switch
 * off and on again: it is not woken for what they read. Everything that a leader has begun it ends within one
 * call of C's, so that a signal handler of Python's can interrupt no answer half-way. */
#ifndef NNB_LINE_H
#define NNB_LINE_H

#include <pthread.h>
#include <stdint.h>

/* Bytes of an answer that a caller takes itself. */
#define NNB_LINE_PACKET_BYTES 1024

enum nnb_line_status {
    NNB_LINE_ANSWERED = 0,    /* `packet` is the answer */
    NNB_LINE_NOTICED = 1,     /* nnb_line_notice was called for this caller */
    NNB_LINE_ENDED = 2,       /* nnb_line_end was called */
    NNB_LINE_TIMED_OUT = 3,
    NNB_LINE_INTERRUPTED = 4, /* a signal came: wait again after its handler */
    NNB_LINE_NOT_SENT = 5,    /* the packet could not be sent; `error` has the reason */
    NNB_LINE_READABLE = 6,    /* for the reader: read, then nnb_line_done */
};

struct nnb_caller {
    uint64_t id;      /* of the call, as it stands in its answer's envelope */
    uint32_t noticed; /* its answer came by the reader, or there will be none; guarded by the line's lock */
    uint32_t bytes;   /* of `packet`; 0 while it is empty */
    int32_t error;
    uint8_t packet[NNB_LINE_PACKET_BYTES];
};

struct nnb_line_place;
struct nnb_line {
    pthread_mutex_t lock;
    struct nnb_line_place *first; /* in the order of coming */
    struct nnb_line_place *leader;
    int socket; /* the caller's; open until nnb_line_close */
    int epoll;
    uint32_t armed;  /* the reader would be woken */
    uint32_t reader; /* the reader has the word: no caller leads */
    uint32_t ended;
};

/* Begins with an empty line. 0, or an errno. */
int nnb_line_open(struct nnb_line *line, int socket);

/* Sends a packet, unless it is NULL, and waits until its answer is there or `timeout_ns` has passed. Any thread;
 * `caller` is in use until it returns. */
int nnb_line_call(struct nnb_line *line, struct nnb_caller *caller, const uint8_t *packet,
                  uint32_t bytes, uint64_t timeout_ns);

/* Lets a caller return, now or when it comes: its answer lies elsewhere, or will not come. */
void nnb_line_notice(struct nnb_line *line, struct nnb_caller *caller);

/* For the reader: waits until there is something that it shall read, and keeps all others from reading. */
int nnb_line_turn(struct nnb_line *line);

/* The reader has read, and what it read is where it belongs. */
void nnb_line_done(struct nnb_line *line);

/* Lets all callers return, and those that come. */
void nnb_line_end(struct nnb_line *line);

/* Frees what it has. No thread is inside, or comes any more. */
void nnb_line_close(struct nnb_line *line);

#endif
