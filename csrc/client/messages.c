#include "client/messages.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define MAX_RANK 64u
#define MAX_ARGUMENTS 4096u
#define CACHE_LINE 64u
#define SYNCHRONIZED 1
#define LOW_POWER 0
#define FAST_SINGLE_ANSWER 1

/* -- the envelope ----------------------------------------------------------------------------------------- */

bool nnb_read_envelope(const uint8_t *packet, size_t bytes, struct nnb_envelope *envelope) {
    struct nnb_unpack unpack = {packet, packet + bytes, false};
    if (nnb_unpack_array(&unpack) != 4) {
        return false;
    }
    envelope->id = (uint64_t)nnb_unpack_int(&unpack, 0, INT64_MAX);
    envelope->fds = (uint32_t)nnb_unpack_int(&unpack, 0, NNB_MAX_FDS);
    envelope->body = nnb_unpack_bin(&unpack);
    envelope->large_size = (uint64_t)nnb_unpack_int(&unpack, 0, INT64_MAX);
    return nnb_unpack_ended(&unpack);
}

size_t nnb_write_packet(uint8_t *packet, size_t room, uint64_t id, uint32_t fds, const uint8_t *body,
                        size_t bytes) {
    struct nnb_pack pack = {packet, packet + room, bytes > NNB_MAX_INLINE_BYTES};
    nnb_pack_array(&pack, 4);
    nnb_pack_uint(&pack, id);
    nnb_pack_uint(&pack, fds);
    nnb_pack_bin(&pack, (uint32_t)bytes);
    nnb_pack_raw(&pack, body, bytes);
    nnb_pack_uint(&pack, 0);
    return pack.full ? 0 : (size_t)(pack.at - packet);
}

/* -- calls ------------------------------------------------------------------------------------------------ */

/* Begins a message with `fields` fields: a map that also has the name. */
static void begin(struct nnb_pack *pack, const char *name, uint32_t fields) {
    nnb_pack_map(pack, fields + 1);
    nnb_pack_text(pack, "message");
    nnb_pack_text(pack, name);
}

static void pack_field(struct nnb_pack *pack, const char *name, uint64_t value) {
    nnb_pack_text(pack, name);
    nnb_pack_uint(pack, value);
}

void nnb_pack_hello(struct nnb_pack *pack) {
    begin(pack, "Hello", 2);
    pack_field(pack, "protocol", NNB_PROTOCOL_VERSION);
    pack_field(pack, "feature_level", NNB_FEATURE_LEVEL);
}

void nnb_pack_get_served_models(struct nnb_pack *pack) { begin(pack, "GetServedModels", 0); }

void nnb_pack_open_served_model(struct nnb_pack *pack, const char *name, uint32_t version) {
    begin(pack, "OpenServedModel", 2);
    nnb_pack_text(pack, "name");
    nnb_pack_text(pack, name);
    pack_field(pack, "version", version);
}

void nnb_pack_prepare_graph(struct nnb_pack *pack, const char *const *names, uint32_t count, uint32_t num_threads) {
    begin(pack, "PrepareGraph", 2);
    nnb_pack_text(pack, "files");
    nnb_pack_array(pack, count);
    for (uint32_t i = 0; i < count; i++) {
        nnb_pack_text(pack, names[i]);
    }
    pack_field(pack, "num_threads", num_threads);
}

