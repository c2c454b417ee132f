/* What Python sees of the C side. Structs list only the fields that Python reads or sets. */

typedef ... nnb_atomic_u32;
typedef ... nnb_atomic_u64;
/* For the magic of a named queue.
 * TRUST: it shows only that a region is complete; what lies in it is checked.
 * SYNC POINT L: a reader that sees the magic sees the region that was written before it. */
uint64_t nnb_load_acquire_u64(nnb_atomic_u64 *);
/* SYNC POINT L: the region is visible to a reader that sees the magic. */
void nnb_store_release_u64(nnb_atomic_u64 *, uint64_t);

struct nnb_ring_regions {
    uint8_t *first;
    uint8_t *second;
    uint64_t first_bytes;
    uint64_t second_bytes;
    ...;
};

struct nnb_ring {
    uint64_t capacity_bytes;
    uint64_t quantum;
    uint64_t write_index;
    uint64_t read_index;
    uint64_t missed;
    uint32_t synchronized;
    uint32_t corrupted;
    ...;
};

int nnb_ring_init(struct nnb_ring *, uint8_t *data, nnb_atomic_u64 *, nnb_atomic_u64 *, uint64_t, uint64_t, uint32_t);
uint64_t nnb_ring_available_to_write(struct nnb_ring *);
uint64_t nnb_ring_available_to_read(struct nnb_ring *);
uint64_t nnb_ring_look(struct nnb_ring *, uint32_t writes);
int nnb_ring_begin_write(struct nnb_ring *, uint64_t, struct nnb_ring_regions *);
int nnb_ring_commit_write(struct nnb_ring *, uint64_t);
int nnb_ring_begin_read(struct nnb_ring *, uint64_t, struct nnb_ring_regions *);
int nnb_ring_commit_read(struct nnb_ring *, uint64_t);
int nnb_ring_write(struct nnb_ring *, const void *, uint64_t);
int nnb_ring_read(struct nnb_ring *, void *, uint64_t);
int nnb_ring_peek(struct nnb_ring *, void *, uint64_t);

int nnb_event_flag_wake(nnb_atomic_u32 *, uint32_t);
void nnb_event_flag_notify(nnb_atomic_u32 *, uint32_t);
int nnb_event_flag_wait_unlocked(nnb_atomic_u32 *, uint32_t, int among, uint64_t timeout_ns, uint32_t *seen);

struct nnb_rhythm {
    uint64_t last_ns;
    uint64_t period_ns;
    uint64_t lead_ns;
    uint64_t tail_ns;
    uint64_t wake_latency_ns;
    uint32_t steady;
    uint64_t met_awake;
    uint64_t met_asleep;
    uint64_t outliers;
    uint64_t found;
    uint64_t lost;
    ...;
};

struct nnb_cpu_contention {
    uint64_t until_ns;
    uint64_t pause_ns;
    uint64_t pauses;
    ...;
};

struct nnb_waiter {
    uint32_t may_spin;
    uint64_t window_ns;
    uint64_t window_now_ns;
    uint32_t soon;
    struct nnb_rhythm rhythm;
    struct nnb_cpu_contention contention;
    uint64_t sleeps;
    uint64_t spun_ns;
    uint64_t descheduled;
    ...;
};
void nnb_waiter_init(struct nnb_waiter *, uint32_t may_spin, uint64_t window_ns);

int nnb_queue_add_types(void);

struct nnb_result_summary {
    int32_t status;
    uint64_t time_on_device;
    uint64_t time_in_driver;
};

struct nnb_client;
struct nnb_truth {
    uint8_t *values;
    uint64_t count;
};
struct nnb_bound {
    struct nnb_client *client;
    uint64_t timeout_ns;
    const uint8_t *request;
    uint32_t closed;
    uint32_t measured;
    uint32_t request_count;
    uint32_t result_count;
    uint8_t *result;
    struct nnb_result_summary summary;
    uint64_t deadline_ns;
    const struct nnb_truth *truths;
    uint32_t truth_count;
};

