/* Two threads at the ends of one queue: units of changing length written, claimed in place or sent as messages, each
 * checked whole, with spinning and sleeping on both sides; or a third thread that changes every shared byte at random
 * meanwhile, so that nothing but a wrong word may come of it.
 * Or one writer and four readers of an unsynchronized queue, each unit only after all have read the one before, so that a
 * wake that is lost shows.
 * Usage: queue_stress UNITS [hostile|broadcast] */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../clock.h"
#include "../event_flag.h"
#include "../queue.h"
#include "random.h"

enum { CAPACITY = 997, LONGEST = 300, PATIENCE_S = 20 };

static struct {
    nnb_atomic_u64 read_counter;
    uint8_t gap[56];
    nnb_atomic_u64 write_counter;
    uint8_t gap_too[56];
    nnb_atomic_u32 flag;
    uint8_t words[NNB_ENDS_BYTES] __attribute__((aligned(64)));
    uint8_t data[CAPACITY];
} shared;

static uint64_t units;
static int hostile;
static nnb_atomic_u32 over;

static void fail(const char *what) {
    (void)fprintf(stderr, "broken: %s\n", what);
    exit(1);
}

static void expect(int status, const char *what) {
    if (status != NNB_RING_OK) {
        (void)fprintf(stderr, "broken: %s: %d\n", what, status);
        exit(1);
    }
}

static uint64_t length_of(uint64_t unit) { return unit * 2654435761u % (LONGEST + 1); }

static void fill(uint8_t *bytes, uint64_t unit) {
    for (uint64_t i = 0; i < length_of(unit); i++) {
        bytes[i] = (uint8_t)(unit + i);
    }
}

static void check(const uint8_t *bytes, uint64_t unit) {
    for (uint64_t i = 0; i < length_of(unit); i++) {
        if (bytes[i] != (uint8_t)(unit + i)) {
            fail("a unit was torn");
        }
    }
}

static void open_end(struct nnb_end *end, struct nnb_ring *ring, uint32_t writes) {
    expect(nnb_ring_init(ring, shared.data, &shared.read_counter, &shared.write_counter, CAPACITY, 1, 1),
           "init");
    expect(nnb_end_open(end, ring, &shared.flag, shared.words, writes, 1, 20000), "open");
}

/* Waits for `count` bytes to write or to read; false when the hostile thread has made an end of it. */
static bool await(struct nnb_end *end, uint64_t count) {
    if (nnb_end_expect(end, count)) {
        return true;
    }
    uint64_t deadline = nnb_now_ns() + (hostile ? 20000000u : (uint64_t)PATIENCE_S * 1000000000u);
    int status = nnb_end_wait(end, count, deadline);
    if (status != NNB_RING_OK && !hostile) {
        (void)fprintf(stderr, "broken: a wait of the %s: %d\n", end->writes ? "writer" : "reader", status);
        exit(1);
    }
    return status == NNB_RING_OK;
}

static bool is_not_now(int status) { return status == NNB_RING_FULL || status == NNB_RING_EMPTY; }

/* One unit in one of three ways; every second unit is a message, so that the reader knows what comes. */
static int put(struct nnb_end *end, uint64_t unit, const uint8_t *bytes) {
    uint64_t length = length_of(unit);
    struct nnb_ring_regions regions;
    switch (unit % 4) {
    case 0:
        return nnb_end_write(end, bytes, length);
    case 2: {
        int status = nnb_end_begin(end, length, &regions);
        if (status != NNB_RING_OK) {
            return status;
        }
        memcpy(regions.first, bytes, regions.first_bytes);
        memcpy(regions.second, bytes + regions.first_bytes, regions.second_bytes);
        return nnb_end_commit(end, length);
    }
    default:
        return nnb_end_send(end, bytes, length);
    }
}

static int get(struct nnb_end *end, uint64_t unit, uint8_t *bytes) {
    uint64_t length = length_of(unit);
    struct nnb_ring_regions regions;
    if (unit % 2 == 0 && unit % 3 == 0) {
        int status = nnb_end_begin(end, length, &regions);
        if (status != NNB_RING_OK) {
            return status;
        }
        memcpy(bytes, regions.first, regions.first_bytes);
        memcpy(bytes + regions.first_bytes, regions.second, regions.second_bytes);
        return nnb_end_commit(end, length);
    }
    if (unit % 2 == 0) {
        return nnb_end_read(end, bytes, length);
    }
    uint64_t found;
    int status = nnb_end_message(end, &found);
    if (status != NNB_RING_OK) {
        return status;
    }
    if (found > CAPACITY) {
        fail("a message longer than the ring");
    }
    if (found != length && !hostile) {
        fail("the length of a message");
    }
    return nnb_end_receive(end, bytes, found);
}

static uint64_t wanted(uint64_t unit) {
    return length_of(unit) + (unit % 2 == 0 ? 0 : NNB_MESSAGE_HEADER);
}

/* Forgets who had an end. */
static void clear_words(uint32_t writes) {
    struct nnb_end_words *words = (struct nnb_end_words *)(void *)shared.words + (writes ? 0 : 1);
    nnb_store_release_u32(&words->holder, 0);
    nnb_store_release_u32(&words->reopen, 0);
}

/* An end whose ring is corrupt is opened anew, as a user would have to make a new queue. */
static void again(struct nnb_end *end, struct nnb_ring *ring, uint32_t writes) {
    (void)nnb_end_close(end);
    clear_words(writes);
    if (nnb_ring_init(ring, shared.data, &shared.read_counter, &shared.write_counter, CAPACITY, 1, 1) !=
        NNB_RING_OK) {
        nnb_store_relaxed_u64(&shared.read_counter, 0);
        nnb_store_relaxed_u64(&shared.write_counter, 0);
    }
    while (nnb_end_open(end, ring, &shared.flag, shared.words, writes, 1, 20000) != NNB_RING_OK) {
        clear_words(writes);
    }
}

