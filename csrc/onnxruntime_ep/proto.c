#include "onnxruntime_ep/proto.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH = 2, FIXED32 = 5, MOST_VARINT = 10 };

void nnb_proto_free(struct nnb_proto *proto) {
    free(proto->data);
    *proto = (struct nnb_proto){0};
}

/* Room for so many more bytes. */
static bool reserve(struct nnb_proto *proto, size_t more) {
    if (proto->failed || more > SIZE_MAX / 4 - proto->count) {
        proto->failed = true;
        return false;
    }
    if (proto->count + more > proto->room) {
        size_t room = 2 * (proto->count + more) + 256;
        uint8_t *data = realloc(proto->data, room);
        if (data == NULL) {
            proto->failed = true;
            return false;
        }
        proto->data = data;
        proto->room = room;
    }
    return true;
}

static size_t varint(uint8_t *to, uint64_t value) {
    size_t count = 0;
    while (value >= 0x80) {
        to[count++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    to[count++] = (uint8_t)value;
    return count;
}

static void append(struct nnb_proto *proto, const void *bytes, size_t count) {
    if (count != 0 && reserve(proto, count)) {
        memcpy(proto->data + proto->count, bytes, count);
        proto->count += count;
    }
}

static void append_varint(struct nnb_proto *proto, uint64_t value) {
    uint8_t bytes[MOST_VARINT];
    append(proto, bytes, varint(bytes, value));
}

void nnb_proto_uint(struct nnb_proto *proto, uint32_t field, uint64_t value) {
    append_varint(proto, field << 3 | VARINT);
    append_varint(proto, value);
}

void nnb_proto_bytes(struct nnb_proto *proto, uint32_t field, const void *bytes, size_t count) {
    append_varint(proto, field << 3 | LENGTH);
    append_varint(proto, count);
    append(proto, bytes, count);
}

void nnb_proto_text(struct nnb_proto *proto, uint32_t field, const char *text) {
    nnb_proto_bytes(proto, field, text, strlen(text));
}

void nnb_proto_float(struct nnb_proto *proto, uint32_t field, float value) {
    append_varint(proto, field << 3 | FIXED32);
    append(proto, &value, sizeof value); /* nnburst is for little-endian machines */
}

size_t nnb_proto_begin(struct nnb_proto *proto, uint32_t field) {
    append_varint(proto, field << 3 | LENGTH);
    return proto->count;
}

void nnb_proto_end(struct nnb_proto *proto, size_t begun) {
    uint8_t length[MOST_VARINT];
    size_t body = proto->count - begun;
    size_t count = varint(length, body);
    if (reserve(proto, count)) {
        memmove(proto->data + begun + count, proto->data + begun, body);
        memcpy(proto->data + begun, length, count);
        proto->count += count;
    }
}
