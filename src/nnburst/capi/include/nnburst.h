/* nnburst's client for C and C++: networks that a service serves by name, or from files, executed over shared memory.
 *
 *     nnburst serve camera --executor litert --model pose=pose.tflite
 *
 *     nnburst_device *device;
 *     nnburst_model *model;
 *     nnburst_burst *burst;
 *     nnburst_request *request;
 *     nnburst_connect("camera", 0, SECOND, &device);
 *     nnburst_open_model(device, "pose", 0, SECOND, &model);
 *     nnburst_open_burst(model, NULL, 0, SECOND, &burst);
 *     nnburst_create_request(burst, &request);
 *     nnburst_bind(request);
 *     float *input = nnburst_input_data(request, 0);
 *     for (;;) {
 *         ...                                      write input
 *         if (nnburst_run(request, 10000000) != NNBURST_NO_ERROR) ...
 *         ...                                      read nnburst_output_data(request, 0)
 *     }
 *     nnburst_close_device(device);                closes all that was opened from it
 *
 * There is no Python in the library or in the process. Between nnburst_run and its return nothing is allocated
 * and no lock is taken; while it spins there is no system call.
 *
 * Functions that can fail return a ResultCode of NNAPI's, by the same number; nnburst_error_message has the reason.
 * Pointers to results are written only with NNBURST_NO_ERROR. Timeouts are nanoseconds from the call on.
 *
 * Threads: several threads may use devices, models and memories at once. Only one thread at a time may use a burst
 * and its requests; a second one gets NNBURST_BUSY. An object may be closed only when no thread is using it.
 * A forked child cannot use objects that its parent opened, and gets NNBURST_BAD_STATE.
 *
 * ABI: a function keeps its symbol version (NNBURST_1) and meaning; structs only grow at their ends, and each
 * goes with its size, so that a program runs with later libraries. */
#ifndef NNBURST_H
#define NNBURST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NNBURST_API __attribute__((visibility("default")))

/* The version of this header; nnburst_abi_version returns the library's, which is at least as high. */
#define NNBURST_ABI_VERSION 1

/* A timeout that never passes: the end of the driver still ends the call. */
#define NNBURST_FOREVER UINT64_MAX

/* NNAPI's ResultCode by name and number; NNBURST_BUSY is ours. */
enum nnburst_result {
    NNBURST_NO_ERROR = 0,
    NNBURST_OUT_OF_MEMORY = 1,
    NNBURST_INCOMPLETE = 2,       /* nnburst_poll: no result yet; the descriptor shows when to look again */
    NNBURST_UNEXPECTED_NULL = 3,  /* a pointer is NULL that must not be */
    NNBURST_BAD_DATA = 4,         /* an argument is invalid, or the driver refuses it */
    NNBURST_OP_FAILED = 5,        /* the driver failed, or its answer is malformed */
    NNBURST_BAD_STATE = 6,        /* wrong state: not bound yet, bound already, or a forked child */
    NNBURST_OUTPUT_INSUFFICIENT_SIZE = 8, /* nnburst_output_dimensions returns the needed shape */
    NNBURST_UNAVAILABLE_DEVICE = 9,       /* no service has that name, or it is not for this client */
    NNBURST_MISSED_DEADLINE = 10, /* the timeout passed; a late result is dropped, and the burst goes on */
    NNBURST_MISSED_DEADLINE_PERSISTENT = 11,
    NNBURST_RESOURCE_EXHAUSTED = 12,
    NNBURST_RESOURCE_EXHAUSTED_PERSISTENT = 13,
    NNBURST_DEAD_OBJECT = 14,     /* the driver has died, or has ended the connection: see nnburst_reconnect */
    NNBURST_BUSY = 100,           /* another thread is using the burst, or earlier requests are under way */
    NNBURST_CLOSED = 101,         /* the other end of a queue was closed, and nothing is left to read */
};

