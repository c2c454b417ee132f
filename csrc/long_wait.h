/* Where the interpreter lock is let go: only around calls that can last.
 *
 * cffi lets go of the lock around every call, which costs more than most functions here take. The two
 * macros that it uses are therefore emptied for this module, and the functions that wait (and only
 * those) are wrapped below. */
#ifndef NNB_LONG_WAIT_H
#define NNB_LONG_WAIT_H

#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS {
#define Py_END_ALLOW_THREADS }

/* Whether this thread came here from C without the lock: there is then no lock to let go of. */
static _Thread_local int outside;

static void *let_go(void) { return outside ? NULL : PyEval_SaveThread(); }
static void take_back(void *token) {
    if (token != NULL) {
        PyEval_RestoreThread((PyThreadState *)token);
    }
}

/* A client's wait keeps the lock for its first two microseconds and lets go of it for the rest. */
static void nnb_client_share_interpreter(struct nnb_client *client) {
    client->long_wait.begin = let_go;
    client->long_wait.end = take_back;
}

/* A run from C (csrc/capi/fast.h), to its end: that caller does not look for signals between two slices of a wait. */
static int nnb_capi_run(void *argument) {
    struct nnb_steps *steps = argument;
    outside = 1;
    int status = nnb_steps_run_whole(steps);
    outside = 0;
    return status == NNB_CLIENT_BUSY ? NNB_RUN_BUSY : status;
}

#define NNB_WITHOUT_LOCK(type, call) \
    do { \
        void *token = let_go(); \
        type outcome = (call); \
        take_back(token); \
        return outcome; \
    } while (0)

static int nnb_server_next_unlocked(struct nnb_server *server, uint8_t *reply, uint32_t reply_count,
                                    uint64_t device_ns) {
    NNB_WITHOUT_LOCK(int, nnb_server_next(server, reply, reply_count, device_ns));
}

static int nnb_client_drain_unlocked(struct nnb_client *client, uint64_t timeout_ns) {
    NNB_WITHOUT_LOCK(int, nnb_client_drain(client, timeout_ns));
}

static int nnb_event_flag_wait_unlocked(nnb_atomic_u32 *word, uint32_t bits, uint64_t timeout_ns,
                                        uint32_t *seen) {
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    NNB_WITHOUT_LOCK(int, nnb_event_flag_wait(word, bits, deadline, seen));
}

static int nnb_line_call_unlocked(struct nnb_line *line, struct nnb_caller *caller,
                                  const uint8_t *packet, uint32_t bytes, uint64_t timeout_ns) {
    NNB_WITHOUT_LOCK(int, nnb_line_call(line, caller, packet, bytes, timeout_ns));
}

static int nnb_line_turn_unlocked(struct nnb_line *line) {
    NNB_WITHOUT_LOCK(int, nnb_line_turn(line));
}

static void nnb_turn_take_unlocked(struct nnb_turn *turn) {
    void *token = let_go();
    nnb_turn_take(turn);
    take_back(token);
}

static int nnb_death_word_watch_unlocked(nnb_atomic_u32 *word, nnb_atomic_u32 *stop,
                                         uint64_t timeout_ns) {
    NNB_WITHOUT_LOCK(int, nnb_death_word_watch(word, stop, timeout_ns));
}

static struct nnb_litert_engine *nnb_litert_engine_new_unlocked(const uint8_t *content,
                                                                uint64_t content_bytes,
                                                                uint32_t threads,
                                                                int32_t packed_weights,
                                                                char *message) {
    NNB_WITHOUT_LOCK(struct nnb_litert_engine *,
                     nnb_litert_engine_new(content, content_bytes, threads, packed_weights,
                                           message));
}

static int nnb_litert_trial_end_unlocked(int32_t child) {
    NNB_WITHOUT_LOCK(int, nnb_litert_trial_end(child));
}

static int32_t nnb_litert_run_unlocked(struct nnb_litert_call *call) {
    NNB_WITHOUT_LOCK(int32_t, nnb_litert_run(call));
}

static struct nnb_onnx_session *
nnb_onnx_session_new_unlocked(const uint8_t *content, uint64_t bytes, uint32_t threads,
                              const struct nnb_onnx_external *external, uint32_t external_count,
                              const char *provider, char *message) {
    NNB_WITHOUT_LOCK(struct nnb_onnx_session *,
                     nnb_onnx_session_new(content, bytes, threads, external, external_count,
                                          provider, message));
}

static int32_t nnb_onnx_run_unlocked(struct nnb_onnx_call *call) {
    NNB_WITHOUT_LOCK(int32_t, nnb_onnx_run(call));
}

static void nnb_bench_floor_server_unlocked(nnb_atomic_u64 *word, uint64_t patience_ns) {
    void *token = let_go();
    nnb_bench_floor_server(word, patience_ns);
    take_back(token);
}

static void nnb_bench_futex_server_unlocked(nnb_atomic_u32 *word, uint64_t patience_ns) {
    void *token = let_go();
    nnb_bench_futex_server(word, patience_ns);
    take_back(token);
}

static void nnb_bench_queue_server_unlocked(struct nnb_ring *requests, nnb_atomic_u32 *request_flag,
                                            struct nnb_ring *results, nnb_atomic_u32 *result_flag,
                                            uint32_t result_count, uint64_t patience_ns) {
    void *token = let_go();
    nnb_bench_queue_server(requests, request_flag, results, result_flag, result_count, patience_ns);
    take_back(token);
}

static uint64_t nnb_bench_interface_unlocked(const struct nnb_bench_interface *interface,
                                             uint64_t rounds, uint64_t *samples_ns) {
    NNB_WITHOUT_LOCK(uint64_t, nnb_bench_interface_run(interface, rounds, samples_ns));
}

/* What an empty call costs, for the benchmark: with the lock kept, and as cffi makes it by itself. */
static int nnb_empty_call(int value) { return value; }
static int nnb_empty_call_unlocked(int value) { NNB_WITHOUT_LOCK(int, value); }

#endif
