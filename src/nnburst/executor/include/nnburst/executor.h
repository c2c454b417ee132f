/* The interface of executors in C, which a driver process of nnburst loads and computes with.
 *
 *     open ── describe, supported ── prepare (or prepare_from_cache) ── bind ── run, run, ... ── destroy ── close
 *
 * A shared library that exports `nnburst_get_executor` (NNBURST_EXPORT_EXECUTOR below) is an executor:
 *
 *     gcc -shared -fPIC $(nnburst executor --cflags) foo.c -o libfoo.so
 *     nnburst conformance --device ./libfoo.so
 *     nnburst serve foo --executor ./libfoo.so --option key=value
 *
 * C11 or later, C++11 or later. Calls, statuses and numbers are those of NNAPI; names begin with nnbx_, so that a
 * program may include the header of clients (nnburst.h), too.
 *
 * VERSIONS. NNBURST_EXECUTOR_ABI is raised if anything here changes its meaning; a library with another number is
 * refused. Structs only ever grow at their ends: a struct that is passed on begins with its size on the side that
 * made it, and the other side uses no more than that. A function that is left out is NULL.
 *
 * TRUST. The driver has checked its arguments: a model is valid (operands, indexes, lengths, constants), and so is
 * a request. But the memory of arguments, and of constants in pools (NNBX_CONSTANT_REFERENCE), is shared with a
 * client, which may change it at any time: copy values that steer a computation once, into memory of your own, and
 * check the copy. The driver checks the results of an executor: a status that does not exist, or shapes that the
 * model does not allow, become NNBX_GENERAL_FAILURE. A crash ends the process of that client and no other.
 *
 * THREADS. Functions may be called by several threads at once, but one execution is run by one thread at a time,
 * and nothing is destroyed while it is used. No function may let an exception of C++ escape.
 *
 * PROCESSES. Each client has a process of its own, which opens the device for itself; it is in a sandbox that
 * refuses other programs, sockets and writing files, and opens device nodes for writing, or sends them ioctls, only
 * if `--device-node` names them. A process may end without `close`.
 */
#ifndef NNBURST_EXECUTOR_H
#define NNBURST_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NNBURST_EXECUTOR_ABI 1u

/* Bytes of a message, the reason why a call failed, with its terminating zero; the message is empty before the call. */
#define NNBX_MESSAGE_BYTES 1024u

/* The most axes that a tensor has. */
#define NNBX_MAX_RANK 16u

/* ErrorStatus of NNAPI, which functions return. */
enum nnbx_status {
    NNBX_NONE = 0,
    NNBX_DEVICE_UNAVAILABLE = 1,
    NNBX_GENERAL_FAILURE = 2,
    NNBX_OUTPUT_INSUFFICIENT_SIZE = 3, /* of `run` alone */
    NNBX_INVALID_ARGUMENT = 4,
    NNBX_MISSED_DEADLINE_TRANSIENT = 5,
    NNBX_MISSED_DEADLINE_PERSISTENT = 6,
    NNBX_RESOURCE_EXHAUSTED_TRANSIENT = 7,
    NNBX_RESOURCE_EXHAUSTED_PERSISTENT = 8
};

/* DeviceType of NNAPI. */
enum nnbx_device_type {
    NNBX_DEVICE_OTHER = 1,
    NNBX_DEVICE_CPU = 2,
    NNBX_DEVICE_GPU = 3,
    NNBX_DEVICE_ACCELERATOR = 4
};

/* The origin of an operand's value (OperandLifeTime of NNAPI). Both kinds of constants are in `value`; that of a
 * CONSTANT_REFERENCE lies in memory that is shared with a client. */
enum nnbx_lifetime {
    NNBX_TEMPORARY_VARIABLE = 0,
    NNBX_SUBGRAPH_INPUT = 1,
    NNBX_SUBGRAPH_OUTPUT = 2,
    NNBX_CONSTANT_COPY = 3,
    NNBX_CONSTANT_REFERENCE = 4,
    NNBX_NO_VALUE = 5,
    NNBX_SUBGRAPH = 6
};

/* Durations in nanoseconds with a special meaning. */
#define NNBX_NOT_AVAILABLE UINT64_MAX   /* arrives at the client as such (UINT64_MAX) */
#define NNBX_MEASURED (UINT64_MAX - 1u) /* let the driver measure the time around the call */

/* A deadline that never passes; others are moments on CLOCK_BOOTTIME, in nanoseconds. */
#define NNBX_NO_DEADLINE UINT64_MAX

/* Structs that an executor defines itself. */
typedef struct nnbx_device nnbx_device;
typedef struct nnbx_prepared nnbx_prepared;
typedef struct nnbx_execution nnbx_execution;
typedef struct nnbx_memory nnbx_memory;

