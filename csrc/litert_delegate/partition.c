#include "litert_delegate/partition.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANK = 64, LEAST_ROOM = 4096 };

/* An input or output in the driver's form. */
struct border {
    size_t bytes; /* of an output whose extents an execution finds out: of its room */
    uint32_t extents[MOST_RANK];
    uint32_t rank;
    size_t element_bytes;
    nnburst_memory *room; /* of such an output; NULL for any other */
};

struct nnb_partition {
    struct nnb_partition *next;
    struct nnb_driver *driver;
    struct nnb_network network; /* its file is here only until the driver has it */
    nnburst_memory *file;
    struct border *inputs;
    struct border *outputs;
    nnburst_model *model;
    nnburst_burst *burst;
    nnburst_request *request;
};

/* -- extents ---------------------------------------------------------------------------------------------- */

static bool find_tensor(const struct tfl_context *context, int index, struct tfl_tensor **tensor,
                        struct nnb_reason *reason) {
    if ((size_t)index >= context->tensor_count) {
        return nnb_refuse(reason, "nnburst: tensor %d, there are %zu", index, context->tensor_count);
    }
    *tensor = &context->tensors[index];
    return true;
}

static bool has_extents(const struct tfl_tensor *tensor, const uint32_t *extents, uint32_t rank) {
    const struct tfl_ints *dimensions = tensor->dimensions;
    if (dimensions == NULL || (uint32_t)dimensions->size != rank) {
        return false;
    }
    for (uint32_t i = 0; i < rank; i++) {
        if ((uint32_t)dimensions->data[i] != extents[i]) {
            return false;
        }
    }
    return true;
}

/* Whether an output has become a scalar since its file was written, as the engine has found: the driver's is one
 * element along one axis. */
static bool is_scalar_now(const struct nnb_partition *partition, uint32_t index, const struct tfl_tensor *tensor,
                          const uint32_t *extents, uint32_t rank) {
    return !partition->network.are_expanded[index] && rank == 1 && extents[0] == 1 && has_extents(tensor, NULL, 0);
}

static bool note_input(const struct nnb_partition *partition, const struct tfl_context *context, size_t index,
                       struct nnb_reason *reason) {
    struct border *border = &partition->inputs[index];
    struct tfl_tensor *tensor = NULL;
    if (!find_tensor(context, partition->network.inputs[index], &tensor, reason) ||
        !nnb_tensor_bytes(tensor, partition->network.inputs[index], &border->bytes, reason)) {
        return false;
    }
    border->rank = (uint32_t)tensor->dimensions->size;
    for (uint32_t i = 0; i < border->rank; i++) {
        border->extents[i] = (uint32_t)tensor->dimensions->data[i];
    }
    return true;
}

/* Stores the present extents of the inputs, after checking them. */
static bool note_inputs(const struct nnb_partition *partition, const struct tfl_context *context,
                        struct nnb_reason *reason) {
    for (size_t i = 0; i < partition->network.input_count; i++) {
        if (!note_input(partition, context, i, reason)) {
            return false;
        }
    }
    return true;
}

/* Has the engine give a tensor other extents; the engine owns the list then. */
static bool resize(struct tfl_context *context, struct tfl_tensor *tensor, const uint32_t *extents, uint32_t rank,
                   struct nnb_reason *reason) {
    struct tfl_ints *list = malloc(sizeof *list + rank * sizeof(int));
    if (list == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    list->size = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        list->data[i] = (int)extents[i];
    }
    return context->resize(context, tensor, list) == TFL_OK || nnb_refuse(reason, "nnburst: the engine resizes no output");
}

/* -- preparation ------------------------------------------------------------------------------------------ */

/* Releases the driver's model, burst and request of the partition. */
static void forget(struct nnb_partition *partition) {
    nnburst_close_model(partition->model); /* and its burst and request */
    partition->model = NULL;
    partition->burst = NULL;
    partition->request = NULL;
}

