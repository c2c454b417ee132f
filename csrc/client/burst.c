/* Bursts: two rings, the numbers of memories in a driver, and upcalls about them. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/client.h"
#include "clock.h"
#include "wire.h"

#define DEFAULT_SPIN_WINDOW_NS 200000u /* as NNBURST_BURST_CONTROLLER_POLLING_WINDOW */
#define LONGEST_SPIN_WINDOW_NS 60000000000u
#define MAX_CHANNEL_LENGTH 65536u
#define MOST_OUTPUT_RANK 16u /* that an output can turn out to have */
#define MAX_IN_FLIGHT 1024u
#define DRAIN_TIMEOUT_NS 30000000000u

/* -- upcalls ---------------------------------------------------------------------------------------------- */

static nnburst_burst *find_burst(nnburst_device *device, uint64_t callback) {
    for (nnburst_model *model = device->models; model != NULL; model = model->next) {
        for (nnburst_burst *burst = model->bursts; burst != NULL; burst = burst->next) {
            if (burst->callback == callback) {
                return burst;
            }
        }
    }
    return NULL;
}

/* Copies the memories' descriptors and sizes. Returns a status: INVALID_ARGUMENT if a slot is not in use. */
static int32_t find_memories(const nnburst_burst *burst, const struct nnb_upcall *upcall, uint64_t *sizes,
                          int *fds, uint32_t *fd_count) {
    for (uint32_t i = 0; i < upcall->slot_count; i++) {
        int32_t slot = upcall->slots[i];
        const nnburst_memory *memory = slot >= 0 && (uint32_t)slot < burst->slot_count
                                           ? burst->slots[slot].memory
                                           : NULL;
        if (memory == NULL) {
            return NNB_STATUS_INVALID_ARGUMENT;
        }
        int fd = fcntl(memory->region.fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            return NNB_STATUS_RESOURCE_EXHAUSTED_TRANSIENT;
        }
        sizes[i] = memory->region.size;
        fds[(*fd_count)++] = fd;
    }
    return NNB_STATUS_NONE;
}

void nnb_answer_upcall(void *owner, const struct nnb_upcall *upcall, struct nnb_pack *answer, int *fds,
                       uint32_t *fd_count) {
    nnburst_device *device = owner;
    uint64_t sizes[NNB_MAX_FDS];
    (void)pthread_mutex_lock(&device->lock);
    nnburst_burst *burst = find_burst(device, upcall->callback);
    if (upcall->kind == NNB_GET_MEMORIES) {
        int32_t status = burst == NULL ? NNB_STATUS_INVALID_ARGUMENT
                                       : find_memories(burst, upcall, sizes, fds, fd_count);
        if (status == NNB_STATUS_NONE) {
            nnb_pack_memories(answer, sizes, upcall->slot_count);
        } else {
            while (*fd_count != 0) {
                (void)close(fds[--*fd_count]);
            }
            nnb_pack_failure(answer, status,
                             status == NNB_STATUS_INVALID_ARGUMENT ? "getMemories: a slot is not in use"
                                                                   : "getMemories: the client has no descriptors left");
        }
    } else if (upcall->kind == NNB_OTHER_UPCALL) {
        nnb_pack_failure(answer, NNB_STATUS_INVALID_ARGUMENT, "unknown upcall");
    } else {
        if (upcall->kind == NNB_BURST_CLOSED && burst != NULL) {
            nnb_stop_burst(burst);
        }
        nnb_pack_nothing(answer);
    }
    (void)pthread_mutex_unlock(&device->lock);
}

/* -- slots ------------------------------------------------------------------------------------------------ */

static int32_t find_slot(const nnburst_burst *burst, const nnburst_memory *memory) {
    for (uint32_t i = 0; i < burst->slot_count; i++) {
        if (burst->slots[i].memory == memory && !burst->slots[i].is_retired) {
            return (int32_t)i;
        }
    }
    return -1;
}

int32_t nnb_slot_of(nnburst_burst *burst, nnburst_memory *memory) {
    nnburst_device *device = burst->model->device;
    (void)pthread_mutex_lock(&device->lock);
    int32_t slot = find_slot(burst, memory);
    if (slot < 0) {
        slot = find_slot(burst, NULL);
        if (slot < 0) {
            struct nnb_slot *more =
                realloc(burst->slots, ((size_t)burst->slot_count + 1) * sizeof *more);
            if (more != NULL) {
                burst->slots = more;
                slot = (int32_t)burst->slot_count++;
                burst->slots[slot] = (struct nnb_slot){0};
            }
        }
        if (slot >= 0) {
            nnb_hold_memory(memory);
            burst->slots[slot].memory = memory;
        }
    }
    if (slot >= 0) {
        burst->slots[slot].users++;
    }
    (void)pthread_mutex_unlock(&device->lock);
    return slot;
}

