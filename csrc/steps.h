/* The steps of a plan: requests bound to a burst each, or computed in this process, run in order by one call.
 *
 * A step's output is memory that the next one's request names, so nothing is done between two steps. Each burst
 * counts its own overdue results: a plan that was given up leaves its bursts as a run that was given up does. */
#ifndef NNB_STEPS_H
#define NNB_STEPS_H

#include <stdint.h>

#include "burst_client.h"
#include "gate.h"

/* Computes step `step` in this process, within so many nanoseconds: SAME if it ended well. */
typedef int (*nnb_compute_step)(void *context, uint32_t step, uint64_t timeout_ns);

/* One run at a time over what is behind the gate. Private memory of the caller. */
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

/* Runs all steps: SAME if each ended as before, else the status of step `at`, which is the caller's to finish by
 * nnb_client_resume and the like (nothing for a step of this process); then nnb_steps_go_on, or nnb_steps_abandon. The
 * thread is inside the gate until one of them ends. BUSY if another thread is inside of the gate or of a burst:
 * nothing is to be finished. A burst that was closed is STOPPED. */
int nnb_steps_run(struct nnb_steps *steps);

/* The same for a caller that does not look for signals: never INTERRUPTED. */
int nnb_steps_run_whole(struct nnb_steps *steps);

/* Goes on behind step `at`, whose result was read; as nnb_steps_run. */
int nnb_steps_go_on(struct nnb_steps *steps);

/* Gives the calling thread's run up that stands at step `at`, whose next result is read in full; nothing without
 * such a run. */
void nnb_steps_abandon(struct nnb_steps *steps);

#endif
