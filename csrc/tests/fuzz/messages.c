/* What the client in C reads of control messages: any bytes are refused or read within their bounds, and what it writes
 * is read again as it was. The first byte chooses the message that the others are taken for. */
#include "client/messages.h"

#include "input.h"

static struct nnb_unpack over(const uint8_t *bytes, size_t size) {
    return (struct nnb_unpack){bytes, bytes + size, false};
}

static void read_texts(const struct nnb_served_argument *arguments, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        PROMISE(strlen(arguments[i].name) <= NNB_MAX_LARGE_BYTES && arguments[i].item_size != 0);
        uint64_t sum = 0;
        for (uint32_t k = 0; k < arguments[i].rank; k++) {
            sum += arguments[i].dimensions[k];
        }
        PROMISE(sum != 1 || arguments[i].rank != 0);
    }
}

static void read_model(struct nnb_unpack unpack) {
    struct nnb_served_model model;
    if (nnb_read_served_model(unpack, &model)) {
        PROMISE(model.handle != 0 && model.version != 0 && model.name != NULL);
        read_texts(model.inputs, model.input_count);
        read_texts(model.outputs, model.output_count);
        for (uint32_t i = 0; i < model.state_count; i++) {
            PROMISE(model.inputs[model.states[i].input].size == model.outputs[model.states[i].output].size);
        }
        PROMISE(nnb_same_served_model(&model, &model));
    }
    nnb_free_served_model(&model);
}

static void read_names(struct nnb_unpack unpack) {
    struct nnb_served_name *names;
    uint32_t count;
    if (nnb_read_served_models(unpack, &names, &count)) {
        for (uint32_t i = 0; i < count; i++) {
            PROMISE(strlen(names[i].name) <= NNB_MAX_LARGE_BYTES && names[i].version != 0);
        }
        nnb_free_names(names, count);
    } else {
        PROMISE(names == NULL && count == 0);
    }
}

static void read_reply(struct nnb_unpack unpack) {
    struct nnb_reply reply;
    if (nnb_read_reply(unpack, &reply)) {
        PROMISE(reply.message.length <= (size_t)(unpack.end - unpack.at));
        struct nnb_welcome welcome;
        uint64_t handle;
        bool may_spin;
        read_model(reply.result);
        read_names(reply.result);
        (void)nnb_read_welcome(reply.result, &welcome);
        (void)nnb_read_handle(reply.result);
        (void)nnb_is_result(reply.result, "Nothing");
        if (nnb_read_opened_burst(reply.result, &handle, &may_spin)) {
            PROMISE(handle != 0);
        }
    }
}

static void read_upcall(struct nnb_unpack unpack) {
    struct nnb_upcall upcall;
    if (nnb_read_upcall(unpack, &upcall)) {
        PROMISE(upcall.slot_count <= NNB_MAX_FDS);
    }
}

/* One value is passed over, whatever it is, and never beyond the end. */
static void pass_over(struct nnb_unpack unpack) {
    const uint8_t *end = unpack.end;
    struct nnb_unpack value = nnb_unpack_value(&unpack);
    PROMISE(unpack.at <= end && value.end <= end && value.at <= value.end);
    if (!unpack.bad) {
        nnb_unpack_skip(&value);
        PROMISE(nnb_unpack_ended(&value));
    }
}

/* A packet of these bytes is read as what was written, and a packet that is cut is refused. */
static void wrap(const uint8_t *bytes, size_t size) {
    size_t room = size + NNB_ENVELOPE_BYTES;
    uint8_t *packet = exactly(room);
    size_t count = nnb_write_packet(packet, room, size, (uint32_t)(size % NNB_MAX_FDS), bytes, size);
    struct nnb_envelope envelope;
    PROMISE(count != 0 && nnb_read_envelope(packet, count, &envelope));
    PROMISE(envelope.id == size && envelope.fds == size % NNB_MAX_FDS && envelope.large_size == 0);
    PROMISE((size_t)(envelope.body.end - envelope.body.at) == size);
    PROMISE(size == 0 || memcmp(envelope.body.at, bytes, size) == 0);
    uint8_t *part = exactly(count);
    memcpy(part, packet, count - 1);
    PROMISE(!nnb_read_envelope(part, count - 1, &envelope));
    PROMISE(nnb_write_packet(packet, count - 1, size, 0, bytes, size) == 0);
    free(part);
    free(packet);
}

/* Writers stay in their room, whatever it is. */
static void write_all(struct input *input) {
    size_t room = take_u8(input);
    uint8_t *bytes = exactly(room == 0 ? 1 : room);
    char name[32] = {0};
    const uint32_t cpus[3] = {take_u8(input), 70000, UINT32_MAX};
    uint64_t number = take_counter(input, 127, UINT32_MAX);
    take_bytes(input, name, sizeof name - 1);
    const char *const files[2] = {name, ""};
    struct nnb_open_burst call = {
        .handle = number,
        .requests = nnb_layout_queue(take_u8(input) + 2u),
        .results = nnb_layout_queue(1024),
        .max_in_flight = take_u8(input),
        .cpus = cpus,
        .cpu_count = 3,
    };
    for (int which = 0; which < 10; which++) {
        struct nnb_pack pack = {bytes, bytes + room, false};
        switch (which) {
        case 0: nnb_pack_hello(&pack); break;
        case 1: nnb_pack_get_served_models(&pack); break;
        case 2: nnb_pack_open_served_model(&pack, name, (uint32_t)number); break;
        case 3: nnb_pack_open_burst(&pack, &call); break;
        case 4: nnb_pack_free_memory(&pack, number, (int32_t)(uint32_t)number); break;
        case 5: nnb_pack_release(&pack, number); break;
        case 6: nnb_pack_memories(&pack, &number, 1); break;
        case 7: nnb_pack_nothing(&pack); break;
        case 8: nnb_pack_prepare_graph(&pack, files, (uint32_t)(number % 3), (uint32_t)number); break;
        default: nnb_pack_failure(&pack, 4, name); break;
        }
        PROMISE(pack.at <= bytes + room);
        if (!pack.full) {
            struct nnb_unpack unpack = over(bytes, (size_t)(pack.at - bytes));
            nnb_unpack_skip(&unpack);
            PROMISE(nnb_unpack_ended(&unpack));
        }
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    uint8_t *bytes = exactly(size == 1 ? 1 : size - 1);
    memcpy(bytes, data + 1, size - 1);
    struct nnb_unpack unpack = over(bytes, size - 1);
    struct nnb_envelope envelope;
    struct input input = {bytes, size - 1};
    switch (data[0] % 7) {
    case 0: read_reply(unpack); break;
    case 1: read_upcall(unpack); break;
    case 2: pass_over(unpack); break;
    case 3: wrap(bytes, size - 1); break;
    case 4: write_all(&input); break;
    case 5: read_model(unpack); break;
    default:
        if (nnb_read_envelope(bytes, size - 1, &envelope)) {
            read_reply(envelope.body);
            read_upcall(envelope.body);
        }
    }
    free(bytes);
    return 0;
}