/* The type of the elements of a tensor. */
enum nnburst_element {
    NNBURST_OPAQUE = 0, /* of a vendor extension: only its size is known */
    NNBURST_BOOL8 = 1,
    NNBURST_INT8 = 2,
    NNBURST_UINT8 = 3,
    NNBURST_INT16 = 4,
    NNBURST_UINT16 = 5,
    NNBURST_INT32 = 6,
    NNBURST_UINT32 = 7,
    NNBURST_INT64 = 8,
    NNBURST_UINT64 = 9,
    NNBURST_FLOAT16 = 10,
    NNBURST_FLOAT32 = 11,
    NNBURST_FLOAT64 = 12,
};

typedef struct nnburst_device nnburst_device;   /* a connection to a service */
typedef struct nnburst_models nnburst_models;   /* a list of the networks that a service serves */
typedef struct nnburst_model nnburst_model;     /* a prepared network of a service */
typedef struct nnburst_memory nnburst_memory;   /* shared memory, mapped */
typedef struct nnburst_burst nnburst_burst;     /* executions over shared memory, one at a time by default */
typedef struct nnburst_request nnburst_request; /* one execution's inputs and outputs, bound to memory */

/* One input or output. Its pointers are valid as long as the model is open. */
typedef struct nnburst_operand {
    const char *name;           /* in the network's file; "" without one */
    const uint32_t *dimensions; /* row-major; 0 where each request may have another extent */
    uint32_t rank;
    uint32_t element;           /* enum nnburst_element */
    uint32_t element_size;      /* bytes */
    int32_t type;               /* NNAPI's OperandCode, or a larger one of a vendor extension */
    uint64_t size;              /* bytes of the tensor; 0 if the network leaves its shape open */
    float scale;                /* of quantised numbers: scale * (number - zero_point) */
    int32_t zero_point;
} nnburst_operand;

/* For nnburst_open_burst. Zeroed members mean the default. */
typedef struct nnburst_burst_options {
    uint32_t max_in_flight;   /* requests that may be submitted at once, up to 1,024 (1) */
    uint32_t channel_length;  /* elements of each ring, 2 to 65,536 (1,024); that of results has more if the
                               * shapes of outputs need them */
    uint64_t spin_window_ns;  /* how long to spin for a result before sleeping (200,000) */
    uint32_t low_power;       /* not 0: neither side spins */
    uint32_t reserved;
} nnburst_burst_options;

typedef struct nnburst_queue nnburst_queue; /* one end of a message queue in shared memory */

/* The role of an end of a queue. */
#define NNBURST_WRITER 1u
#define NNBURST_READER 2u

/* Flags for nnburst_create_queue. */
#define NNBURST_BROADCAST 1u   /* one writer, the maker, that never waits; many readers, which may miss elements */
#define NNBURST_REOPEN 2u      /* another process may replace an end that has gone */
#define NNBURST_DROP_UNREAD 4u /* only with REOPEN: a new reader begins with elements written from then on */

/* For queues. Zeroed members mean the default. */
typedef struct nnburst_queue_options {
    uint64_t spin_window_ns; /* how long to spin before sleeping if no rhythm is known, up to 1 s (200,000) */
    uint32_t flags;          /* of nnburst_create_queue */
    uint32_t low_power;      /* not 0: this end never spins */
} nnburst_queue_options;

/* Elements in place; the second part is empty unless they cross the end of the ring. */
typedef struct nnburst_claim {
    void *first;
    void *second;
    size_t first_count;
    size_t second_count;
} nnburst_claim;

/* For nnburst_prepare. Zeroed members mean the default. */
typedef struct nnburst_prepare_options {
    const char *const *names;        /* by which an .onnx file refers to other files */
    nnburst_memory *const *memories; /* their bytes */
    uint32_t count;                  /* of both, up to 62 */
    uint32_t num_threads;            /* that an execution may use, up to 1,024 (the driver decides) */
} nnburst_prepare_options;

