#include "bench.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "event_flag.h"

enum { MAX_ELEMENTS = 64, DATUM = 24, POLLS_PER_CLOCK = 4096 };

/* Timeout for a peer's answer; on a busy machine an answer can take seconds. */
#define GIVE_UP_NS 10000000000u

/* Waits until *word differs from `old`, and returns it; returns `old` after `patience_ns`. */
static uint64_t await_change(nnb_atomic_u64 *word, uint64_t old, uint64_t patience_ns) {
    for (uint64_t deadline = 0;;) {
        for (int i = 0; i < POLLS_PER_CLOCK; i++) {
            uint64_t value = nnb_load_relaxed_u64(word);
            if (value != old) {
                return value;
            }
        }
        uint64_t now = nnb_now_ns();
        if (deadline == 0) {
            deadline = now + patience_ns;
        } else if (now > deadline) {
            return old;
        }
    }
}

uint64_t nnb_bench_floor_client(nnb_atomic_u64 *word, uint64_t rounds, uint64_t *samples_ns) {
    uint64_t began = nnb_now_ns();
    uint64_t before = began;
    uint64_t value = nnb_load_relaxed_u64(word);
    for (uint64_t i = 0; i < rounds; i++) {
        nnb_store_relaxed_u64(word, value + 1);
        uint64_t answer = await_change(word, value + 1, GIVE_UP_NS);
        if (answer != value + 2) {
            return 0;
        }
        value = answer;
        if (samples_ns != NULL) {
            uint64_t now = nnb_now_ns();
            samples_ns[i] = now - before;
            before = now;
        }
    }
    return nnb_now_ns() - began;
}

void nnb_bench_floor_server(nnb_atomic_u64 *word, uint64_t patience_ns) {
    uint64_t answered = 0;
    for (;;) {
        uint64_t value = await_change(word, answered, patience_ns);
        if (value == answered || value == UINT64_MAX) {
            return;
        }
        answered = value + 1;
        nnb_store_relaxed_u64(word, answered);
    }
}

static int await_elements(struct nnb_ring *ring, uint64_t patience_ns) {
    for (uint64_t deadline = 0;;) {
        for (int i = 0; i < POLLS_PER_CLOCK; i++) {
            if (nnb_ring_poll(ring)) {
                return 1;
            }
            nnb_pause();
        }
        uint64_t now = nnb_now_ns();
        if (deadline == 0) {
            deadline = now + patience_ns;
        } else if (now > deadline) {
            return 0;
        }
    }
}

uint64_t nnb_bench_queue_client(struct nnb_ring *requests, nnb_atomic_u32 *request_flag,
                                struct nnb_ring *results, nnb_atomic_u32 *result_flag,
                                uint32_t request_count, uint32_t result_count, uint64_t rounds,
                                uint64_t *samples_ns) {
    uint8_t packet[MAX_ELEMENTS * DATUM] = {0};
    (void)result_flag;
    uint64_t began = nnb_now_ns();
    uint64_t before = began;
    for (uint64_t i = 0; i < rounds; i++) {
        if (nnb_ring_write(requests, packet, request_count) != NNB_RING_OK) {
            return 0;
        }
        nnb_event_flag_notify(request_flag, NNB_FMQ_NOT_EMPTY);
        if (!await_elements(results, GIVE_UP_NS) ||
            nnb_ring_read(results, packet, result_count) != NNB_RING_OK) {
            return 0;
        }
        if (samples_ns != NULL) {
            uint64_t now = nnb_now_ns();
            samples_ns[i] = now - before;
            before = now;
        }
    }
    return nnb_now_ns() - began;
}

void nnb_bench_queue_server(struct nnb_ring *requests, nnb_atomic_u32 *request_flag,
                            struct nnb_ring *results, nnb_atomic_u32 *result_flag,
                            uint32_t result_count, uint64_t patience_ns) {
    uint8_t packet[MAX_ELEMENTS * DATUM] = {0};
    (void)request_flag;
    while (await_elements(requests, patience_ns)) {
        uint64_t count = nnb_ring_available_to_read(requests);
        if (count == 0 || count > MAX_ELEMENTS ||
            nnb_ring_read(requests, packet, count) != NNB_RING_OK || packet[0] == UINT8_MAX ||
            nnb_ring_write(results, packet, result_count) != NNB_RING_OK) {
            return;
        }
        nnb_event_flag_notify(result_flag, NNB_FMQ_NOT_EMPTY);
    }
}

/* Sleeps until *word differs from `old`; false after `patience_ns`. */
static int sleep_while(nnb_atomic_u32 *word, uint32_t old, uint64_t patience_ns) {
    uint64_t deadline = nnb_now_ns() + patience_ns;
    struct timespec until = nnb_timespec_of(deadline);
    /* SYNC POINT H: the other side's writes before it published are visible. */
    while (nnb_load_acquire_u32(word) == old) {
        if (nnb_now_ns() > deadline) {
            return 0;
        }
        (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET, old, &until, NULL,
                      FUTEX_BITSET_MATCH_ANY);
    }
    return 1;
}

