/* The structs with which C repeats a computation over a burst, without the interpreter and its lock.
 *
 * After a computation over a burst has succeeded, the Python side enters its request here
 * (nnb_services.offer). C runs the request until a run ends with another status than the one before; the
 * Python side finishes that run. */
#ifndef NNB_CAPI_FAST_H
#define NNB_CAPI_FAST_H

#include <stdbool.h>
#include <stdint.h>

#include "../atomics.h"

/* The burst is busy with another execution; this one has not begun. */
#define NNB_RUN_BUSY (-1)

/* An argument at an address of the program, which is copied into a pool before the run, or out of it
 * afterwards. */
struct nnb_copy {
    void *to;
    const void *from;
    uint64_t bytes;
};

/* Memory of the Python side, which keeps it as long as the execution's handle is valid. */
struct nnb_fast_run {
    int (*run)(void *bound); /* 0: as the last run; NNB_RUN_BUSY; any other code is for `finish` */
    void *bound;
    uint64_t burst; /* handle; 0 for compute */
    const struct nnb_copy *copies_in;
    const struct nnb_copy *copies_out;
    uint32_t copies_in_count;
    uint32_t copies_out_count;
};

/* The burst of one thread, for computations without a given burst. Memory of the Python side, which it keeps
 * as long as the argument sizes. */
struct nnb_thread_burst {
    nnb_atomic_u64 thread; /* pthread_self; 0 if the row is free */
    nnb_atomic_u64 burst;  /* its handle, which programs never see */
    nnb_atomic_u32 used;   /* set by each use; the Python side clears it */
};

/* The type that the model declares for an argument, in the form of ANeuralNetworksOperandType. */
struct nnb_argument_type {
    int32_t type; /* below 0: one that the Python side must compare */
    uint32_t rank;
    const uint32_t *dimensions;
    float scale;
    int32_t zero_point;
};

/* The lengths and types of the arguments of a compilation's executions. Memory of the Python side, which keeps it as
 * long as the compilation has native executions. */
struct nnb_argument_sizes {
    nnb_atomic_u32 executions;
    uint32_t input_count;
    uint32_t output_count;
    const uint64_t *bytes; /* of each input, then each output; 0 if more than one length is valid */
    const struct nnb_argument_type *types; /* the same */
    struct nnb_thread_burst *threads;
    uint32_t thread_count;
};

/* An argument of a native execution or of a cached request: at an address, or a range of a memory. */
struct nnb_place {
    void *address;   /* in the program, or in the cached request's pool; NULL for a range */
    uint64_t memory; /* its handle; 0 for an address */
    uint64_t offset; /* of the range, which is as long as the model declares */
};

/* The call by which an execution computes; the numbers are those of ExecutionMode in nnburst.runtime.records.
 * */
enum nnb_mode { NNB_ASYNC = 0, NNB_SYNC = 1, NNB_BURST_MODE = 2, NNB_ASYNC_WITH_DEPS = 3 };

/* A request of a burst that C runs for one execution after another. Arguments at addresses have a place in a
 * pool; ranges of memories are bound in place. Memory of the Python side, which keeps it while it is busy. */
struct nnb_cached_request {
    nnb_atomic_u32 busy;
    const struct nnb_argument_sizes *sizes; /* of the executions that it can run */
    int (*run)(void *bound);             /* as in nnb_fast_run */
    void *bound;
    const struct nnb_place *places; /* of each input, then each output */
    uint64_t quick_ns; /* a run that took at most so long may be waited for where it is started; 0: none may */
    uint32_t slow;     /* runs, one after the other, that were waited for and took longer; of what has it busy */
};

/* An execution that exists in C alone: see native_execution.h. */
struct nnb_native_execution {
    struct nnb_argument_sizes *sizes;
    uint32_t set; /* the number of arguments that are set */
    uint32_t completed;
    uint32_t adopted; /* set by the Python side when it has made the execution one of its own */
    uint32_t mode;    /* of enum nnb_mode; from when it computes on */
    struct nnb_place arguments[]; /* each input, then each output; all zeros until it is set */
};

/* The part of a handle's slot for calls without the interpreter. An execution has `offer` and `native`, a
 * compilation `sizes`, a burst `cached`, an event `ended`, and a memory `size`. */
struct nnb_fast {
    nnb_atomic_u32 busy;      /* locked: by a run, or by a thread that reads or changes the slot */
    nnb_atomic_u32 computing; /* a run is inside */
    const struct nnb_fast_run *offer;
    nnb_atomic_u64 native; /* address; 0 after the Python side has adopted the execution */
    struct nnb_argument_sizes *sizes;
    struct nnb_cached_request *const *cached;
    uint32_t cached_count;
    nnb_atomic_u32 ended; /* the code of the event's computation, plus 1; 0 if the Python side has the event */
    nnb_atomic_u64 size; /* bytes that arguments may lie in; 0 if the Python side has to look at each range */
};

/* Enters a thread's burst into a row; thread 0 and burst 0 clear the row. */
static inline void nnb_thread_burst_set(struct nnb_thread_burst *row, uint64_t thread, uint64_t burst) {
    /* SYNC POINT M: the burst is stored before its thread. */
    nnb_store_release_u64(&row->burst, burst);
    nnb_store_release_u64(&row->thread, thread);
}

/* Whether the library has used the burst since the last call of this function. */
static inline int nnb_thread_burst_was_used(struct nnb_thread_burst *row) {
    uint32_t used = 1;
    return nnb_try_replace_u32(&row->used, &used, 0); /* SYNC POINT M: publishes only that it was used */
}

/* Whether a thread may still read the sizes after they were withdrawn. */
static inline int nnb_argument_sizes_in_use(struct nnb_argument_sizes *sizes) {
    /* SYNC POINT U: the last native execution has released them. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&sizes->executions) != 0;
}

static inline int nnb_cached_request_in_use(struct nnb_cached_request *cached) {
    /* SYNC POINT V: the last run has released it. TRUST: memory of this process. */
    return nnb_load_acquire_u32(&cached->busy) != 0;
}

#endif
