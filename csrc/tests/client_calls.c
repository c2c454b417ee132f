/* The functions of nnburst.h in random order, with whatever arguments: pointers are live objects or NULL, numbers are anything.
 * Now and then it kills the worker that serves it. Usage: client_calls ADDRESS SEED CALLS */
#include <nnburst.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "code_counts.h"
#include "random.h"

#define MOST 4u
#define SECOND 1000000000ull

static uint64_t state;

/* One object, and what it was opened from. */
struct object {
    void *pointer;
    void *parent;
};

static struct object devices[MOST];
static struct object models[MOST];
static struct object bursts[MOST];
static struct object requests[MOST * 2];
static struct object memories[MOST];

static uint64_t any(uint64_t bound) { return next_random(&state) % bound; }

/* A live object of a table, or NULL. */
static void *pick(const struct object *table, size_t size) {
    return any(16) == 0 ? NULL : table[any(size)].pointer;
}

#define PICK(table) pick(table, sizeof(table) / sizeof *(table))

static struct object *empty(struct object *table, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (table[i].pointer == NULL) {
            return &table[i];
        }
    }
    return NULL;
}

#define EMPTY(table) empty(table, sizeof(table) / sizeof *(table))

/* Forgets one object of a table. */
static void forget(struct object *table, size_t size, const void *pointer) {
    for (size_t i = 0; i < size; i++) {
        if (table[i].pointer == pointer) {
            table[i] = (struct object){0};
        }
    }
}

static void forget_requests(const void *burst) {
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (requests[i].parent == burst) {
            requests[i] = (struct object){0};
        }
    }
}

static void forget_bursts(const void *model) {
    for (size_t i = 0; i < MOST; i++) {
        if (bursts[i].pointer != NULL && bursts[i].parent == model) {
            forget_requests(bursts[i].pointer);
            bursts[i] = (struct object){0};
        }
    }
}

static void forget_models(const void *device) {
    for (size_t i = 0; i < MOST; i++) {
        if (models[i].pointer != NULL && models[i].parent == device) {
            forget_bursts(models[i].pointer);
            models[i] = (struct object){0};
        }
    }
}

/* A small number, a large one, or one at an edge. */
static uint64_t number(void) {
    static const uint64_t edges[] = {0, 1, 23, 24, 25, 64, 255, 4096, UINT32_MAX, INT64_MAX, UINT64_MAX};
    return any(2) == 0 ? any(32) : any(8) == 0 ? next_random(&state) : edges[any(sizeof edges / sizeof *edges)];
}

static uint64_t moment(void) { return any(4) == 0 ? any(200000) : 20 * SECOND; }

/* Prepares whatever lies in a memory, which is hardly ever a network. */
static int prepare(nnburst_device *device, nnburst_model **model) {
    const char *names[2] = {"weights", any(4) ? "more" : NULL};
    nnburst_memory *others[2] = {PICK(memories), PICK(memories)};
    const nnburst_prepare_options options = {names, any(16) ? others : NULL, (uint32_t)any(3),
                                             (uint32_t)(any(4) ? 0 : number())};
    const struct object *file = &memories[any(MOST)];
    uint8_t *data = nnburst_memory_data(file->pointer);
    if (file->parent != NULL && nnburst_memory_size(file->pointer) >= 8) {
        memcpy(data, any(2) ? "\x08\x08\x3a\x03:::" : "\0\0\0\0TFL3", 8);
    }
    return nnburst_prepare(device, file->pointer, any(4) ? &options : NULL,
                           any(8) ? sizeof options : (size_t)any(sizeof options), moment(), model);
}

static void open_something(const char *address) {
    static const char *const names[] = {"add", "both", "quantised", "accumulate", "none", ""};
    struct object *place;
    void *made = NULL;
    void *parent;
    nnburst_burst_options options;
    switch (any(6)) {
    case 0:
        place = EMPTY(devices);
        if (place != NULL && count(nnburst_connect(any(16) ? address : "no-service", (uint32_t)(any(16) ? 0 : number()),
                                                   moment(), (nnburst_device **)&made)) == NNBURST_NO_ERROR) {
            *place = (struct object){made, NULL};
        }
        break;
    case 1:
        place = EMPTY(models);
        parent = PICK(devices);
        if (place != NULL &&
            count(nnburst_open_model(parent, names[any(6)], (uint32_t)(any(4) ? 0 : number()), moment(),
                                     (nnburst_model **)&made)) == NNBURST_NO_ERROR) {
            *place = (struct object){made, parent};
        }
        break;
    case 2:
        place = EMPTY(bursts);
        parent = PICK(models);
        options = (nnburst_burst_options){
            .max_in_flight = (uint32_t)any(4),
            .channel_length = any(8) ? 0 : (uint32_t)number(),
            .spin_window_ns = any(8) ? 1000 : number(),
            .low_power = (uint32_t)any(2),
        };
        if (place != NULL &&
            count(nnburst_open_burst(parent, any(4) ? &options : NULL, any(8) ? sizeof options : (size_t)any(24),
                                     moment(), (nnburst_burst **)&made)) == NNBURST_NO_ERROR) {
            *place = (struct object){made, parent};
        }
        break;
    case 3:
        place = EMPTY(requests);
        parent = PICK(bursts);
        if (place != NULL && count(nnburst_create_request(parent, (nnburst_request **)&made)) == NNBURST_NO_ERROR) {
            *place = (struct object){made, parent};
        }
        break;
    case 4:
        place = EMPTY(models);
        parent = PICK(devices);
        if (place != NULL && count(prepare(parent, (nnburst_model **)&made)) == NNBURST_NO_ERROR) {
            *place = (struct object){made, parent};
        }
        break;
    default:
        place = EMPTY(memories);
        if (place != NULL && any(2)) {
            if (count(nnburst_create_memory((size_t)any(8192), (nnburst_memory **)&made)) == NNBURST_NO_ERROR) {
                *place = (struct object){made, place}; /* it can be written */
            }
        } else if (place != NULL && count(nnburst_memory_from_fd((int)any(64), (nnburst_memory **)&made)) ==
                                        NNBURST_NO_ERROR) {
            *place = (struct object){made, NULL};
        }
    }
}

