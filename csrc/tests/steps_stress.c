/* Plans of three steps over two drivers' loops, each on a thread of its own, while two threads of the client run
 * plans over the same bursts: deadlines that pass in any step, runs that are given up and go on, and at the end a
 * stop by another thread. A step must begin after the one before, and every result be the one asked for. For
 * ThreadSanitizer, and for ASan. Usage: steps_stress PLANS [SEED] */
#include <pthread.h>
#include <unistd.h>

#include "../steps.h"
#include "burst_pair.h"
#include "random.h"

enum { STEPS = 3, BURSTS = 2, CALLERS = 2 };

/* Which burst and which kind each step runs; the kinds that a caller answers are counted. */
static const uint32_t burst_of[STEPS] = {0, 1, 0};
static const uint32_t kind_of[STEPS] = {NATIVE_KINDS, NATIVE_KINDS, 2};

struct burst {
    struct channel requests;
    struct channel results;
    struct client_end client[CALLERS]; /* the first has the burst, the others only requests of their own */
    struct server_end server;
    struct plan *plan;
    uint32_t number;
    nnb_atomic_u32 closing;
};

struct plan {
    struct burst bursts[BURSTS];
    struct nnb_gate gate;
    nnb_atomic_u64 begun[BURSTS]; /* counted steps that each driver has begun */
    nnb_atomic_u64 whole;         /* plans that ended well */
    nnb_atomic_u64 refused;
    uint64_t wanted;
};

struct caller {
    struct plan *plan;
    uint64_t state;
    uint32_t number;
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
            if (kind_of_request(end->server.packet, end->server.packet_count) == NATIVE_KINDS) {
                uint64_t before = nnb_count_u64(&burst->plan->begun[burst->number], 1);
                if (burst->number == 1) { /* the first driver has begun as many, and one more */
                    PROMISE(nnb_load_relaxed_u64(&burst->plan->begun[0]) > before);
                }
            }
            reply = answer(end, &count);
            break;
        case NNB_SERVER_ATTENTION:
            nnb_server_attend(&end->server);
            if (nnb_load_acquire_u32(&burst->closing) != 0) {
                return NULL;
            }
            break;
        case NNB_SERVER_IDLE:
            break;
        default:
            (void)fprintf(stderr, "broken: the driver's loop ended with %d\n", event);
            exit(1);
        }
    }
}

/* What a caller does about a step's status; whether the plan may go on behind it. */
static bool finish(struct nnb_bound *bound, int status, uint64_t whim) {
    while (status == NNB_CLIENT_INTERRUPTED && whim != 2) {
        status = nnb_client_resume(bound, bound->timeout_ns);
    }
    if (status != NNB_CLIENT_RESULT && status != NNB_CLIENT_SAME) {
        PROMISE(status == NNB_CLIENT_TIMED_OUT || status == NNB_CLIENT_IN_FLIGHT ||
                status == NNB_CLIENT_INTERRUPTED || status == NNB_CLIENT_STOPPED);
        return false;
    }
    return whim != 3;
}

static void run_one(struct caller *caller, struct nnb_steps *steps) {
    uint64_t whim = next_random(&caller->state) % 64;
    steps->timeout_ns = whim == 0   ? 0
                        : whim == 1 ? next_random(&caller->state) % 80000
                                    : 10000000000u;
    int status = nnb_steps_run(steps);
    if (status == NNB_CLIENT_BUSY) {
        nnb_steps_abandon(steps); /* changes nothing: another thread is inside */
        (void)nnb_count_u64(&caller->plan->refused, 1);
        return;
    }
    while (status != NNB_CLIENT_SAME) {
        if (!finish(steps->requests[steps->at], status, whim)) {
            nnb_steps_abandon(steps);
            return;
        }
        status = nnb_steps_go_on(steps);
    }
    (void)nnb_count_u64(&caller->plan->whole, 1);
}

static void *call(void *argument) {
    struct caller *caller = argument;
    struct plan *plan = caller->plan;
    struct nnb_bound *requests[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        requests[i] = &plan->bursts[burst_of[i]].client[caller->number].bound[kind_of[i]];
        requests[i]->client = &plan->bursts[burst_of[i]].client[0].client;
    }
    struct nnb_steps steps = {.requests = requests, .gate = &plan->gate, .count = STEPS};
    while (nnb_load_relaxed_u64(&plan->whole) < plan->wanted) {
        run_one(caller, &steps);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        if (requests[i]->result_count != 0) {
            PROMISE(kind_of_result(requests[i]->result, requests[i]->result_count) == kind_of[i]);
        }
    }
    return NULL;
}

/* A stop in the middle: one run more, which ends with it or before. */
static void stop(struct plan *plan) {
    struct nnb_bound *requests[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        requests[i] = &plan->bursts[burst_of[i]].client[0].bound[kind_of[i]];
    }
    struct nnb_steps steps = {
        .requests = requests, .gate = &plan->gate, .count = STEPS, .timeout_ns = 10000000000u};
    nnb_client_stop(&plan->bursts[1].client[0].client);
    int status = nnb_steps_run(&steps);
    while (steps.at == 0 && status != NNB_CLIENT_SAME) {
        PROMISE(finish(requests[0], status, 63));
        status = nnb_steps_go_on(&steps);
    }
    PROMISE(status == NNB_CLIENT_STOPPED && steps.at == 1);
    nnb_steps_abandon(&steps);
    PROMISE(nnb_gate_enter(&plan->gate, 7) == 1 && nnb_gate_enter(&plan->gate, 9) == 0);
    nnb_gate_leave(&plan->gate, 9);
    PROMISE(nnb_gate_enter(&plan->gate, 9) == 0);
    nnb_gate_leave(&plan->gate, 7);
    PROMISE(nnb_gate_enter(&plan->gate, 9) == 1);
}

int main(int argc, char **argv) {
    struct plan *plan = exactly(sizeof *plan);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    pthread_t drivers[BURSTS];
    pthread_t threads[CALLERS];
    struct caller callers[CALLERS];
    plan->wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    for (uint32_t i = 0; i < BURSTS; i++) {
        struct burst *burst = &plan->bursts[i];
        open_channel(&burst->requests, REQUEST_DATUMS);
        open_channel(&burst->results, RESULT_DATUMS);
        for (uint32_t n = 0; n < CALLERS; n++) {
            open_client(&burst->client[n], &burst->requests, &burst->results, 1);
        }
        open_server(&burst->server, &burst->requests, &burst->results, 1);
        burst->plan = plan;
        burst->number = i;
        PROMISE(pthread_create(&drivers[i], NULL, serve, burst) == 0);
    }
    for (uint32_t n = 0; n < CALLERS; n++) {
        callers[n] = (struct caller){.plan = plan, .state = seed * 2 + 1 + n, .number = n};
        PROMISE(pthread_create(&threads[n], NULL, call, &callers[n]) == 0);
    }
    for (uint32_t n = 0; n < CALLERS; n++) {
        (void)pthread_join(threads[n], NULL);
    }
    stop(plan);
    for (uint32_t i = 0; i < BURSTS; i++) {
        struct burst *burst = &plan->bursts[i];
        nnb_store_release_u32(&burst->closing, 1);
        nnb_server_call(&burst->server.server);
        (void)pthread_join(drivers[i], NULL);
        for (uint32_t n = 0; n < CALLERS; n++) {
            close_client(&burst->client[n]);
        }
        close_server(&burst->server);
        close_channel(&burst->requests);
        close_channel(&burst->results);
    }
    (void)printf("%" PRIu64 " plans, each step behind the one before\n", (uint64_t)plan->whole);
    free(plan);
    return 0;
}