/* The same, for callers outside the driver's lock. */
static void forget_alone(struct nnb_partition *partition) {
    (void)pthread_rwlock_rdlock(&partition->driver->recovery);
    forget(partition);
    (void)pthread_rwlock_unlock(&partition->driver->recovery);
}

/* Has the driver prepare the network's file. */
static int prepare_file(struct nnb_partition *partition) {
    struct nnb_flat *flat = &partition->network.file;
    nnburst_memory *file = NULL;
    int code = nnburst_create_memory(flat->count, &file);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    memcpy(nnburst_memory_data(file), flat->data, flat->count);
    nnb_flat_free(flat);
    nnburst_free_memory(partition->file);
    partition->file = file;
    const nnburst_prepare_options options = {.num_threads = partition->driver->num_threads};
    return nnburst_prepare(partition->driver->device, file, &options, sizeof options, partition->driver->timeout_ns,
                           &partition->model);
}

/* Compares an input with the driver's description of it. */
static bool check_input(const struct nnb_partition *partition, uint32_t index, struct nnb_reason *reason) {
    nnburst_operand operand;
    const size_t bytes = partition->inputs[index].bytes;
    const int code = nnburst_input(partition->model, index, &operand, sizeof operand);
    return (code == NNBURST_NO_ERROR && operand.size == bytes) ||
           nnb_refuse(reason, "nnburst: input %u has %zu bytes, the driver's another size", index, bytes);
}

/* Takes an output's extents from the driver's, which have one more if it is expanded. */
static bool take_extents(const struct nnb_partition *partition, uint32_t index, const uint32_t *given, uint32_t given_rank,
                         uint32_t *extents, uint32_t *rank, struct nnb_reason *reason) {
    const uint32_t more = partition->network.are_expanded[index];
    if (given_rank < more || given_rank > MOST_RANK) {
        return nnb_refuse(reason, "nnburst: output %u of the driver has %u extents, expected %u to %d", index, given_rank,
                          more, MOST_RANK);
    }
    *rank = given_rank - more;
    memcpy(extents, given + more, *rank * sizeof *extents);
    return true;
}

/* Stores the known facts about an output before an execution. */
static bool note_output(const struct nnb_partition *partition, uint32_t index, struct nnb_reason *reason) {
    struct border *border = &partition->outputs[index];
    nnburst_operand operand;
    const int code = nnburst_output(partition->model, index, &operand, sizeof operand);
    if (code != NNBURST_NO_ERROR || operand.element_size == 0) {
        return nnb_refuse(reason, "nnburst: output %u of the driver has no type", index);
    }
    nnburst_free_memory(border->room);
    border->room = NULL;
    border->element_bytes = operand.element_size;
    border->bytes = operand.size;
    if (operand.size != 0) {
        return take_extents(partition, index, operand.dimensions, operand.rank, border->extents, &border->rank, reason);
    }
    border->bytes = LEAST_ROOM;
    const int made = nnburst_create_memory(border->bytes, &border->room);
    return made == NNBURST_NO_ERROR || nnb_refuse_failed(reason, "an output has no room", made);
}

/* Binds a new request to the rooms. */
static int bind(struct nnb_partition *partition) {
    nnburst_free_request(partition->request);
    partition->request = NULL;
    int code = nnburst_create_request(partition->burst, &partition->request);
    for (uint32_t i = 0; code == NNBURST_NO_ERROR && i < partition->network.output_count; i++) {
        const struct border *border = &partition->outputs[i];
        if (border->room != NULL) {
            code = nnburst_set_output(partition->request, i, border->room, 0, border->bytes);
        }
    }
    return code == NNBURST_NO_ERROR ? nnburst_bind(partition->request) : code;
}