struct nnb_queue_layout nnb_layout_queue(uint32_t elements) {
    struct nnb_queue_layout layout = {
        .read_counter = 0,
        .write_counter = CACHE_LINE,
        .data = (uint64_t)2 * CACHE_LINE,
        .data_bytes = (uint64_t)elements * NNB_DATUM_BYTES,
    };
    layout.event_flag = (layout.data + layout.data_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    layout.size = layout.event_flag + sizeof(uint32_t);
    return layout;
}

static void pack_grantor(struct nnb_pack *pack, uint64_t offset, uint64_t extent) {
    nnb_pack_array(pack, 4);
    nnb_pack_uint(pack, 0); /* flags */
    nnb_pack_uint(pack, 0); /* the only region */
    nnb_pack_uint(pack, offset);
    nnb_pack_uint(pack, extent);
}

static void pack_queue(struct nnb_pack *pack, const char *field, const struct nnb_queue_layout *layout) {
    nnb_pack_text(pack, field);
    nnb_pack_map(pack, 3);
    nnb_pack_text(pack, "grantors");
    nnb_pack_array(pack, 4);
    pack_grantor(pack, layout->read_counter, sizeof(uint64_t));
    pack_grantor(pack, layout->write_counter, sizeof(uint64_t));
    pack_grantor(pack, layout->data, layout->data_bytes);
    pack_grantor(pack, layout->event_flag, sizeof(uint32_t));
    pack_field(pack, "quantum", NNB_DATUM_BYTES);
    pack_field(pack, "flags", SYNCHRONIZED);
}

void nnb_pack_open_burst(struct nnb_pack *pack, const struct nnb_open_burst *call) {
    begin(pack, "ConfigureExecutionBurst", 7);
    pack_field(pack, "handle", call->handle);
    pack_field(pack, "callback", call->callback);
    pack_queue(pack, "request_channel", &call->requests);
    pack_queue(pack, "result_channel", &call->results);
    pack_field(pack, "max_in_flight", call->max_in_flight);
    nnb_pack_text(pack, "cpus");
    nnb_pack_array(pack, call->cpu_count);
    for (uint32_t i = 0; i < call->cpu_count; i++) {
        nnb_pack_uint(pack, call->cpus[i]);
    }
    pack_field(pack, "preference", call->low_power ? LOW_POWER : FAST_SINGLE_ANSWER);
}

void nnb_pack_free_memory(struct nnb_pack *pack, uint64_t burst, int32_t slot) {
    begin(pack, "FreeMemory", 2);
    pack_field(pack, "handle", burst);
    nnb_pack_text(pack, "slot");
    nnb_pack_int(pack, slot);
}

void nnb_pack_release(struct nnb_pack *pack, uint64_t handle) {
    begin(pack, "Release", 1);
    pack_field(pack, "handle", handle);
}

/* -- answers ---------------------------------------------------------------------------------------------- */

bool nnb_read_reply(struct nnb_unpack body, struct nnb_reply *reply) {
    *reply = (struct nnb_reply){.message = {"", 0}};
    for (uint32_t pairs = nnb_unpack_map(&body); pairs != 0; pairs--) {
        struct nnb_text key = nnb_unpack_text(&body);
        if (nnb_text_is(key, "status")) {
            reply->status = (int32_t)nnb_unpack_int(&body, 0, INT32_MAX);
        } else if (nnb_text_is(key, "message")) {
            reply->message = nnb_unpack_text(&body);
        } else if (nnb_text_is(key, "result") && !nnb_unpack_nil(&body)) {
            reply->result = nnb_unpack_value(&body);
        } else if (!nnb_text_is(key, "result")) {
            nnb_unpack_skip(&body);
        }
    }
    return nnb_unpack_ended(&body);
}

/* Whether the map that is read has this name. The name is not consumed: the caller reads it again with the
 * fields. */
static bool is_named(struct nnb_text key, struct nnb_unpack *result, const char *name, bool *found) {
    if (!nnb_text_is(key, "message")) {
        return false;
    }
    *found = nnb_text_is(nnb_unpack_text(result), name);
    return true;
}

bool nnb_is_result(struct nnb_unpack result, const char *name) {
    bool found = false;
    for (uint32_t pairs = nnb_unpack_map(&result); pairs != 0 && !result.bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(&result);
        if (!is_named(key, &result, name, &found)) {
            nnb_unpack_skip(&result);
        }
    }
    return found && nnb_unpack_ended(&result);
}

bool nnb_read_welcome(struct nnb_unpack result, struct nnb_welcome *welcome) {
    *welcome = (struct nnb_welcome){0};
    bool found = false;
    for (uint32_t pairs = nnb_unpack_map(&result); pairs != 0 && !result.bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(&result);
        if (is_named(key, &result, "Welcome", &found)) {
            continue;
        }
        if (nnb_text_is(key, "protocol")) {
            welcome->protocol = nnb_unpack_int(&result, INT64_MIN, INT64_MAX);
        } else if (nnb_text_is(key, "feature_level")) {
            welcome->feature_level = nnb_unpack_int(&result, INT64_MIN, INT64_MAX);
        } else if (nnb_text_is(key, "pid")) {
            welcome->pid = (int32_t)nnb_unpack_int(&result, 0, INT32_MAX);
        } else if (nnb_text_is(key, "death_word")) {
            welcome->death_word = nnb_unpack_bool(&result);
        } else {
            nnb_unpack_skip(&result);
        }
    }
    return found && nnb_unpack_ended(&result);
}

/* Reads a text as a terminated copy. NULL, with the reader bad, if it has a zero byte, or without enough
 * memory. Networks name their tensors as they like, so only the message's size bounds a text. */
static char *copied(struct nnb_unpack *unpack) {
    struct nnb_text text = nnb_unpack_text(unpack);
    bool fits = !unpack->bad && memchr(text.at, 0, text.length) == NULL;
    char *copy = fits ? malloc(text.length + 1u) : NULL;
    if (copy == NULL) {
        unpack->bad = true;
        return NULL;
    }
    memcpy(copy, text.at, text.length);
    copy[text.length] = '\0';
    return copy;
}

/* Allocates zeroed room for an array's items. NULL, with the reader bad, if there are too many, or not enough
 * memory, or if `*items` exists already: a field that comes twice is refused. */
static void *array_of(struct nnb_unpack *unpack, const void *before, size_t item_bytes, uint32_t most,
                      uint32_t *count) {
    uint32_t found = nnb_unpack_array(unpack);
    void *items = before == NULL && !unpack->bad && found <= most
                      ? calloc((size_t)found + 1, item_bytes)
                      : NULL;
    if (items == NULL) {
        unpack->bad = true;
        return NULL;
    }
    *count = found;
    return items;
}

void nnb_free_names(struct nnb_served_name *names, uint32_t count) {
    for (uint32_t i = 0; names != NULL && i < count; i++) {
        free(names[i].name);
    }
    free(names);
}

static void read_served_name(struct nnb_unpack *unpack, struct nnb_served_name *served) {
    for (uint32_t pairs = nnb_unpack_map(unpack); pairs != 0 && !unpack->bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(unpack);
        if (nnb_text_is(key, "name") && served->name == NULL) {
            served->name = copied(unpack);
        } else if (nnb_text_is(key, "version")) {
            served->version = (uint32_t)nnb_unpack_int(unpack, 1, INT32_MAX);
        } else {
            nnb_unpack_skip(unpack);
        }
    }
    unpack->bad = unpack->bad || served->name == NULL || served->version == 0;
}

bool nnb_read_served_models(struct nnb_unpack result, struct nnb_served_name **names, uint32_t *count) {
    *names = NULL;
    *count = 0;
    bool found = false;
    for (uint32_t pairs = nnb_unpack_map(&result); pairs != 0 && !result.bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(&result);
        if (is_named(key, &result, "ServedModels", &found)) {
            continue;
        }
        if (nnb_text_is(key, "models")) {
            struct nnb_served_name *items =
                array_of(&result, *names, sizeof **names, UINT16_MAX, count);
            *names = items == NULL ? *names : items;
            for (uint32_t i = 0; items != NULL && i < *count; i++) {
                read_served_name(&result, &items[i]);
            }
        } else {
            nnb_unpack_skip(&result);
        }
    }
    if (found && *names != NULL && nnb_unpack_ended(&result)) {
        return true;
    }
    nnb_free_names(*names, *count);
    *names = NULL;
    *count = 0;
    return false;
}

static void read_operand(struct nnb_unpack *unpack, struct nnb_served_argument *argument) {
    for (uint32_t pairs = nnb_unpack_map(unpack); pairs != 0 && !unpack->bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(unpack);
        if (nnb_text_is(key, "type")) {
            argument->type = (int32_t)nnb_unpack_int(unpack, INT32_MIN, INT32_MAX);
        } else if (nnb_text_is(key, "dimensions")) {
            argument->dimensions = array_of(unpack, argument->dimensions, sizeof(uint32_t), MAX_RANK,
                                            &argument->rank);
            for (uint32_t i = 0; argument->dimensions != NULL && i < argument->rank; i++) {
                argument->dimensions[i] = (uint32_t)nnb_unpack_int(unpack, 0, UINT32_MAX);
            }
        } else if (nnb_text_is(key, "scale")) {
            argument->scale = (float)nnb_unpack_number(unpack);
        } else if (nnb_text_is(key, "zero_point")) {
            argument->zero_point = (int32_t)nnb_unpack_int(unpack, INT32_MIN, INT32_MAX);
        } else {
            nnb_unpack_skip(unpack);
        }
    }
}

/* Reads numpy's data types, such as "<f4" or "|u1": byte order, kind, and bytes in decimal. */
static void read_data_type(struct nnb_unpack *unpack, struct nnb_served_argument *argument) {
    struct nnb_text text = nnb_unpack_text(unpack);
    bool fits = !unpack->bad && text.length >= 3 && text.length <= 8 &&
                (text.at[0] == '<' || text.at[0] == '|') && memchr("fiubV", text.at[1], 5) != NULL;
    uint32_t size = 0;
    for (uint32_t i = 2; fits && i < text.length; i++) {
        fits = text.at[i] >= '0' && text.at[i] <= '9';
        size = 10 * size + (uint32_t)(text.at[i] - '0');
    }
    if (!fits || size == 0) {
        unpack->bad = true;
        return;
    }
    argument->kind = text.at[1];
    argument->item_size = size;
}

/* Bytes of a tensor; 0 if its shape is not known or no memory could hold it. */
static uint64_t size_of(const struct nnb_served_argument *argument) {
    uint64_t size = argument->item_size;
    if (argument->is_scalar) {
        return size;
    }
    if (argument->rank == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < argument->rank; i++) {
        if (__builtin_mul_overflow(size, argument->dimensions[i], &size)) {
            return 0;
        }
    }
    return size;
}

static void read_argument(struct nnb_unpack *unpack, struct nnb_served_argument *argument) {
    for (uint32_t pairs = nnb_unpack_map(unpack); pairs != 0 && !unpack->bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(unpack);
        if (nnb_text_is(key, "name") && argument->name == NULL) {
            argument->name = copied(unpack);
        } else if (nnb_text_is(key, "operand")) {
            read_operand(unpack, argument);
        } else if (nnb_text_is(key, "data_type")) {
            read_data_type(unpack, argument);
        } else if (nnb_text_is(key, "is_scalar")) {
            argument->is_scalar = nnb_unpack_bool(unpack);
        } else {
            nnb_unpack_skip(unpack);
        }
    }
    unpack->bad = unpack->bad || argument->name == NULL || argument->item_size == 0;
    if (!unpack->bad) {
        argument->size = size_of(argument);
    }
}

static struct nnb_served_argument *read_arguments(struct nnb_unpack *unpack,
                                                  struct nnb_served_argument *before, uint32_t *count) {
    struct nnb_served_argument *arguments =
        array_of(unpack, before, sizeof *arguments, MAX_ARGUMENTS, count);
    for (uint32_t i = 0; arguments != NULL && i < *count; i++) {
        read_argument(unpack, &arguments[i]);
    }
    return arguments == NULL ? before : arguments;
}

static void read_state(struct nnb_unpack *unpack, struct nnb_served_state *state) {
    *state = (struct nnb_served_state){UINT32_MAX, UINT32_MAX};
    for (uint32_t pairs = nnb_unpack_map(unpack); pairs != 0 && !unpack->bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(unpack);
        if (nnb_text_is(key, "input_index")) {
            state->input = (uint32_t)nnb_unpack_int(unpack, 0, MAX_ARGUMENTS);
        } else if (nnb_text_is(key, "output_index")) {
            state->output = (uint32_t)nnb_unpack_int(unpack, 0, MAX_ARGUMENTS);
        } else {
            nnb_unpack_skip(unpack);
        }
    }
}

/* Whether each state is an input and an output of the same known size, and no input or output is two states.
 * */
static bool are_states(const struct nnb_served_model *model) {
    for (uint32_t i = 0; i < model->state_count; i++) {
        const struct nnb_served_state *state = &model->states[i];
        if (state->input >= model->input_count || state->output >= model->output_count) {
            return false;
        }
        uint64_t size = model->inputs[state->input].size;
        if (size == 0 || size != model->outputs[state->output].size) {
            return false;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (model->states[k].input == state->input || model->states[k].output == state->output) {
                return false;
            }
        }
    }
    return true;
}

bool nnb_read_served_model(struct nnb_unpack result, struct nnb_served_model *model) {
    *model = (struct nnb_served_model){0};
    bool found = false;
    for (uint32_t pairs = nnb_unpack_map(&result); pairs != 0 && !result.bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(&result);
        if (is_named(key, &result, "OpenedServedModel", &found)) {
            continue;
        }
        if (nnb_text_is(key, "handle")) {
            model->handle = (uint64_t)nnb_unpack_int(&result, 1, INT64_MAX);
        } else if (nnb_text_is(key, "name") && model->name == NULL) {
            model->name = copied(&result);
        } else if (nnb_text_is(key, "version")) {
            model->version = (uint32_t)nnb_unpack_int(&result, 1, INT32_MAX);
        } else if (nnb_text_is(key, "inputs")) {
            model->inputs = read_arguments(&result, model->inputs, &model->input_count);
        } else if (nnb_text_is(key, "outputs")) {
            model->outputs = read_arguments(&result, model->outputs, &model->output_count);
        } else if (nnb_text_is(key, "states")) {
            struct nnb_served_state *states = array_of(&result, model->states, sizeof *states,
                                                       MAX_ARGUMENTS, &model->state_count);
            model->states = states == NULL ? model->states : states;
            for (uint32_t i = 0; states != NULL && i < model->state_count; i++) {
                read_state(&result, &states[i]);
            }
        } else {
            nnb_unpack_skip(&result);
        }
    }
    return found && nnb_unpack_ended(&result) && model->handle != 0 && model->name != NULL &&
           model->version != 0 && model->inputs != NULL && model->outputs != NULL && are_states(model);
}

uint32_t nnb_find_state(const struct nnb_served_model *model, bool output, uint32_t index) {
    uint32_t state = 0;
    while (state < model->state_count &&
           (output ? model->states[state].output : model->states[state].input) != index) {
        state++;
    }
    return state;
}

static void free_arguments(struct nnb_served_argument *arguments, uint32_t count) {
    for (uint32_t i = 0; arguments != NULL && i < count; i++) {
        free(arguments[i].name);
        free(arguments[i].dimensions);
    }
    free(arguments);
}

void nnb_free_served_model(struct nnb_served_model *model) {
    free_arguments(model->inputs, model->input_count);
    free_arguments(model->outputs, model->output_count);
    free(model->states);
    free(model->name);
    *model = (struct nnb_served_model){0};
}

static bool same_arguments(const struct nnb_served_argument *one, const struct nnb_served_argument *other,
                           uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const struct nnb_served_argument *a = &one[i];
        const struct nnb_served_argument *b = &other[i];
        bool same_quantisation = memcmp(&a->scale, &b->scale, sizeof a->scale) == 0 &&
                                 a->zero_point == b->zero_point;
        if (strcmp(a->name, b->name) != 0 || a->type != b->type || a->kind != b->kind ||
            a->item_size != b->item_size || a->is_scalar != b->is_scalar || a->rank != b->rank ||
            !same_quantisation ||
            (a->rank != 0 && memcmp(a->dimensions, b->dimensions, a->rank * sizeof *a->dimensions) != 0)) {
            return false;
        }
    }
    return true;
}

