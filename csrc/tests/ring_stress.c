/* Two threads over one mapping: packets of changing length through a small ring, each checked whole, with
 * sleeping and waking in both directions; a third one opens the ring and looks at it all the time. For
 * ThreadSanitizer. Usage: ring_stress MESSAGES */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../clock.h"
#include "../event_flag.h"
#include "../ring_buffer.h"
#include "../waiter.h"

enum { CAPACITY = 37, QUANTUM = 24, LONGEST = 11, WORDS = QUANTUM / 8 };

static struct {
    nnb_atomic_u64 read_counter;
    nnb_atomic_u64 write_counter;
    uint8_t data[CAPACITY * QUANTUM];
    nnb_atomic_u32 flag;
} shared;

static uint64_t messages;
static nnb_atomic_u64 is_over;

static void fail(const char *what) {
    (void)fprintf(stderr, "broken: %s\n", what);
    exit(1);
}

static uint64_t length_of(uint64_t message) { return 1 + message * 2654435761u % LONGEST; }

static void open_ring(struct nnb_ring *ring) {
    if (nnb_ring_init(ring, shared.data, &shared.read_counter, &shared.write_counter,
                      sizeof shared.data, QUANTUM, 1) != NNB_RING_OK) {
        fail("init");
    }
}

static void *produce(void *argument) {
    (void)argument;
    struct nnb_ring ring;
    struct nnb_waiter waiter;
    open_ring(&ring);
    nnb_waiter_init(&waiter, 1, 5000);
    uint64_t packet[LONGEST * WORDS];
    for (uint64_t m = 0; m < messages; m++) {
        uint64_t count = length_of(m);
        for (uint64_t i = 0; i < count * WORDS; i++) {
            packet[i] = m + i;
        }
        while (nnb_ring_write(&ring, packet, count) != NNB_RING_OK) {
            if (nnb_wait_writable(&waiter, &ring, count, &shared.flag,
                                  nnb_now_ns() + 10000000000u) != NNB_WAIT_READY) {
                fail("the reader does not make room");
            }
        }
        nnb_event_flag_notify(&shared.flag, NNB_FMQ_NOT_EMPTY);
    }
    return NULL;
}

static void consume(void) {
    struct nnb_ring ring;
    struct nnb_waiter waiter;
    open_ring(&ring);
    nnb_waiter_init(&waiter, 1, 5000);
    uint64_t packet[LONGEST * WORDS];
    for (uint64_t m = 0; m < messages; m++) {
        if (m % 1000 == 0) { /* now and then without spinning: straight to sleep */
            waiter.may_spin = m / 1000 % 2 == 0;
        }
        uint64_t count = length_of(m);
        if (nnb_wait_readable(&waiter, &ring, &shared.flag, nnb_now_ns() + 10000000000u) !=
            NNB_WAIT_READY) {
            fail("the writer does not write");
        }
        if (nnb_ring_read(&ring, packet, count) != NNB_RING_OK) {
            fail("a packet was visible in part");
        }
        nnb_event_flag_notify(&shared.flag, NNB_FMQ_NOT_FULL);
        for (uint64_t i = 0; i < count * WORDS; i++) {
            if (packet[i] != m + i) {
                fail("a packet was torn");
            }
        }
    }
}

/* Finds possible counters whenever it opens the ring, and at each look. */
static void *look_on(void *argument) {
    (void)argument;
    while (nnb_load_relaxed_u64(&is_over) == 0) { /* TRUST: memory of this process; it only ends the loop. */
        struct nnb_ring ring;
        open_ring(&ring);
        if (nnb_ring_look(&ring, 0) > CAPACITY || nnb_ring_look(&ring, 1) > CAPACITY) {
            fail("more than the ring has");
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    messages = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    pthread_t writer;
    pthread_t onlooker;
    if (pthread_create(&writer, NULL, produce, NULL) != 0 || pthread_create(&onlooker, NULL, look_on, NULL) != 0) {
        fail("pthread_create");
    }
    consume();
    (void)pthread_join(writer, NULL);
    nnb_store_relaxed_u64(&is_over, 1);
    (void)pthread_join(onlooker, NULL);
    (void)printf("%" PRIu64 " messages, none torn or lost\n", messages);
    return 0;
}
