/* Every wait ends at its deadline although another thread writes into the event flag all the time, which keeps
 * the futex from sleeping: once the deadline has passed, no thread goes to sleep a second time.
 * Usage: restless_flag ROUNDS; ends by SIGALRM if a wait does not end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../clock.h"
#include "../event_flag.h"
#include "../ring_buffer.h"
#include "../waiter.h"

enum { CAPACITY = 4, QUANTUM = 24 };

static struct {
    nnb_atomic_u64 read_counter;
    nnb_atomic_u64 write_counter;
    uint8_t data[CAPACITY * QUANTUM];
    nnb_atomic_u32 flag;
    nnb_atomic_u32 stop;
} shared;

/* Bits that the writer leaves alone: a waiter for them sees other bits change under its sleep. */
static const uint32_t QUIET = 1u << 31;

static void *write_flag(void *argument) {
    (void)argument;
    for (uint32_t value = 0; nnb_load_relaxed_u32(&shared.stop) == 0; value += 0x01010107u) {
        nnb_store_release_u32(&shared.flag, (value | 7u) & ~QUIET);
    }
    return NULL;
}

static void expect(const char *what, int status, int expected) {
    if (status != expected) {
        (void)fprintf(stderr, "broken: %s ended with %d, expected %d\n", what, status, expected);
        exit(1);
    }
}

/* A wait that begins when the planned spin should have begun, and whose deadline has passed: it does not spin on
 * until the answer is due. The answers that are learned from came every second in the past. */
static void expect_no_spin_beyond_the_deadline(struct nnb_ring *ring) {
    const uint64_t second = 1000000000u;
    struct nnb_waiter waiter;
    uint64_t past = nnb_now_ns() + 100 * second; /* a clock of their own: only differences count */
    uint64_t wake_at;
    uint64_t until;
    nnb_waiter_init(&waiter, 1, 200000);
    for (int i = 0; i < 60; i++) {
        static const enum nnb_rhythm_catch how[] = {
            NNB_CAUGHT_ASLEEP_EARLY, NNB_CAUGHT_SPINNING, NNB_CAUGHT_ASLEEP_LATE};
        nnb_rhythm_question(&waiter.rhythm, past);
        past += second / 10 * (uint64_t)(9 + i % 3);
        nnb_rhythm_event(&waiter.rhythm, past, how[i % 3]);
    }
    uint64_t now = nnb_now_ns();
    nnb_rhythm_question(&waiter.rhythm, now - waiter.rhythm.period_ns + waiter.rhythm.lead_ns / 2);
    expect("the plan", nnb_rhythm_plan(&waiter.rhythm, now, &wake_at, &until) && wake_at < now &&
           now + second / 100 < until, 1);
    expect("a planned wait", nnb_wait_readable(&waiter, ring, &shared.flag, now), NNB_WAIT_TIMED_OUT);
    expect("its spinning", waiter.spun_ns != 0, 0);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    struct nnb_ring ring;
    struct nnb_waiter waiter;
    pthread_t writer;
    uint32_t seen;
    uint8_t packet[CAPACITY * QUANTUM] = {0};
    (void)alarm(60 + (unsigned)rounds);
    if (pthread_create(&writer, NULL, write_flag, NULL) != 0) {
        return 2;
    }
    for (int i = 0; i < rounds; i++) {
        uint64_t patience = 20000;
        nnb_waiter_init(&waiter, i % 2 == 0, 10000);
        expect("init", nnb_ring_init(&ring, shared.data, &shared.read_counter, &shared.write_counter,
                                     sizeof shared.data, QUANTUM, 1), NNB_RING_OK);
        waiter.may_spin = 0;
        expect("a late wait", nnb_wait_readable(&waiter, &ring, &shared.flag, 1), NNB_WAIT_TIMED_OUT);
        expect("a late wait's sleeps after the first", waiter.sleeps > 1, 0);
        waiter.may_spin = i % 2 == 0;
        expect("a wait for something to read",
               nnb_wait_readable(&waiter, &ring, &shared.flag, nnb_now_ns() + patience),
               NNB_WAIT_TIMED_OUT);
        expect("write", nnb_ring_write(&ring, packet, CAPACITY), NNB_RING_OK);
        expect("a wait for room",
               nnb_wait_writable(&waiter, &ring, 1, &shared.flag, nnb_now_ns() + patience),
               NNB_WAIT_TIMED_OUT);
        expect("read", nnb_ring_read(&ring, packet, CAPACITY), NNB_RING_OK);
        expect("a wait for a bit",
               nnb_event_flag_wait(&shared.flag, QUIET, false, nnb_now_ns() + patience, &seen),
               NNB_EVENT_FLAG_TIMED_OUT);
    }
    expect_no_spin_beyond_the_deadline(&ring);
    nnb_store_release_u32(&shared.stop, 1);
    (void)pthread_join(writer, NULL);
    (void)printf("%d times four waits ended at their deadlines\n", rounds);
    return 0;
}
