/* The networks that a service serves: their names, and the descriptions of inputs and outputs. */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "clock.h"

#define MAX_THREADS 1024u

/* -- lists ------------------------------------------------------------------------------------------------ */

struct nnburst_models {
    struct nnb_served_name *names;
    uint32_t count;
};

static int list_models(nnburst_device *device, uint64_t deadline_ns, nnburst_models **models) {
    uint8_t bytes[64];
    struct nnb_pack pack = NNB_PACK_INTO(bytes);
    struct nnb_answer answer;
    nnb_pack_get_served_models(&pack);
    int code = nnb_connection_call(&device->connection, &pack, bytes, NULL, 0, deadline_ns, &answer);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    nnburst_models *list = calloc(1, sizeof *list);
    if (list == NULL) {
        code = nnb_fail_short_of_memory();
    } else if (!nnb_read_served_models(answer.result, &list->names, &list->count)) {
        code = nnb_fail(NNBURST_OP_FAILED, "the driver's list of models is malformed");
        free(list);
    } else {
        *models = list;
    }
    nnb_connection_done(&device->connection, &answer);
    return code;
}

int nnburst_list_models(nnburst_device *device, uint64_t timeout_ns, nnburst_models **models) {
    if (device == NULL || models == NULL) {
        return nnb_fail_null(device == NULL ? "device" : "models");
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    int code = nnb_begin_call(device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    code = list_models(device, deadline, models);
    nnb_end_call(device);
    return code;
}

uint32_t nnburst_models_count(const nnburst_models *models) { return models == NULL ? 0 : models->count; }

const char *nnburst_models_name(const nnburst_models *models, uint32_t index) {
    return index < nnburst_models_count(models) ? models->names[index].name : NULL;
}

uint32_t nnburst_models_version(const nnburst_models *models, uint32_t index) {
    return index < nnburst_models_count(models) ? models->names[index].version : 0;
}

void nnburst_free_models(nnburst_models *models) {
    if (models != NULL) {
        nnb_free_names(models->names, models->count);
        free(models);
    }
}

/* -- networks --------------------------------------------------------------------------------------------- */

/* Bytes of the states' values together. */
static uint64_t state_bytes(const struct nnb_served_model *served) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < served->state_count; i++) {
        bytes += served->inputs[served->states[i].input].size;
    }
    return bytes;
}

/* Has the driver open a network, or prepare one from files, and reads its description. */
static int open_network(const nnburst_model *model, const char *name, uint32_t version, uint64_t deadline_ns,
                        struct nnb_served_model *served, struct nnb_region *initial) {
    struct nnb_connection *connection = &model->device->connection;
    const char *names[NNB_MAX_OTHER_FILES + 1];
    int fds[NNB_MAX_OTHER_FILES + 1];
    uint32_t count = model->file_count;
    size_t room = 256 + (count == 0 ? strlen(name) : 0);
    for (uint32_t i = 0; i < count; i++) {
        names[i] = model->files[i].name;
        fds[i] = model->files[i].memory->region.fd;
        room += strlen(names[i]) + 8;
    }
    *served = (struct nnb_served_model){0};
    *initial = (struct nnb_region){.fd = -1};
    uint8_t *bytes = malloc(room);
    if (bytes == NULL) {
        return nnb_fail_short_of_memory();
    }
    struct nnb_pack pack = {bytes, bytes + room, false};
    struct nnb_answer answer;
    if (count == 0) {
        nnb_pack_open_served_model(&pack, name, version);
    } else {
        nnb_pack_prepare_graph(&pack, names + 1, count - 1, model->num_threads);
    }
    int code = nnb_connection_call(connection, &pack, bytes, fds, count, deadline_ns, &answer);
    free(bytes);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    if (!nnb_read_served_model(answer.result, served)) {
        code = nnb_fail(NNBURST_OP_FAILED, "the driver's description of a model is malformed");
    } else if (served->state_count != 0) {
        code = nnb_region_adopt(initial, nnb_answer_take(&answer, 0), false);
        if (code == NNBURST_NO_ERROR && initial->size < state_bytes(served)) {
            code = nnb_fail(NNBURST_OP_FAILED, "the driver's values of states are too short");
        }
    }
    nnb_connection_done(connection, &answer);
    return code;
}

/* Indexes of those of `count` arguments that are not states; NULL without enough memory. */
static uint32_t *others(const struct nnb_served_model *served, bool outputs, uint32_t count) {
    uint32_t *indexes = calloc((size_t)count + 1, sizeof *indexes);
    uint32_t found = 0;
    for (uint32_t i = 0; indexes != NULL && i < count; i++) {
        if (nnb_find_state(served, outputs, i) == served->state_count) {
            indexes[found++] = i;
        }
    }
    return indexes;
}

