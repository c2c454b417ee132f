#include "burst_client.h"

#include <string.h>

#include "clock.h"
#include "event_flag.h"
#include "trace.h"
#include "trap.h"

#define SLICE_NS 50000000u /* how long a signal may wait: 50 ms */
#define FIRST_POLLS 64u    /* about 2 microseconds before the long wait begins */

static int stopped(struct nnb_client *client) {
    /* SYNC POINT D: the reason that nnb_client_stop's caller noted is visible to the thread that reports it.
     * */
    return nnb_load_acquire_u32(&client->waiter.attention) != 0;
}

/* Waits until results are readable. */
static int await(struct nnb_client *client, uint64_t timeout_ns) {
    if (nnb_ring_poll(&client->results)) {
        return NNB_WAIT_READY;
    }
    if (nnb_waiter_spins(&client->waiter) && nnb_spin_briefly(&client->results, FIRST_POLLS)) {
        return NNB_WAIT_READY;
    }
    void *token = client->long_wait.begin ? client->long_wait.begin() : NULL;
    client->waits_from_ns = nnb_now_ns();
    if (client->asked) { /* two microseconds ago, which every time are the same */
        client->asked = 0;
        nnb_rhythm_question(&client->waiter.rhythm, client->waits_from_ns);
    }
    int status = nnb_wait_readable(&client->waiter, &client->results, client->result_flag,
                                   nnb_deadline_after(client->waits_from_ns, timeout_ns));
    if (client->long_wait.end) {
        client->long_wait.end(token);
    }
    return status;
}

/* Copies one of several packets out of the ring, by the size that it announces. */
static int cut(struct nnb_client *client, uint64_t *count) {
    uint64_t available = nnb_ring_available_to_read(&client->results);
    if (available == 0 || nnb_ring_peek(&client->results, client->packet, 1) != NNB_RING_OK) {
        return NNB_RING_CORRUPT;
    }
    NNB_TRAP("burst.cut");
    /* TRUST: bounded by the ring's content. A packet is published as a whole, so a larger size is a broken
     * boundary. */
    *count = nnb_packet_announced(client->packet, NNB_RESULT_PACKET_SIZE_OFFSET);
    if (*count == 0 || *count > available) {
        return NNB_RING_CORRUPT;
    }
    int status = nnb_ring_read_on(&client->results, client->packet, 1, *count);
    nnb_event_flag_notify(client->result_flag, NNB_FMQ_NOT_FULL);
    return status;
}

/* Copies one result packet into client->packet: its element count in `*count`. */
static int take(struct nnb_client *client, uint64_t *count) {
    /* NNAPI: with one request in flight, the ring's content is one packet. */
    int status = client->max_in_flight == 1
                     ? nnb_ring_read_all(&client->results, client->packet, count)
                     : cut(client, count);
    if (status != NNB_RING_OK) {
        return NNB_CLIENT_CORRUPT;
    }
    client->in_flight--;
    return NNB_CLIENT_RESULT;
}

/* Waits for one packet and copies it. */
static int receive(struct nnb_client *client, uint64_t timeout_ns, uint64_t *count) {
    uint64_t slice = timeout_ns < SLICE_NS ? timeout_ns : SLICE_NS;
    NNB_TRACE(CLIENT_WAIT, BEGIN);
    int waited = await(client, slice);
    if (waited != NNB_WAIT_READY) {
        NNB_TRACE(CLIENT_WAIT, END);
    }
    switch (waited) {
    case NNB_WAIT_READY: {
        NNB_TRACE(CLIENT_TAKE, SWITCH);
        int status = take(client, count);
        NNB_TRACE(CLIENT_TAKE, END);
        return status;
    }
    case NNB_WAIT_ATTENTION:
        return NNB_CLIENT_STOPPED;
    case NNB_WAIT_TIMED_OUT:
        return slice == timeout_ns ? NNB_CLIENT_TIMED_OUT : NNB_CLIENT_INTERRUPTED;
    default:
        return NNB_CLIENT_INTERRUPTED;
    }
}

