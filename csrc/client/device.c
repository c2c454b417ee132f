/* Finds services, connects to them, and ends the connections in forked children. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "clock.h"

#define RELEASE_TIMEOUT_NS 2000000000u
#define DRAIN_TIMEOUT_NS 1000000000u
#define RETRY_NS 2000000
/* If a service ends the connection before its first answer: the owner of its device may just have ended
 * (nnburst serve --exclusive), and a client that comes again waits for the next owner. */
#define MOST_TRIES 3
#define TRY_PAUSE_NS 50000000

/* -- forks ------------------------------------------------------------------------------------------------ */

/* The open devices, for the handler in a forked child. */
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static nnburst_device *devices;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) {
    (void)pthread_mutex_lock(&devices_lock);
    for (nnburst_device *device = devices; device != NULL; device = device->next) {
        (void)pthread_mutex_lock(&device->lock);
    }
}

static void in_parent(void) {
    for (nnburst_device *device = devices; device != NULL; device = device->next) {
        (void)pthread_mutex_unlock(&device->lock);
    }
    (void)pthread_mutex_unlock(&devices_lock);
}

/* Closes the child's copies, so that the driver notices the parent's end even if the child lives longer. */
static void in_child(void) {
    for (nnburst_device *device = devices; device != NULL; device = device->next) {
        nnb_connection_abandon(&device->connection);
        (void)pthread_mutex_unlock(&device->lock);
        for (nnburst_model *model = device->models; model != NULL; model = model->next) {
            for (nnburst_burst *burst = model->bursts; burst != NULL; burst = burst->next) {
                (void)close(burst->kicks);
                burst->kicks = -1;
            }
        }
    }
    devices = NULL;
    (void)pthread_mutex_unlock(&devices_lock);
}

static void watch_forks(void) { (void)pthread_atfork(before_fork, in_parent, in_child); }

static void list_device(nnburst_device *device) {
    (void)pthread_once(&once, watch_forks);
    (void)pthread_mutex_lock(&devices_lock);
    device->next = devices;
    devices = device;
    (void)pthread_mutex_unlock(&devices_lock);
}

static void unlist_device(const nnburst_device *device) {
    (void)pthread_mutex_lock(&devices_lock);
    nnburst_device **link = &devices;
    while (*link != NULL && *link != device) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = device->next;
    }
    (void)pthread_mutex_unlock(&devices_lock);
}

int nnb_check_ours(const nnburst_device *device) {
    return nnb_is_ours(device) ? NNBURST_NO_ERROR
                               : nnb_fail(NNBURST_BAD_STATE, "it was opened by the process that forked this one");
}