/* Flag of nnburst_connect: accept a service of another user. */
#define NNBURST_ANY_USER 1u

/* -- errors and versions ---------------------------------------------------------------------------------- */

/* The reason of the calling thread's latest failed call; "" before the first. Valid until the thread's next call.
 * nnburst_run, _submit, _collect and _poll return only codes and do not change it. */
NNBURST_API const char *nnburst_error_message(void);

/* The name of a code; "unknown" for any other number. */
NNBURST_API const char *nnburst_result_name(int result);

NNBURST_API uint32_t nnburst_abi_version(void);

/* -- services --------------------------------------------------------------------------------------------- */

/* Connects to a service that runs: the name given to `nnburst serve`, or the path of its socket.
 * UNAVAILABLE_DEVICE: it does not run, is of another user, or speaks another protocol. */
NNBURST_API int nnburst_connect(const char *name_or_path, uint32_t flags, uint64_t timeout_ns,
                                nnburst_device **device);

/* Starts a driver for this process only; `executor` is as for `nnburst serve --executor`. The driver runs the
 * interpreter that libneuralnetworks.so would find (NNBURST_PYTHON, libnnburst.python beside the library, the active
 * environment, the library's); its log goes to this process's stderr. nnburst_reconnect starts another driver;
 * nnburst_close_device ends it, and so does the end of this process. `flags` is 0.
 * UNAVAILABLE_DEVICE: there is no such interpreter, the driver does not start, or this program is privileged. */
NNBURST_API int nnburst_launch(const char *executor, uint32_t flags, uint64_t timeout_ns, nnburst_device **device);

/* Whether the driver is alive. Any thread. */
NNBURST_API int nnburst_is_alive(const nnburst_device *device);

/* A descriptor that becomes readable when the driver's process ends, for event loops; -1 without one.
 * Borrowed: valid until the device is closed or reconnected. */
NNBURST_API int nnburst_device_fd(const nnburst_device *device);

/* Number of the process that serves this client. */
NNBURST_API int32_t nnburst_device_pid(const nnburst_device *device);

/* After DEAD_OBJECT: waits until a service runs, connects again, and opens all models and bursts again.
 * Every pointer stays valid: memories keep their contents, requests their places, and states their values. No
 * thread may be using a burst of the device, and nothing of it may be closed meanwhile; what other threads list and
 * open ends with DEAD_OBJECT, and nnburst_reconnect of another thread with BUSY.
 * BAD_DATA: a network of the service has changed. After a failure it may be called again. */
NNBURST_API int nnburst_reconnect(nnburst_device *device, uint64_t timeout_ns);

/* Closes a device and all that was opened from it, whose pointers are invalid from then on. A driver of nnburst_launch that does not end
 * within 4 s is killed. NULL is fine. */
NNBURST_API void nnburst_close_device(nnburst_device *device);

/* -- networks --------------------------------------------------------------------------------------------- */

/* Lists the networks that the service serves; the caller frees the list. */
NNBURST_API int nnburst_list_models(nnburst_device *device, uint64_t timeout_ns, nnburst_models **models);
NNBURST_API uint32_t nnburst_models_count(const nnburst_models *models);
/* By position, NULL or 0 beyond the end. Names are valid until the list is freed. */
NNBURST_API const char *nnburst_models_name(const nnburst_models *models, uint32_t index);
NNBURST_API uint32_t nnburst_models_version(const nnburst_models *models, uint32_t index);
NNBURST_API void nnburst_free_models(nnburst_models *models);

/* Opens a network; version 0 is the newest. BAD_DATA: none is served under that name and version. */
NNBURST_API int nnburst_open_model(nnburst_device *device, const char *name, uint32_t version,
                                   uint64_t timeout_ns, nnburst_model **model);

