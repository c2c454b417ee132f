/* A client and a driver's loop on two threads over real rings, with all that may happen to them at once:
 * executions that C runs, that the caller runs and unknown ones; deadlines that pass; pipelines; a second
 * thread that wants in; commands; and at the end both are stopped by another thread. Every result must be the
 * one that was asked for. For ThreadSanitizer, and for ASan. Usage: burst_stress EXECUTIONS [SEED] */
#include <pthread.h>
#include <unistd.h>

#include "burst_pair.h"
#include "random.h"

struct burst {
    struct channel requests;
    struct channel results;
    struct client_end client;
    struct server_end server;
    uint32_t max_in_flight;
    uint64_t executions; /* that this burst shall see */
    uint64_t seed;
    nnb_atomic_u32 commands; /* carried out by the driver */
    nnb_atomic_u32 closing;  /* the next command is to end */
    nnb_atomic_u32 finished; /* the client has had enough */
    uint64_t taken;          /* results that were right */
};

static void *serve(void *argument) {
    struct burst *burst = argument;
    struct server_end *end = &burst->server;
    uint8_t *reply = NULL;
    uint32_t count = 0;
    for (;;) {
        int event = nnb_server_next(&end->server, reply, count, 0, NNBX_MEASURED);
        reply = NULL;
        switch (event) {
        case NNB_SERVER_MISS:
        case NNB_SERVER_CALL:
            reply = answer(end, &count);
            break;
        case NNB_SERVER_ATTENTION:
            nnb_server_attend(&end->server);
            if (nnb_load_acquire_u32(&burst->closing) != 0) {
                return NULL;
            }
            (void)nnb_fetch_or_u32(&burst->commands, 1);
            break;
        case NNB_SERVER_IDLE:
            break;
        default:
            (void)fprintf(stderr, "broken: the driver's loop ended with %d\n", event);
            exit(1);
        }
    }
}

/* Gives commands, and wants to execute on a burst that is busy. */
static void *disturb(void *argument) {
    struct burst *burst = argument;
    uint64_t state = burst->seed ^ 0x5bd1e995;
    uint32_t mine = 0;
    while (nnb_load_acquire_u32(&burst->finished) == 0) {
        if (next_random(&state) % 2 == 0) {
            nnb_server_call(&burst->server.server);
        } else {
            /* Its own request, of the last kind: a result of it is as good as the other thread's. */
            struct nnb_bound *bound = &burst->client.bound[KINDS - 1];
            bound->timeout_ns = 10000000000u;
            int status = nnb_client_run(bound);
            while (status == NNB_CLIENT_INTERRUPTED) {
                status = nnb_client_resume(bound, 10000000000u);
            }
            PROMISE(status == NNB_CLIENT_BUSY || status == NNB_CLIENT_IN_FLIGHT ||
                    status == NNB_CLIENT_RESULT || status == NNB_CLIENT_SAME_BUT_TIMING);
            mine += status != NNB_CLIENT_BUSY && status != NNB_CLIENT_IN_FLIGHT;
        }
        (void)usleep(50);
    }
    return (void *)(uintptr_t)mine;
}

static void check(struct burst *burst, const struct nnb_bound *bound, int status, uint32_t kind) {
    if (status == NNB_CLIENT_RESULT || status == NNB_CLIENT_SAME ||
        status == NNB_CLIENT_SAME_BUT_TIMING) {
        PROMISE(kind_of_result(bound->result, bound->result_count) == kind);
        PROMISE(bound->summary.status == NNB_STATUS_NONE);
        burst->taken++;
    } else {
        PROMISE(status == NNB_CLIENT_TIMED_OUT || status == NNB_CLIENT_BUSY ||
                status == NNB_CLIENT_IN_FLIGHT);
    }
}

/* One run, now and then with a deadline that passes or given up. */
static void run_one(struct burst *burst, uint64_t *state) {
    uint32_t kind = (uint32_t)(next_random(state) % (KINDS - 1));
    struct nnb_bound *bound = &burst->client.bound[kind];
    uint64_t whim = next_random(state) % 64;
    bound->timeout_ns = whim == 0 ? 0 : whim == 1 ? next_random(state) % 40000 : 10000000000u;
    int status = nnb_client_run(bound);
    while (status == NNB_CLIENT_INTERRUPTED) {
        if (whim == 2) {
            nnb_client_abandon(bound);
            return;
        }
        status = nnb_client_resume(bound, bound->timeout_ns);
    }
    check(burst, bound, status, kind);
}