void nnb_free_model(nnburst_model *model, bool is_ours) {
    while (model->bursts != NULL) {
        nnburst_burst *burst = model->bursts;
        model->bursts = burst->next;
        nnb_free_burst(burst);
    }
    nnb_region_close(&model->initial, is_ours);
    nnb_free_served_model(&model->served);
    for (uint32_t i = 0; i < model->file_count; i++) {
        free(model->files[i].name);
        nnburst_free_memory(model->files[i].memory);
    }
    free(model->files);
    free(model->inputs);
    free(model->outputs);
    free(model);
}

/* Has the driver open a model, and puts the model on the device's list. */
static int open_listed(nnburst_model *opened, const char *name, uint32_t version, uint64_t deadline_ns) {
    nnburst_device *device = opened->device;
    struct nnb_served_model *served = &opened->served;
    int code = open_network(opened, name, version, deadline_ns, served, &opened->initial);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    opened->inputs = others(served, false, served->input_count);
    opened->outputs = others(served, true, served->output_count);
    opened->input_count = served->input_count - served->state_count;
    opened->output_count = served->output_count - served->state_count;
    if (opened->inputs == NULL || opened->outputs == NULL) {
        return nnb_fail_short_of_memory();
    }
    (void)pthread_mutex_lock(&device->lock);
    opened->next = device->models;
    device->models = opened;
    (void)pthread_mutex_unlock(&device->lock);
    return NNBURST_NO_ERROR;
}

/* Opens a model that has its device, and its files if it has any; frees it if that fails. */
static int finish_model(nnburst_model *opened, const char *name, uint32_t version, uint64_t deadline_ns,
                        nnburst_model **model) {
    nnburst_device *device = opened->device;
    int code = nnb_begin_call(device);
    if (code == NNBURST_NO_ERROR) {
        code = open_listed(opened, name, version, deadline_ns);
        nnb_end_call(device);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_free_model(opened, true);
        return code;
    }
    *model = opened;
    return NNBURST_NO_ERROR;
}

