/* The client's hot path: one call per execution.
 *
 * A request packet is serialised once, when it is bound. A run copies it into the request ring, waits for
 * the result packet, copies the result out once and checks it. Results are matched by order. If a run gives
 * up, its result is overdue: it is consumed and dropped before another result is accepted.
 *
 * One thread at a time: a second one gets NNB_CLIENT_BUSY, except in nnb_client_stop. */
#ifndef NNB_BURST_CLIENT_H
#define NNB_BURST_CLIENT_H

#include <stdint.h>

#include "gate.h"
#include "packet.h"
#include "ring_buffer.h"
#include "waiter.h"

enum nnb_client_status {
    NNB_CLIENT_SAME = 0,         /* status NONE, and all as in the last result */
    NNB_CLIENT_RESULT = 1,       /* a well-formed result: look at it */
    NNB_CLIENT_MALFORMED = 2,    /* an ill-formed result; the burst goes on */
    NNB_CLIENT_TIMED_OUT = 3,    /* the time is up; the request, if sent, is still out */
    NNB_CLIENT_INTERRUPTED = 4,  /* look for signals, then resume */
    NNB_CLIENT_STOPPED = 5,      /* the peer died or the burst was closed */
    NNB_CLIENT_CORRUPT = 6,      /* impossible counters; final */
    NNB_CLIENT_SURPLUS = 7,      /* a result without a request; final */
    NNB_CLIENT_NO_ROOM = 8,      /* the packet does not fit; nothing was sent */
    NNB_CLIENT_BUSY = 9,         /* another thread is inside */
    NNB_CLIENT_IN_FLIGHT = 10,   /* max_in_flight requests are out */
    NNB_CLIENT_SAME_BUT_TIMING = 12, /* the same for a measured request: look at the summary */
    NNB_CLIENT_SENT = 13,        /* without a result so far; as after nnb_client_submit */
    NNB_CLIENT_UNBOUND = 11,     /* the memory behind the request is gone: bound->closed is set */
};

/* Functions to call around a long wait, for example to release an interpreter lock; may be NULL. */
struct nnb_long_wait {
    void *(*begin)(void);
    void (*end)(void *token);
};

struct nnb_client;

/* An output of truth values, in memory that the driver writes. */
struct nnb_truth {
    uint8_t *values;
    uint64_t count;
};

/* A request packet, its burst, and its last result. Private memory of the caller. */
struct nnb_bound {
    struct nnb_client *client;
    uint64_t timeout_ns; /* of nnb_client_run */
    const uint8_t *request;
    uint32_t closed;   /* not to be sent any more; one that is out may still be waited for */
    uint32_t measured; /* the request asks for timing */
    uint32_t request_count;
    uint32_t result_count; /* elements in `result`; 0 before the first result */
    uint8_t *result;       /* room for a whole ring */
    struct nnb_result_summary summary;
    uint64_t deadline_ns; /* of the latest run that has begun and did not end as SAME */
    const struct nnb_truth *truths; /* are made 0 or 1 before a result is returned */
    uint32_t truth_count;
};

struct nnb_client {
    struct nnb_ring requests;
    struct nnb_ring results;
    nnb_atomic_u32 *request_flag;
    nnb_atomic_u32 *result_flag;
    uint8_t *packet; /* room for a whole ring */
    struct nnb_waiter waiter;
    struct nnb_long_wait long_wait;
    struct nnb_gate gate;              /* the thread that is inside, or whose run was INTERRUPTED */
    const struct nnb_bound *suspended; /* that run's request; meant for the thread inside */
    uint64_t waits_from_ns; /* when the latest long wait began */
    uint32_t asked; /* a request has just been sent whose result is awaited next */
    uint32_t max_in_flight;
    uint32_t in_flight; /* requests out, the overdue ones included */
    uint32_t overdue;   /* oldest of them, whose results are dropped */
    uint64_t submitted; /* requests sent by nnb_client_submit */
    uint64_t collected; /* the oldest of them, whose results were taken or are overdue */
    uint64_t executions; /* statistics: results accepted */
    uint64_t dropped;    /* overdue results consumed */
    uint64_t flow; /* of the request sent last: both sides count on from the same number */
};

/* Sends the request and waits up to bound->timeout_ns, at most a slice at a time: INTERRUPTED means "resume".
 * After INTERRUPTED the burst stays busy until nnb_client_resume ends with another status, or
 * nnb_client_abandon. IN_FLIGHT if submitted or overdue requests are under way, whose results come first. */
int nnb_client_run(struct nnb_bound *bound);
int nnb_client_resume(struct nnb_bound *bound, uint64_t timeout_ns);

/* Resumes an interrupted run up to its deadline, for a caller that does not look for signals. */
int nnb_client_wait_on(struct nnb_bound *bound);

/* Ends the calling thread's interrupted run of `bound`, whose result is overdue then; does nothing without
 * such a run. */
void nnb_client_abandon(struct nnb_bound *bound);

/* Sends without waiting. nnb_client_collect fetches the results in order; its `bound` is that of the oldest
 * request under way. Like nnb_client_run it may return INTERRUPTED. */
int nnb_client_submit(struct nnb_bound *bound);
int nnb_client_collect(struct nnb_bound *bound, uint64_t timeout_ns);

/* nnb_client_run for a thread that must not block. IN_FLIGHT if other requests are under way. SENT if the
 * result does not come within about two microseconds; then the request is a submitted one. */
int nnb_client_run_at_once(struct nnb_bound *bound);

/* For a waiter in an event loop: drops available overdue results. Then RESULT if a result can be collected;
 * otherwise TIMED_OUT, and the driver will send a byte with the next result. Only the driver clears this
 * request, and it always sends a byte then, so no waiter can miss a result. */
int nnb_client_arm(struct nnb_client *client);

/* Makes the oldest request under way overdue, so that its result is dropped. RESULT, or BUSY. */
int nnb_client_forsake(struct nnb_client *client);

/* Ends every wait now and from now on. Any thread. */
void nnb_client_stop(struct nnb_client *client);

/* Whether runs end as NNB_CLIENT_STOPPED: the driver has died, or the burst was closed. Any thread. */
bool nnb_client_is_stopped(struct nnb_client *client);

/* After nnb_client_stop: waits until no thread is inside. Returns 0; 1 after `timeout_ns`, or if the run
 * inside is the calling thread's own interrupted one. */
int nnb_client_drain(struct nnb_client *client, uint64_t timeout_ns);

#endif