/* Prepares a network from the bytes of its file, .onnx or .tflite, as one operation, which the engine of the
 * executor (onnxruntime, litert) computes as it is. The model holds the memories as long as it is open; each must
 * be exactly the file's bytes. It has no name, and version 1; extents that the file leaves open stay open.
 * `options` may be NULL; `options_size` is sizeof(nnburst_prepare_options).
 * BAD_DATA: the file is not intact, or the executor does not compute such files. */
NNBURST_API int nnburst_prepare(nnburst_device *device, nnburst_memory *file,
                                const nnburst_prepare_options *options, size_t options_size,
                                uint64_t timeout_ns, nnburst_model **model);
NNBURST_API const char *nnburst_model_name(const nnburst_model *model);
NNBURST_API uint32_t nnburst_model_version(const nnburst_model *model);

/* Inputs and outputs of the network, without its states. */
NNBURST_API uint32_t nnburst_input_count(const nnburst_model *model);
NNBURST_API uint32_t nnburst_output_count(const nnburst_model *model);
/* Describes one. `operand_size` is sizeof(nnburst_operand); only so much is written. */
NNBURST_API int nnburst_input(const nnburst_model *model, uint32_t index, nnburst_operand *operand,
                              size_t operand_size);
NNBURST_API int nnburst_output(const nnburst_model *model, uint32_t index, nnburst_operand *operand,
                               size_t operand_size);

/* Number of variables that keep their values between executions; see nnburst_reset_states. */
NNBURST_API uint32_t nnburst_state_count(const nnburst_model *model);

/* Closes a model and its bursts and requests. Waits up to 2 s in all for a driver that does not answer. NULL is fine. */
NNBURST_API void nnburst_close_model(nnburst_model *model);

/* -- shared memory ---------------------------------------------------------------------------------------- */

/* New zeroed memory of `size` bytes. */
NNBURST_API int nnburst_create_memory(size_t size, nnburst_memory **memory);

/* Uses a memfd with the seals SHRINK, GROW and SEAL. `fd` stays the caller's, who may close it. */
NNBURST_API int nnburst_memory_from_fd(int fd, nnburst_memory **memory);

NNBURST_API void *nnburst_memory_data(const nnburst_memory *memory);
NNBURST_API size_t nnburst_memory_size(const nnburst_memory *memory);
/* Its memfd, for another process; borrowed. */
NNBURST_API int nnburst_memory_fd(const nnburst_memory *memory);

/* Frees the memory as soon as no request is bound to it. NULL is fine. */
NNBURST_API void nnburst_free_memory(nnburst_memory *memory);

/* -- requests --------------------------------------------------------------------------------------------- */

/* Opens a burst. `options` may be NULL; `options_size` is sizeof(nnburst_burst_options). */
NNBURST_API int nnburst_open_burst(nnburst_model *model, const nnburst_burst_options *options,
                                   size_t options_size, uint64_t timeout_ns, nnburst_burst **burst);

/* Closes a burst and its requests. Waits up to 2 s for a driver that does not answer. NULL is fine. */
NNBURST_API void nnburst_close_burst(nnburst_burst *burst);

/* Creates a request, not bound yet: every input and output gets private memory unless memory is set for it. */
NNBURST_API int nnburst_create_request(nnburst_burst *burst, nnburst_request **request);

/* Uses `length` bytes at `offset` of a memory in place; an output may be written up to the end of these bytes. */
NNBURST_API int nnburst_set_input(nnburst_request *request, uint32_t index, nnburst_memory *memory,
                                  size_t offset, size_t length);
NNBURST_API int nnburst_set_output(nnburst_request *request, uint32_t index, nnburst_memory *memory,
                                   size_t offset, size_t length);

/* Shape of an input whose shape the network leaves open. */
NNBURST_API int nnburst_set_input_dimensions(nnburst_request *request, uint32_t index,
                                             const uint32_t *dimensions, uint32_t rank);

