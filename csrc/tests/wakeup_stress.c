/* A client that waits in an event loop, and a driver's loop, on two threads over real rings: submissions,
 * results given up, runs that block in between. Every wait for the byte must end with one, and every result be
 * the one that was asked for. For ThreadSanitizer, and for ASan. Usage: wakeup_stress RESULTS [SEED] */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "burst_pair.h"
#include "random.h"

enum { LIMIT = 4, PATIENCE_MS = 20000 };

struct burst {
    struct channel requests;
    struct channel results;
    struct client_end client;
    struct server_end server;
    nnb_atomic_u32 closing;
    int wakeups; /* the client's end */
    uint32_t max_in_flight;
    uint32_t kinds[LIMIT]; /* of the requests that are wanted, oldest first */
    uint32_t wanted;
    uint64_t taken;
    uint64_t waits; /* for a byte */
    uint64_t state;
};

static void *serve(void *argument) {
    struct burst *burst = argument;
    uint8_t *reply = NULL;
    uint32_t count = 0;
    for (;;) {
        int event = nnb_server_next(&burst->server.server, reply, count, 0, NNBX_MEASURED);
        reply = NULL;
        if (event == NNB_SERVER_MISS || event == NNB_SERVER_CALL) {
            reply = answer(&burst->server, &count);
        } else if (event == NNB_SERVER_ATTENTION) {
            nnb_server_attend(&burst->server.server);
            if (nnb_load_acquire_u32(&burst->closing) != 0) {
                return NULL;
            }
        } else {
            PROMISE(event == NNB_SERVER_IDLE);
        }
    }
}

static void check(struct burst *burst, int status, uint32_t kind) {
    const struct nnb_bound *bound = &burst->client.bound[kind];
    PROMISE(status == NNB_CLIENT_RESULT || status == NNB_CLIENT_SAME ||
            status == NNB_CLIENT_SAME_BUT_TIMING);
    PROMISE(kind_of_result(bound->result, bound->result_count) == kind);
    burst->taken++;
}

static void forget_oldest(struct burst *burst) {
    burst->wanted--;
    memmove(burst->kinds, burst->kinds + 1, burst->wanted * sizeof burst->kinds[0]);
}

/* What an event loop does until there is something to collect, or nothing is out. */
static void wait_for_results(struct burst *burst) {
    struct nnb_client *client = &burst->client.client;
    while (client->in_flight != 0) {
        int status = nnb_client_arm(client);
        if (status == NNB_CLIENT_RESULT) {
            uint32_t kind = burst->kinds[0];
            forget_oldest(burst);
            check(burst, nnb_client_collect(&burst->client.bound[kind], 1), kind);
            return;
        }
        PROMISE(status == NNB_CLIENT_TIMED_OUT);
        if (client->in_flight == 0) {
            return; /* what was given up has come */
        }
        struct pollfd readable = {.fd = burst->wakeups, .events = POLLIN};
        PROMISE(poll(&readable, 1, PATIENCE_MS) == 1);
        char bytes[64];
        PROMISE(recv(burst->wakeups, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
        burst->waits++;
    }
}

static void step(struct burst *burst) {
    struct nnb_client *client = &burst->client.client;
    uint32_t kind = (uint32_t)(next_random(&burst->state) % KINDS);
    switch (next_random(&burst->state) % 8) {
    case 0: /* a run that blocks, if nothing wanted is out */
        if (burst->wanted == 0) {
            struct nnb_bound *bound = &burst->client.bound[kind];
            uint64_t deadline = nnb_deadline_after(nnb_now_ns(), bound->timeout_ns);
            int status = nnb_client_run(bound);
            /* It waits for what was cancelled in slices, so that its caller can look for signals. */
            while (status == NNB_CLIENT_IN_FLIGHT && nnb_now_ns() < deadline) {
                status = nnb_client_run(bound);
            }
            while (status == NNB_CLIENT_INTERRUPTED) {
                status = nnb_client_resume(bound, bound->timeout_ns);
            }
            check(burst, status, kind);
        }
        break;
    case 1: /* a task that is cancelled */
        if (burst->wanted != 0) {
            PROMISE(nnb_client_forsake(client) == NNB_CLIENT_RESULT);
            forget_oldest(burst);
        }
        break;
    case 2:
    case 3:
    case 4:
        if (client->in_flight < burst->max_in_flight &&
            nnb_client_submit(&burst->client.bound[kind]) == NNB_CLIENT_RESULT) {
            burst->kinds[burst->wanted++] = kind;
        }
        break;
    default:
        wait_for_results(burst);
    }
}

static void stress(uint64_t results, uint64_t seed, uint32_t max_in_flight, uint64_t totals[2]) {
    struct burst *burst = exactly(sizeof *burst);
    int ends[2];
    pthread_t driver;
    PROMISE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    burst->wakeups = ends[0];
    burst->max_in_flight = max_in_flight;
    burst->state = seed * 2 + 1;
    open_channel(&burst->requests, 16);
    open_channel(&burst->results, 20);
    open_client(&burst->client, &burst->requests, &burst->results, max_in_flight);
    open_server(&burst->server, &burst->requests, &burst->results, max_in_flight);
    burst->server.server.wakeup_fd = ends[1];
    burst->server.server.waiter.may_spin = seed % 2 == 0;
    burst->client.client.waiter.may_spin = seed / 2 % 2 == 0;
    PROMISE(pthread_create(&driver, NULL, serve, burst) == 0);
    while (burst->taken < results) {
        step(burst);
    }
    nnb_store_release_u32(&burst->closing, 1);
    nnb_server_call(&burst->server.server);
    (void)pthread_join(driver, NULL);
    totals[0] += burst->taken;
    totals[1] += burst->waits;
    close_client(&burst->client);
    close_server(&burst->server);
    close_channel(&burst->requests);
    close_channel(&burst->results);
    (void)close(ends[0]);
    (void)close(ends[1]);
    free(burst);
}

int main(int argc, char **argv) {
    uint64_t results = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t totals[2] = {0, 0};
    for (uint64_t i = 0; i < 8; i++) {
        stress(results / 8 + 1, seed + i, i % 2 == 0 ? 1 : LIMIT, totals);
    }
    (void)printf("%" PRIu64 " results, %" PRIu64 " waits for a byte, none lost\n", totals[0], totals[1]);
    return 0;
}