/* Consumes overdue results. RESULT if no more are overdue, with the time left in `*timeout_ns`. */
static int drop_overdue(struct nnb_client *client, uint64_t *timeout_ns) {
    if (client->overdue == 0) {
        return NNB_CLIENT_RESULT; /* before any clock is read */
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), *timeout_ns);
    while (client->overdue != 0) {
        uint64_t count;
        int status = receive(client, *timeout_ns, &count);
        if (status != NNB_CLIENT_RESULT) {
            return status;
        }
        client->overdue--;
        client->dropped++;
        uint64_t now = nnb_now_ns();
        *timeout_ns = now < deadline ? deadline - now : 0;
    }
    return NNB_CLIENT_RESULT;
}

/* Makes truth values 0 or 1, which callers rely on.
 * TRUST: the driver may write other values again; code that decides by them copies them first. */
static void settle_truths(const struct nnb_bound *bound) {
    for (uint32_t i = 0; i < bound->truth_count; i++) {
        uint8_t *values = bound->truths[i].values;
        for (uint64_t at = 0; at < bound->truths[i].count; at++) {
            values[at] = values[at] != 0;
        }
    }
}

/* Stores the packet in `bound`, and returns whether its shapes differ from the last ones. */
static int accept_result(struct nnb_client *client, struct nnb_bound *bound, uint32_t count) {
    if (!nnb_result_check(client->packet, count, &bound->summary)) {
        return NNB_CLIENT_MALFORMED;
    }
    client->executions++;
    if (bound->truth_count != 0 && bound->summary.status == NNB_STATUS_NONE) {
        settle_truths(bound);
    }
    uint64_t before_timing = (uint64_t)(count - 1) * NNB_DATUM_BYTES;
    if (count == bound->result_count && memcmp(client->packet, bound->result, before_timing) == 0) {
        if (bound->summary.status == NNB_STATUS_NONE) {
            return bound->measured ? NNB_CLIENT_SAME_BUT_TIMING : NNB_CLIENT_SAME;
        }
        return NNB_CLIENT_RESULT;
    }
    memcpy(bound->result, client->packet, (uint64_t)count * NNB_DATUM_BYTES);
    bound->result_count = count;
    return NNB_CLIENT_RESULT;
}

static int finish(struct nnb_client *client, struct nnb_bound *bound, uint64_t timeout_ns) {
    int status = drop_overdue(client, &timeout_ns);
    if (status == NNB_CLIENT_RESULT) {
        uint64_t count;
        status = receive(client, timeout_ns, &count);
        if (status == NNB_CLIENT_RESULT) {
            return accept_result(client, bound, (uint32_t)count);
        }
    }
    return status;
}

static int send(struct nnb_client *client, const struct nnb_bound *bound) {
    if (stopped(client)) {
        return NNB_CLIENT_STOPPED;
    }
    if (client->in_flight >= client->max_in_flight) {
        return NNB_CLIENT_IN_FLIGHT;
    }
    if (client->in_flight == 0 && nnb_ring_poll(&client->results)) {
        return NNB_CLIENT_SURPLUS;
    }
    switch (nnb_ring_write(&client->requests, bound->request, bound->request_count)) {
    case NNB_RING_OK:
        break;
    case NNB_RING_CORRUPT:
        return NNB_CLIENT_CORRUPT;
    default:
        return NNB_CLIENT_NO_ROOM;
    }
    client->in_flight++;
    client->flow++;
    nnb_event_flag_notify(client->request_flag, NNB_FMQ_NOT_EMPTY);
    return NNB_CLIENT_RESULT;
}

/* Records the number of requests under way in the trace, when it changes. */
static void mark_load(struct nnb_client *client) {
    if (nnb_trace_records()) {
        struct nnb_ring *ring = &client->requests;
        uint64_t room = nnb_ring_available_to_write(ring) * ring->quantum;
        NNB_TRACE_VALUE(REQUESTS_OUT, COUNTER, 0, client->in_flight);
        NNB_TRACE_VALUE(RING_BYTES, COUNTER, 0, ring->capacity_bytes - room);
    }
}

/* Enters the burst; false while another thread is inside. */
static bool enter(struct nnb_client *client) {
    return nnb_gate_enter(&client->gate, nnb_this_thread());
}

/* Leaves the burst; requests that were sent stay under way. */
static int let_go(struct nnb_client *client, int status) {
    nnb_gate_open(&client->gate);
    return status;
}

/* Whether the run inside is an interrupted run of the calling thread. */
static bool is_mine(struct nnb_client *client) {
    return nnb_gate_is_held_by(&client->gate, nnb_this_thread()) && client->suspended != NULL;
}

