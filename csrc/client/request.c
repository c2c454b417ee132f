/* Requests: gives each argument its place, and writes the packet for the driver once. */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "wire.h"

#define ALIGNMENT 64u
#define MAX_RANK 64u

static const struct nnb_served_model *served(const nnburst_request *request) {
    return &request->burst->model->served;
}

void nnb_renew_request(nnburst_request *request) { request->is_submitted = false; }

static void free_places(struct nnb_place *places, uint32_t count) {
    for (uint32_t i = 0; places != NULL && i < count; i++) {
        if (places[i].is_set) {
            nnburst_free_memory(places[i].memory);
        }
        free(places[i].dimensions);
    }
    free(places);
}

void nnb_drop_request(nnburst_request *request) {
    free_places(request->inputs, served(request)->input_count);
    free_places(request->outputs, served(request)->output_count);
    for (uint32_t i = 0; i < 2; i++) {
        free(request->sides[i].packet);
        free(request->sides[i].result);
    }
    nnburst_free_memory(request->own);
    free(request->state_places);
    free(request->slots);
    free(request);
}

int nnburst_create_request(nnburst_burst *burst, nnburst_request **request) {
    if (burst == NULL || request == NULL) {
        return nnb_fail_null(burst == NULL ? "burst" : "request");
    }
    int code = nnb_check_ours(burst->model->device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    const struct nnb_served_model *model = &burst->model->served;
    nnburst_request *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return nnb_fail_short_of_memory();
    }
    made->burst = burst;
    made->inputs = calloc((size_t)model->input_count + 1, sizeof *made->inputs);
    made->outputs = calloc((size_t)model->output_count + 1, sizeof *made->outputs);
    made->state_places = calloc((size_t)model->state_count + 1, 2 * sizeof *made->state_places);
    if (made->inputs == NULL || made->outputs == NULL || made->state_places == NULL) {
        nnb_drop_request(made);
        return nnb_fail_short_of_memory();
    }
    made->next = burst->open_requests;
    burst->open_requests = made;
    *request = made;
    return NNBURST_NO_ERROR;
}

/* Checks that a request can still be changed. */
static int check_unbound(const nnburst_request *request) {
    if (request == NULL) {
        return nnb_fail_null("request");
    }
    int code = nnb_check_ours(request->burst->model->device);
    return code == NNBURST_NO_ERROR && request->is_bound
               ? nnb_fail(NNBURST_BAD_STATE, "the request is bound already")
               : code;
}

/* The place of the program's input or output `index`; NULL if the model has no such argument. */
static struct nnb_place *place_of(const nnburst_request *request, bool output, uint32_t index) {
    const nnburst_model *model = request->burst->model;
    if (index >= (output ? model->output_count : model->input_count)) {
        return NULL;
    }
    return output ? &request->outputs[model->outputs[index]] : &request->inputs[model->inputs[index]];
}

int nnb_fail_no_such(const char *kind, uint32_t index) {
    return nnb_fail(NNBURST_BAD_DATA, "index: the model has no %s %u", kind, index);
}

static int set_place(nnburst_request *request, bool output, uint32_t index, nnburst_memory *memory,
                     size_t offset, size_t length) {
    int code = check_unbound(request);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    if (memory == NULL) {
        return nnb_fail_null("memory");
    }
    if (memory->forks != nnb_process_generation) {
        return nnb_fail(NNBURST_BAD_STATE, "memory: it was made by the process that forked this one");
    }
    struct nnb_place *place = place_of(request, output, index);
    if (place == NULL) {
        return nnb_fail_no_such(output ? "output" : "input", index);
    }
    if (length == 0 || offset > memory->region.size || length > memory->region.size - offset) {
        return nnb_fail(NNBURST_BAD_DATA, "length: %zu bytes from %zu do not lie in a memory of %llu", length,
                        offset, (unsigned long long)memory->region.size);
    }
    if (offset > UINT32_MAX || length > UINT32_MAX) {
        return nnb_fail(NNBURST_BAD_DATA, "offset: packets have 32 bits for offsets and lengths");
    }
    if (output && memory->is_read_only) {
        return nnb_fail(NNBURST_BAD_DATA, "memory: it cannot be written, expected one that an output can lie in");
    }
    nnb_hold_memory(memory);
    if (place->is_set) {
        nnburst_free_memory(place->memory);
    }
    place->memory = memory;
    place->offset = offset;
    place->length = length;
    place->is_set = true;
    place->is_omitted = false;
    return NNBURST_NO_ERROR;
}