/* Leaves an optional input out. */
NNBURST_API int nnburst_omit_input(nnburst_request *request, uint32_t index);

/* Whether executions are timed; see nnburst_timing. */
NNBURST_API int nnburst_set_measure(nnburst_request *request, int measure);

/* Binds the request to its memory, for good. BAD_DATA: an argument has neither a known size nor memory, or does not fit. */
NNBURST_API int nnburst_bind(nnburst_request *request);

/* The data of an input or output after the request was bound; NULL if it is omitted or does not exist. Write inputs
 * before a run, not during it. */
NNBURST_API void *nnburst_input_data(const nnburst_request *request, uint32_t index);
NNBURST_API const void *nnburst_output_data(const nnburst_request *request, uint32_t index);

/* Executes once and waits for the result. */
NNBURST_API int nnburst_run(nnburst_request *request, uint64_t timeout_ns);

/* Times of the latest execution, in microseconds; BAD_STATE if it was not measured. */
NNBURST_API int nnburst_timing(const nnburst_request *request, uint64_t *on_device_us,
                               uint64_t *in_driver_us);

/* Shape of an output after the latest execution. `*rank` is the room in `dimensions` and becomes the rank; BAD_DATA if
 * it is larger than the room. */
NNBURST_API int nnburst_output_dimensions(const nnburst_request *request, uint32_t index,
                                          uint32_t *dimensions, uint32_t *rank);

/* Sets the states to their initial values. An execution that fails does not change them. */
NNBURST_API int nnburst_reset_states(nnburst_request *request);

/* Frees a request; a result that is under way is dropped when it comes. Waits up to 2 s in all for a driver that does not
 * answer. NULL is fine. */
NNBURST_API void nnburst_free_request(nnburst_request *request);

/* -- event loops ------------------------------------------------------------------------------------------ */

/* Sends a request without waiting; results come in the order of submission. Until it is collected, inputs must not
 * change and outputs are undefined. BUSY: it is under way already, or the most requests are. */
NNBURST_API int nnburst_submit(nnburst_request *request);

/* A descriptor that becomes readable with a result after nnburst_poll gave INCOMPLETE, and when the driver ends.
 * Borrowed; it changes with nnburst_reconnect. */
NNBURST_API int nnburst_burst_fd(const nnburst_burst *burst);

/* NO_ERROR if there is a result to collect, INCOMPLETE if the descriptor will become readable with the next one, also
 * if no request is under way yet. Never waits. */
NNBURST_API int nnburst_poll(nnburst_burst *burst);

/* Waits for the result of the oldest request under way, stores the request in `*request`, and returns its outcome.
 * After MISSED_DEADLINE it can be collected later, and `*request` is NULL. BAD_STATE: no request is under way. */
NNBURST_API int nnburst_collect(nnburst_burst *burst, uint64_t timeout_ns, nnburst_request **request);

/* -- message queues ---------------------------------------------------------------------------------------
 *
 * Between any two programs of this machine, in C, C++ or Python (nnburst.fmq): no service, no network. Counters, data and event flag
 * lie in memory as Android's fast message queue has them. An object is one end and one thread's at a time. All calls that move elements
 * give their codes only: MISSED_DEADLINE if there is no room or nothing there in time, DEAD_OBJECT and CLOSED if the other end has died
 * or was closed (a reader gets first what is left), BAD_DATA for more than the queue has room for, BAD_STATE for the wrong end or a
 * forked child, BUSY, OP_FAILED if the other end has made the queue corrupt. A timeout of 0 does not wait. */

/* Makes a queue of `capacity` elements of `element_size` bytes and opens an end of it. `name` is "/" and up to 254 other characters, not "/." or "/..", or
 * NULL for one that is sent. The name goes when a second process has opened the queue, for a broadcast and with NNBURST_REOPEN when this end
 * is closed. `options` may be NULL. UNAVAILABLE_DEVICE: the name is in use. */
