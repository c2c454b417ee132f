/* Records marks of each thread's work, with their times, in a ring in memory that a collector maps.
 *
 * If tracing is off, a mark costs one load of a flag and a branch. If it is on, a mark is a record of 32
 * bytes in the thread's ring, which overwrites the oldest record. A process's rings lie in one sealed memfd
 * with a header and the names, so the collector still has the records when the process was killed.
 *
 * With -DNNBURST_NO_TRACE_POINTS there are no trace points, to measure the cost of "off" against. */
#ifndef NNB_TRACE_H
#define NNB_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"

#define NNB_TRACE_MAGIC 0x3145434152544E4Eu /* "NNTRACE1" */
#define NNB_TRACE_RINGS 32u
#define NNB_TRACE_RECORDS 32768u /* of a ring; a power of two */
#define NNB_TRACE_NAMES 2048u
#define NNB_TRACE_NAME_BYTES 64u

enum nnb_trace_layer {
    NNB_LAYER_APPLICATION,
    NNB_LAYER_RUNTIME,
    NNB_LAYER_UTILITY,
    NNB_LAYER_IPC,
    NNB_LAYER_DRIVER,
    NNB_LAYER_CPU,
    NNB_LAYER_OTHER,
};

enum nnb_trace_phase {
    NNB_PHASE_OVERALL,
    NNB_PHASE_INITIALIZATION,
    NNB_PHASE_PREPARATION,
    NNB_PHASE_COMPILATION,
    NNB_PHASE_EXECUTION,
    NNB_PHASE_TERMINATION,
    NNB_PHASE_UNSPECIFIED,
    NNB_PHASE_WARMUP,
    NNB_PHASE_BENCHMARK,
    NNB_PHASE_INPUTS_AND_OUTPUTS,
    NNB_PHASE_TRANSFORMATION,
    NNB_PHASE_COMPUTATION,
    NNB_PHASE_RESULTS,
};

enum nnb_trace_kind {
    NNB_TRACE_BEGIN = 1,
    NNB_TRACE_END = 2,
    NNB_TRACE_SWITCH = 3, /* ends the thread's latest slice and begins another */
    NNB_TRACE_INSTANT = 4,
    NNB_TRACE_COUNTER = 5, /* the argument is its value */
};

/* Flags: the argument is the number of a flow that leaves this slice, or reaches it. */
enum { NNB_TRACE_FLOW_OUT = 1, NNB_TRACE_FLOW_IN = 2 };

/* The C module's places in a trace: name, layer, phase, text. Their numbers are their order; a process's name table
 * begins with them. Layers and phases are those of tracing/slices.py, in its order. */
#define NNB_TRACE_SITES_OF(SITE)                                                                \
    SITE(CLIENT_RUN, NNB_LAYER_RUNTIME, NNB_PHASE_EXECUTION, "burst: run")                      \
    SITE(CLIENT_WAIT, NNB_LAYER_IPC, NNB_PHASE_EXECUTION, "burst: wait for the result")         \
    SITE(CLIENT_TAKE, NNB_LAYER_RUNTIME, NNB_PHASE_RESULTS, "burst: take the result")           \
    SITE(CLIENT_SUBMIT, NNB_LAYER_RUNTIME, NNB_PHASE_INPUTS_AND_OUTPUTS, "burst: submit")       \
    SITE(SLEEP, NNB_LAYER_UTILITY, NNB_PHASE_UNSPECIFIED, "sleep")                              \
    SITE(SERVER_IDLE, NNB_LAYER_UTILITY, NNB_PHASE_UNSPECIFIED, "burst: wait for a request")    \
    SITE(SERVER_SERVE, NNB_LAYER_DRIVER, NNB_PHASE_EXECUTION, "burst: serve a request")         \
    SITE(SERVER_MISS, NNB_LAYER_DRIVER, NNB_PHASE_INPUTS_AND_OUTPUTS, "burst: unknown request") \
    SITE(SERVER_COMPUTE, NNB_LAYER_CPU, NNB_PHASE_COMPUTATION, "compute")                       \
    SITE(LITERT_RUN, NNB_LAYER_CPU, NNB_PHASE_COMPUTATION, "litert")                            \
    SITE(SERVER_PUT, NNB_LAYER_DRIVER, NNB_PHASE_RESULTS, "burst: put the result")              \
    SITE(REQUESTS_OUT, NNB_LAYER_RUNTIME, NNB_PHASE_EXECUTION, "requests out")                  \
    SITE(QUEUE_WRITE, NNB_LAYER_APPLICATION, NNB_PHASE_UNSPECIFIED, "queue: write")             \
    SITE(QUEUE_READ, NNB_LAYER_APPLICATION, NNB_PHASE_UNSPECIFIED, "queue: read")               \
    SITE(QUEUE_WAIT, NNB_LAYER_IPC, NNB_PHASE_UNSPECIFIED, "queue: wait")                       \
    SITE(RING_BYTES, NNB_LAYER_RUNTIME, NNB_PHASE_EXECUTION, "bytes in the request ring")

