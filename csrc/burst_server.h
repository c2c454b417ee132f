/* The driver's hot loop: one for each burst, on one thread, without entering Python if possible.
 *
 * The loop copies a packet out of the request ring once. If the bytes equal those of a request that was
 * decoded and bound before, it runs the bound execution at once. Everything else is an event, which the loop
 * returns to its caller; the caller handles it and enters again:
 *
 *   MISS       an unknown packet lies in `packet`: decode, bind, reply
 *   CALL       a known packet whose execution is not native: run binding `current`, reply
 *   ATTENTION  another thread has left a command
 *   IDLE       nothing came for `idle_ns`; reported once until the next request
 *   CORRUPT, STUCK, LOST: the burst is over
 *
 * Validation is reused only for bytes that the driver owns: the bindings' own copies. */
#ifndef NNB_BURST_SERVER_H
#define NNB_BURST_SERVER_H

#include <stdint.h>

#include "counters.h"
#include "executor.h"
#include "packet.h"
#include "ring_buffer.h"
#include "waiter.h"

#define NNB_MAX_BINDINGS 256u
#define NNB_NO_BINDING UINT32_MAX

enum nnb_server_event {
    NNB_SERVER_MISS = 1,
    NNB_SERVER_CALL = 2,
    NNB_SERVER_ATTENTION = 3,
    NNB_SERVER_IDLE = 4,
    NNB_SERVER_CORRUPT = 5, /* impossible counters */
    NNB_SERVER_STUCK = 6,   /* the client does not read its results */
    NNB_SERVER_LOST = 7,    /* a packet boundary is lost (only above one in flight) */
};

/* A request decoded and bound before. Pointers belong to the caller and stay valid while bound. */
struct nnb_binding {
    const uint8_t *request;
    uint8_t *result; /* packet of a successful execution; its timing is overwritten. NULL: each run reports shapes */
    nnb_run run;     /* NULL: the caller runs it (CALL) */
    nnbx_execution *execution;
    uint64_t hash;
    uint32_t request_count;
    uint32_t result_count;
    uint32_t next;  /* the binding that followed this one last time */
    uint32_t in_use;
};

struct nnb_server {
    struct nnb_ring requests;
    struct nnb_ring results;
    nnb_atomic_u32 *request_flag;
    nnb_atomic_u32 *result_flag;
    int wakeup_fd; /* socket for a byte when a result is there that the client awaits in an event loop, or -1 */
    struct nnb_waiter waiter;
    uint32_t max_in_flight;
    uint64_t idle_ns;
    uint64_t stuck_ns; /* how long a result may wait for room */
    uint8_t *packet;   /* room for a whole ring; the request being served */
    uint32_t packet_count;
    uint32_t measure; /* the request being served asks for timing */
    uint32_t timed;   /* its durations are taken: it asks for timing, or is one that is sampled */
    uint64_t dequeued_ns;
    struct nnb_counters *counters; /* the row that this loop alone writes, or NULL */
    uint32_t current; /* binding being served */
    uint32_t last;    /* binding served before */
    uint32_t idle_reported;
    uint32_t lost; /* a packet boundary is lost: the last reply is being sent */
    uint8_t *waiting;       /* room for a whole ring: a result with the shapes of its run, or that does not fit yet */
    const uint8_t *pending; /* the result being sent, or `waiting` */
    uint32_t pending_count;
    uint64_t stuck_at_ns; /* when the pending result's patience ends */
    uint8_t error[2 * NNB_DATUM_BYTES];
    uint64_t executions; /* statistics */
    uint64_t misses;
    uint64_t flow; /* of the request taken last: both sides count on from the same number */
    uint32_t slice; /* what the loop is doing by the trace: 0 for nothing yet */
    uint64_t oversized; /* results replaced by GENERAL_FAILURE because they exceed the ring */
    struct nnb_binding bindings[NNB_MAX_BINDINGS];
};

/* Serves until an event. First sends `reply` (may be NULL), a result packet of `reply_count` elements for the
 * request being served; the packet is not used after this call. If that request asks for timing and the
 * status is NONE, `device_ns` and `driver_ns` are filled in, as in struct nnbx_outcome: NNBX_MEASURED is the
 * time since the dequeue. */
int nnb_server_next(struct nnb_server *server, uint8_t *reply, uint32_t reply_count,
                    uint64_t device_ns, uint64_t driver_ns);

/* Binds `binding` at `index` (< NNB_MAX_BINDINGS) or, with request NULL, frees that place. */
void nnb_server_bind(struct nnb_server *server, uint32_t index, const struct nnb_binding *binding);

/* Makes the loop return ATTENTION. Any thread. */
void nnb_server_call(struct nnb_server *server);

/* Clears the attention, so that the next command sets it again. Called on the loop's thread. */
void nnb_server_attend(struct nnb_server *server);

#endif