/* Leaves the burst after a request was sent, unless the run goes on. */
static int leave(struct nnb_client *client, const struct nnb_bound *bound, int status) {
    if (status == NNB_CLIENT_INTERRUPTED) {
        client->suspended = bound;
        return status;
    }
    client->suspended = NULL;
    if (status == NNB_CLIENT_TIMED_OUT) {
        client->overdue = client->in_flight;
    }
    return let_go(client, status);
}

/* Begins a run that must first wait for overdue results, which is rare. RESULT if the request can be sent
 * after that, with the time left in `*timeout_ns`. */
static int catch_up(struct nnb_client *client, uint64_t *timeout_ns) {
    int status = drop_overdue(client, timeout_ns);
    /* IN_FLIGHT lets the caller look for signals and run again. */
    return status == NNB_CLIENT_INTERRUPTED ? NNB_CLIENT_IN_FLIGHT : status;
}

int nnb_client_run(struct nnb_bound *bound) {
    struct nnb_client *client = bound->client;
    uint64_t timeout_ns = bound->timeout_ns;
    if (bound->closed) {
        return NNB_CLIENT_UNBOUND;
    }
    if (!enter(client)) {
        return NNB_CLIENT_BUSY;
    }
    if (client->in_flight != 0) {
        bound->deadline_ns = nnb_deadline_after(nnb_now_ns(), timeout_ns);
        int status = stopped(client)         ? NNB_CLIENT_STOPPED
                     : client->overdue != 0 ? catch_up(client, &timeout_ns)
                                            : NNB_CLIENT_RESULT;
        if (status != NNB_CLIENT_RESULT || client->in_flight != 0) {
            /* The next results belong to submitted requests. */
            return let_go(client, status == NNB_CLIENT_RESULT ? NNB_CLIENT_IN_FLIGHT : status);
        }
    }
    NNB_TRACE_VALUE(CLIENT_RUN, BEGIN, NNB_TRACE_FLOW_OUT, client->flow + 1);
    int status = send(client, bound);
    if (status != NNB_CLIENT_RESULT) {
        NNB_TRACE(CLIENT_RUN, END);
        bound->deadline_ns = nnb_deadline_after(nnb_now_ns(), timeout_ns);
        return let_go(client, status);
    }
    client->asked = 1;
    status = finish(client, bound, timeout_ns);
    NNB_TRACE(CLIENT_RUN, END);
    if (status != NNB_CLIENT_SAME) { /* a run begins a moment before its long wait, if it came to one */
        uint64_t began_ns = client->asked ? nnb_now_ns() : client->waits_from_ns;
        bound->deadline_ns = nnb_deadline_after(began_ns, timeout_ns);
    }
    return leave(client, bound, status);
}

int nnb_client_resume(struct nnb_bound *bound, uint64_t timeout_ns) {
    struct nnb_client *client = bound->client;
    if (!is_mine(client) || client->suspended != bound) {
        return NNB_CLIENT_TIMED_OUT; /* abandoned by a signal handler that used the burst */
    }
    return leave(client, bound, finish(client, bound, timeout_ns));
}

int nnb_client_wait_on(struct nnb_bound *bound) {
    int status;
    do {
        uint64_t now = nnb_now_ns();
        status = nnb_client_resume(bound, now < bound->deadline_ns ? bound->deadline_ns - now : 0);
    } while (status == NNB_CLIENT_INTERRUPTED);
    return status;
}

void nnb_client_abandon(struct nnb_bound *bound) {
    if (is_mine(bound->client) && bound->client->suspended == bound) {
        (void)leave(bound->client, bound, NNB_CLIENT_TIMED_OUT);
    }
}

int nnb_client_submit(struct nnb_bound *bound) {
    struct nnb_client *client = bound->client;
    if (bound->closed) {
        return NNB_CLIENT_UNBOUND;
    }
    if (!enter(client)) {
        return NNB_CLIENT_BUSY;
    }
    uint64_t no_time = 0;
    (void)drop_overdue(client, &no_time); /* those that are there: they count against the limit */
    NNB_TRACE_VALUE(CLIENT_SUBMIT, BEGIN, NNB_TRACE_FLOW_OUT, client->flow + 1);
    int status = send(client, bound);
    NNB_TRACE(CLIENT_SUBMIT, END);
    mark_load(client);
    client->submitted += status == NNB_CLIENT_RESULT;
    return let_go(client, status);
}