enum nnb_trace_site {
#define NNB_TRACE_SITE(name, layer, phase, text) NNB_SITE_##name,
    NNB_TRACE_SITES_OF(NNB_TRACE_SITE)
#undef NNB_TRACE_SITE
    NNB_TRACE_SITES
};

struct nnb_trace_record {
    nnb_atomic_u64 sequence; /* 0 while it is written, else 1 + its number in the ring */
    uint64_t time;           /* ticks of the header's clock */
    uint64_t argument;
    uint32_t name;
    uint8_t kind;
    uint8_t layer;
    uint8_t phase;
    uint8_t flags;
};
_Static_assert(sizeof(struct nnb_trace_record) == 32, "the collector reads records of 32 bytes");

struct nnb_trace_ring {
    nnb_atomic_u64 written; /* records, ever */
    uint32_t tid;
    uint32_t in_use;
    char name[16]; /* of the thread, when it joined */
};

struct nnb_trace_name {
    uint8_t layer;
    uint8_t phase;
    char text[NNB_TRACE_NAME_BYTES - 2];
};

struct nnb_trace_area {
    uint64_t magic;
    uint32_t pid;
    uint32_t uses_tsc;
    uint64_t start_ticks; /* a pair of clocks, taken together */
    uint64_t start_ns;    /* CLOCK_MONOTONIC */
    nnb_atomic_u32 rings;   /* threads that have joined; more than there are rings have none */
    nnb_atomic_u32 names;   /* that are complete */
    nnb_atomic_u64 dropped; /* marks of threads without a ring */
    char process[64];
    uint8_t reserved[144];
    struct nnb_trace_ring ring[NNB_TRACE_RINGS];
    struct nnb_trace_name name[NNB_TRACE_NAMES];
    struct nnb_trace_record record[NNB_TRACE_RINGS][NNB_TRACE_RECORDS];
};

/* Whether marks are recorded. Written before threads that mark are started, or by nnb_trace_stop. */
extern uint32_t nnb_trace_on;

/* Makes an area of `memory` (zeroed, sizeof(struct nnb_trace_area) bytes) and records into it from now on.
 * The memory stays the caller's, which keeps it mapped until the process ends, since threads may use it. */
void nnb_trace_start(struct nnb_trace_area *memory, const char *process, uint32_t uses_tsc);

/* Stops recording. */
void nnb_trace_stop(void);

/* The number of a name, for nnb_trace_mark; the last one, named accordingly, if the table is full. One thread at a
 * time. */
uint32_t nnb_trace_add_name(uint32_t layer, uint32_t phase, const char *text);

static inline uint64_t nnb_trace_area_bytes(void) { return sizeof(struct nnb_trace_area); }

/* The clock of records. */
uint64_t nnb_trace_ticks(uint32_t uses_tsc);

void nnb_trace_write(uint32_t name, uint32_t kind, uint32_t flags, uint64_t argument);

/* Whether marks are recorded; checked before values are computed only for a mark. */
static inline bool nnb_trace_records(void) {
#ifndef NNBURST_NO_TRACE_POINTS
    return __builtin_expect(nnb_trace_on != 0, 0) != 0;
#else
    return false;
#endif
}

/* nnb_trace_write, if marks are recorded. */
static inline void nnb_trace_mark(uint32_t name, uint32_t kind, uint32_t flags, uint64_t argument) {
    if (nnb_trace_records()) {
        nnb_trace_write(name, kind, flags, argument);
    }
}

#define NNB_TRACE(site, kind) nnb_trace_mark(NNB_SITE_##site, NNB_TRACE_##kind, 0, 0)
#define NNB_TRACE_VALUE(site, kind, flags, value) \
    nnb_trace_mark(NNB_SITE_##site, NNB_TRACE_##kind, flags, value)

#endif