int nnburst_set_input(nnburst_request *request, uint32_t index, nnburst_memory *memory, size_t offset,
                      size_t length) {
    return set_place(request, false, index, memory, offset, length);
}

int nnburst_set_output(nnburst_request *request, uint32_t index, nnburst_memory *memory, size_t offset,
                       size_t length) {
    return set_place(request, true, index, memory, offset, length);
}

int nnburst_omit_input(nnburst_request *request, uint32_t index) {
    int code = check_unbound(request);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    struct nnb_place *place = place_of(request, false, index);
    if (place == NULL) {
        return nnb_fail_no_such("input", index);
    }
    if (place->is_set) {
        nnburst_free_memory(place->memory);
        place->memory = NULL;
        place->is_set = false;
    }
    place->is_omitted = true;
    return NNBURST_NO_ERROR;
}

int nnburst_set_input_dimensions(nnburst_request *request, uint32_t index, const uint32_t *dimensions,
                                 uint32_t rank) {
    int code = check_unbound(request);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    struct nnb_place *place = place_of(request, false, index);
    if (place == NULL) {
        return nnb_fail_no_such("input", index);
    }
    if (dimensions == NULL) {
        return nnb_fail_null("dimensions");
    }
    const nnburst_model *model = request->burst->model;
    const struct nnb_served_argument *argument = &model->served.inputs[model->inputs[index]];
    bool fits = rank != 0 && rank <= MAX_RANK && (argument->rank == 0 || argument->rank == rank) &&
                !argument->is_scalar;
    for (uint32_t i = 0; fits && i < rank; i++) {
        uint32_t extent = argument->rank == 0 ? 0 : argument->dimensions[i];
        fits = dimensions[i] != 0 && (extent == 0 || extent == dimensions[i]);
    }
    if (!fits) {
        return nnb_fail(NNBURST_BAD_DATA, "dimensions: they do not fit those of input %u", index);
    }
    uint32_t *copy = malloc(rank * sizeof *copy);
    if (copy == NULL) {
        return nnb_fail_short_of_memory();
    }
    memcpy(copy, dimensions, rank * sizeof *copy);
    free(place->dimensions);
    place->dimensions = copy;
    place->rank = rank;
    return NNBURST_NO_ERROR;
}

int nnburst_set_measure(nnburst_request *request, int measure) {
    int code = check_unbound(request);
    if (code == NNBURST_NO_ERROR) {
        request->is_measured = measure != 0;
    }
    return code;
}

/* -- binding ---------------------------------------------------------------------------------------------- */

/* Bytes of an input of these dimensions; 0 if no memory could hold it. */
static uint64_t bytes_of(const struct nnb_served_argument *argument, const struct nnb_place *place) {
    uint64_t bytes = argument->item_size;
    for (uint32_t i = 0; i < place->rank; i++) {
        if (__builtin_mul_overflow(bytes, place->dimensions[i], &bytes)) {
            return 0;
        }
    }
    return bytes;
}