static void publish(nnb_atomic_u32 *word, uint32_t value) {
    /* SYNC POINT H: this side's writes before are visible to the other side. */
    nnb_store_release_u32(word, value);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t nnb_bench_futex_client(nnb_atomic_u32 *word, uint64_t rounds, uint64_t *samples_ns) {
    uint64_t began = nnb_now_ns();
    uint64_t before = began;
    uint32_t value = nnb_load_acquire_u32(word);
    for (uint64_t i = 0; i < rounds; i++) {
        publish(word, value + 1);
        if (!sleep_while(word, value + 1, GIVE_UP_NS)) {
            return 0;
        }
        value += 2;
        if (samples_ns != NULL) {
            uint64_t now = nnb_now_ns();
            samples_ns[i] = now - before;
            before = now;
        }
    }
    return nnb_now_ns() - began;
}

void nnb_bench_futex_server(nnb_atomic_u32 *word, uint64_t patience_ns) {
    uint32_t answered = 0;
    while (sleep_while(word, answered, patience_ns)) {
        uint32_t value = nnb_load_acquire_u32(word); /* SYNC POINT H: as in sleep_while */
        if (value == UINT32_MAX) {
            return;
        }
        answered = value + 1;
        publish(word, answered);
    }
}

static uint64_t bench_calls(int32_t (*run)(void *), void *call, uint64_t rounds, uint64_t *samples_ns) {
    uint64_t began = nnb_now_ns();
    uint64_t before = began;
    for (uint64_t i = 0; i < rounds; i++) {
        if (run(call) != 0) {
            return 0;
        }
        if (samples_ns != NULL) {
            uint64_t now = nnb_now_ns();
            samples_ns[i] = now - before;
            before = now;
        }
    }
    return nnb_now_ns() - began;
}

static int32_t by_one_call(void *steps) { return nnb_steps_run_whole(steps); }

static int32_t one_by_one(void *argument) {
    const struct nnb_steps *steps = argument;
    int status = NNB_CLIENT_SAME;
    for (uint32_t i = 0; i < steps->count && status == NNB_CLIENT_SAME; i++) {
        status = nnb_client_run(steps->requests[i]);
        if (status == NNB_CLIENT_INTERRUPTED) {
            status = nnb_client_wait_on(steps->requests[i]);
        }
    }
    return status;
}

uint64_t nnb_bench_steps(struct nnb_steps *steps, uint64_t rounds, uint64_t *samples_ns) {
    uint64_t took = bench_calls(by_one_call, steps, rounds, samples_ns);
    nnb_steps_abandon(steps); /* nothing, unless a step ended otherwise */
    return took;
}

uint64_t nnb_bench_runs(const struct nnb_steps *steps, uint64_t rounds, uint64_t *samples_ns) {
    return bench_calls(one_by_one, (void *)(uintptr_t)steps, rounds, samples_ns);
}

struct engine_run {
    nnb_run run;
    nnbx_execution *execution;
};

static int32_t run_engine(void *argument) {
    const struct engine_run *engine = argument;
    const struct nnbx_run how = NNB_PLAIN_RUN(0);
    struct nnbx_outcome outcome = NNB_PLAIN_OUTCOME(NULL);
    return engine->run(engine->execution, &how, &outcome);
}

uint64_t nnb_bench_run(nnb_run run, nnbx_execution *execution, uint64_t rounds, uint64_t *samples_ns) {
    struct engine_run engine = {run, execution};
    return bench_calls(run_engine, &engine, rounds, samples_ns);
}

static int set_arguments(const struct nnb_bench_interface *interface, void *execution) {
    if (interface->memory == NULL) {
        int code = interface->set_input(execution, 0, NULL, interface->input, interface->bytes);
        return code != 0 ? code
                         : interface->set_output(execution, 0, NULL, interface->output, interface->bytes);
    }
    int code = interface->set_input_from_memory(execution, 0, NULL, interface->memory, 0, interface->bytes);
    return code != 0 ? code
                     : interface->set_output_from_memory(execution, 0, NULL, interface->memory,
                                                         interface->bytes, interface->bytes);
}

/* Makes an execution, sets two arguments, computes, and frees it. */
static int one_of_its_own(const struct nnb_bench_interface *interface) {
    void *execution = NULL;
    int code = interface->create(interface->compilation, &execution);
    if (code == 0) {
        code = set_arguments(interface, execution);
    }
    if (code == 0) {
        code = interface->burst == NULL ? interface->compute(execution)
                                        : interface->burst_compute(execution, interface->burst);
    }
    interface->free(execution);
    return code;
}

static int32_t by_interface(void *argument) {
    const struct nnb_bench_interface *interface = argument;
    return interface->execution == NULL ? one_of_its_own(interface)
                                        : interface->burst_compute(interface->execution, interface->burst);
}

uint64_t nnb_bench_interface_run(const struct nnb_bench_interface *interface, uint64_t rounds,
                                 uint64_t *samples_ns) {
    return bench_calls(by_interface, (void *)(uintptr_t)interface, rounds, samples_ns);
}