struct nnb_client {
    struct nnb_ring requests;
    struct nnb_ring results;
    nnb_atomic_u32 *request_flag;
    nnb_atomic_u32 *result_flag;
    uint8_t *packet;
    struct nnb_waiter waiter;
    uint64_t waits_from_ns;
    uint32_t max_in_flight;
    uint32_t in_flight;
    uint32_t overdue;
    uint64_t submitted;
    uint64_t collected;
    uint64_t executions;
    uint64_t dropped;
    uint64_t flow;
    ...;
};
void nnb_client_share_interpreter(struct nnb_client *);
int nnb_client_run(struct nnb_bound *);
int nnb_client_resume(struct nnb_bound *, uint64_t timeout_ns);
void nnb_client_abandon(struct nnb_bound *);
int nnb_client_submit(struct nnb_bound *);
int nnb_client_run_at_once(struct nnb_bound *);
int nnb_client_collect(struct nnb_bound *, uint64_t timeout_ns);
int nnb_client_arm(struct nnb_client *);
int nnb_client_forsake(struct nnb_client *);
void nnb_client_stop(struct nnb_client *);
int nnb_client_drain_unlocked(struct nnb_client *, uint64_t timeout_ns);

struct nnb_gate { ...; };
typedef int (*nnb_compute_step)(void *context, uint32_t step, uint64_t timeout_ns);
struct nnb_steps {
    struct nnb_bound *const *requests;
    nnb_compute_step compute;
    void *context;
    struct nnb_gate *gate;
    uint64_t timeout_ns;
    uint64_t deadline_ns;
    uint32_t count;
    uint32_t at;
};
int nnb_gate_enter(struct nnb_gate *, uint64_t holder);
void nnb_gate_leave(struct nnb_gate *, uint64_t holder);
int nnb_steps_run(struct nnb_steps *);
int nnb_steps_go_on(struct nnb_steps *);
void nnb_steps_abandon(struct nnb_steps *);
extern "Python" int nnb_steps_compute(void *context, uint32_t step, uint64_t timeout_ns);