static uint64_t aligned(uint64_t offset) { return (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Reserves `bytes` at the end of a pool's layout; returns the offset. */
static uint64_t reserve(uint64_t *end, uint64_t bytes) {
    uint64_t offset = aligned(*end);
    *end = offset + bytes;
    return offset;
}

/* Checks a place against the network's description, and gives it room in the request's own memory if it has
 * none; `index` is the program's, for messages. */
static int lay_out(const struct nnb_served_argument *argument, struct nnb_place *place, bool output,
                   uint32_t index, uint64_t *end) {
    const char *kind = output ? "output" : "input";
    if (place->is_omitted) {
        return NNBURST_NO_ERROR;
    }
    uint64_t size = argument->size;
    if (size == 0 && !output) {
        if (place->dimensions == NULL) {
            return nnb_fail(NNBURST_BAD_DATA,
                            "input %u: the network leaves its shape open, expected nnburst_set_input_dimensions",
                            index);
        }
        size = bytes_of(argument, place);
    }
    if (place->is_set) {
        if (size != 0 && (output ? place->length < size : place->length != size)) {
            return nnb_fail(NNBURST_BAD_DATA, "%s %u: %llu bytes are set, expected %llu", kind, index,
                            (unsigned long long)place->length, (unsigned long long)size);
        }
        place->length = size != 0 ? size : place->length;
        return NNBURST_NO_ERROR;
    }
    if (size == 0) {
        return nnb_fail(NNBURST_BAD_DATA, "output %u: the network leaves its shape open, expected room by"
                        " nnburst_set_output", index);
    }
    if (size > UINT32_MAX) {
        return nnb_fail(NNBURST_BAD_DATA, "%s %u: %llu bytes, packets have 32 bits for lengths", kind, index,
                        (unsigned long long)size);
    }
    place->offset = reserve(end, size);
    place->length = size;
    return NNBURST_NO_ERROR;
}

/* Lays out all arguments without memory; `*end` is the size of the request's own memory. */
static int lay_out_all(nnburst_request *request, uint64_t *end) {
    const nnburst_model *model = request->burst->model;
    const struct nnb_served_model *all = &model->served;
    int code = NNBURST_NO_ERROR;
    for (uint32_t i = 0; code == NNBURST_NO_ERROR && i < model->input_count; i++) {
        code = lay_out(&all->inputs[model->inputs[i]], &request->inputs[model->inputs[i]], false, i, end);
    }
    for (uint32_t i = 0; code == NNBURST_NO_ERROR && i < model->output_count; i++) {
        code = lay_out(&all->outputs[model->outputs[i]], &request->outputs[model->outputs[i]], true, i, end);
    }
    for (uint32_t i = 0; i < all->state_count; i++) {
        const struct nnb_served_state *state = &all->states[i];
        uint64_t size = all->inputs[state->input].size;
        request->state_places[2 * i] = reserve(end, size);
        request->state_places[2 * i + 1] = reserve(end, size);
        request->inputs[state->input].length = request->outputs[state->output].length = size;
    }
    if (code == NNBURST_NO_ERROR && *end > UINT32_MAX) {
        return nnb_fail(NNBURST_BAD_DATA, "the request's own memory is larger than packets can say: set memories");
    }
    return code;
}

/* Finds a slot for each memory, and each place's position among them. */
static int find_slots(nnburst_request *request, uint32_t *pools) {
    const struct nnb_served_model *model = served(request);
    uint32_t count = model->input_count + model->output_count;
    request->slots = calloc((size_t)count + 1, sizeof *request->slots);
    if (request->slots == NULL) {
        return nnb_fail_short_of_memory();
    }
    nnburst_memory **known = calloc((size_t)count + 1, sizeof *known);
    bool fits = known != NULL;
    for (uint32_t i = 0; fits && i < count; i++) {
        const struct nnb_place *place =
            i < model->input_count ? &request->inputs[i] : &request->outputs[i - model->input_count];
        nnburst_memory *memory = place->is_set ? place->memory : request->own;
        uint32_t pool = 0;
        if (place->is_omitted) {
            continue;
        }
        while (pool < request->slot_count && known[pool] != memory) {
            pool++;
        }
        if (pool == request->slot_count) {
            int32_t slot = nnb_slot_of(request->burst, memory);
            fits = slot >= 0;
            if (fits) {
                known[pool] = memory;
                request->slots[request->slot_count++] = slot;
            }
        }
        pools[i] = pool;
    }
    free(known);
    return fits ? NNBURST_NO_ERROR : nnb_fail_short_of_memory();
}

/* -- packets ---------------------------------------------------------------------------------------------- */

static void put_u32(uint8_t *datum, uint32_t offset, uint32_t value) {
    memcpy(datum + offset, &value, sizeof value);
}

/* Begins the next element of a packet: zeroed except for the discriminator. */
static uint8_t *next_datum(uint8_t **at, uint8_t discriminator) {
    uint8_t *datum = *at;
    memset(datum, 0, NNB_DATUM_BYTES);
    datum[0] = discriminator;
    *at += NNB_DATUM_BYTES;
    return datum;
}

static void put_place(uint8_t **at, const struct nnb_place *place, uint32_t pool, uint64_t offset, bool output) {
    uint8_t *datum = next_datum(at, output ? NNB_REQUEST_OUTPUT_OPERAND_INFORMATION
                                           : NNB_REQUEST_INPUT_OPERAND_INFORMATION);
    if (place->is_omitted) {
        datum[NNB_REQUEST_HAS_NO_VALUE_OFFSET] = 1;
        return;
    }
    put_u32(datum, NNB_REQUEST_POOL_INDEX_OFFSET, pool);
    put_u32(datum, NNB_REQUEST_OFFSET_OFFSET, (uint32_t)offset);
    put_u32(datum, NNB_REQUEST_LENGTH_OFFSET, (uint32_t)place->length);
    put_u32(datum, NNB_REQUEST_NUMBER_OF_DIMENSIONS_OFFSET, place->rank);
    for (uint32_t i = 0; i < place->rank; i++) {
        put_u32(next_datum(at, NNB_REQUEST_INPUT_OPERAND_DIMENSION_VALUE), NNB_REQUEST_VALUE_OFFSET,
                place->dimensions[i]);
    }
}

/* The offset of an argument in the packet of a side; states have other places on the second side. */
static uint64_t offset_on(const nnburst_request *request, bool output, uint32_t index, uint32_t side) {
    const struct nnb_served_model *model = served(request);
    uint32_t state = nnb_find_state(model, output, index);
    if (state != model->state_count) {
        return request->state_places[2 * state + (output ? 1 - side : side)];
    }
    return output ? request->outputs[index].offset : request->inputs[index].offset;
}

static uint32_t elements_of(const nnburst_request *request) {
    const struct nnb_served_model *model = served(request);
    uint32_t elements = 2 + model->input_count + model->output_count + request->slot_count;
    for (uint32_t i = 0; i < model->input_count; i++) {
        elements += request->inputs[i].is_omitted ? 0 : request->inputs[i].rank;
    }
    return elements;
}

static int write_side(nnburst_request *request, uint32_t number, const uint32_t *pools) {
    const struct nnb_served_model *model = served(request);
    struct nnb_side *side = &request->sides[number];
    uint32_t elements = elements_of(request);
    side->packet = malloc((size_t)elements * NNB_DATUM_BYTES);
    side->result = malloc((size_t)request->burst->result_length * NNB_DATUM_BYTES);
    if (side->packet == NULL || side->result == NULL) {
        return nnb_fail_short_of_memory();
    }
    uint8_t *at = side->packet;
    uint8_t *first = next_datum(&at, NNB_REQUEST_PACKET_INFORMATION);
    put_u32(first, NNB_REQUEST_PACKET_SIZE_OFFSET, elements);
    put_u32(first, NNB_REQUEST_NUMBER_OF_INPUT_OPERANDS_OFFSET, model->input_count);
    put_u32(first, NNB_REQUEST_NUMBER_OF_OUTPUT_OPERANDS_OFFSET, model->output_count);
    put_u32(first, NNB_REQUEST_NUMBER_OF_POOLS_OFFSET, request->slot_count);
    for (uint32_t i = 0; i < model->input_count; i++) {
        put_place(&at, &request->inputs[i], pools[i], offset_on(request, false, i, number), false);
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        put_place(&at, &request->outputs[i], pools[model->input_count + i],
                  offset_on(request, true, i, number), true);
    }
    for (uint32_t i = 0; i < request->slot_count; i++) {
        put_u32(next_datum(&at, NNB_REQUEST_POOL_IDENTIFIER), NNB_REQUEST_VALUE_OFFSET,
                (uint32_t)request->slots[i]);
    }
    put_u32(next_datum(&at, NNB_REQUEST_MEASURE_TIMING), NNB_REQUEST_VALUE_OFFSET,
            request->is_measured ? NNB_MEASURE_YES : NNB_MEASURE_NO);
    side->bound = (struct nnb_bound){
        .client = &request->burst->client,
        .request = side->packet,
        .measured = request->is_measured,
        .request_count = elements,
        .result = side->result,
        .summary = {.time_on_device = NNB_NO_TIMING, .time_in_driver = NNB_NO_TIMING},
    };
    return NNBURST_NO_ERROR;
}

static void copy_initial_states(nnburst_request *request, uint32_t side) {
    const struct nnb_served_model *model = served(request);
    uint64_t from = 0;
    for (uint32_t i = 0; i < model->state_count; i++) {
        uint64_t size = model->inputs[model->states[i].input].size;
        memcpy(request->own->region.data + request->state_places[2 * i + side],
               request->burst->model->initial.data + from, size);
        from += size;
    }
}

/* Releases everything that binding has taken so far. */
static void unbind(nnburst_request *request) {
    uint64_t deadline = nnb_deadline_to_free();
    for (uint32_t i = 0; i < request->slot_count; i++) {
        nnb_release_slot(request->burst, request->slots[i], deadline);
    }
    request->slot_count = 0;
    free(request->slots);
    request->slots = NULL;
    nnburst_free_memory(request->own);
    request->own = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        free(request->sides[i].packet);
        free(request->sides[i].result);
        request->sides[i] = (struct nnb_side){.packet = NULL};
    }
}

static int bind_places(nnburst_request *request, uint32_t *pools) {
    uint64_t bytes = 0;
    int code = lay_out_all(request, &bytes);
    if (code == NNBURST_NO_ERROR && bytes != 0) {
        code = nnburst_create_memory(bytes, &request->own);
    }
    if (code == NNBURST_NO_ERROR) {
        code = find_slots(request, pools);
    }
    if (code == NNBURST_NO_ERROR && elements_of(request) > request->burst->options.channel_length) {
        code = nnb_fail(NNBURST_BAD_DATA, "the request has %u elements, the burst's channel %u",
                        elements_of(request), request->burst->options.channel_length);
    }
    uint32_t sides = served(request)->state_count != 0 ? 2 : 1;
    for (uint32_t side = 0; code == NNBURST_NO_ERROR && side < sides; side++) {
        code = write_side(request, side, pools);
    }
    return code;
}

int nnburst_bind(nnburst_request *request) {
    int code = check_unbound(request);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    const struct nnb_served_model *model = served(request);
    uint32_t *pools = calloc((size_t)model->input_count + model->output_count + 1, sizeof *pools);
    if (pools == NULL) {
        return nnb_fail_short_of_memory();
    }
    code = bind_places(request, pools);
    free(pools);
    if (code != NNBURST_NO_ERROR) {
        unbind(request);
        return code;
    }
    copy_initial_states(request, 0);
    request->is_bound = true;
    return NNBURST_NO_ERROR;
}

static void *data_of(const nnburst_request *request, bool output, uint32_t index) {
    const struct nnb_place *place =
        request == NULL || !request->is_bound || !nnb_is_ours(request->burst->model->device)
            ? NULL
            : place_of(request, output, index);
    if (place == NULL || place->is_omitted) {
        return NULL;
    }
    const nnburst_memory *memory = place->is_set ? place->memory : request->own;
    return memory->region.data + place->offset;
}

void *nnburst_input_data(const nnburst_request *request, uint32_t index) {
    return data_of(request, false, index);
}

const void *nnburst_output_data(const nnburst_request *request, uint32_t index) {
    return data_of(request, true, index);
}

int nnburst_reset_states(nnburst_request *request) {
    if (request == NULL) {
        return nnb_fail_null("request");
    }
    int code = nnb_check_ours(request->burst->model->device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    if (!request->is_bound || request->is_submitted) {
        return nnb_fail(NNBURST_BAD_STATE, request->is_submitted ? "the request is under way"
                                                                 : "the request is not bound");
    }
    copy_initial_states(request, request->turn);
    return NNBURST_NO_ERROR;
}

void nnburst_free_request(nnburst_request *request) {
    if (request == NULL) {
        return;
    }
    nnburst_burst *burst = request->burst;
    nnburst_request **link = &burst->open_requests;
    while (*link != request) {
        link = &(*link)->next;
    }
    *link = request->next;
    for (uint32_t i = 0; i < burst->submitted_count; i++) {
        uint32_t at = (burst->first_submitted + i) % burst->options.max_in_flight;
        if (burst->submitted[at] == request) {
            burst->submitted[at] = NULL;
        }
    }
    if (nnb_is_ours(burst->model->device)) {
        uint64_t deadline = nnb_deadline_to_free();
        for (uint32_t i = 0; i < request->slot_count; i++) {
            nnb_release_slot(burst, request->slots[i], deadline);
        }
    }
    nnb_drop_request(request);
}