NNBURST_API int nnburst_create_queue(const char *name, uint32_t role, size_t element_size, size_t capacity,
                                     const nnburst_queue_options *options, size_t options_size,
                                     nnburst_queue **queue);

/* Waits until a process of this user has made a queue of that name, and opens an end of it. BAD_STATE: this end is in use. */
NNBURST_API int nnburst_open_queue(const char *name, uint32_t role, size_t element_size,
                                   const nnburst_queue_options *options, size_t options_size,
                                   uint64_t timeout_ns, nnburst_queue **queue);

/* The same for a queue without a name that the process at the other end of a Unix socket sends: nnburst_send_queue, or Python's send_queue. */
NNBURST_API int nnburst_receive_queue(int connection, uint32_t role, size_t element_size,
                                      const nnburst_queue_options *options, size_t options_size,
                                      uint64_t timeout_ns, nnburst_queue **queue);
NNBURST_API int nnburst_send_queue(int connection, const nnburst_queue *queue);

/* Closes an end; the other one gets what is unread, then CLOSED. NULL is fine. */
NNBURST_API void nnburst_close_queue(nnburst_queue *queue);

/* Copies `count` elements as one unit, or none. */
NNBURST_API int nnburst_write(nnburst_queue *queue, const void *elements, size_t count, uint64_t timeout_ns);
NNBURST_API int nnburst_read(nnburst_queue *queue, void *elements, size_t count, uint64_t timeout_ns);

/* Claims `count` elements in place. Nothing is published or released before the commit; a claim without one has no effect. A hostile
 * writer may change elements while they are read in place; MISSED_DEADLINE of a commit: a broadcast's writer has overwritten them;
 * BAD_STATE: fewer elements are claimed, or the end has claimed, written or read others since. */
NNBURST_API int nnburst_begin_write(nnburst_queue *queue, size_t count, uint64_t timeout_ns, nnburst_claim *claim);
NNBURST_API int nnburst_commit_write(nnburst_queue *queue, size_t count);
NNBURST_API int nnburst_begin_read(nnburst_queue *queue, size_t count, uint64_t timeout_ns, nnburst_claim *claim);
NNBURST_API int nnburst_commit_read(nnburst_queue *queue, size_t count);

/* Sends or receives a message of any length, whole or not at all, through a queue of elements of one byte. `*length` is the room for a
 * message and becomes its length; after BAD_DATA, a message that is longer stays in the queue. */
NNBURST_API int nnburst_send_message(nnburst_queue *queue, const void *bytes, size_t length, uint64_t timeout_ns);
NNBURST_API int nnburst_receive_message(nnburst_queue *queue, void *bytes, size_t *length, uint64_t timeout_ns);

/* Elements that can be written or read now. */
NNBURST_API size_t nnburst_queue_available(nnburst_queue *queue);

/* Elements of a broadcast that this end has lost: once the writer has overwritten one of them, reading goes on with
 * what is written next. */
NNBURST_API uint64_t nnburst_queue_missed(const nnburst_queue *queue);

/* Number of the process at the other end; 0 while no process has it, and of a broadcast's readers. */
NNBURST_API int32_t nnburst_queue_peer(const nnburst_queue *queue);

/* A descriptor for event loops, which becomes readable after nnburst_arm_queue gave INCOMPLETE; -1 if it cannot be had: at most 72
 * readers of a broadcast have one. Borrowed: closed with the queue. */
NNBURST_API int nnburst_queue_fd(nnburst_queue *queue);

/* NO_ERROR if `count` elements can be written or read, or the other end has gone; INCOMPLETE if the descriptor will become readable then;
 * BAD_DATA for more than the queue has room for; RESOURCE_EXHAUSTED if the descriptor cannot be had; BAD_STATE and BUSY as above. */
NNBURST_API int nnburst_arm_queue(nnburst_queue *queue, size_t count);

#ifdef __cplusplus
}
#endif

#endif