/* ---- Opening and describing ---------------------------------------------------------------------------------- */

/* One `--option key=value` of the command line. */
struct nnbx_option {
    const char *key;
    const char *value;
};

struct nnbx_options {
    size_t size;
    const struct nnbx_option *options;
    uint32_t option_count;
};

/* Ratios to the CPU reference of NNAPI; lower is better, 1 is as good. Above 0, finite. */
struct nnbx_performance {
    float exec_time;
    float power_usage;
};

/* The performance of operations whose first operand is of `type`. */
struct nnbx_operand_performance {
    int32_t type;
    struct nnbx_performance performance;
};

/* A type of an extension: the low 16 bits of its code. The high ones are the prefix that a model gives it. */
struct nnbx_extension_type {
    uint16_t type;
    uint8_t is_tensor;
    uint32_t byte_size; /* of one element */
};

struct nnbx_extension {
    const char *name; /* "com.example.fibonacci" */
    const struct nnbx_extension_type *types;
    uint32_t type_count;
};

/* The description of a device, the same at every start. Before the call, the driver fills in the defaults, which stand
 * last in the comments. Memory that members point to must stay valid until `close`. */
struct nnbx_description {
    size_t size;
    const char *name;      /* lower case, digits and '_', '-'; the library's file name: libfoo.so is foo */
    const char *version;   /* "": unique among versions whose results or caches differ */
    int32_t type;          /* enum nnbx_device_type; NNBX_DEVICE_OTHER */
    int32_t feature_level; /* FeatureLevel of NNAPI: 3 is 1.2, 4 is 1.3, 8 is AIDL version 4, which is the newest; 8 */
    uint32_t alignment;    /* of arguments' first bytes, a power of two up to 4096; other arguments are copied; 64 */
    uint32_t padding;      /* bytes behind arguments that may be read, up to 4096; see above; 0 */
    uint32_t program_files;  /* cache files whose bytes steer this executor: 1 if it saves models, else 0; 0 */
    uint32_t constant_files; /* cache files of constants, 1 only with a program file; 0 */
    const struct nnbx_operand_performance *performances; /* each type once; a missing type counts as slow; NULL */
    uint32_t performance_count;
    struct nnbx_performance relaxed_scalar; /* float32 that may be computed as float16; 1 and 1 */
    struct nnbx_performance relaxed_tensor;
    struct nnbx_performance if_performance;
    struct nnbx_performance while_performance;
    const struct nnbx_extension *extensions; /* extensions of which it runs every type and operation; NULL */
    uint32_t extension_count;
};

/* ---- Models -------------------------------------------------------------------------------------------------- */

/* One operand. Codes of types are OperandType's of NNAPI (3 is TENSOR_FLOAT32). */
struct nnbx_operand {
    size_t size;
    int32_t type;
    int32_t lifetime;     /* enum nnbx_lifetime */
    const uint32_t *dimensions; /* row-major; 0 is unknown */
    uint32_t rank;        /* 0 is a scalar, or a tensor of unknown rank */
    float scale;          /* quantisation: a value is scale * (stored - zero_point) */
    int32_t zero_point;
    const void *value;    /* of constants, with any alignment */
    uint64_t value_bytes;
    uint32_t subgraph;    /* NNBX_SUBGRAPH: number of one of the model's referenced subgraphs */
    uint32_t channel_dim; /* TENSOR_QUANT8_SYMM_PER_CHANNEL */
    const float *channel_scales;
    uint32_t channel_count;
    const void *extension_data; /* of an operand of an extension */
    uint64_t extension_data_bytes;
};

/* One operation, with operands of its subgraph by number. Codes are OperationType's of NNAPI (0 is ADD). */
struct nnbx_operation {
    int32_t type;
    uint32_t input_count;
    const uint32_t *inputs;
    uint32_t output_count;
    const uint32_t *outputs;
};

/* Operations in the order of execution. Inputs and outputs are operands by number, in the order of arguments. */
struct nnbx_subgraph {
    size_t operand_size; /* of one element of `operands`: see nnbx_operand_at */
    const struct nnbx_operand *operands;
    uint32_t operand_count;
    const struct nnbx_operation *operations;
    uint32_t operation_count;
    const uint32_t *inputs;
    uint32_t input_count;
    const uint32_t *outputs;
    uint32_t output_count;
};

/* An extension that a model uses: in codes of its types and operations the high 16 bits are `prefix`. */
struct nnbx_extension_prefix {
    const char *name;
    uint16_t prefix;
};

