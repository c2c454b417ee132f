/* The structs behind the pointers of nnburst.h. Each parent owns its children, which are freed with it.
 *
 * Any thread may use a device and its models; the device's `lock` guards their lists and the slots of bursts,
 * which the connection's thread reads. Only one thread at a time may use a burst and its requests:
 * csrc/gate.h refuses a second one. No lock is taken between a run and its return. */
#ifndef NNB_CLIENT_H
#define NNB_CLIENT_H

#include <nnburst.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"
#include "burst_client.h"
#include "client/connection.h"
#include "client/failure.h"
#include "client/messages.h"
#include "client/service.h"
#include "client/shared_memory.h"
#include "queue.h"

struct nnburst_device {
    struct nnb_connection connection;
    struct nnb_service service;
    uint32_t forks; /* nnb_process_generation when it was made */
    pthread_mutex_t lock;
    uint32_t calls;          /* of threads that list or open, over the connection; guarded, as the next is */
    bool is_reconnecting;    /* no other thread may call */
    pthread_cond_t is_quiet; /* no calls any more */
    nnburst_model *models;
    uint64_t callbacks; /* numbers that bursts were given, each once */
    nnburst_device *next; /* of this process */
};

/* A file that a model is prepared from. */
struct nnb_file {
    char *name;
    nnburst_memory *memory;
};

struct nnburst_model {
    nnburst_device *device;
    nnburst_model *next;
    struct nnb_served_model served;
    struct nnb_file *files; /* of a network that the service does not serve by name: the file, and those it names */
    uint32_t file_count;
    uint32_t num_threads;
    struct nnb_region initial; /* values of the states before the first execution, one behind the other */
    uint32_t *inputs;          /* indexes of the inputs that are no states; likewise */
    uint32_t *outputs;
    uint32_t input_count;
    uint32_t output_count;
    nnburst_burst *bursts;
};

struct nnburst_memory {
    struct nnb_region region;
    uint32_t forks;
    bool is_read_only;
    nnb_atomic_u32 references; /* the program's, and one for each slot and request */
};

/* The number of a memory in a driver. */
struct nnb_slot {
    nnburst_memory *memory; /* NULL while it is free, or is being forgotten */
    uint32_t users;         /* requests that are bound to it */
    bool is_retired;        /* the driver may still know it */
};

struct nnburst_burst {
    nnburst_model *model;
    nnburst_burst *next;
    nnburst_burst_options options;
    uint32_t result_length; /* elements of the result ring */
    uint64_t handle;
    uint64_t callback; /* guarded by the device's lock, as slots are */
    struct nnb_slot *slots;
    uint32_t slot_count;
    struct nnb_region requests; /* the two rings */
    struct nnb_region results;
    int kicks; /* readable with a byte for a result that is awaited in an event loop, and at the end */
    struct nnb_client client;
    uint8_t *packet;
    nnburst_request *open_requests;
    nnburst_request **submitted; /* ring of options.max_in_flight; NULL for one that was freed meanwhile */
    uint32_t first_submitted;
    uint32_t submitted_count;
};

/* The place of one argument. */
struct nnb_place {
    nnburst_memory *memory; /* NULL until it is known */
    uint64_t offset;
    uint64_t length;
    uint32_t *dimensions; /* of an input whose shape the network leaves open */
    uint32_t rank;
    bool is_omitted;
    bool is_set; /* by the program */
};

/* A packet and the last result that it got. */
struct nnb_side {
    struct nnb_bound bound;
    uint8_t *packet;
    uint8_t *result;
};

struct nnburst_request {
    nnburst_burst *burst;
    nnburst_request *next;
    struct nnb_place *inputs; /* by the network's own indexes, states included */
    struct nnb_place *outputs;
    uint64_t *state_places; /* two for each state, in `own`: the first execution reads the first */
    nnburst_memory *own;
    int32_t *slots; /* in the order of the packet's pools */
    uint32_t slot_count;
    struct nnb_side sides[2]; /* the second reads what the first has written, if there are states */
    uint32_t turn;        /* whose turn it is next */
    uint32_t last;        /* whose the latest execution was */
    bool is_measured;
    bool is_bound;
    bool is_submitted;
};

/* Whether a device was opened by this very process. */
static inline bool nnb_is_ours(const nnburst_device *device) { return device->forks == nnb_process_generation; }

/* BAD_STATE in a forked child. */
int nnb_check_ours(const nnburst_device *device);

/* Admits a call that lists or opens something, until nnb_end_call; BAD_STATE in a forked child, DEAD_OBJECT while
 * another thread reconnects. */
int nnb_begin_call(nnburst_device *device);
void nnb_end_call(nnburst_device *device);

/* The deadline of all calls of one function that frees: a driver that hangs must not hold up a program that
 * frees, however much it frees at once. */
uint64_t nnb_deadline_to_free(void);

/* Makes a call that frees something in the driver, and waits for its end; after the deadline the call is sent, but
 * not waited for. */
int nnb_call_to_free(nnburst_device *device, const struct nnb_pack *body, const uint8_t *begin,
                     uint64_t deadline_ns);

/* Reconnects, as nnburst_reconnect; `waits` for a service that is not there, else UNAVAILABLE_DEVICE at once.
 * */
int nnb_reconnect(nnburst_device *device, bool waits, uint64_t timeout_ns);

/* Has the driver drop a handle; errors are ignored. */
void nnb_release_handle(nnburst_device *device, uint64_t handle, uint64_t deadline_ns);

/* -- model.c ---------------------------------------------------------------------------------------------- */

/* Opens a model and its bursts again on a new connection; BAD_DATA if the model has changed. */
int nnb_reopen_model(nnburst_model *model, uint64_t deadline_ns);

/* Frees a model that is on no list, and its bursts; the caller notifies the driver, if it is still there. */
void nnb_free_model(nnburst_model *model, bool is_ours);

/* -- burst.c ---------------------------------------------------------------------------------------------- */

/* Opens a burst of an open model over new rings; the old rings are released after that. */
int nnb_attach_burst(nnburst_burst *burst, uint64_t deadline_ns);

/* Frees a burst that is on no list; the caller notifies the driver, if it is still there. */
void nnb_free_burst(nnburst_burst *burst);

/* Closes a burst as nnburst_close_burst, with the deadline of the call to the driver. */
void nnb_close_burst(nnburst_burst *burst, uint64_t deadline_ns);

/* Ends all runs of a burst, now and from now on. Any thread; its rings are mapped. */
void nnb_stop_burst(nnburst_burst *burst);

/* Answers an upcall. */
void nnb_answer_upcall(void *device, const struct nnb_upcall *upcall, struct nnb_pack *answer, int *fds,
                       uint32_t *fd_count);

/* Finds or makes the slot of a memory, and adds a user; -1 without enough memory. */
int32_t nnb_slot_of(nnburst_burst *burst, nnburst_memory *memory);

/* Removes a user of a slot; the driver drops a slot without users. */
void nnb_release_slot(nnburst_burst *burst, int32_t slot, uint64_t deadline_ns);

/* -- memory.c --------------------------------------------------------------------------------------------- */

void nnb_hold_memory(nnburst_memory *memory);

/* -- request.c -------------------------------------------------------------------------------------------- */

/* Fails with BAD_DATA: the model has no such input or output. */
int nnb_fail_no_such(const char *kind, uint32_t index);

/* Resets a request after a reconnection: it is not under way. The latest result stays, with the shapes of outputs. */
void nnb_renew_request(nnburst_request *request);

/* Frees a request that is on no list, but not its slots. */
void nnb_drop_request(nnburst_request *request);

#endif