static void *run_end(void *argument) {
    uint32_t writes = argument != NULL;
    struct nnb_end end = {.writes = writes};
    struct nnb_ring ring;
    uint8_t bytes[CAPACITY];
    if (hostile) {
        again(&end, &ring, writes);
    } else {
        open_end(&end, &ring, writes);
    }
    for (uint64_t unit = 0; unit < units; unit++) {
        if (unit % 1000 == 0) { /* now and then without spinning: straight to sleep */
            end.spin_window_ns = unit / 1000 % 2 == 0 ? 20000 : 0;
            end.peer_pid = 0;
        }
        if (writes) {
            fill(bytes, unit);
        }
        int status = writes ? put(&end, unit, bytes) : get(&end, unit, bytes);
        while (is_not_now(status) && await(&end, wanted(unit))) {
            status = writes ? put(&end, unit, bytes) : get(&end, unit, bytes);
        }
        if (hostile && status != NNB_RING_OK) {
            again(&end, &ring, writes);
        } else if (!hostile) {
            expect(status, writes ? "a write" : "a read");
            if (!writes) {
                check(bytes, unit);
            }
        }
    }
    if (nnb_end_close(&end) != NNB_RING_OK) {
        fail("close");
    }
    nnb_count_u32(&over, 1);
    return NULL;
}

/* Whether TSan would take a change of these bytes for a race, which a hostile peer's always is: data and names are copied. */
static bool is_copied(const uint8_t *at) {
#ifdef __SANITIZE_THREAD__
    size_t in_words = (size_t)(at - shared.words);
    return at >= shared.data || (in_words < NNB_ENDS_BYTES && in_words % 64 >= 12);
#else
    (void)at;
    return false;
#endif
}

/* Every byte that is shared changes at any moment, but the words' holders while the kernel looks at them. */
static void disturb(void) {
    uint64_t state = 88172645463325252u;
    uint8_t *all = (uint8_t *)&shared;
    while (nnb_load_acquire_u32(&over) != 2) {
        uint64_t random = next_random(&state);
        nnb_atomic_u32 *word = (nnb_atomic_u32 *)(void *)(all + random % (sizeof shared / 4) * 4);
        if (is_copied((uint8_t *)word)) {
            continue;
        }
        uint32_t bits = (uint32_t)(random >> 32);
        (void)nnb_fetch_or_u32(word, bits & (uint32_t)next_random(&state));
        (void)nnb_fetch_and_u32(word, ~(bits & (uint32_t)next_random(&state)));
        (void)nnb_event_flag_wake(&shared.flag, 1u << (random % 8));
    }
}

enum { READERS = 4 };

static nnb_atomic_u64 consumed[READERS];

static void open_broadcast(struct nnb_end *end, struct nnb_ring *ring, uint32_t writes) {
    expect(nnb_ring_init(ring, shared.data, &shared.read_counter, &shared.write_counter, CAPACITY / 8 * 8, 8, 0),
           "init");
    expect(nnb_end_open(end, ring, &shared.flag, shared.words, writes, 1, 20000), "open");
}

static void *run_reader(void *argument) {
    nnb_atomic_u64 *done = argument;
    struct nnb_end end;
    struct nnb_ring ring;
    open_broadcast(&end, &ring, 0);
    nnb_count_u32(&over, 1);
    for (uint64_t unit = 0; unit < units; unit++) {
        end.spin_window_ns = (unit / 64) % 2 == 0 ? 0 : 20000; /* half of the time straight to sleep */
        end.peer_pid = 0;
        uint64_t found;
        int status;
        while ((status = nnb_end_read(&end, &found, 1)) == NNB_RING_EMPTY) {
            (void)await(&end, 1);
        }
        expect(status, "a read");
        if (found != unit || ring.missed != 0) {
            fail("a unit was missed or doubled");
        }
        nnb_store_release_u64(done, unit + 1);
    }
    return NULL;
}

static void broadcast(void) {
    pthread_t threads[READERS];
    struct nnb_end end;
    struct nnb_ring ring;
    open_broadcast(&end, &ring, 1);
    for (int i = 0; i < READERS; i++) {
        if (pthread_create(&threads[i], NULL, run_reader, &consumed[i]) != 0) {
            fail("pthread_create");
        }
    }
    while (nnb_load_acquire_u32(&over) != READERS) {
        nnb_pause();
    }
    for (uint64_t unit = 0; unit < units; unit++) {
        for (int i = 0; i < READERS; i++) {
            while (nnb_load_acquire_u64(&consumed[i]) < unit) {
                struct timespec moment = {.tv_nsec = 1000};
                (void)nanosleep(&moment, NULL);
            }
        }
        expect(nnb_end_write(&end, &unit, 1), "a write");
    }
    for (int i = 0; i < READERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)printf("%" PRIu64 " units for each of %d readers, none missed\n", units, READERS);
}

int main(int argc, char **argv) {
    units = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    hostile = argc > 2 && strcmp(argv[2], "hostile") == 0;
    if (argc > 2 && strcmp(argv[2], "broadcast") == 0) {
        broadcast();
        return 0;
    }
    pthread_t threads[2];
    static int is_writer;
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run_end, i == 0 ? NULL : (void *)&is_writer) != 0) {
            fail("pthread_create");
        }
    }
    if (hostile) {
        disturb();
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)printf("%" PRIu64 " units, %s\n", units,
                 hostile ? "every shared byte changed meanwhile, nothing but errors" : "none torn or lost");
    return 0;
}