bool nnb_same_served_model(const struct nnb_served_model *one, const struct nnb_served_model *other) {
    return one->input_count == other->input_count && one->output_count == other->output_count &&
           one->state_count == other->state_count &&
           same_arguments(one->inputs, other->inputs, one->input_count) &&
           same_arguments(one->outputs, other->outputs, one->output_count) &&
           (one->state_count == 0 ||
            memcmp(one->states, other->states, one->state_count * sizeof *one->states) == 0);
}

uint64_t nnb_read_handle(struct nnb_unpack result) {
    uint64_t handle = 0;
    for (uint32_t pairs = nnb_unpack_map(&result); pairs != 0 && !result.bad; pairs--) {
        if (nnb_text_is(nnb_unpack_text(&result), "handle")) {
            handle = (uint64_t)nnb_unpack_int(&result, 1, INT64_MAX);
        } else {
            nnb_unpack_skip(&result);
        }
    }
    return nnb_unpack_ended(&result) ? handle : 0;
}

bool nnb_read_opened_burst(struct nnb_unpack result, uint64_t *handle, bool *may_spin) {
    *handle = 0;
    *may_spin = false;
    bool found = false;
    for (uint32_t pairs = nnb_unpack_map(&result); pairs != 0 && !result.bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(&result);
        if (is_named(key, &result, "Opened", &found)) {
            continue;
        }
        if (nnb_text_is(key, "handle")) {
            *handle = (uint64_t)nnb_unpack_int(&result, 1, INT64_MAX);
        } else if (nnb_text_is(key, "fields")) {
            for (uint32_t fields = nnb_unpack_map(&result); fields != 0 && !result.bad; fields--) {
                if (nnb_text_is(nnb_unpack_text(&result), "may_spin")) {
                    *may_spin = nnb_unpack_int(&result, 0, INT64_MAX) != 0;
                } else {
                    nnb_unpack_skip(&result);
                }
            }
        } else {
            nnb_unpack_skip(&result);
        }
    }
    return found && nnb_unpack_ended(&result) && *handle != 0;
}