void nnb_release_slot(nnburst_burst *burst, int32_t slot, uint64_t deadline_ns) {
    nnburst_device *device = burst->model->device;
    (void)pthread_mutex_lock(&device->lock);
    struct nnb_slot *found = &burst->slots[slot];
    nnburst_memory *memory = found->memory;
    bool is_last = --found->users == 0;
    if (is_last) {
        *found = (struct nnb_slot){.is_retired = true};
    }
    (void)pthread_mutex_unlock(&device->lock);
    if (!is_last) {
        return;
    }
    nnburst_free_memory(memory);
    uint8_t bytes[96];
    struct nnb_pack pack = NNB_PACK_INTO(bytes);
    nnb_pack_free_memory(&pack, burst->handle, slot);
    if (nnb_call_to_free(device, &pack, bytes, deadline_ns) == NNBURST_NO_ERROR) {
        (void)pthread_mutex_lock(&device->lock);
        burst->slots[slot].is_retired = false; /* otherwise the driver may still use it: its number is not
                                                * used again */
        (void)pthread_mutex_unlock(&device->lock);
    }
}

/* A driver that has just opened the burst knows no slot. */
static void renew_slots(nnburst_burst *burst) {
    for (uint32_t i = 0; i < burst->slot_count; i++) {
        burst->slots[i].is_retired = false;
    }
}

/* -- opening ---------------------------------------------------------------------------------------------- */

/* Finds the cores that the calling thread may run on; returns their number. */
static uint32_t allowed_cores(uint32_t *cores, uint32_t room) {
    cpu_set_t allowed;
    uint32_t count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        for (uint32_t core = 0; core < CPU_SETSIZE && count < room; core++) {
            if (CPU_ISSET(core, &allowed)) {
                cores[count++] = core;
            }
        }
    }
    return count;
}

static int lay_ring(struct nnb_ring *ring, const struct nnb_region *region,
                    const struct nnb_queue_layout *layout) {
    nnb_atomic_u64 *read_counter = (nnb_atomic_u64 *)(void *)(region->data + layout->read_counter);
    nnb_atomic_u64 *write_counter = (nnb_atomic_u64 *)(void *)(region->data + layout->write_counter);
    return nnb_ring_init(ring, region->data + layout->data, read_counter, write_counter, layout->data_bytes,
                         NNB_DATUM_BYTES, 1);
}

static nnb_atomic_u32 *flag_of(const struct nnb_region *region, const struct nnb_queue_layout *layout) {
    return (nnb_atomic_u32 *)(void *)(region->data + layout->event_flag);
}

/* Has the driver open the burst; finds whether both sides may spin. */
static int call_open(nnburst_burst *burst, const struct nnb_open_burst *call, const int *fds,
                     uint64_t deadline_ns, uint64_t *handle, bool *may_spin) {
    struct nnb_connection *connection = &burst->model->device->connection;
    uint8_t bytes[8192];
    struct nnb_pack pack = NNB_PACK_INTO(bytes);
    struct nnb_answer answer;
    nnb_pack_open_burst(&pack, call);
    int code = nnb_connection_call(connection, &pack, bytes, fds, 3, deadline_ns, &answer);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    if (!nnb_read_opened_burst(answer.result, handle, may_spin)) {
        code = nnb_fail(NNBURST_OP_FAILED, "the driver's answer about a burst is malformed");
    }
    nnb_connection_done(connection, &answer);
    return code;
}

/* Makes the number by which the driver names the burst in upcalls. */
static uint64_t new_callback(nnburst_burst *burst) {
    nnburst_device *device = burst->model->device;
    (void)pthread_mutex_lock(&device->lock);
    uint64_t callback = burst->callback = ++device->callbacks;
    (void)pthread_mutex_unlock(&device->lock);
    return callback;
}

