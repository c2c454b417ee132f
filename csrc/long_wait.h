/* Releases the interpreter lock only around calls that can take long.
 *
 * cffi releases the lock around every call, which costs more than most functions here. So the two macros that
 * it uses are empty for this module, and only the functions that wait are wrapped below. */
#ifndef NNB_LONG_WAIT_H
#define NNB_LONG_WAIT_H

#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS {
#define Py_END_ALLOW_THREADS }

/* Whether this thread came from C without the lock, so that there is no lock to release. */
static _Thread_local int outside;

static void *let_go(void) { return outside ? NULL : PyEval_SaveThread(); }
static void take_back(void *token) {
    if (token != NULL) {
        PyEval_RestoreThread((PyThreadState *)token);
    }
}

/* A client's wait keeps the lock for its first two microseconds and releases it for the rest. */
static void nnb_client_share_interpreter(struct nnb_client *client) {
    client->long_wait.begin = let_go;
    client->long_wait.end = take_back;
}

/* Completes a run from C (csrc/capi/fast.h): its caller does not handle signals between two slices of a wait.
 * */
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
                                    uint64_t device_ns, uint64_t driver_ns) {
    NNB_WITHOUT_LOCK(int, nnb_server_next(server, reply, reply_count, device_ns, driver_ns));
}

static int nnb_client_drain_unlocked(struct nnb_client *client, uint64_t timeout_ns) {
    NNB_WITHOUT_LOCK(int, nnb_client_drain(client, timeout_ns));
}

static int nnb_event_flag_wait_unlocked(nnb_atomic_u32 *word, uint32_t bits, int among,
                                        uint64_t timeout_ns, uint32_t *seen) {
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    NNB_WITHOUT_LOCK(int, nnb_event_flag_wait(word, bits, among != 0, deadline, seen));
}

static int nnb_reply_reader_call_unlocked(struct nnb_reply_reader *replies, struct nnb_caller *caller,
                                          const uint8_t *packet, uint32_t bytes,
                                          uint64_t timeout_ns) {
    NNB_WITHOUT_LOCK(int, nnb_reply_reader_call(replies, caller, packet, bytes, timeout_ns));
}

static int nnb_reply_reader_wait_unlocked(struct nnb_reply_reader *replies) {
    NNB_WITHOUT_LOCK(int, nnb_reply_reader_wait(replies));
}

static int nnb_spawn_unlocked(struct nnb_spawn *spawn) {
    NNB_WITHOUT_LOCK(int, nnb_spawn(spawn));
}

static void nnb_receive_lock_acquire_unlocked(struct nnb_receive_lock *receive) {
    void *token = let_go();
    nnb_receive_lock_acquire(receive);
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

static int32_t nnb_run_unlocked(nnb_run run, nnbx_execution *execution, const struct nnbx_run *how,
                                struct nnbx_outcome *reported) {
    NNB_WITHOUT_LOCK(int32_t, run(execution, how, reported));
}

static struct nnb_hosted *nnb_hosted_bind_unlocked(const struct nnburst_executor *executor,
                                                   nnbx_prepared *prepared,
                                                   const struct nnbx_request *request,
                                                   const struct nnb_output_rule *rules,
                                                   const uint64_t *behind, uint32_t alignment,
                                                   uint32_t padding, int32_t *status, char *message) {
    NNB_WITHOUT_LOCK(struct nnb_hosted *, nnb_hosted_bind(executor, prepared, request, rules, behind, alignment,
                                                          padding, status, message));
}

static void nnb_hosted_free_unlocked(struct nnb_hosted *hosted) {
    void *token = let_go();
    nnb_hosted_free(hosted);
    take_back(token);
}

static const struct nnburst_executor *nnb_executor_load_unlocked(const char *path, char *message) {
    NNB_WITHOUT_LOCK(const struct nnburst_executor *, nnb_executor_load(path, message));
}

static int32_t nnb_executor_save_unlocked(const struct nnburst_executor *executor, nnbx_prepared *prepared,
                                          uint64_t most, struct nnb_saved *saved) {
    NNB_WITHOUT_LOCK(int32_t, nnb_executor_save(executor, prepared, most, saved));
}

static struct nnb_onnx_session *
nnb_onnx_session_new_unlocked(const uint8_t *content, uint64_t bytes, uint32_t threads,
                              const struct nnb_onnx_external *external, uint32_t external_count,
                              const struct nnb_onnx_provider *provider, const char *disabled, char *message) {
    NNB_WITHOUT_LOCK(struct nnb_onnx_session *,
                     nnb_onnx_session_new(content, bytes, threads, external, external_count,
                                          provider, disabled, message));
}

static struct nnb_openvino_network *
nnb_openvino_network_new_unlocked(const uint8_t *content, uint64_t bytes, const char *device,
                                  const struct nnb_openvino_property *properties, uint32_t property_count,
                                  uint32_t profile, char *message) {
    NNB_WITHOUT_LOCK(struct nnb_openvino_network *,
                     nnb_openvino_network_new(content, bytes, device, properties, property_count, profile, message));
}

static struct nnb_openvino_network *
nnb_openvino_network_import_unlocked(const uint8_t *content, uint64_t bytes, const char *device,
                                     const struct nnb_openvino_property *properties, uint32_t property_count,
                                     uint32_t profile, char *message) {
    NNB_WITHOUT_LOCK(struct nnb_openvino_network *,
                     nnb_openvino_network_import(content, bytes, device, properties, property_count, profile,
                                                 message));
}

static int nnb_openvino_export_unlocked(const struct nnb_openvino_network *made, const char *path, char *message) {
    NNB_WITHOUT_LOCK(int, nnb_openvino_export(made, path, message));
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

/* Empty calls for the benchmark: one keeps the lock, the other is made in cffi's usual way. */
static int nnb_empty_call(int value) { return value; }
static int nnb_empty_call_unlocked(int value) { NNB_WITHOUT_LOCK(int, value); }

#endif