/* As many as may be out at once, collected in order. */
static void pipeline(struct burst *burst, uint64_t *state) {
    uint32_t kinds[8];
    uint32_t out = 0;
    while (out < burst->max_in_flight) {
        kinds[out] = (uint32_t)(next_random(state) % (KINDS - 1));
        int status = nnb_client_submit(&burst->client.bound[kinds[out]]);
        if (status != NNB_CLIENT_RESULT) {
            PROMISE(status == NNB_CLIENT_BUSY || status == NNB_CLIENT_IN_FLIGHT ||
                    status == NNB_CLIENT_NO_ROOM);
            break;
        }
        out++;
    }
    for (uint32_t i = 0; i < out; i++) {
        int status;
        do {
            status = nnb_client_collect(&burst->client.bound[kinds[i]], 10000000000u);
        } while (status == NNB_CLIENT_INTERRUPTED || status == NNB_CLIENT_BUSY);
        PROMISE(status != NNB_CLIENT_TIMED_OUT && status != NNB_CLIENT_IN_FLIGHT);
        check(burst, &burst->client.bound[kinds[i]], status, kinds[i]);
    }
}

static void *execute(void *argument) {
    struct burst *burst = argument;
    uint64_t state = burst->seed;
    while (burst->taken < burst->executions) {
        if (burst->max_in_flight > 1 && next_random(&state) % 2 == 0) {
            pipeline(burst, &state);
        } else {
            run_one(burst, &state);
        }
    }
    nnb_store_release_u32(&burst->finished, 1);
    /* One more, whose answer the stop below may overtake. */
    struct nnb_bound *bound = &burst->client.bound[0];
    bound->timeout_ns = 10000000000u;
    int status;
    do {
        status = nnb_client_run(bound);
        while (status == NNB_CLIENT_INTERRUPTED) {
            status = nnb_client_resume(bound, bound->timeout_ns);
        }
        /* A stopped burst that was drained stays locked. */
    } while (status != NNB_CLIENT_STOPPED &&
             !(status == NNB_CLIENT_BUSY && nnb_waiter_has_attention(&burst->client.client.waiter)));
    return NULL;
}

static uint64_t stress(uint64_t executions, uint64_t seed, uint32_t max_in_flight) {
    struct burst *burst = exactly(sizeof *burst);
    pthread_t driver;
    pthread_t client;
    pthread_t other;
    void *by_other;
    burst->max_in_flight = max_in_flight;
    burst->executions = executions;
    burst->seed = seed * 2 + 1;
    /* Rings that are too small for all that may be out: the driver has to wait for room. */
    open_channel(&burst->requests, max_in_flight > 1 ? 11 : 5);
    open_channel(&burst->results, max_in_flight > 1 ? 7 : 5);
    open_client(&burst->client, &burst->requests, &burst->results, max_in_flight);
    open_server(&burst->server, &burst->requests, &burst->results, max_in_flight);
    burst->server.server.waiter.may_spin = seed % 2 == 0; /* spinning or not, on either side */
    burst->client.client.waiter.may_spin = seed / 2 % 2 == 0;
    burst->server.server.idle_ns = seed % 3 == 0 ? 100000 : 10000000000u;
    PROMISE(pthread_create(&driver, NULL, serve, burst) == 0);
    PROMISE(pthread_create(&client, NULL, execute, burst) == 0);
    PROMISE(pthread_create(&other, NULL, disturb, burst) == 0);
    (void)pthread_join(other, &by_other);
    if (seed % 2 == 0) { /* either side is stopped first */
        nnb_client_stop(&burst->client.client);
    }
    nnb_store_release_u32(&burst->closing, 1);
    nnb_server_call(&burst->server.server);
    nnb_client_stop(&burst->client.client);
    PROMISE(nnb_client_drain(&burst->client.client, 10000000000u) == 0);
    (void)pthread_join(client, NULL);
    (void)pthread_join(driver, NULL);
    uint64_t taken = burst->taken + (uintptr_t)by_other;
    PROMISE(burst->server.server.executions >= taken);
    close_client(&burst->client);
    close_server(&burst->server);
    close_channel(&burst->requests);
    close_channel(&burst->results);
    free(burst);
    return taken;
}

int main(int argc, char **argv) {
    uint64_t executions = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const uint64_t bursts = 12;
    static const uint32_t in_flight[] = {1, 1, 4};
    uint64_t taken = 0;
    for (uint64_t i = 0; i < bursts; i++) {
        taken += stress(executions / bursts + 1, seed + i, in_flight[i % 3]);
    }
    (void)printf("%" PRIu64 " results over %" PRIu64 " bursts, each the one asked for\n", taken, bursts);
    return 0;
}