int nnb_attach_burst(nnburst_burst *burst, uint64_t deadline_ns) {
    const nnburst_burst_options *options = &burst->options;
    struct nnb_queue_layout request_layout = nnb_layout_queue(options->channel_length);
    struct nnb_queue_layout result_layout = nnb_layout_queue(burst->result_length);
    struct nnb_region requests;
    struct nnb_region results = {.fd = -1};
    int kicks[2] = {-1, -1};
    uint32_t cores[CPU_SETSIZE];
    struct nnb_open_burst call = {
        .handle = burst->model->served.handle,
        .callback = new_callback(burst),
        .requests = request_layout,
        .results = result_layout,
        .max_in_flight = options->max_in_flight,
        .low_power = options->low_power != 0,
        .cpus = cores,
        .cpu_count = allowed_cores(cores, CPU_SETSIZE),
    };
    uint64_t handle = 0;
    bool may_spin = false;
    int code = nnb_region_create(&requests, request_layout.size, "nnburst-queue");
    if (code == NNBURST_NO_ERROR) {
        code = nnb_region_create(&results, result_layout.size, "nnburst-queue");
    }
    if (code == NNBURST_NO_ERROR && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, kicks) != 0) {
        code = nnb_fail(NNBURST_RESOURCE_EXHAUSTED, "a socket cannot be made: %s", strerror(errno));
    }
    if (code == NNBURST_NO_ERROR) {
        const int fds[3] = {requests.fd, results.fd, kicks[1]};
        code = call_open(burst, &call, fds, deadline_ns, &handle, &may_spin);
    }
    if (kicks[1] >= 0) {
        (void)close(kicks[1]);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_region_close(&requests, true);
        nnb_region_close(&results, true);
        if (kicks[0] >= 0) {
            (void)close(kicks[0]);
        }
        return code;
    }
    nnburst_device *device = burst->model->device;
    (void)pthread_mutex_lock(&device->lock); /* the connection's thread may stop it at any time from here on */
    nnb_region_close(&burst->requests, true);
    nnb_region_close(&burst->results, true);
    if (burst->kicks >= 0) {
        (void)close(burst->kicks);
    }
    burst->requests = requests;
    burst->results = results;
    burst->kicks = kicks[0];
    burst->handle = handle;
    struct nnb_client *client = &burst->client;
    *client = (struct nnb_client){
        .request_flag = flag_of(&requests, &request_layout),
        .result_flag = flag_of(&results, &result_layout),
        .packet = burst->packet,
        .max_in_flight = options->max_in_flight,
    };
    (void)lay_ring(&client->requests, &requests, &request_layout);
    (void)lay_ring(&client->results, &results, &result_layout);
    nnb_waiter_init(&client->waiter, may_spin && !options->low_power, options->spin_window_ns);
    renew_slots(burst);
    if (!nnb_connection_is_alive(&device->connection)) {
        nnb_stop_burst(burst);
    }
    (void)pthread_mutex_unlock(&device->lock);
    burst->first_submitted = burst->submitted_count = 0;
    for (nnburst_request *request = burst->open_requests; request != NULL; request = request->next) {
        nnb_renew_request(request);
    }
    return NNBURST_NO_ERROR;
}

static int read_options(nnburst_burst_options *read, const nnburst_burst_options *given, size_t size) {
    *read = (nnburst_burst_options){0};
    if (given != NULL) {
        memcpy(read, given, size < sizeof *read ? size : sizeof *read);
    }
    read->max_in_flight = read->max_in_flight == 0 ? 1 : read->max_in_flight;
    read->channel_length = read->channel_length == 0 ? NNB_BURST_CHANNEL_LENGTH : read->channel_length;
    read->spin_window_ns = read->spin_window_ns == 0 ? DEFAULT_SPIN_WINDOW_NS : read->spin_window_ns;
    if (read->max_in_flight > MAX_IN_FLIGHT) {
        return nnb_fail(NNBURST_BAD_DATA, "max_in_flight: %u, expected at most %u", read->max_in_flight,
                        MAX_IN_FLIGHT);
    }
    if (read->channel_length < 2 || read->channel_length > MAX_CHANNEL_LENGTH) {
        return nnb_fail(NNBURST_BAD_DATA, "channel_length: %u, expected 2 to %u", read->channel_length,
                        MAX_CHANNEL_LENGTH);
    }
    if (read->spin_window_ns >= LONGEST_SPIN_WINDOW_NS) {
        return nnb_fail(NNBURST_BAD_DATA, "spin_window_ns: %llu, expected less than 60 s",
                        (unsigned long long)read->spin_window_ns);
    }
    return NNBURST_NO_ERROR;
}

/* Elements of the result ring: those of each ring, or as many as the largest result has. The shapes of all
 * outputs are in it if the network leaves one of them open. */