int nnb_begin_call(nnburst_device *device) {
    int code = nnb_check_ours(device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    (void)pthread_mutex_lock(&device->lock);
    bool is_reconnecting = device->is_reconnecting;
    device->calls += !is_reconnecting;
    (void)pthread_mutex_unlock(&device->lock);
    return is_reconnecting ? nnb_fail(NNBURST_DEAD_OBJECT, "another thread is reconnecting the device")
                           : NNBURST_NO_ERROR;
}

void nnb_end_call(nnburst_device *device) {
    (void)pthread_mutex_lock(&device->lock);
    if (--device->calls == 0) {
        (void)pthread_cond_signal(&device->is_quiet);
    }
    (void)pthread_mutex_unlock(&device->lock);
}

/* Lets no other thread call from now on; BUSY if another one is reconnecting. */
static int begin_reconnecting(nnburst_device *device) {
    (void)pthread_mutex_lock(&device->lock);
    bool was_reconnecting = device->is_reconnecting;
    device->is_reconnecting = true;
    (void)pthread_mutex_unlock(&device->lock);
    return was_reconnecting ? nnb_fail(NNBURST_BUSY, "another thread is reconnecting the device") : NNBURST_NO_ERROR;
}

/* Ends the calls under way, whose threads must not find another connection under theirs. */
static void end_calls(nnburst_device *device) {
    nnb_connection_hang_up(&device->connection);
    (void)pthread_mutex_lock(&device->lock);
    while (device->calls != 0) {
        (void)pthread_cond_wait(&device->is_quiet, &device->lock);
    }
    (void)pthread_mutex_unlock(&device->lock);
}

static void end_reconnecting(nnburst_device *device) {
    (void)pthread_mutex_lock(&device->lock);
    device->is_reconnecting = false;
    (void)pthread_mutex_unlock(&device->lock);
}

/* -- services --------------------------------------------------------------------------------------------- */

/* Ends every run when the driver is gone. Called on the connection's thread. */
static void end_bursts(void *owner) {
    nnburst_device *device = owner;
    (void)pthread_mutex_lock(&device->lock);
    for (nnburst_model *model = device->models; model != NULL; model = model->next) {
        for (nnburst_burst *burst = model->bursts; burst != NULL; burst = burst->next) {
            nnb_stop_burst(burst);
        }
    }
    (void)pthread_mutex_unlock(&device->lock);
}

static int open_connection(nnburst_device *device, uint64_t deadline_ns) {
    const struct nnb_upcalls upcalls = {device, nnb_answer_upcall, end_bursts};
    for (int tries = device->service.executor == NULL ? 1 : MOST_TRIES;; tries++) {
        int socket;
        int code = nnb_service_reach(&device->service, deadline_ns, &socket);
        if (code == NNBURST_NO_ERROR) {
            code = nnb_connection_open(&device->connection, socket, deadline_ns, &upcalls);
        }
        if (code != NNBURST_DEAD_OBJECT) {
            return code;
        }
        if (tries == MOST_TRIES || nnb_now_ns() + TRY_PAUSE_NS >= deadline_ns) {
            return nnb_fail(NNBURST_UNAVAILABLE_DEVICE,
                            "the driver closed the connection before its first answer");
        }
        struct timespec pause = {.tv_nsec = TRY_PAUSE_NS};
        (void)nanosleep(&pause, NULL);
    }
}

static void free_device(nnburst_device *device) {
    nnb_connection_destroy(&device->connection, nnb_is_ours(device));
    if (nnb_is_ours(device)) {
        (void)pthread_cond_destroy(&device->is_quiet); /* in a forked child it waits for the parent's threads */
    }
    (void)pthread_mutex_destroy(&device->lock);
    nnb_service_free(&device->service);
    free(device);
}

/* Makes a device without a service. */
static int make_device(nnburst_device **device) {
    nnburst_device *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return nnb_fail_short_of_memory();
    }
    int code = nnb_connection_init(&made->connection);
    if (code != NNBURST_NO_ERROR) {
        free(made);
        return code;
    }
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->is_quiet, NULL);
    nnb_count_forks();
    made->forks = nnb_process_generation;
    *device = made;
    return NNBURST_NO_ERROR;
}

/* Opens a device whose service was found if `code` is NO_ERROR; frees the device after a failure. */
static int open_device(nnburst_device *opened, int code, uint64_t deadline_ns, nnburst_device **device) {
    if (code == NNBURST_NO_ERROR) {
        code = open_connection(opened, deadline_ns);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_service_end(&opened->service, true, deadline_ns);
        free_device(opened);
        return code;
    }
    list_device(opened);
    *device = opened;
    return NNBURST_NO_ERROR;
}