/* Executors in C: nnburst/executor.h. */
#define NNBURST_EXECUTOR_ABI ...
#define NNBX_MESSAGE_BYTES ...
#define NNBX_MAX_RANK ...
#define NNBX_NOT_AVAILABLE ...
#define NNBX_MEASURED ...
#define NNBX_NO_DEADLINE ...
typedef struct nnbx_device nnbx_device;
typedef struct nnbx_prepared nnbx_prepared;
typedef struct nnbx_execution nnbx_execution;
typedef struct nnbx_memory nnbx_memory;
struct nnbx_option {
    const char *key;
    const char *value;
};
struct nnbx_options {
    size_t size;
    const struct nnbx_option *options;
    uint32_t option_count;
};
struct nnbx_performance {
    float exec_time;
    float power_usage;
};
struct nnbx_operand_performance {
    int32_t type;
    struct nnbx_performance performance;
};
struct nnbx_extension_type {
    uint16_t type;
    uint8_t is_tensor;
    uint32_t byte_size;
};
struct nnbx_extension {
    const char *name;
    const struct nnbx_extension_type *types;
    uint32_t type_count;
};
struct nnbx_description {
    size_t size;
    const char *name;
    const char *version;
    int32_t type;
    int32_t feature_level;
    uint32_t alignment;
    uint32_t padding;
    uint32_t program_files;
    uint32_t constant_files;
    const struct nnbx_operand_performance *performances;
    uint32_t performance_count;
    struct nnbx_performance relaxed_scalar;
    struct nnbx_performance relaxed_tensor;
    struct nnbx_performance if_performance;
    struct nnbx_performance while_performance;
    const struct nnbx_extension *extensions;
    uint32_t extension_count;
};
struct nnbx_operand {
    size_t size;
    int32_t type;
    int32_t lifetime;
    const uint32_t *dimensions;
    uint32_t rank;
    float scale;
    int32_t zero_point;
    const void *value;
    uint64_t value_bytes;
    uint32_t subgraph;
    uint32_t channel_dim;
    const float *channel_scales;
    uint32_t channel_count;
    const void *extension_data;
    uint64_t extension_data_bytes;
};
struct nnbx_operation {
    int32_t type;
    uint32_t input_count;
    const uint32_t *inputs;
    uint32_t output_count;
    const uint32_t *outputs;
};
struct nnbx_subgraph {
    size_t operand_size;
    const struct nnbx_operand *operands;
    uint32_t operand_count;
    const struct nnbx_operation *operations;
    uint32_t operation_count;
    const uint32_t *inputs;
    uint32_t input_count;
    const uint32_t *outputs;
    uint32_t output_count;
};
struct nnbx_extension_prefix {
    const char *name;
    uint16_t prefix;
};
struct nnbx_model {
    size_t size;
    struct nnbx_subgraph main;
    const struct nnbx_subgraph *referenced;
    uint32_t referenced_count;
    uint8_t relaxed;
    const struct nnbx_extension_prefix *prefixes;
    uint32_t prefix_count;
};
struct nnbx_hint {
    const char *extension;
    uint16_t code;
    const void *value;
    uint64_t value_bytes;
};
struct nnbx_preparation {
    size_t size;
    int32_t preference;
    int32_t priority;
    uint64_t deadline_ns;
    uint32_t threads;
    const struct nnbx_hint *hints;
    uint32_t hint_count;
};
struct nnbx_writer { ...; };
struct nnbx_cached {
    size_t size;
    const void *program;
    uint64_t program_bytes;
    const void *constants;
    uint64_t constant_bytes;
};
struct nnbx_argument {
    size_t size;
    void *data;
    uint64_t bytes;
    nnbx_memory *memory;
    const uint32_t *dimensions;
    uint32_t rank;
};
struct nnbx_request {
    size_t size;
    size_t argument_size;
    const struct nnbx_argument *inputs;
    uint32_t input_count;
    const struct nnbx_argument *outputs;
    uint32_t output_count;
    const struct nnbx_hint *hints;
    uint32_t hint_count;
};
struct nnbx_run {
    size_t size;
    uint64_t deadline_ns;
    uint64_t loop_timeout_ns;
    uint32_t measure;
};
struct nnbx_output_shape {
    uint32_t rank;
    uint32_t is_sufficient;
    uint32_t dimensions[16];
};
struct nnbx_outcome {
    size_t size;
    uint64_t device_ns;
    uint64_t driver_ns;
    struct nnbx_output_shape *shapes;
    uint32_t shape_count;
    char *message;
};
struct nnbx_role {
    nnbx_prepared *prepared;
    uint32_t is_output;
    uint32_t index;
};
struct nnbx_memory_desc {
    size_t size;
    int32_t type;
    const uint32_t *dimensions;
    uint32_t rank;
    uint64_t bytes;
    const struct nnbx_role *roles;
    uint32_t role_count;
};
struct nnburst_executor {
    uint32_t abi;
    size_t size;
    int32_t (*open)(const struct nnbx_options *, nnbx_device **, char *);
    void (*close)(nnbx_device *);
    int32_t (*describe)(nnbx_device *, struct nnbx_description *);
    int32_t (*supported)(nnbx_device *, const struct nnbx_model *, uint8_t *);
    int32_t (*prepare)(nnbx_device *, const struct nnbx_model *, const struct nnbx_preparation *, nnbx_prepared **, char *);
    void (*destroy_prepared)(nnbx_prepared *);
    int32_t (*save)(nnbx_prepared *, struct nnbx_writer *, struct nnbx_writer *);
    int32_t (*prepare_from_cache)(nnbx_device *, const struct nnbx_cached *, const struct nnbx_preparation *, nnbx_prepared **, char *);
    int32_t (*bind)(nnbx_prepared *, const struct nnbx_request *, nnbx_execution **, char *);
    int32_t (*run)(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
    void (*destroy_execution)(nnbx_execution *);
    int32_t (*allocate)(nnbx_device *, const struct nnbx_memory_desc *, nnbx_memory **, char *);
    int32_t (*copy_in)(nnbx_memory *, const void *, uint64_t);
    int32_t (*copy_out)(nnbx_memory *, void *, uint64_t);
    void (*destroy_memory)(nnbx_memory *);
};
typedef int32_t (*nnb_run)(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
struct nnb_output_rule {
    uint64_t element_bytes;
    uint32_t is_scalar;
};
struct nnb_hosted;
struct nnb_saved {
    uint8_t *bytes[2];
    uint64_t counts[2];
};
const struct nnburst_executor *nnb_executor_load_unlocked(const char *path, char *message);
const struct nnburst_executor *nnb_null_executor(void);
void nnb_executor_describe_nothing(struct nnbx_description *);
struct nnb_hosted *nnb_hosted_bind_unlocked(const struct nnburst_executor *, nnbx_prepared *, const struct nnbx_request *, const struct nnb_output_rule *rules, const uint64_t *behind, uint32_t alignment, uint32_t padding, int32_t *status, char *message);
void nnb_hosted_free_unlocked(struct nnb_hosted *);
int32_t nnb_hosted_run(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
uint64_t nnb_hosted_copied_bytes(const struct nnb_hosted *);
int32_t nnb_executor_save_unlocked(const struct nnburst_executor *, nnbx_prepared *, uint64_t most, struct nnb_saved *);
void nnb_saved_free(struct nnb_saved *);
int32_t nnb_run_unlocked(nnb_run, nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
uint64_t nnb_bench_run(nnb_run, nnbx_execution *, uint64_t rounds, uint64_t *samples_ns);

struct nnb_binding {
    const uint8_t *request;
    uint8_t *result;
    nnb_run run;
    nnbx_execution *execution;
    uint32_t request_count;
    uint32_t result_count;
    ...;
};

struct nnb_counters { ...; };
#define NNB_COUNTED_STATUSES ...
#define NNB_DURATION_BUCKETS ...
#define NNB_FIRST_BUCKET_BITS ...
#define NNB_SAMPLED_EVERY ...
void nnb_counters_time(struct nnb_counters *, uint64_t device_ns, uint64_t driver_ns);
void nnb_counters_merge(struct nnb_counters *into, const struct nnb_counters *from);
void nnb_counters_settle(struct nnb_counters *);
uint32_t nnb_counters_note_begin(struct nnb_counters *);
void nnb_counters_note_end(struct nnb_counters *, uint32_t status);

struct nnb_server {
    struct nnb_ring requests;
    struct nnb_ring results;
    nnb_atomic_u32 *request_flag;
    nnb_atomic_u32 *result_flag;
    int wakeup_fd;
    struct nnb_waiter waiter;
    uint32_t max_in_flight;
    uint64_t idle_ns;
    uint64_t stuck_ns;
    uint8_t *packet;
    uint8_t *waiting;
    uint32_t packet_count;
    uint32_t measure;
    struct nnb_counters *counters;
    uint32_t current;
    uint64_t executions;
    uint64_t misses;
    uint64_t flow;
    uint64_t oversized;
    ...;
};
int nnb_server_next_unlocked(struct nnb_server *, uint8_t *reply, uint32_t, uint64_t device_ns, uint64_t driver_ns);
void nnb_server_bind(struct nnb_server *, uint32_t index, const struct nnb_binding *);
void nnb_server_call(struct nnb_server *);
void nnb_server_attend(struct nnb_server *);

struct nnb_trace_area { ...; };
extern uint32_t nnb_trace_on;
void nnb_trace_start(struct nnb_trace_area *, const char *process, uint32_t uses_tsc);
void nnb_trace_stop(void);
uint32_t nnb_trace_add_name(uint32_t layer, uint32_t phase, const char *text);
uint64_t nnb_trace_ticks(uint32_t uses_tsc);
void nnb_trace_mark(uint32_t name, uint32_t kind, uint32_t flags, uint64_t argument);
static const int NNB_TRACE_RINGS, NNB_TRACE_RECORDS, NNB_TRACE_NAMES, NNB_TRACE_NAME_BYTES;
enum nnb_trace_kind { NNB_TRACE_BEGIN, NNB_TRACE_END, NNB_TRACE_SWITCH, NNB_TRACE_INSTANT, NNB_TRACE_COUNTER, ... };
uint64_t nnb_trace_area_bytes(void);

void nnb_forbid_linger(int fd);

void *nnb_pool_map(int fd, uint64_t size_bytes, int writable);
void nnb_pool_unmap(void *, uint64_t size_bytes);

struct nnb_death_holder;
struct nnb_death_holder *nnb_death_word_take(nnb_atomic_u32 *, uint32_t free_value, uint32_t *found,
                                             int *failed);
void nnb_death_word_let_go(struct nnb_death_holder *, uint32_t leave);
void nnb_death_word_announce(struct nnb_death_holder *);
int nnb_death_word_watch_unlocked(nnb_atomic_u32 *, nnb_atomic_u32 *stop, uint64_t timeout_ns);
void nnb_death_word_release(nnb_atomic_u32 *, nnb_atomic_u32 *stop);
int nnb_die_with_parent(int signal);
void nnb_set_thread_name(const char *name);
int nnb_lock_memory(int on);
void nnb_give_memory_back(void);
int nnb_sandbox_enter(const char *writable, const char *const *nodes);

struct nnb_litert_argument {
    uint8_t *memory;
    uint64_t bytes;
    int32_t element_type;
    uint32_t apart;
    uint32_t rank;
    int32_t dimensions[8];
};
struct nnb_litert_engine;
struct nnb_litert_call;
int nnb_litert_open(const char *path, const uint8_t *content, uint64_t);
int32_t nnb_litert_trial_begin(const char *path, const uint8_t *content, uint64_t, const struct nnb_litert_argument *input, const struct nnb_litert_argument *output, const uint8_t *expected);
int nnb_litert_trial_end_unlocked(int32_t);
struct nnb_litert_engine *nnb_litert_engine_new_unlocked(const uint8_t *content, uint64_t, uint32_t threads, int32_t packed_weights, char *message);
void nnb_litert_engine_free(struct nnb_litert_engine *);
int nnb_litert_output_layouts(struct nnb_litert_engine *, struct nnb_litert_argument *outputs, uint32_t count);
struct nnb_litert_call *nnb_litert_bind(struct nnb_litert_engine *, const struct nnb_litert_argument *inputs, uint32_t, const struct nnb_litert_argument *outputs, uint32_t);
void nnb_litert_call_free(struct nnb_litert_call *);
int32_t nnb_litert_run(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
void nnb_litert_set_trace_name(struct nnb_litert_call *, uint32_t name);
uint64_t nnb_litert_copied_bytes(struct nnb_litert_call *);

struct nnb_onnx_border {
    char *name;
    int32_t element;
    uint32_t rank;
    int64_t dimensions[16];
};
struct nnb_onnx_argument {
    uint8_t *memory;
    uint64_t bytes;
    uint64_t room;
    int32_t element;
    uint32_t element_bytes;
    uint32_t apart;
    uint32_t place;
    uint32_t rank;
    int64_t dimensions[16];
};
struct nnb_onnx_external {
    const char *name;
    char *memory;
    uint64_t bytes;
};
struct nnb_onnx_provider {
    const char *name;
    const char *const *keys;
    const char *const *values;
    uint32_t option_count;
};
enum nnb_onnx_hardware { NNB_ONNX_CPU, NNB_ONNX_GPU, NNB_ONNX_NPU };
int nnb_onnx_plug(const char *path, const char *name, uint32_t *hardware, char *message);
struct nnb_onnx_session;
struct nnb_onnx_call;
struct nnb_onnx_state {
    uint32_t input;
    uint32_t output;
    int32_t element;
    uint32_t element_bytes;
    uint32_t kind;
    uint32_t rank;
    int64_t dimensions[16];
};
struct nnb_onnx_states;
struct nnb_onnx_states *nnb_onnx_states_new(struct nnb_onnx_session *, const struct nnb_onnx_state *, uint32_t count, uint32_t most);
void nnb_onnx_states_free(struct nnb_onnx_states *);
void nnb_onnx_use_states(struct nnb_onnx_call *, struct nnb_onnx_states *, const uint8_t *word);
uint64_t nnb_onnx_state_address(struct nnb_onnx_states *, uint64_t number, uint32_t state, int next);
int nnb_onnx_open(const char *path, char *version, char *providers);
struct nnb_onnx_session *nnb_onnx_session_new_unlocked(const uint8_t *content, uint64_t bytes, uint32_t threads, const struct nnb_onnx_external *external, uint32_t external_count, const struct nnb_onnx_provider *provider, const char *disabled, char *message);
void nnb_onnx_session_free(struct nnb_onnx_session *);
uint32_t nnb_onnx_count(const struct nnb_onnx_session *, int outputs);
int nnb_onnx_describe(const struct nnb_onnx_session *, int outputs, uint32_t at, struct nnb_onnx_border *);
void nnb_onnx_border_free(struct nnb_onnx_border *);
struct nnb_onnx_call *nnb_onnx_bind(struct nnb_onnx_session *, const struct nnb_onnx_argument *inputs, const struct nnb_onnx_argument *outputs, char *message);
void nnb_onnx_call_free(struct nnb_onnx_call *);
int32_t nnb_onnx_run(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
void nnb_onnx_stop(struct nnb_onnx_call *, int stop);
uint64_t nnb_onnx_copied_bytes(const struct nnb_onnx_call *);

struct nnb_openvino_property {
    const char *key;
    const char *value;
};
struct nnb_openvino_network;
struct nnb_openvino_call;
int nnb_openvino_open(const char *path, const uint8_t *content, uint64_t, char *version, char *message);
int nnb_openvino_device(const char *device, char *name, char *message);
struct nnb_openvino_network *nnb_openvino_network_new_unlocked(const uint8_t *content, uint64_t bytes, const char *device, const struct nnb_openvino_property *properties, uint32_t property_count, uint32_t profile, char *message);
struct nnb_openvino_network *nnb_openvino_network_import_unlocked(const uint8_t *content, uint64_t bytes, const char *device, const struct nnb_openvino_property *properties, uint32_t property_count, uint32_t profile, char *message);
int nnb_openvino_export_unlocked(const struct nnb_openvino_network *, const char *path, char *message);
void nnb_openvino_network_free(struct nnb_openvino_network *);
uint32_t nnb_openvino_count(const struct nnb_openvino_network *, int outputs);
int nnb_openvino_describe(const struct nnb_openvino_network *, int outputs, uint32_t at, struct nnb_onnx_border *);
struct nnb_openvino_call *nnb_openvino_bind(struct nnb_openvino_network *, const struct nnb_onnx_argument *inputs, const struct nnb_onnx_argument *outputs, char *message);
void nnb_openvino_call_free(struct nnb_openvino_call *);
int32_t nnb_openvino_run(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
void nnb_openvino_stop(struct nnb_openvino_call *, int stop);
uint64_t nnb_openvino_copied_bytes(const struct nnb_openvino_call *);

struct nnb_copy {
    void *to;
    const void *from;
    uint64_t bytes;
};
struct nnb_fast_run {
    int (*run)(void *bound);
    void *bound;
    uint64_t burst;
    const struct nnb_copy *copies_in;
    const struct nnb_copy *copies_out;
    uint32_t copies_in_count;
    uint32_t copies_out_count;
};
struct nnb_thread_burst { ...; };
void nnb_thread_burst_set(struct nnb_thread_burst *row, uint64_t thread, uint64_t burst);
int nnb_thread_burst_was_used(struct nnb_thread_burst *row);
struct nnb_argument_type {
    int32_t type;
    uint32_t rank;
    const uint32_t *dimensions;
    float scale;
    int32_t zero_point;
};
struct nnb_argument_sizes {
    uint32_t input_count;
    uint32_t output_count;
    const uint64_t *bytes;
    const struct nnb_argument_type *types;
    struct nnb_thread_burst *threads;
    uint32_t thread_count;
    ...;
};
struct nnb_place {
    void *address;
    uint64_t memory;
    uint64_t offset;
};
struct nnb_cached_request {
    const struct nnb_argument_sizes *sizes;
    int (*run)(void *bound);
    void *bound;
    const struct nnb_place *places;
    uint64_t quick_ns;
    ...;
};
struct nnb_native_execution {
    struct nnb_argument_sizes *sizes;
    uint32_t set;
    uint32_t completed;
    uint32_t adopted;
    uint32_t mode;
    struct nnb_place arguments[];
};
int nnb_argument_sizes_in_use(struct nnb_argument_sizes *sizes);
int nnb_cached_request_in_use(struct nnb_cached_request *cached);
struct nnb_exchange {
    uint32_t version;
    int64_t (*call)(uint32_t function, int64_t *words);
    int64_t (*finish)(uint64_t execution, int32_t status);
    int64_t (*adopt)(uint64_t execution, struct nnb_native_execution *native);
    int64_t (*finish_cached)(uint64_t execution, struct nnb_native_execution *native,
                             const struct nnb_cached_request *cached,
                           int32_t status);
    int64_t (*adopt_event)(uint64_t event, int32_t code);
    uint64_t (*new_handle)(uint32_t kind);
    void (*offer)(uint64_t execution, const struct nnb_fast_run *run);
    void (*offer_sizes)(uint64_t compilation, struct nnb_argument_sizes *sizes);
    void (*offer_memory)(uint64_t memory, uint64_t size);
    void (*cache)(uint64_t burst, struct nnb_cached_request *const *cached, uint32_t count);
    void (*end_burst)(uint64_t burst);
    uint32_t (*end)(void);
};
extern "Python" int64_t nnb_capi_call(uint32_t function, int64_t *words);
extern "Python" int64_t nnb_capi_finish(uint64_t execution, int32_t status);
extern "Python" int64_t nnb_capi_adopt(uint64_t execution, struct nnb_native_execution *native);
extern "Python" int64_t nnb_capi_finish_cached(uint64_t execution, struct nnb_native_execution *native,
                                             const struct nnb_cached_request *cached, int32_t status);
extern "Python" int64_t nnb_capi_adopt_event(uint64_t event, int32_t code);
int nnb_capi_run(void *steps);

struct nnb_bench_interface {
    int (*create)(void *compilation, void **execution);
    int (*set_input)(void *execution, int32_t index, const void *type, const void *buffer, size_t length);
    int (*set_output)(void *execution, int32_t index, const void *type, void *buffer, size_t length);
    int (*set_input_from_memory)(void *execution, int32_t index, const void *type, const void *memory,
                                 size_t offset, size_t length);
    int (*set_output_from_memory)(void *execution, int32_t index, const void *type, const void *memory,
                                  size_t offset, size_t length);
    int (*compute)(void *execution);
    int (*burst_compute)(void *execution, void *burst);
    void (*free)(void *execution);
    void *compilation;
    void *burst;
    void *execution;
    void *memory;
    void *input;
    void *output;
    size_t bytes;
};
uint64_t nnb_bench_interface_unlocked(const struct nnb_bench_interface *, uint64_t rounds, uint64_t *samples_ns);
struct nnb_caller {
    uint64_t id;
    uint32_t bytes;
    int32_t error;
    uint8_t packet[...];
    ...;
};
struct nnb_reply_reader {
    int epoll;
    ...;
};
int nnb_reply_reader_open(struct nnb_reply_reader *, int socket);
int nnb_reply_reader_call_unlocked(struct nnb_reply_reader *, struct nnb_caller *, const uint8_t *packet, uint32_t, uint64_t timeout_ns);
void nnb_reply_reader_notice(struct nnb_reply_reader *, struct nnb_caller *);
int nnb_reply_reader_wait_unlocked(struct nnb_reply_reader *);
void nnb_reply_reader_done(struct nnb_reply_reader *);
void nnb_reply_reader_end(struct nnb_reply_reader *);
void nnb_reply_reader_close(struct nnb_reply_reader *);

struct nnb_receive_lock { ...; };
int nnb_receive_lock_open(struct nnb_receive_lock *, int socket, int other);
void nnb_receive_lock_acquire_unlocked(struct nnb_receive_lock *);
void nnb_receive_lock_release(struct nnb_receive_lock *);

struct nnb_spawn {
    const char *path;
    char *const *arguments;
    char *const *environment;
    const int32_t *source;
    const int32_t *target;
    uint32_t count;
    const int32_t *close;
    uint32_t close_count;
    int32_t pid;
};
int nnb_spawn_unlocked(struct nnb_spawn *);

int nnb_empty_call(int);
int nnb_empty_call_unlocked(int);
int nnb_ring_read_all(struct nnb_ring *, void *, uint64_t *count);
void nnb_cpu_contention_update(struct nnb_cpu_contention *, uint64_t now_ns, int32_t thread, uint64_t run_ns, uint64_t delay_ns);
void nnb_rhythm_event(struct nnb_rhythm *, uint64_t now_ns, int how);
void nnb_rhythm_overslept(struct nnb_rhythm *, uint64_t late_ns);
void nnb_rhythm_question(struct nnb_rhythm *, uint64_t now_ns);
bool nnb_rhythm_plan(struct nnb_rhythm *, uint64_t now_ns, uint64_t *wake_at_ns, uint64_t *until_ns);
void nnb_waiter_note(struct nnb_waiter *, uint64_t waited_ns);
uint64_t nnb_waiter_spin_window(const struct nnb_waiter *);
int nnb_wait_readable(struct nnb_waiter *, struct nnb_ring *, nnb_atomic_u32 *, uint64_t deadline_ns);
uint64_t nnb_bench_floor_client(nnb_atomic_u64 *, uint64_t rounds, uint64_t *samples_ns);
void nnb_bench_floor_server_unlocked(nnb_atomic_u64 *, uint64_t patience_ns);
uint64_t nnb_bench_queue_client(struct nnb_ring *, nnb_atomic_u32 *, struct nnb_ring *, nnb_atomic_u32 *, uint32_t, uint32_t, uint64_t rounds, uint64_t *samples_ns);
void nnb_bench_queue_server_unlocked(struct nnb_ring *, nnb_atomic_u32 *, struct nnb_ring *, nnb_atomic_u32 *, uint32_t, uint64_t patience_ns);
uint64_t nnb_bench_futex_client(nnb_atomic_u32 *, uint64_t rounds, uint64_t *samples_ns);
void nnb_bench_futex_server_unlocked(nnb_atomic_u32 *, uint64_t patience_ns);
uint64_t nnb_bench_steps(struct nnb_steps *, uint64_t rounds, uint64_t *samples_ns);
uint64_t nnb_bench_runs(const struct nnb_steps *, uint64_t rounds, uint64_t *samples_ns);

#define NNB_EXCHANGE_VERSION ...
#define NNB_KEEP_OFFER ...
#define NNB_IN_PLACE ...
#define NNB_DATUM_BYTES ...
#define NNB_MAX_BINDINGS ...
#define NNB_LITERT_ALIGNMENT ...
#define NNB_ONNX_ALIGNMENT ...
#define NNB_ONNX_MAX_RANK ...
#define NNB_ONNX_MESSAGE_BYTES ...
#define NNB_ONNX_NAME_BYTES ...
#define NNB_LITERT_MAX_RANK ...
#define NNB_LITERT_MESSAGE_BYTES ...
#define NNB_FMQ_NOT_FULL ...
#define NNB_FMQ_NOT_EMPTY ...
#define NNB_FMQ_ATTENTION ...
#define NNB_FMQ_ASYNC ...
#define NNB_FMQ_WRITER_ATTENTION ...
#define NNB_FMQ_WRITER_ASYNC ...
#define NNB_FMQ_LOOK ...
enum nnb_ring_status { NNB_RING_OK, NNB_RING_FULL, NNB_RING_EMPTY, NNB_RING_TOO_LARGE, NNB_RING_CORRUPT, NNB_RING_OVERRUN, ... };
enum nnb_end_status { NNB_END_TIMED_OUT, NNB_END_INTERRUPTED, NNB_END_CLOSED, NNB_END_PEER_CLOSED, NNB_END_PEER_DIED, NNB_END_BUSY, NNB_END_MALFORMED, NNB_END_TAKEN, NNB_END_FAILED, NNB_END_UNWAITABLE, NNB_END_BAD_TIMEOUT, NNB_END_BAD_SIZE, NNB_END_WAS_CLOSED, NNB_END_WAS_DEAD, NNB_END_BAD_COUNT, NNB_END_UNCLAIMED, ... };
#define NNB_ENDS_BYTES ...
#define NNB_MESSAGE_HEADER ...
enum nnb_event_flag_status { NNB_EVENT_FLAG_OK, NNB_EVENT_FLAG_TIMED_OUT, NNB_EVENT_FLAG_INTERRUPTED, NNB_EVENT_FLAG_BAD_VALUE, ... };
enum nnb_client_status { NNB_CLIENT_SAME, NNB_CLIENT_RESULT, NNB_CLIENT_MALFORMED, NNB_CLIENT_TIMED_OUT, NNB_CLIENT_INTERRUPTED, NNB_CLIENT_STOPPED, NNB_CLIENT_CORRUPT, NNB_CLIENT_SURPLUS, NNB_CLIENT_NO_ROOM, NNB_CLIENT_BUSY, NNB_CLIENT_IN_FLIGHT, NNB_CLIENT_SENT, NNB_CLIENT_UNBOUND, NNB_CLIENT_SAME_BUT_TIMING, ... };
enum nnb_rhythm_catch { NNB_CAUGHT_SPINNING, NNB_CAUGHT_ASLEEP_EARLY, NNB_CAUGHT_ASLEEP_LATE, NNB_CAUGHT_UNPLANNED, ... };
enum nnb_wait_status { NNB_WAIT_READY, NNB_WAIT_TIMED_OUT, NNB_WAIT_ATTENTION, NNB_WAIT_INTERRUPTED, NNB_WAIT_PEER_CHANGED, ... };
enum nnb_server_event { NNB_SERVER_MISS, NNB_SERVER_CALL, NNB_SERVER_ATTENTION, NNB_SERVER_IDLE, NNB_SERVER_CORRUPT, NNB_SERVER_STUCK, NNB_SERVER_LOST, ... };
enum nnb_reply_status { NNB_REPLY_ANSWERED, NNB_REPLY_NOTICED, NNB_REPLY_ENDED, NNB_REPLY_TIMED_OUT, NNB_REPLY_INTERRUPTED, NNB_REPLY_NOT_SENT, NNB_REPLY_READABLE, ... };
enum nnb_litert_status { NNB_LITERT_OK, NNB_LITERT_NO_LIBRARY, NNB_LITERT_NO_SYMBOL, NNB_LITERT_NO_ENVIRONMENT, NNB_LITERT_CRASHED, NNB_LITERT_REFUSED, NNB_LITERT_WRONG_RESULT, ... };
enum nnb_onnx_kind { NNB_ONNX_IN_PLACE, NNB_ONNX_IN_TURNS, NNB_ONNX_GROWING, ... };
enum nnb_onnx_place { NNB_ONNX_WHOLE, NNB_ONNX_ROOM, NNB_ONNX_STATE, ... };
enum nnb_onnx_status { NNB_ONNX_OK, NNB_ONNX_NO_LIBRARY, NNB_ONNX_NO_SYMBOL, NNB_ONNX_TOO_OLD, NNB_ONNX_FAILED, ... };
enum nnb_openvino_status { NNB_OPENVINO_OK, NNB_OPENVINO_NO_LIBRARY, NNB_OPENVINO_NO_SYMBOL, NNB_OPENVINO_FAILED, ... };
