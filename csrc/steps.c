#include "steps.h"

#include "clock.h"

static int run_step(const struct nnb_steps *steps, uint32_t i, struct nnb_bound *bound,
                    uint64_t timeout_ns) {
    if (bound == NULL) {
        return steps->compute(steps->context, i, timeout_ns);
    }
    bound->timeout_ns = timeout_ns;
    return nnb_client_run(bound);
}

/* Runs from step `i` on, inside the gate. */
static int run_from(struct nnb_steps *steps, uint32_t i) {
    for (; i < steps->count; i++) {
        struct nnb_bound *bound = steps->requests[i];
        uint64_t timeout_ns = steps->timeout_ns;
        if (i != 0) {
            uint64_t now = nnb_now_ns();
            timeout_ns = now < steps->deadline_ns ? steps->deadline_ns - now : 0;
            if (timeout_ns == 0) {
                steps->at = i;
                return NNB_CLIENT_TIMED_OUT; /* and the request is not sent */
            }
        }
        int status = run_step(steps, i, bound, timeout_ns);
        if (status != NNB_CLIENT_SAME) {
            steps->at = i;
            if (status == NNB_CLIENT_BUSY && bound != NULL && nnb_client_is_stopped(bound->client)) {
                return NNB_CLIENT_STOPPED; /* a closed burst, which nothing enters again: not for a while only */
            }
            if (status == NNB_CLIENT_BUSY) { /* a caller that uses no gate */
                nnb_gate_leave(steps->gate, nnb_this_thread());
            }
            return status;
        }
    }
    nnb_gate_leave(steps->gate, nnb_this_thread());
    return NNB_CLIENT_SAME;
}

int nnb_steps_run(struct nnb_steps *steps) {
    if (!nnb_gate_enter(steps->gate, nnb_this_thread())) {
        return NNB_CLIENT_BUSY;
    }
    if (steps->count > 1) { /* a single step has the burst's own deadline, and needs no clock */
        steps->deadline_ns = nnb_deadline_after(nnb_now_ns(), steps->timeout_ns);
    }
    return run_from(steps, 0);
}

int nnb_steps_run_whole(struct nnb_steps *steps) {
    int status = nnb_steps_run(steps);
    while (status == NNB_CLIENT_INTERRUPTED) {
        status = nnb_client_wait_on(steps->requests[steps->at]);
        if (status == NNB_CLIENT_SAME) {
            status = nnb_steps_go_on(steps);
        }
    }
    return status;
}

int nnb_steps_go_on(struct nnb_steps *steps) { return run_from(steps, steps->at + 1); }

void nnb_steps_abandon(struct nnb_steps *steps) {
    if (nnb_gate_is_held_by(steps->gate, nnb_this_thread())) {
        struct nnb_bound *bound = steps->requests[steps->at];
        if (bound != NULL) {
            bound->result_count = 0;
            nnb_client_abandon(bound);
        }
        nnb_gate_leave(steps->gate, nnb_this_thread());
    }
}