/* A model, valid by NNAPI's rules. It exists during the call only: copy all parts that you keep. */
struct nnbx_model {
    size_t size;
    struct nnbx_subgraph main;
    const struct nnbx_subgraph *referenced; /* of IF and WHILE */
    uint32_t referenced_count;
    uint8_t relaxed; /* float32 may be computed as float16 */
    const struct nnbx_extension_prefix *prefixes;
    uint32_t prefix_count;
};

/* Operand `number` of a subgraph, for any size of operands on the other side. */
static inline const struct nnbx_operand *nnbx_operand_at(const struct nnbx_subgraph *subgraph,
                                                               uint32_t number) {
    return (const struct nnbx_operand *)(const void *)((const char *)subgraph->operands +
                                                          number * subgraph->operand_size);
}

/* The position of `number` in a list of operands, such as a subgraph's inputs; `count` if it is not in the list. */
static inline uint32_t nnbx_index_of(uint32_t number, const uint32_t *list, uint32_t count) {
    uint32_t index = 0;
    while (index < count && list[index] != number) {
        index++;
    }
    return index;
}

/* The number of elements of a tensor, 1 for a scalar; 0 if an extent is 0 or the number exceeds 64 bits. */
static inline uint64_t nnbx_elements(const uint32_t *dimensions, uint32_t rank) {
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < rank; axis++) {
        uint32_t extent = dimensions[axis];
        elements = extent != 0 && elements > UINT64_MAX / extent ? 0 : elements * extent;
    }
    return elements;
}

/* ---- Preparing ----------------------------------------------------------------------------------------------- */

/* A hint of a client about one preparation or one execution: attribute `code` of an extension. Ignore unknown
 * hints. */
struct nnbx_hint {
    const char *extension;
    uint16_t code;
    const void *value;
    uint64_t value_bytes;
};

struct nnbx_preparation {
    size_t size;
    int32_t preference; /* ExecutionPreference of NNAPI: 0 low power, 1 fast single answer, 2 sustained speed */
    int32_t priority;   /* Priority of NNAPI: 0 low, 1 medium, 2 high */
    uint64_t deadline_ns;
    uint32_t threads;   /* most that may compute, the calling one included; 0 leaves it to the executor */
    const struct nnbx_hint *hints;
    uint32_t hint_count;
};

/* Writes bytes to one cache file; returns NNBX_NONE, or a status that `save` must return. */
struct nnbx_writer {
    int32_t (*write)(struct nnbx_writer *, const void *data, uint64_t bytes);
};

/* Bytes that `save` wrote before. Those of the program are exactly the same; those of constants may have been
 * changed, which may change results and nothing else. They exist during the call only. */
struct nnbx_cached {
    size_t size;
    const void *program;
    uint64_t program_bytes;
    const void *constants;
    uint64_t constant_bytes;
};

/* ---- Binding and running ------------------------------------------------------------------------------------- */

/* One input or output of a request. Exactly one of `data` and `memory` is not NULL, or the argument is omitted. */
struct nnbx_argument {
    size_t size;
    void *data; /* host memory, valid until the execution is destroyed; inputs are read-only */
    uint64_t bytes;
    nnbx_memory *memory;     /* memory of the device, from `allocate` */
    const uint32_t *dimensions; /* by model and request; 0 is unknown, in outputs only */
    uint32_t rank;              /* 0 with an output: a scalar, or an unknown rank */
};

struct nnbx_request {
    size_t size;
    size_t argument_size; /* of one element of the arrays: see nnbx_argument_at */
    const struct nnbx_argument *inputs; /* as many as the model's, and in their order */
    uint32_t input_count;
    const struct nnbx_argument *outputs;
    uint32_t output_count;
    const struct nnbx_hint *hints;
    uint32_t hint_count;
};

/* Argument `number` of `arguments`, for any size of arguments on the other side. */
static inline const struct nnbx_argument *nnbx_argument_at(const struct nnbx_request *request,
                                                                 const struct nnbx_argument *arguments,
                                                                 uint32_t number) {
    return (const struct nnbx_argument *)(const void *)((const char *)arguments +
                                                           number * request->argument_size);
}

/* The options of one execution. */
struct nnbx_run {
    size_t size;
    uint64_t deadline_ns;
    uint64_t loop_timeout_ns; /* time limit of a WHILE, which then ends with NNBX_MISSED_DEADLINE_TRANSIENT */
    uint32_t measure;         /* whether the client requests times; the driver sometimes uses them without a request */
};

/* Shape of an output: extents as far as known, 0 is unknown. */
struct nnbx_output_shape {
    uint32_t rank;
    uint32_t is_sufficient; /* 1 if the output's memory was large enough, else 0 */
    uint32_t dimensions[NNBX_MAX_RANK];
};