int nnb_client_run_at_once(struct nnb_bound *bound) {
    struct nnb_client *client = bound->client;
    if (bound->closed) {
        return NNB_CLIENT_UNBOUND;
    }
    if (!enter(client)) {
        return NNB_CLIENT_BUSY;
    }
    if (client->in_flight != 0) {
        return let_go(client, NNB_CLIENT_IN_FLIGHT);
    }
    NNB_TRACE_VALUE(CLIENT_SUBMIT, BEGIN, NNB_TRACE_FLOW_OUT, client->flow + 1);
    int status = send(client, bound);
    NNB_TRACE(CLIENT_SUBMIT, END);
    if (status != NNB_CLIENT_RESULT) {
        return let_go(client, status);
    }
    if (!nnb_ring_poll(&client->results) &&
        !(client->waiter.may_spin && nnb_spin_briefly(&client->results, FIRST_POLLS))) {
        client->submitted++;
        return let_go(client, NNB_CLIENT_SENT);
    }
    uint64_t count;
    NNB_TRACE(CLIENT_TAKE, BEGIN);
    status = take(client, &count);
    NNB_TRACE(CLIENT_TAKE, END);
    if (status == NNB_CLIENT_RESULT) {
        status = accept_result(client, bound, (uint32_t)count);
    }
    return let_go(client, status);
}

int nnb_client_collect(struct nnb_bound *bound, uint64_t timeout_ns) {
    struct nnb_client *client = bound->client;
    if (!enter(client)) {
        return NNB_CLIENT_BUSY;
    }
    uint32_t out = client->in_flight - client->overdue;
    if (out == 0) {
        return let_go(client, NNB_CLIENT_TIMED_OUT); /* nothing is out that a caller waits for */
    }
    int status = finish(client, bound, timeout_ns);
    client->collected += out - (client->in_flight - client->overdue);
    mark_load(client);
    return let_go(client, status);
}

/* Looks for results now, after dropping overdue ones; TIMED_OUT if there are no results. */
static int look(struct nnb_client *client) {
    while (nnb_ring_poll(&client->results)) {
        if (client->overdue == 0) {
            return client->in_flight != 0 ? NNB_CLIENT_RESULT : NNB_CLIENT_SURPLUS;
        }
        uint64_t count;
        int status = take(client, &count);
        if (status != NNB_CLIENT_RESULT) {
            return status;
        }
        client->overdue--;
        client->dropped++;
    }
    return stopped(client) ? NNB_CLIENT_STOPPED : NNB_CLIENT_TIMED_OUT;
}

int nnb_client_arm(struct nnb_client *client) {
    if (!enter(client)) {
        return NNB_CLIENT_BUSY;
    }
    if (client->waiter.may_spin) {
        (void)nnb_spin_briefly(&client->results, FIRST_POLLS);
    }
    int status = look(client);
    if (status == NNB_CLIENT_TIMED_OUT) {
        /* SYNC POINT J: for a result published after this, the driver finds the bit and sends a byte; a
         * result published before is visible to the check that follows.
         * TRUST: the driver's use of the bit decides only about a byte, never about a result. */
        (void)nnb_fetch_or_u32(client->result_flag, NNB_FMQ_ASYNC);
        nnb_fence();
        status = look(client);
    }
    return let_go(client, status);
}

int nnb_client_forsake(struct nnb_client *client) {
    if (!enter(client)) {
        return NNB_CLIENT_BUSY;
    }
    if (client->overdue < client->in_flight) {
        client->overdue++;
        client->collected++;
    }
    return let_go(client, NNB_CLIENT_RESULT);
}

void nnb_client_stop(struct nnb_client *client) {
    nnb_waiter_call(&client->waiter, client->result_flag);
}

bool nnb_client_is_stopped(struct nnb_client *client) { return stopped(client) != 0; }

int nnb_client_drain(struct nnb_client *client, uint64_t timeout_ns) {
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    while (!enter(client)) {
        if (is_mine(client) || nnb_now_ns() > deadline) {
            return 1;
        }
        struct timespec moment = {.tv_nsec = 100000};
        (void)nanosleep(&moment, NULL);
    }
    return 0; /* stays locked: a closed burst is never entered again */
}
