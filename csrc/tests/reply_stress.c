/* Threads that call over one socket, a peer that answers in no order, and a reader for what the callers cannot
 * take: each caller gets its own answer, whichever thread read it. For both sanitizers. Usage: reply_stress CALLS */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../reply_reader.h"

enum { CALLERS = 6, BATCH = 3, PACKET = 18, FOR_THE_READER = 7 };

static uint64_t calls;
static int ours, theirs;
static struct nnb_reply_reader replies;
static struct nnb_caller callers[CALLERS];
static pthread_mutex_t handed_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t handed[CALLERS]; /* what the reader has read for each */
static uint64_t read_by_reader;

static void fail(const char *what) {
    (void)fprintf(stderr, "broken: %s\n", what);
    exit(1);
}

/* [id, ...]: an envelope as far as C looks at it, then the number again. */
static void write_packet(uint8_t *packet, uint64_t id) {
    memset(packet, 0, PACKET);
    packet[0] = 0x94;
    packet[1] = 0xcf;
    for (unsigned i = 0; i < 8; i++) {
        packet[2 + i] = packet[10 + i] = (uint8_t)(id >> (56 - 8 * i));
    }
}

static uint64_t number_at(const uint8_t *bytes) {
    uint64_t number = 0;
    for (unsigned i = 0; i < 8; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* Every FOR_THE_READER-th answer is longer than callers take. */
static size_t length_of(uint64_t id) { return id % FOR_THE_READER ? PACKET : NNB_REPLY_PACKET_BYTES + 1; }

static void *answer(void *argument) {
    (void)argument;
    uint8_t packets[BATCH][NNB_REPLY_PACKET_BYTES + 1];
    for (;;) {
        unsigned count = 0;
        while (count < BATCH) {
            ssize_t got = recv(theirs, packets[count], sizeof packets[count], count ? MSG_DONTWAIT : 0);
            if (got == 0) {
                return NULL;
            }
            if (got < 0) {
                break;
            }
            count++;
        }
        while (count-- > 0) { /* the last one first */
            if (send(theirs, packets[count], length_of(number_at(packets[count] + 2)),
                     MSG_NOSIGNAL) < 0) {
                return NULL;
            }
        }
    }
}

static void *read_the_rest(void *argument) {
    (void)argument;
    uint8_t packet[NNB_REPLY_PACKET_BYTES + 1];
    while (nnb_reply_reader_wait(&replies) == NNB_REPLY_READABLE) {
        ssize_t got = recv(ours, packet, sizeof packet, MSG_DONTWAIT);
        if (got == 0) {
            nnb_reply_reader_end(&replies);
            return NULL;
        }
        if (got > 0) {
            uint64_t id = number_at(packet + 2);
            (void)pthread_mutex_lock(&handed_lock);
            handed[id % CALLERS] = id;
            read_by_reader++;
            (void)pthread_mutex_unlock(&handed_lock);
            nnb_reply_reader_notice(&replies, &callers[id % CALLERS]);
        }
        nnb_reply_reader_done(&replies);
    }
    return NULL;
}

static void *call(void *argument) {
    uint64_t me = (uint64_t)((struct nnb_caller *)argument - callers);
    struct nnb_caller *caller = argument;
    for (uint64_t n = 1; n <= calls; n++) {
        uint8_t packet[NNB_REPLY_PACKET_BYTES + 1] = {0};
        uint64_t id = n * CALLERS + me;
        write_packet(packet, id);
        memset(caller, 0, sizeof *caller);
        caller->id = id;
        uint64_t patience_ns = n % 5 ? 10000000000u : 1000; /* some are impatient, and come again */
        int code = nnb_reply_reader_call(&replies, caller, packet, PACKET, patience_ns);
        while (code == NNB_REPLY_TIMED_OUT || code == NNB_REPLY_INTERRUPTED) {
            code = nnb_reply_reader_call(&replies, caller, NULL, 0, 1000000);
        }
        if (code == NNB_REPLY_ANSWERED) {
            if (number_at(caller->packet + 10) != id || number_at(caller->packet + 2) != id) {
                fail("the answer of another call");
            }
        } else if (code == NNB_REPLY_NOTICED) {
            (void)pthread_mutex_lock(&handed_lock);
            bool mine = handed[me] == id;
            (void)pthread_mutex_unlock(&handed_lock);
            if (!mine) {
                fail("noticed without an answer");
            }
        } else {
            fail("no answer");
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) {
        fail("socketpair");
    }
    ours = ends[0];
    theirs = ends[1];
    if (nnb_reply_reader_open(&replies, ours) != 0) {
        fail("open");
    }
    pthread_t peer, reader, threads[CALLERS];
    (void)pthread_create(&peer, NULL, answer, NULL);
    (void)pthread_create(&reader, NULL, read_the_rest, NULL);
    for (unsigned i = 0; i < CALLERS; i++) {
        (void)pthread_create(&threads[i], NULL, call, &callers[i]);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)shutdown(ours, SHUT_RDWR);
    (void)pthread_join(reader, NULL);
    (void)pthread_join(peer, NULL);
    nnb_reply_reader_close(&replies);
    if (read_by_reader == 0) {
        fail("the reader had nothing to do");
    }
    (void)printf("%" PRIu64 " calls of %d threads, each got its own answer\n", calls * CALLERS, CALLERS);
    return 0;
}