static bool look_at_border(const struct nnb_partition *partition, struct nnb_reason *reason) {
    const struct nnb_network *network = &partition->network;
    if (nnburst_input_count(partition->model) != network->input_count ||
        nnburst_output_count(partition->model) != network->output_count) {
        return nnb_refuse(reason, "nnburst: the driver finds other inputs or outputs");
    }
    for (uint32_t i = 0; i < network->input_count; i++) {
        if (!check_input(partition, i, reason)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < network->output_count; i++) {
        if (!note_output(partition, i, reason)) {
            return false;
        }
    }
    return true;
}

/* Has the driver prepare the written file for the stored extents of inputs. */
static bool prepare(struct nnb_partition *partition, bool *is_refused, struct nnb_reason *reason) {
    (void)pthread_rwlock_rdlock(&partition->driver->recovery);
    forget(partition);
    int code = prepare_file(partition);
    *is_refused = code == NNBURST_BAD_DATA;
    bool prepared = code == NNBURST_NO_ERROR || nnb_refuse_failed(reason, "nodes are not prepared", code);
    if (prepared) {
        prepared = look_at_border(partition, reason);
    }
    if (prepared) {
        code = nnburst_open_burst(partition->model, NULL, 0, partition->driver->timeout_ns, &partition->burst);
        code = code == NNBURST_NO_ERROR ? bind(partition) : code;
        prepared = code == NNBURST_NO_ERROR || nnb_refuse_failed(reason, "a request cannot be bound", code);
    }
    if (!prepared) {
        forget(partition);
    }
    (void)pthread_rwlock_unlock(&partition->driver->recovery);
    return prepared;
}

bool nnb_partition_open(struct nnb_driver *driver, struct tfl_context *context, const struct tfl_partition *given,
                        struct nnb_partition **partition, bool *is_refused, struct nnb_reason *reason) {
    struct nnb_partition *made = calloc(1, sizeof *made);
    *is_refused = false;
    if (made == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    made->driver = driver;
    bool opened = nnb_driver_recover(driver, reason) && nnb_network_write(context, given, &made->network, reason);
    if (opened) {
        made->inputs = calloc(made->network.input_count + 1, sizeof *made->inputs);
        made->outputs = calloc(made->network.output_count + 1, sizeof *made->outputs);
        opened = (made->inputs != NULL && made->outputs != NULL) || nnb_refuse(reason, "nnburst: memory is short");
    }
    if (!opened || !note_inputs(made, context, reason) || !prepare(made, is_refused, reason)) {
        nnb_partition_close(made);
        return false;
    }
    *partition = made;
    return true;
}

void nnb_partition_close(struct nnb_partition *partition) {
    if (partition == NULL) {
        return;
    }
    forget_alone(partition);
    for (size_t i = 0; partition->outputs != NULL && i < partition->network.output_count; i++) {
        nnburst_free_memory(partition->outputs[i].room);
    }
    nnburst_free_memory(partition->file);
    free(partition->inputs);
    free(partition->outputs);
    nnb_network_free(&partition->network);
    free(partition);
}

bool nnb_partition_has(const struct nnb_partition *partition, const struct tfl_ints *nodes) {
    return nnb_network_has(&partition->network, nodes);
}

struct nnb_partition **nnb_partition_next(struct nnb_partition *partition) { return &partition->next; }

/* -- other extents ---------------------------------------------------------------------------------------- */

static bool are_inputs_as_prepared(const struct nnb_partition *partition, const struct tfl_context *context) {
    for (size_t i = 0; i < partition->network.input_count; i++) {
        const size_t index = (size_t)partition->network.inputs[i];
        if (index >= context->tensor_count ||
            !has_extents(&context->tensors[index], partition->inputs[i].extents, partition->inputs[i].rank)) {
            return false;
        }
    }
    return true;
}

/* Has the driver prepare the file with other extents. */
static bool prepare_as(struct nnb_partition *partition, const struct tfl_context *context, enum nnb_role output,
                       bool *is_refused, struct nnb_reason *reason) {
    *is_refused = false;
    return nnb_network_rewrite(&partition->network, context, nnburst_memory_data(partition->file), output, reason) &&
           prepare(partition, is_refused, reason);
}

/* Has the driver prepare the file with the present extents of inputs. The engine's extents of outputs may be
 * old, since it stops at a node whose extents only an execution determines; then the driver determines them
 * in executions, too. */
static bool prepare_again(struct nnb_partition *partition, const struct tfl_context *context, struct nnb_reason *reason) {
    bool is_refused;
    const bool prepared = nnb_driver_recover(partition->driver, reason) && note_inputs(partition, context, reason) &&
                          (prepare_as(partition, context, NNB_OUTPUT, &is_refused, reason) ||
                           (is_refused && prepare_as(partition, context, NNB_UNKNOWN_OUTPUT, &is_refused, reason)));
    if (!prepared) { /* the prepared model is for other inputs than the stored ones */
        forget_alone(partition);
    }
    return prepared;
}

bool nnb_partition_adapt(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason) {
    const bool is_prepared = partition->request != NULL && are_inputs_as_prepared(partition, context);
    if (!is_prepared && !prepare_again(partition, context, reason)) {
        return false;
    }
    for (uint32_t i = 0; i < partition->network.output_count; i++) {
        const struct border *border = &partition->outputs[i];
        struct tfl_tensor *tensor = NULL;
        if (!find_tensor(context, partition->network.outputs[i], &tensor, reason)) {
            return false;
        }
        if (border->room != NULL) {
            if (tensor->allocation != TFL_DYNAMIC) { /* as the engine's own nodes do it */
                tensor->allocation = TFL_DYNAMIC;
                tensor->data = NULL;
            }
        } else if (!has_extents(tensor, border->extents, border->rank) &&
                   !is_scalar_now(partition, i, tensor, border->extents, border->rank) &&
                   !resize(context, tensor, border->extents, border->rank, reason)) {
            return false;
        }
    }
    return true;
}

/* -- executions ------------------------------------------------------------------------------------------- */

/* Finds the extents and the bytes of an output after an execution. */
static bool find_extents(const struct nnb_partition *partition, uint32_t index, uint32_t *extents, uint32_t *rank,
                         size_t *bytes, struct nnb_reason *reason) {
    uint32_t found[MOST_RANK];
    uint32_t found_rank = MOST_RANK;
    const int code = nnburst_output_dimensions(partition->request, index, found, &found_rank);
    if (code != NNBURST_NO_ERROR) {
        return nnb_refuse_failed(reason, "an output has no extents", code);
    }
    if (!take_extents(partition, index, found, found_rank, extents, rank, reason)) {
        return false;
    }
    *bytes = partition->outputs[index].element_bytes;
    for (uint32_t i = 0; i < *rank; i++) {
        if (extents[i] > INT32_MAX || __builtin_mul_overflow(*bytes, extents[i], bytes)) {
            return nnb_refuse(reason, "nnburst: output %u has more elements than memory", index);
        }
    }
    return true;
}

/* Gives more room to outputs that had too little. */
static bool widen(struct nnb_partition *partition, struct nnb_reason *reason) {
    bool is_wider = false;
    for (uint32_t i = 0; i < partition->network.output_count; i++) {
        struct border *border = &partition->outputs[i];
        uint32_t extents[MOST_RANK];
        uint32_t rank;
        size_t bytes;
        if (border->room == NULL) {
            continue;
        }
        if (!find_extents(partition, i, extents, &rank, &bytes, reason)) {
            return false;
        }
        if (bytes > border->bytes) {
            nnburst_memory *room = NULL;
            const int code = nnburst_create_memory(bytes, &room);
            if (code != NNBURST_NO_ERROR) {
                return nnb_refuse_failed(reason, "an output has no room", code);
            }
            nnburst_free_memory(border->room);
            border->room = room;
            border->bytes = bytes;
            is_wider = true;
        }
    }
    if (!is_wider) {
        return nnb_refuse(reason, "nnburst: the driver names no output that needs more room");
    }
    const int code = bind(partition);
    return code == NNBURST_NO_ERROR || nnb_refuse_failed(reason, "a request cannot be bound", code);
}

static bool copy_inputs(const struct nnb_partition *partition, const struct tfl_context *context,
                        struct nnb_reason *reason) {
    const struct nnb_network *network = &partition->network;
    for (uint32_t i = 0; i < network->input_count; i++) {
        const struct tfl_tensor *tensor = &context->tensors[network->inputs[i]];
        if (tensor->data == NULL || tensor->bytes != partition->inputs[i].bytes) {
            return nnb_refuse(reason, "nnburst: tensor %d has %zu bytes, expected %zu as prepared", network->inputs[i],
                              tensor->data == NULL ? 0 : tensor->bytes, partition->inputs[i].bytes);
        }
        memcpy(nnburst_input_data(partition->request, i), tensor->data, tensor->bytes);
    }
    return true;
}

/* Copies an output to the engine, with the extents that the execution has determined. */
static bool copy_output(const struct nnb_partition *partition, struct tfl_context *context, uint32_t index,
                        struct nnb_reason *reason) {
    const struct border *border = &partition->outputs[index];
    struct tfl_tensor *tensor = NULL;
    size_t bytes = border->bytes;
    if (!find_tensor(context, partition->network.outputs[index], &tensor, reason)) {
        return false;
    }
    if (border->room != NULL || tensor->allocation == TFL_DYNAMIC) {
        uint32_t extents[MOST_RANK];
        uint32_t rank;
        if (!find_extents(partition, index, extents, &rank, &bytes, reason)) {
            return false;
        }
        rank = is_scalar_now(partition, index, tensor, extents, rank) ? 0 : rank;
        if (bytes > border->bytes || !resize(context, tensor, extents, rank, reason)) {
            return nnb_refuse(reason, "nnburst: output %u has %zu bytes, and no room for them", index, bytes);
        }
    }
    if (tensor->bytes != bytes || (bytes != 0 && tensor->data == NULL)) {
        return nnb_refuse(reason, "nnburst: tensor %d has %zu bytes, the driver's output %zu",
                          partition->network.outputs[index], tensor->bytes, bytes);
    }
    if (bytes != 0) {
        memcpy(tensor->data, nnburst_output_data(partition->request, index), bytes);
    }
    return true;
}

static bool execute(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason) {
    int code = NNBURST_OUTPUT_INSUFFICIENT_SIZE;
    while (code == NNBURST_OUTPUT_INSUFFICIENT_SIZE) {
        if (!copy_inputs(partition, context, reason)) {
            return false;
        }
        code = nnburst_run(partition->request, partition->driver->timeout_ns);
        if (code == NNBURST_OUTPUT_INSUFFICIENT_SIZE && !widen(partition, reason)) {
            return false;
        }
    }
    if (code != NNBURST_NO_ERROR) {
        return nnb_refuse(reason, "nnburst: the driver's execution failed: %s", nnburst_result_name(code));
    }
    for (uint32_t i = 0; i < partition->network.output_count; i++) {
        if (!copy_output(partition, context, i, reason)) {
            return false;
        }
    }
    return true;
}

bool nnb_partition_run(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason) {
    if (partition->request == NULL || !are_inputs_as_prepared(partition, context)) {
        return nnb_refuse(reason, "nnburst: these inputs were not prepared");
    }
    if (!nnb_driver_recover(partition->driver, reason)) {
        return false;
    }
    (void)pthread_rwlock_rdlock(&partition->driver->recovery);
    const bool executed = execute(partition, context, reason);
    (void)pthread_rwlock_unlock(&partition->driver->recovery);
    return executed;
}