static uint32_t result_length(const struct nnb_served_model *model, uint32_t channel_length) {
    uint64_t elements = 2;
    bool is_open = false;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const struct nnb_served_argument *output = &model->outputs[i];
        bool has_rank = output->rank != 0 || output->is_scalar;
        elements += 1u + (has_rank ? output->rank : MOST_OUTPUT_RANK);
        is_open = is_open || output->size == 0;
    }
    if (!is_open || elements <= channel_length) {
        return channel_length;
    }
    return elements < MAX_CHANNEL_LENGTH ? (uint32_t)elements : MAX_CHANNEL_LENGTH;
}

/* Has the driver open a burst, and puts the burst on the model's list. */
static int attach_listed(nnburst_burst *opened, uint64_t deadline_ns) {
    nnburst_model *model = opened->model;
    int code = nnb_attach_burst(opened, deadline_ns);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    (void)pthread_mutex_lock(&model->device->lock);
    opened->next = model->bursts;
    model->bursts = opened;
    if (!nnb_connection_is_alive(&model->device->connection)) {
        nnb_stop_burst(opened); /* the end came before it was on the list */
    }
    (void)pthread_mutex_unlock(&model->device->lock);
    return NNBURST_NO_ERROR;
}

int nnburst_open_burst(nnburst_model *model, const nnburst_burst_options *options, size_t options_size,
                       uint64_t timeout_ns, nnburst_burst **burst) {
    if (model == NULL || burst == NULL) {
        return nnb_fail_null(model == NULL ? "model" : "burst");
    }
    nnburst_burst_options read;
    int code = nnb_check_ours(model->device);
    if (code == NNBURST_NO_ERROR) {
        code = read_options(&read, options, options_size);
    }
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    nnburst_burst *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        return nnb_fail_short_of_memory();
    }
    opened->model = model;
    opened->options = read;
    opened->kicks = opened->requests.fd = opened->results.fd = -1;
    opened->result_length = result_length(&model->served, read.channel_length);
    opened->packet = malloc((size_t)opened->result_length * NNB_DATUM_BYTES);
    opened->submitted = calloc(read.max_in_flight, sizeof *opened->submitted);
    if (opened->packet == NULL || opened->submitted == NULL) {
        nnb_free_burst(opened);
        return nnb_fail_short_of_memory();
    }
    code = nnb_begin_call(model->device);
    if (code == NNBURST_NO_ERROR) {
        code = attach_listed(opened, deadline);
        nnb_end_call(model->device);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_free_burst(opened);
        return code;
    }
    *burst = opened;
    return NNBURST_NO_ERROR;
}

/* -- the end ---------------------------------------------------------------------------------------------- */

void nnb_stop_burst(nnburst_burst *burst) {
    nnb_client_stop(&burst->client);
    (void)shutdown(burst->kicks, SHUT_RDWR);
}

void nnb_free_burst(nnburst_burst *burst) {
    bool is_ours = nnb_is_ours(burst->model->device);
    while (burst->open_requests != NULL) {
        nnburst_request *request = burst->open_requests;
        burst->open_requests = request->next;
        nnb_drop_request(request);
    }
    for (uint32_t i = 0; i < burst->slot_count; i++) {
        nnburst_free_memory(burst->slots[i].memory);
    }
    free(burst->slots);
    nnb_region_close(&burst->requests, is_ours);
    nnb_region_close(&burst->results, is_ours);
    if (burst->kicks >= 0) {
        (void)close(burst->kicks);
    }
    free(burst->packet);
    free(burst->submitted);
    free(burst);
}

void nnb_close_burst(nnburst_burst *burst, uint64_t deadline_ns) {
    nnburst_model *model = burst->model;
    nnburst_device *device = model->device;
    bool is_ours = nnb_is_ours(device);
    if (is_ours) {
        (void)pthread_mutex_lock(&device->lock);
    }
    nnburst_burst **link = &model->bursts;
    while (*link != burst) {
        link = &(*link)->next;
    }
    *link = burst->next;
    if (is_ours) {
        nnb_stop_burst(burst);
        (void)pthread_mutex_unlock(&device->lock);
        (void)nnb_client_drain(&burst->client, DRAIN_TIMEOUT_NS);
        nnb_release_handle(device, burst->handle, deadline_ns);
    }
    nnb_free_burst(burst);
}

void nnburst_close_burst(nnburst_burst *burst) {
    if (burst != NULL) {
        nnb_close_burst(burst, nnb_deadline_to_free());
    }
}

int nnburst_burst_fd(const nnburst_burst *burst) { return burst == NULL ? -1 : burst->kicks; }