/* -- upcalls ---------------------------------------------------------------------------------------------- */

static enum nnb_upcall_kind kind_of(struct nnb_text name) {
    return nnb_text_is(name, "GetMemories")   ? NNB_GET_MEMORIES
           : nnb_text_is(name, "BurstClosed") ? NNB_BURST_CLOSED
           : nnb_text_is(name, "Ping")        ? NNB_PING
                                              : NNB_OTHER_UPCALL;
}

bool nnb_read_upcall(struct nnb_unpack body, struct nnb_upcall *upcall) {
    *upcall = (struct nnb_upcall){.kind = NNB_OTHER_UPCALL};
    for (uint32_t pairs = nnb_unpack_map(&body); pairs != 0 && !body.bad; pairs--) {
        struct nnb_text key = nnb_unpack_text(&body);
        if (nnb_text_is(key, "message")) {
            upcall->kind = kind_of(nnb_unpack_text(&body));
        } else if (nnb_text_is(key, "callback")) {
            upcall->callback = (uint64_t)nnb_unpack_int(&body, 0, INT64_MAX);
        } else if (nnb_text_is(key, "slots")) {
            upcall->slot_count = nnb_unpack_array(&body);
            body.bad = body.bad || upcall->slot_count > NNB_MAX_FDS;
            for (uint32_t i = 0; !body.bad && i < upcall->slot_count; i++) {
                upcall->slots[i] = (int32_t)nnb_unpack_int(&body, INT32_MIN, INT32_MAX);
            }
        } else {
            nnb_unpack_skip(&body);
        }
    }
    return nnb_unpack_ended(&body);
}

/* Begins a reply of status NONE with a result of `fields` fields. */
static void begin_result(struct nnb_pack *pack, const char *name, uint32_t fields) {
    nnb_pack_map(pack, 2);
    pack_field(pack, "status", NNB_STATUS_NONE);
    nnb_pack_text(pack, "result");
    begin(pack, name, fields);
}

void nnb_pack_memories(struct nnb_pack *pack, const uint64_t *sizes, uint32_t count) {
    begin_result(pack, "Memories", 1);
    nnb_pack_text(pack, "sizes");
    nnb_pack_array(pack, count);
    for (uint32_t i = 0; i < count; i++) {
        nnb_pack_uint(pack, sizes[i]);
    }
}

void nnb_pack_nothing(struct nnb_pack *pack) { begin_result(pack, "Nothing", 0); }

void nnb_pack_failure(struct nnb_pack *pack, int32_t status, const char *message) {
    nnb_pack_map(pack, 2);
    pack_field(pack, "status", (uint64_t)status);
    nnb_pack_text(pack, "message");
    nnb_pack_text(pack, message);
}