int nnburst_connect(const char *name_or_path, uint32_t flags, uint64_t timeout_ns,
                    nnburst_device **device) {
    if (name_or_path == NULL || device == NULL) {
        return nnb_fail_null(name_or_path == NULL ? "name_or_path" : "device");
    }
    if ((flags & ~NNBURST_ANY_USER) != 0) {
        return nnb_fail(NNBURST_BAD_DATA, "flags: %u, expected 0 or NNBURST_ANY_USER", flags);
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    nnburst_device *opened;
    int code = make_device(&opened);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    code = nnb_service_find(&opened->service, name_or_path, (flags & NNBURST_ANY_USER) != 0);
    return open_device(opened, code, deadline, device);
}

int nnburst_launch(const char *executor, uint32_t flags, uint64_t timeout_ns, nnburst_device **device) {
    if (executor == NULL || device == NULL) {
        return nnb_fail_null(executor == NULL ? "executor" : "device");
    }
    if (flags != 0 || executor[0] == '\0') {
        return nnb_fail(NNBURST_BAD_DATA, flags != 0 ? "flags: expected 0" : "executor: it is empty");
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    nnburst_device *opened;
    int code = make_device(&opened);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    return open_device(opened, nnb_service_launched(&opened->service, executor), deadline, device);
}

int nnburst_is_alive(const nnburst_device *device) {
    return device != NULL && nnb_is_ours(device) &&
           nnb_connection_is_alive((struct nnb_connection *)(uintptr_t)&device->connection);
}

int nnburst_device_fd(const nnburst_device *device) {
    return device == NULL ? -1 : device->connection.process;
}

int32_t nnburst_device_pid(const nnburst_device *device) {
    return device == NULL ? 0 : device->connection.welcome.pid;
}

uint64_t nnb_deadline_to_free(void) { return nnb_deadline_after(nnb_now_ns(), RELEASE_TIMEOUT_NS); }

int nnb_call_to_free(nnburst_device *device, const struct nnb_pack *body, const uint8_t *begin,
                     uint64_t deadline_ns) {
    struct nnb_answer answer;
    int code = nnb_connection_call(&device->connection, body, begin, NULL, 0, deadline_ns, &answer);
    if (code == NNBURST_NO_ERROR) {
        nnb_connection_done(&device->connection, &answer);
    }
    return code;
}

void nnb_release_handle(nnburst_device *device, uint64_t handle, uint64_t deadline_ns) {
    uint8_t bytes[64];
    struct nnb_pack pack = NNB_PACK_INTO(bytes);
    nnb_pack_release(&pack, handle);
    (void)nnb_call_to_free(device, &pack, bytes, deadline_ns);
}

/* -- the end, and a new beginning ------------------------------------------------------------------------- */

/* Admits threads to the bursts before `end` again; runs end with DEAD_OBJECT if nothing was opened. */
static void leave_all(nnburst_device *device, const nnburst_burst *end) {
    for (nnburst_model *model = device->models; model != NULL; model = model->next) {
        for (nnburst_burst *burst = model->bursts; burst != NULL; burst = burst->next) {
            if (burst == end) {
                return;
            }
            nnb_gate_open(&burst->client.gate);
        }
    }
}

/* Ends the runs of all bursts and keeps threads out of them; BUSY, and no thread is kept out, if one does not
 * leave. */
static int enter_all(nnburst_device *device) {
    end_bursts(device);
    for (nnburst_model *model = device->models; model != NULL; model = model->next) {
        for (nnburst_burst *burst = model->bursts; burst != NULL; burst = burst->next) {
            if (nnb_client_drain(&burst->client, DRAIN_TIMEOUT_NS) != 0) {
                leave_all(device, burst);
                return nnb_fail(NNBURST_BUSY, "a thread is inside a burst of the device");
            }
        }
    }
    return NNBURST_NO_ERROR;
}

/* Connects; if `waits`, as soon as a service is there. */
static int reach_service(nnburst_device *device, bool waits, uint64_t deadline_ns) {
    int code = open_connection(device, deadline_ns);
    while (waits && code == NNBURST_UNAVAILABLE_DEVICE && nnb_now_ns() < deadline_ns) {
        struct timespec pause = {.tv_nsec = RETRY_NS};
        (void)nanosleep(&pause, NULL);
        code = open_connection(device, deadline_ns);
    }
    return code;
}

/* The part of nnb_reconnect during which no other thread calls. */
static int reconnect_alone(nnburst_device *device, bool waits, uint64_t deadline) {
    int code = enter_all(device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    end_calls(device);
    nnb_connection_close(&device->connection);
    code = reach_service(device, waits, deadline);
    for (nnburst_model *model = device->models; code == NNBURST_NO_ERROR && model != NULL; model = model->next) {
        code = nnb_reopen_model(model, deadline);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_connection_close(&device->connection);
    }
    leave_all(device, NULL);
    return code;
}

int nnb_reconnect(nnburst_device *device, bool waits, uint64_t timeout_ns) {
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    int code = nnb_check_ours(device);
    if (code == NNBURST_NO_ERROR) {
        code = begin_reconnecting(device);
    }
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    code = reconnect_alone(device, waits, deadline);
    end_reconnecting(device);
    return code;
}

int nnburst_reconnect(nnburst_device *device, uint64_t timeout_ns) {
    return device == NULL ? nnb_fail_null("device") : nnb_reconnect(device, true, timeout_ns);
}

void nnburst_close_device(nnburst_device *device) {
    if (device == NULL) {
        return;
    }
    bool is_ours = nnb_is_ours(device);
    if (is_ours) {
        unlist_device(device);
        (void)enter_all(device);
        nnb_connection_close(&device->connection); /* the driver drops all that it held */
    }
    nnb_service_end(&device->service, is_ours, UINT64_MAX);
    while (device->models != NULL) {
        nnburst_model *model = device->models;
        device->models = model->next;
        nnb_free_model(model, is_ours);
    }
    free_device(device);
}