static void close_something(void) {
    void *pointer;
    switch (any(24)) {
    case 0:
        pointer = PICK(devices);
        forget_models(pointer);
        forget(devices, MOST, pointer);
        nnburst_close_device(pointer);
        break;
    case 1:
        pointer = PICK(models);
        forget_bursts(pointer);
        forget(models, MOST, pointer);
        nnburst_close_model(pointer);
        break;
    case 2:
    case 3:
        pointer = PICK(bursts);
        forget_requests(pointer);
        forget(bursts, MOST, pointer);
        nnburst_close_burst(pointer);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
        pointer = PICK(requests);
        forget(requests, sizeof requests / sizeof *requests, pointer);
        nnburst_free_request(pointer);
        break;
    case 8:
        pointer = PICK(memories);
        forget(memories, MOST, pointer);
        nnburst_free_memory(pointer);
        break;
    default:
        break;
    }
}

/* Workers die now and then. */
static void kill_something(void) {
    nnburst_device *device = PICK(devices);
    int32_t worker = nnburst_device_pid(device);
    if (worker > 0 && nnburst_is_alive(device)) {
        (void)kill((pid_t)worker, SIGKILL);
    }
}

static void fill(void *data) {
    if (data != NULL) {
        memset(data, (int)any(3), 4); /* every input has so many bytes */
    }
}

static void use_something(void) {
    nnburst_request *request = PICK(requests);
    nnburst_burst *burst = PICK(bursts);
    uint32_t dimensions[4] = {(uint32_t)any(4), (uint32_t)number(), 3, 1};
    uint32_t rank = (uint32_t)any(5);
    uint64_t times[2];
    nnburst_request *collected = NULL;
    nnburst_models *list = NULL;
    union {
        nnburst_operand operand;
        char bytes[sizeof(nnburst_operand) + 32];
    } described;
    switch (any(20)) {
    case 0:
        (void)count(nnburst_set_input(request, (uint32_t)any(3), PICK(memories), (size_t)number(), (size_t)number()));
        break;
    case 1:
        (void)count(nnburst_set_output(request, (uint32_t)any(3), PICK(memories), (size_t)number(), (size_t)number()));
        break;
    case 2:
        (void)count(nnburst_set_input_dimensions(request, (uint32_t)any(3), any(8) ? dimensions : NULL, rank));
        break;
    case 3:
        (void)count(nnburst_omit_input(request, (uint32_t)(any(8) ? 9 : any(3))));
        break;
    case 4:
        (void)count(nnburst_set_measure(request, (int)any(2)));
        break;
    case 5:
    case 6:
        (void)count(nnburst_bind(request));
        break;
    case 7:
        fill(nnburst_input_data(request, (uint32_t)any(3)));
        (void)nnburst_output_data(request, (uint32_t)number());
        break;
    case 8:
        (void)count(nnburst_timing(request, times, any(8) ? times + 1 : NULL));
        break;
    case 9:
        (void)count(nnburst_output_dimensions(request, (uint32_t)any(3), any(8) ? dimensions : NULL, any(8) ? &rank : NULL));
        break;
    case 10:
        (void)count(nnburst_reset_states(request));
        break;
    case 11:
        (void)count(nnburst_submit(request));
        break;
    case 12:
        (void)count(nnburst_poll(burst));
        break;
    case 13:
        (void)count(nnburst_collect(burst, moment(), any(8) ? &collected : NULL));
        break;
    case 14:
        if (count(nnburst_list_models(PICK(devices), moment(), &list)) == NNBURST_NO_ERROR) {
            (void)nnburst_models_name(list, (uint32_t)number());
            (void)nnburst_models_version(list, (uint32_t)number());
            nnburst_free_models(list);
        }
        break;
    case 15:
        (void)count(nnburst_input(PICK(models), (uint32_t)any(4), any(8) ? &described.operand : NULL,
                                  (size_t)any(sizeof described + 1)));
        (void)count(nnburst_output(PICK(models), (uint32_t)any(4), &described.operand, sizeof described));
        break;
    case 16:
        (void)nnburst_result_name((int)number());
        (void)nnburst_error_message();
        (void)nnburst_burst_fd(burst);
        (void)nnburst_memory_data(PICK(memories));
        (void)nnburst_model_name(PICK(models));
        break;
    case 17:
        if (any(64) == 0) {
            (void)count(nnburst_reconnect(PICK(devices), moment()));
        }
        break;
    case 18:
        if (any(256) == 0) {
            kill_something();
        }
        break;
    default:
        (void)count(nnburst_run(request, moment()));
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        (void)fprintf(stderr, "usage: %s ADDRESS SEED CALLS\n", argv[0]);
        return 2;
    }
    unsigned long calls = strtoul(argv[3], NULL, 10);
    state = strtoul(argv[2], NULL, 10) * 2 + 1;
    for (unsigned long i = 0; i < calls; i++) {
        switch (any(16)) {
        case 0:
        case 1:
            open_something(argv[1]);
            break;
        case 2:
            close_something();
            break;
        default:
            use_something();
        }
    }
    for (size_t i = 0; i < MOST; i++) {
        nnburst_close_device(devices[i].pointer);
        nnburst_free_memory(memories[i].pointer);
    }
    print_codes(calls);
    return 0;
}