/* Makes a model that is not open yet. */
static int make_model(nnburst_device *device, nnburst_model **made) {
    int code = nnb_check_ours(device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    *made = calloc(1, sizeof **made);
    if (*made == NULL) {
        return nnb_fail_short_of_memory();
    }
    (*made)->device = device;
    (*made)->initial.fd = -1;
    return NNBURST_NO_ERROR;
}

int nnburst_open_model(nnburst_device *device, const char *name, uint32_t version, uint64_t timeout_ns,
                       nnburst_model **model) {
    if (device == NULL || name == NULL || model == NULL) {
        return nnb_fail_null(device == NULL ? "device" : name == NULL ? "name" : "model");
    }
    if (strlen(name) > NNB_MAX_TEXT_BYTES) {
        return nnb_fail(NNBURST_BAD_DATA, "name: %zu bytes, expected at most %u", strlen(name),
                        NNB_MAX_TEXT_BYTES);
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    nnburst_model *opened;
    int code = make_model(device, &opened);
    return code != NNBURST_NO_ERROR ? code : finish_model(opened, name, version, deadline, model);
}

/* Stores a file of a model. */
static int keep_file(nnburst_model *model, const char *name, nnburst_memory *memory) {
    if (name == NULL || memory == NULL) {
        return nnb_fail_null(name == NULL ? "names" : "file, memories");
    }
    if (strlen(name) > NNB_MAX_TEXT_BYTES) {
        return nnb_fail(NNBURST_BAD_DATA, "names: one has %zu bytes, expected at most %u", strlen(name),
                        NNB_MAX_TEXT_BYTES);
    }
    char *copy = strdup(name);
    if (copy == NULL) {
        return nnb_fail_short_of_memory();
    }
    nnb_hold_memory(memory);
    model->files[model->file_count++] = (struct nnb_file){copy, memory};
    return NNBURST_NO_ERROR;
}

int nnburst_prepare(nnburst_device *device, nnburst_memory *file, const nnburst_prepare_options *options,
                    size_t options_size, uint64_t timeout_ns, nnburst_model **model) {
    if (device == NULL || model == NULL) {
        return nnb_fail_null(device == NULL ? "device" : "model");
    }
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    nnburst_prepare_options given = {0};
    if (options != NULL) {
        memcpy(&given, options, options_size < sizeof given ? options_size : sizeof given);
    }
    if (given.count > NNB_MAX_OTHER_FILES || given.num_threads > MAX_THREADS) {
        return nnb_fail(NNBURST_BAD_DATA, "options: %u files, %u threads, expected at most %u and %u", given.count,
                        given.num_threads, NNB_MAX_OTHER_FILES, MAX_THREADS);
    }
    if (given.count != 0 && (given.names == NULL || given.memories == NULL)) {
        return nnb_fail_null(given.names == NULL ? "options.names" : "options.memories");
    }
    nnburst_model *opened;
    int code = make_model(device, &opened);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    opened->num_threads = given.num_threads;
    opened->files = calloc((size_t)given.count + 1, sizeof *opened->files);
    code = opened->files == NULL ? nnb_fail_short_of_memory() : keep_file(opened, "", file);
    for (uint32_t i = 0; code == NNBURST_NO_ERROR && i < given.count; i++) {
        code = keep_file(opened, given.names[i], given.memories[i]);
    }
    if (code != NNBURST_NO_ERROR) {
        nnb_free_model(opened, true);
        return code;
    }
    return finish_model(opened, "", 0, deadline, model);
}

const char *nnburst_model_name(const nnburst_model *model) { return model == NULL ? NULL : model->served.name; }

uint32_t nnburst_model_version(const nnburst_model *model) {
    return model == NULL ? 0 : model->served.version;
}

uint32_t nnburst_input_count(const nnburst_model *model) { return model == NULL ? 0 : model->input_count; }

uint32_t nnburst_output_count(const nnburst_model *model) { return model == NULL ? 0 : model->output_count; }

uint32_t nnburst_state_count(const nnburst_model *model) {
    return model == NULL ? 0 : model->served.state_count;
}

static uint32_t element_of(const struct nnb_served_argument *argument) {
    switch (argument->kind) {
    case 'b':
        return argument->item_size == 1 ? NNBURST_BOOL8 : NNBURST_OPAQUE;
    case 'f':
        return argument->item_size == 2   ? NNBURST_FLOAT16
               : argument->item_size == 4 ? NNBURST_FLOAT32
               : argument->item_size == 8 ? NNBURST_FLOAT64
                                          : NNBURST_OPAQUE;
    case 'i':
    case 'u':
        for (uint32_t power = 0; power < 4; power++) {
            if (argument->item_size == 1u << power) {
                return NNBURST_INT8 + 2 * power + (argument->kind == 'u');
            }
        }
        return NNBURST_OPAQUE;
    default:
        return NNBURST_OPAQUE;
    }
}

static int describe(const struct nnb_served_argument *argument, nnburst_operand *operand, size_t size) {
    const nnburst_operand described = {
        .name = argument->name,
        .dimensions = argument->dimensions,
        .rank = argument->rank,
        .element = element_of(argument),
        .element_size = argument->item_size,
        .type = argument->type,
        .size = argument->size,
        .scale = argument->scale,
        .zero_point = argument->zero_point,
    };
    memset(operand, 0, size); /* fields of a later header, which this library lacks */
    memcpy(operand, &described, size < sizeof described ? size : sizeof described);
    return NNBURST_NO_ERROR;
}

static int describe_at(const nnburst_model *model, bool output, uint32_t index, nnburst_operand *operand,
                       size_t size) {
    if (model == NULL || operand == NULL) {
        return nnb_fail_null(model == NULL ? "model" : "operand");
    }
    int code = nnb_check_ours(model->device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    uint32_t count = output ? model->output_count : model->input_count;
    if (index >= count) {
        return nnb_fail(NNBURST_BAD_DATA, "index: %u, the model has %u %s", index, count,
                        output ? "outputs" : "inputs");
    }
    return describe(output ? &model->served.outputs[model->outputs[index]]
                           : &model->served.inputs[model->inputs[index]],
                    operand, size);
}

int nnburst_input(const nnburst_model *model, uint32_t index, nnburst_operand *operand,
                  size_t operand_size) {
    return describe_at(model, false, index, operand, operand_size);
}

int nnburst_output(const nnburst_model *model, uint32_t index, nnburst_operand *operand,
                   size_t operand_size) {
    return describe_at(model, true, index, operand, operand_size);
}

void nnburst_close_model(nnburst_model *model) {
    if (model == NULL) {
        return;
    }
    nnburst_device *device = model->device;
    bool is_ours = nnb_is_ours(device);
    uint64_t deadline = nnb_deadline_to_free();
    if (is_ours) {
        while (model->bursts != NULL) {
            nnb_close_burst(model->bursts, deadline);
        }
        (void)pthread_mutex_lock(&device->lock);
    }
    nnburst_model **link = &device->models;
    while (*link != model) {
        link = &(*link)->next;
    }
    *link = model->next;
    if (is_ours) {
        (void)pthread_mutex_unlock(&device->lock);
        nnb_release_handle(device, model->served.handle, deadline);
    }
    nnb_free_model(model, is_ours);
}

int nnb_reopen_model(nnburst_model *model, uint64_t deadline_ns) {
    struct nnb_served_model served;
    struct nnb_region initial;
    int code = open_network(model, model->served.name, model->served.version, deadline_ns, &served, &initial);
    if (code == NNBURST_NO_ERROR && !nnb_same_served_model(&served, &model->served)) {
        code = nnb_fail(NNBURST_BAD_DATA, "%s version %u has other inputs or outputs now", model->served.name,
                        model->served.version);
    }
    if (code == NNBURST_NO_ERROR) {
        model->served.handle = served.handle;
    }
    nnb_free_served_model(&served);
    nnb_region_close(&initial, true); /* the present state values belong to the same network */
    for (nnburst_burst *burst = model->bursts; code == NNBURST_NO_ERROR && burst != NULL; burst = burst->next) {
        code = nnb_attach_burst(burst, deadline_ns);
    }
    return code;
}