/* The results of one execution beside its status. Before the call, the driver fills in the values for an execution
 * that reports nothing: no time of the device, the driver's time measured, no shapes, no message.
 *
 * Shapes are reported with NNBX_NONE and NNBX_OUTPUT_INSUFFICIENT_SIZE, all or none; they must be if the model
 * leaves a shape open, or an output did not fit. */
struct nnbx_outcome {
    size_t size;
    uint64_t device_ns; /* on the device alone, by its own clock; or NNBX_NOT_AVAILABLE, or NNBX_MEASURED */
    uint64_t driver_ns; /* from the call on, by the host's clock, at least device_ns; or the same */
    struct nnbx_output_shape *shapes; /* room for the shape of each output; owned by the driver */
    uint32_t shape_count;                /* 0, or as many as outputs if all were filled in */
    char *message;                       /* room for NNBX_MESSAGE_BYTES, or NULL */
};

/* ---- Memory of the device ------------------------------------------------------------------------------------ */

/* A use that memory is allocated for: input or output `index` of a model. */
struct nnbx_role {
    nnbx_prepared *prepared;
    uint32_t is_output;
    uint32_t index;
};

struct nnbx_memory_desc {
    size_t size;
    int32_t type; /* of the operand */
    const uint32_t *dimensions;
    uint32_t rank;
    uint64_t bytes; /* of the operand, above 0 */
    const struct nnbx_role *roles;
    uint32_t role_count;
};

/* ---- The functions ------------------------------------------------------------------------------------------- */

/* Each returns a status, and writes its results only with NNBX_NONE; `message` has room for the reason of a failure. */
struct nnburst_executor {
    uint32_t abi; /* NNBURST_EXECUTOR_ABI */
    size_t size;  /* sizeof(struct nnburst_executor) */

    /* Open the device for this process, warm-up included; called once. NNBX_DEVICE_UNAVAILABLE if another process has
     * opened it. Both functions are NULL if there is nothing to open: the device is then NULL. */
    int32_t (*open)(const struct nnbx_options *, nnbx_device **, char *message);
    void (*close)(nnbx_device *); /* all other objects of the device have been destroyed */
    int32_t (*describe)(nnbx_device *, struct nnbx_description *); /* NULL: the defaults hold */

    /* Set supported[i] to 1 if operation `i` of the main subgraph can be run; it is 0 before. A model of which every
     * operation is supported is prepared; IF and WHILE only count if all of their subgraphs does. */
    int32_t (*supported)(nnbx_device *, const struct nnbx_model *, uint8_t *supported);
    int32_t (*prepare)(nnbx_device *, const struct nnbx_model *, const struct nnbx_preparation *,
                       nnbx_prepared **, char *message);
    void (*destroy_prepared)(nnbx_prepared *); /* its executions have been destroyed */

    /* Write the bytes that `prepare_from_cache` needs in another process of the same version; both functions are NULL
     * if the description has no cache files. Called once, before `bind`. */
    int32_t (*save)(nnbx_prepared *, struct nnbx_writer *program, struct nnbx_writer *constants);
    int32_t (*prepare_from_cache)(nnbx_device *, const struct nnbx_cached *,
                                  const struct nnbx_preparation *, nnbx_prepared **, char *message);

    /* Bind a request, which is valid for the model, once; all that it points to, except the memory of arguments, exists
     * during the call only. */
    int32_t (*bind)(nnbx_prepared *, const struct nnbx_request *, nnbx_execution **, char *message);
    /* Execute once. Inputs must not be written; after the call, no argument may be accessed. */
    int32_t (*run)(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);
    void (*destroy_execution)(nnbx_execution *); /* its arguments must not be accessed afterwards */

    /* Memory that stays on the device; all four are NULL if it has no such memory. Its content before the first copy or
     * run is never read. `bytes` is the allocated number, or less. */
    int32_t (*allocate)(nnbx_device *, const struct nnbx_memory_desc *, nnbx_memory **, char *message);
    int32_t (*copy_in)(nnbx_memory *, const void *from, uint64_t bytes);
    int32_t (*copy_out)(nnbx_memory *, void *to, uint64_t bytes);
    void (*destroy_memory)(nnbx_memory *);
};

/* The one symbol of a library: its functions, which must stay valid as long as the process. */
__attribute__((visibility("default"))) const struct nnburst_executor *nnburst_get_executor(void);
#define NNBURST_EXECUTOR_SYMBOL "nnburst_get_executor"

/* Defines this symbol for a struct nnburst_executor of the same file: NNBURST_EXPORT_EXECUTOR(functions) */
#define NNBURST_EXPORT_EXECUTOR(functions) \
    const struct nnburst_executor *nnburst_get_executor(void) { return &(functions); }

#ifdef __cplusplus
}
#endif

#endif
