#include "burst_server.h"

#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "event_flag.h"
#include "trace.h"
#include "trap.h"

enum { GO_ON = 0 }; /* beside the events: nothing to report */

#define MAX_SLEEP_NS 60000000000u /* no wait without a deadline, however long */
#define FIRST_POLLS 48u           /* about a microsecond */

static uint64_t hash_packet(const uint8_t *packet, uint64_t bytes) {
    uint64_t hash = bytes;
    for (uint64_t i = 0; i < bytes; i += sizeof hash) {
        uint64_t word;
        memcpy(&word, packet + i, sizeof word); /* datums are a multiple of 8 bytes */
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static bool is_bound(const struct nnb_server *server, uint32_t index) {
    const struct nnb_binding *binding = &server->bindings[index];
    return binding->in_use && binding->request_count == server->packet_count &&
           memcmp(binding->request, server->packet,
                  (uint64_t)server->packet_count * NNB_DATUM_BYTES) == 0;
}

/* Finds the binding of the packet being served. The binding that followed the last one before is tried first,
 * which is right if a client sends its requests in a fixed order. */
static uint32_t find_binding(struct nnb_server *server) {
    struct nnb_binding *last = &server->bindings[server->last];
    if (is_bound(server, last->next)) {
        return last->next;
    }
    uint64_t hash = hash_packet(server->packet, (uint64_t)server->packet_count * NNB_DATUM_BYTES);
    for (uint32_t i = 0; i < NNB_MAX_BINDINGS; i++) {
        if (server->bindings[i].in_use && server->bindings[i].hash == hash && is_bound(server, i)) {
            last->next = i;
            return i;
        }
    }
    return NNB_NO_BINDING;
}

/* Records the loop's present activity in the trace: one slice ends where the next begins. */
static inline void now_does(struct nnb_server *server, uint32_t site, uint32_t flags,
                            uint64_t flow) {
    nnb_trace_mark(site, server->slice == 0 ? NNB_TRACE_BEGIN : NNB_TRACE_SWITCH, flags, flow);
    server->slice = site;
}

/* Whether the execution that begins is to be timed. */
static inline uint32_t count_begin(struct nnb_server *server) {
    return server->counters != NULL && nnb_counters_begin(server->counters);
}

/* Counts a result before it is sent, so that a client that has the result finds it counted. */
static inline void count_end(struct nnb_server *server, int32_t status, uint64_t device_ns,
                             uint64_t driver_ns) {
    if (server->counters != NULL) {
        if (server->timed) {
            nnb_counters_time(server->counters, device_ns, driver_ns);
        }
        nnb_counters_end(server->counters, (uint32_t)status);
    }
}

/* Counts a result that was already counted as a failure instead. */
static void count_as_failure(struct nnb_server *server, int32_t status) {
    if (server->counters != NULL && status == NNB_STATUS_NONE) {
        nnb_counters_add(&server->counters->statuses[NNB_STATUS_NONE], UINT64_MAX); /* one less */
        nnb_counters_end(server->counters, NNB_STATUS_GENERAL_FAILURE);
    }
}

/* Waits for a request: GO_ON when the ring has something (or is corrupt). */
static int await_request(struct nnb_server *server) {
    if (nnb_waiter_spins(&server->waiter) && nnb_spin_briefly(&server->requests, FIRST_POLLS)) {
        server->idle_reported = 0;
        return GO_ON; /* before any clock is read */
    }
    for (;;) {
        uint64_t patience = server->idle_reported ? MAX_SLEEP_NS : server->idle_ns;
        switch (nnb_wait_readable(&server->waiter, &server->requests, server->request_flag,
                                  nnb_deadline_after(nnb_now_ns(), patience))) {
        case NNB_WAIT_READY:
            server->idle_reported = 0;
            return GO_ON;
        case NNB_WAIT_ATTENTION:
            return NNB_SERVER_ATTENTION;
        case NNB_WAIT_TIMED_OUT:
            if (!server->idle_reported) {
                server->idle_reported = 1;
                return NNB_SERVER_IDLE;
            }
            break;
        default: /* a signal: not ours to handle */
            break;
        }
    }
}

/* Copies one of several packets out of the ring, by the size that it announces. */
static int cut_request(struct nnb_server *server, uint64_t *count) {
    uint64_t available = nnb_ring_available_to_read(&server->requests);
    if (available == 0 || nnb_ring_peek(&server->requests, server->packet, 1) != NNB_RING_OK) {
        return NNB_SERVER_CORRUPT;
    }
    NNB_TRAP("burst.cut");
    /* TRUST: bounded by the ring's content; a packet is published as a whole. */
    *count = nnb_packet_announced(server->packet, NNB_REQUEST_PACKET_SIZE_OFFSET);
    if (server->packet[0] != NNB_REQUEST_PACKET_INFORMATION || *count == 0 || *count > available) {
        return NNB_SERVER_LOST;
    }
    if (nnb_ring_read_on(&server->requests, server->packet, 1, *count) != NNB_RING_OK) {
        return NNB_SERVER_CORRUPT;
    }
    nnb_event_flag_notify(server->request_flag, NNB_FMQ_NOT_FULL);
    return GO_ON;
}

/* Copies one request packet into server->packet. */
static int take_request(struct nnb_server *server) {
    uint64_t count;
    if (server->max_in_flight > 1) {
        int event = cut_request(server, &count);
        if (event != GO_ON) {
            return event;
        }
    } else if (nnb_ring_read_all(&server->requests, server->packet, &count) != NNB_RING_OK) {
        return NNB_SERVER_CORRUPT; /* NNAPI: with one request in flight, the ring's content is one packet */
    }
    server->packet_count = (uint32_t)count;
    server->flow++;
    now_does(server, NNB_SITE_SERVER_SERVE, NNB_TRACE_FLOW_IN, server->flow);
    server->measure = nnb_request_measures(server->packet, server->packet_count);
    server->timed = count_begin(server) | server->measure;
    server->dequeued_ns = server->timed ? nnb_now_ns() : 0;
    return GO_ON;
}

/* The rare part of `announce`: the peer sleeps on the futex, or waits in an event loop. */
static void awaken(struct nnb_server *server) {
    nnb_event_flag_notify(server->result_flag, NNB_FMQ_NOT_EMPTY);
    /* SYNC POINT J: the result is published before the request for a byte is cleared.
     * TRUST: a client that requests bytes without a reason gets bytes, but only one for each of its own
     * results. */
    uint32_t before = nnb_fetch_and_u32(server->result_flag, ~NNB_FMQ_ASYNC);
    if ((before & NNB_FMQ_ASYNC) != 0 && server->wakeup_fd >= 0) {
        /* A client that does not read its bytes has enough of them; a client that has ended needs no more. */
        (void)send(server->wakeup_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* Announces a result: nnb_event_flag_notify that checks one more bit of the flag. */
static inline void announce(struct nnb_server *server) {
    /* SYNC POINT C, J: the result is visible to a waiter that clears NOT_EMPTY or sets ASYNC after this
     * check; a waiter that did so before is seen here.
     * TRUST: other bits only cost the system calls that they request. */
    nnb_fence();
    if ((nnb_load_relaxed_u32(server->result_flag) & (NNB_FMQ_NOT_EMPTY | NNB_FMQ_ASYNC)) !=
        NNB_FMQ_NOT_EMPTY) {
        awaken(server);
    }
}

/* Sends the pending result, waiting for room. */
static int flush(struct nnb_server *server) {
    while (server->pending != NULL) {
        switch (nnb_ring_write(&server->results, server->pending, server->pending_count)) {
        case NNB_RING_OK:
            server->pending = NULL;
            server->executions++;
            announce(server);
            return GO_ON;
        case NNB_RING_TOO_LARGE:
            /* burst:§4: a result that can never fit becomes the two-element packet. */
            server->oversized++;
            count_as_failure(server, nnb_result_status(server->pending));
            nnb_result_error(server->error, NNB_STATUS_GENERAL_FAILURE);
            server->pending = server->error;
            server->pending_count = 2;
            continue;
        case NNB_RING_FULL:
            break;
        default:
            return NNB_SERVER_CORRUPT;
        }
        if (server->stuck_at_ns == 0) {
            /* Copied, since a command may free the binding or the reply that the result comes from. */
            if (server->pending != server->waiting) {
                memcpy(server->waiting, server->pending,
                       (uint64_t)server->pending_count * NNB_DATUM_BYTES);
                server->pending = server->waiting;
            }
            if (server->counters != NULL) {
                nnb_counters_add(&server->counters->queue_full, 1);
            }
            server->stuck_at_ns = nnb_deadline_after(nnb_now_ns(), server->stuck_ns);
        }
        switch (nnb_wait_writable(&server->waiter, &server->results, server->pending_count,
                                  server->result_flag, server->stuck_at_ns)) {
        case NNB_WAIT_ATTENTION:
            return NNB_SERVER_ATTENTION;
        case NNB_WAIT_TIMED_OUT:
            return NNB_SERVER_STUCK;
        default:
            break;
        }
    }
    return GO_ON;
}

/* `status` is the packet's status. `mark`: whether the trace's slice for sending replaces another slice, or
 * begins. */
static int send_result(struct nnb_server *server, uint8_t *packet, uint32_t count, int32_t status,
                       uint64_t device_ns, uint64_t driver_ns, enum nnb_trace_kind mark) {
    uint64_t measured_ns = server->timed ? nnb_now_ns() - server->dequeued_ns : 0;
    if (server->measure && status == NNB_STATUS_NONE) {
        nnb_times_settle(&device_ns, &driver_ns, measured_ns);
        nnb_result_set_timing(packet, count, device_ns, driver_ns);
    }
    count_end(server, status, device_ns, measured_ns);
    server->pending = packet;
    server->pending_count = count;
    server->stuck_at_ns = 0;
    nnb_trace_mark(NNB_SITE_SERVER_PUT, mark, 0, 0);
    int event = flush(server);
    NNB_TRACE(SERVER_PUT, END);
    return event;
}

/* Makes a result with the shapes of the last run in server->waiting, and sends it. */
static int send_shapes(struct nnb_server *server, int32_t status, const struct nnbx_outcome *outcome) {
    uint64_t room = server->results.capacity_bytes / NNB_DATUM_BYTES;
    uint32_t count = nnb_result_write(server->waiting, room, status, outcome->shapes, outcome->shape_count);
    if (count == 0) { /* burst:§4: a result that can never fit becomes the two-element packet */
        server->oversized++;
        status = NNB_STATUS_GENERAL_FAILURE;
        count = 2;
        nnb_result_error(server->waiting, status);
    }
    return send_result(server, server->waiting, count, status, outcome->device_ns, outcome->driver_ns,
                       NNB_TRACE_SWITCH);
}

static int run_native(struct nnb_server *server, struct nnb_binding *binding) {
    const struct nnbx_run how = NNB_PLAIN_RUN(server->measure);
    struct nnbx_outcome outcome = NNB_PLAIN_OUTCOME(NULL);
    uint64_t began = server->timed ? nnb_now_ns() : 0;
    NNB_TRACE(SERVER_COMPUTE, BEGIN);
    int32_t status = binding->run(binding->execution, &how, &outcome);
    if (outcome.device_ns == NNBX_MEASURED) {
        outcome.device_ns = server->timed ? nnb_now_ns() - began : 0;
    }
    /* Shapes of a run are sent even if the model declares all: a whole graph may find that its file is wrong. */
    if (status == NNB_STATUS_NONE && binding->result != NULL && outcome.shape_count == 0) {
        return send_result(server, binding->result, binding->result_count, status, outcome.device_ns,
                           outcome.driver_ns, NNB_TRACE_SWITCH);
    }
    if (status > NNB_STATUS_INVALID_ARGUMENT) {
        status = NNB_STATUS_GENERAL_FAILURE; /* NNAPI: a burst carries the 1.0 ErrorStatus */
    }
    return send_shapes(server, status, &outcome);
}

/* Waits for the next request and copies it into server->packet. */
static int next_request(struct nnb_server *server) {
    if (server->lost) {
        return NNB_SERVER_LOST;
    }
    if (server->slice != NNB_SITE_SERVER_IDLE) { /* else it waits on */
        now_does(server, NNB_SITE_SERVER_IDLE, 0, 0);
    }
    /* Otherwise commands would wait for ever if the client never pauses. */
    int event = nnb_waiter_has_attention(&server->waiter) ? NNB_SERVER_ATTENTION
                                                          : await_request(server);
    return event == GO_ON ? take_request(server) : event;
}

int nnb_server_next(struct nnb_server *server, uint8_t *reply, uint32_t reply_count,
                    uint64_t device_ns, uint64_t driver_ns) {
    int event = reply != NULL ? send_result(server, reply, reply_count, nnb_result_status(reply),
                                            device_ns, driver_ns, NNB_TRACE_BEGIN)
                              : flush(server);
    while (event == GO_ON) {
        event = next_request(server);
        if (event == NNB_SERVER_LOST && !server->lost) {
            /* Sends one answer for all requests whose boundaries are lost, and then ends. */
            server->lost = 1;
            server->timed = server->measure = 0;
            (void)count_begin(server);
            nnb_result_error(server->error, NNB_STATUS_GENERAL_FAILURE);
            event = send_result(server, server->error, 2, NNB_STATUS_GENERAL_FAILURE, 0,
                                NNBX_MEASURED, NNB_TRACE_BEGIN);
            continue;
        }
        if (event != GO_ON) {
            break;
        }
        uint32_t index = find_binding(server);
        server->current = index;
        if (index == NNB_NO_BINDING) {
            server->misses++;
            NNB_TRACE(SERVER_MISS, INSTANT);
            return NNB_SERVER_MISS;
        }
        server->last = index;
        if (server->bindings[index].run == NULL) {
            return NNB_SERVER_CALL;
        }
        event = run_native(server, &server->bindings[index]);
    }
    return event;
}

void nnb_server_bind(struct nnb_server *server, uint32_t index, const struct nnb_binding *binding) {
    struct nnb_binding *place = &server->bindings[index];
    if (binding->request == NULL) {
        memset(place, 0, sizeof *place);
        return;
    }
    *place = *binding;
    place->hash =
        hash_packet(binding->request, (uint64_t)binding->request_count * NNB_DATUM_BYTES);
    place->next = index; /* until something else follows it */
    place->in_use = 1;
    server->bindings[server->last].next = index;
    server->last = index;
}

void nnb_server_call(struct nnb_server *server) {
    nnb_waiter_call(&server->waiter, server->request_flag);
    (void)nnb_event_flag_wake(server->result_flag, NNB_FMQ_WRITER_ATTENTION);
}

void nnb_server_attend(struct nnb_server *server) {
    /* SYNC POINT D: commands are read after this, so a command that comes later sets the attention again. */
    nnb_store_release_u32(&server->waiter.attention, 0);
}
