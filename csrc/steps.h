/* Runs the steps of a plan in order by one call; each step is a request bound to a burst, or is computed in
 * this process.
 *
 * The next step's request names the memory of a step's output, so nothing is done between two steps. Each
 * burst counts its own overdue results: an abandoned plan leaves its bursts in the same state as an abandoned
 * run. */
#ifndef NNB_STEPS_H
#define NNB_STEPS_H

#include <stdint.h>

#include "burst_client.h"
#include "gate.h"

/* Computes step `step` in this process within a number of nanoseconds; SAME if it succeeded. */
typedef int (*nnb_compute_step)(void *context, uint32_t step, uint64_t timeout_ns);

/* The steps; one run at a time on the bursts that the gate guards. Private memory of the caller. */
struct nnb_steps {
    struct nnb_bound *const *requests; /* null for a step that is computed in this process */
    nnb_compute_step compute;          /* of those; null without them */
    void *context;
    struct nnb_gate *gate; /* shared with all that runs on the same bursts */
    uint64_t timeout_ns;   /* of all steps together */
    uint64_t deadline_ns;  /* of the latest run of several steps */
    uint32_t count;
    uint32_t at; /* the step of the latest status but SAME */
};

/* Runs all steps: SAME if each had the same status as before, else the status of step `at`. Then the caller
 * must finish that step by nnb_client_resume or similar (a step of this process needs nothing), and call
 * nnb_steps_go_on or nnb_steps_abandon. The thread is inside the gate until one of them ends. BUSY if another
 * thread is inside the gate or a burst: then nothing must be finished. STOPPED if a burst was closed. */
int nnb_steps_run(struct nnb_steps *steps);

/* The same for a caller that does not handle signals: never INTERRUPTED. */
int nnb_steps_run_whole(struct nnb_steps *steps);

/* Continues after step `at`, whose result was read; returns the same as nnb_steps_run. */
int nnb_steps_go_on(struct nnb_steps *steps);

/* Abandons the calling thread's run at step `at`, whose next result is read as a whole; does nothing without
 * such a run. */
void nnb_steps_abandon(struct nnb_steps *steps);

#endif
