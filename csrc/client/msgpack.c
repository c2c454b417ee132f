#include "client/msgpack.h"

#include <string.h>

/* -- writing --------------------------------------------------------------------------------------------- */

void nnb_pack_raw(struct nnb_pack *pack, const void *bytes, size_t count) {
    if (pack->full || (size_t)(pack->end - pack->at) < count) {
        pack->full = true;
        return;
    }
    memcpy(pack->at, bytes, count);
    pack->at += count;
}

/* A byte, then the lowest `bytes` bytes of `value`, the highest of them first. */
static void put(struct nnb_pack *pack, unsigned first, uint64_t value, unsigned bytes) {
    uint8_t packed[9] = {(uint8_t)first};
    for (unsigned i = 0; i < bytes; i++) {
        packed[1 + i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    }
    nnb_pack_raw(pack, packed, 1 + bytes);
}

void nnb_pack_map(struct nnb_pack *pack, uint32_t pairs) {
    if (pairs < 16) {
        put(pack, 0x80 | pairs, 0, 0);
    } else {
        put(pack, 0xdf, pairs, 4);
    }
}

void nnb_pack_array(struct nnb_pack *pack, uint32_t items) {
    if (items < 16) {
        put(pack, 0x90 | items, 0, 0);
    } else {
        put(pack, 0xdd, items, 4);
    }
}

void nnb_pack_uint(struct nnb_pack *pack, uint64_t value) {
    if (value < 0x80) {
        put(pack, (unsigned)value, 0, 0);
    } else if (value <= UINT32_MAX) {
        put(pack, 0xce, value, 4);
    } else {
        put(pack, 0xcf, value, 8);
    }
}

void nnb_pack_int(struct nnb_pack *pack, int64_t value) {
    if (value >= 0) {
        nnb_pack_uint(pack, (uint64_t)value);
    } else {
        put(pack, 0xd3, (uint64_t)value, 8);
    }
}

void nnb_pack_text(struct nnb_pack *pack, const char *text) {
    size_t length = strlen(text);
    if (length < 32) {
        put(pack, 0xa0 | (unsigned)length, 0, 0);
    } else if (length <= UINT32_MAX) {
        put(pack, 0xdb, length, 4);
    } else {
        pack->full = true;
    }
    nnb_pack_raw(pack, text, length);
}

void nnb_pack_bin(struct nnb_pack *pack, uint32_t bytes) { put(pack, 0xc6, bytes, 4); }

/* -- reading --------------------------------------------------------------------------------------------- */

enum kind { NIL, BOOLEAN, UNSIGNED, SIGNED, REAL, TEXT, BIN, ARRAY, MAP, EXTENSION, NOTHING };

/* The beginning of a value. */
struct head {
    enum kind kind;
    uint64_t number; /* its value, or how many bytes, items or pairs follow */
};

static uint64_t big_endian(struct nnb_unpack *unpack, unsigned bytes) {
    if ((size_t)(unpack->end - unpack->at) < bytes) {
        unpack->bad = true;
        return 0;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value = value << 8 | *unpack->at++;
    }
    return value;
}

/* A number of `bits`, as one of 64. */
static uint64_t widened(uint64_t value, unsigned bits) {
    return bits == 64 || !(value >> (bits - 1)) ? value : value | UINT64_MAX << bits;
}

static uint64_t real_of(uint64_t bits, unsigned bytes) {
    double value;
    if (bytes == 4) {
        uint32_t narrow = (uint32_t)bits;
        float single;
        memcpy(&single, &narrow, sizeof single);
        value = (double)single;
    } else {
        memcpy(&value, &bits, sizeof value);
    }
    uint64_t packed;
    memcpy(&packed, &value, sizeof packed);
    return packed;
}

/* Reads a first byte and the bytes of its number; bad if bytes are missing or are not valid MessagePack. */
static struct head decode_head(struct nnb_unpack *unpack) {
    unsigned first = *unpack->at++;
    struct head head = {.kind = NOTHING};
    unsigned bytes;
    if (first < 0x80) {
        return (struct head){UNSIGNED, first};
    }
    if (first >= 0xe0) {
        return (struct head){SIGNED, widened(first, 8)};
    }
    if (first < 0xc0) {
        head.kind = first < 0x90 ? MAP : first < 0xa0 ? ARRAY : TEXT;
        head.number = first & (head.kind == TEXT ? 0x1fu : 0x0fu);
        return head;
    }
    switch (first) {
    case 0xc0:
        head.kind = NIL;
        break;
    case 0xc2:
    case 0xc3:
        head = (struct head){BOOLEAN, first & 1};
        break;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        head = (struct head){BIN, big_endian(unpack, 1u << (first - 0xc4))};
        break;
    case 0xc7:
    case 0xc8:
    case 0xc9: /* a byte for its type follows */
        head = (struct head){EXTENSION, big_endian(unpack, 1u << (first - 0xc7)) + 1};
        break;
    case 0xca:
    case 0xcb:
        bytes = 4u << (first - 0xca);
        head = (struct head){REAL, real_of(big_endian(unpack, bytes), bytes)};
        break;
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        head = (struct head){UNSIGNED, big_endian(unpack, 1u << (first - 0xcc))};
        break;
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        bytes = 1u << (first - 0xd0);
        head = (struct head){SIGNED, widened(big_endian(unpack, bytes), 8 * bytes)};
        break;
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        head = (struct head){EXTENSION, (1u << (first - 0xd4)) + 1};
        break;
    case 0xd9:
    case 0xda:
    case 0xdb:
        head = (struct head){TEXT, big_endian(unpack, 1u << (first - 0xd9))};
        break;
    case 0xdc:
    case 0xdd:
        head = (struct head){ARRAY, big_endian(unpack, 2u << (first - 0xdc))};
        break;
    case 0xde:
    case 0xdf:
        head = (struct head){MAP, big_endian(unpack, 2u << (first - 0xde))};
        break;
    default: /* 0xc1, which MessagePack never uses */
        unpack->bad = true;
    }
    return head;
}

static struct head read_head(struct nnb_unpack *unpack) {
    const struct head nothing = {.kind = NOTHING};
    if (unpack->bad || unpack->at == unpack->end) {
        unpack->bad = true;
        return nothing;
    }
    struct head head = decode_head(unpack);
    /* TRUST: compared with the bytes left; an item takes at least a byte, a pair two. */
    uint64_t left = (uint64_t)(unpack->end - unpack->at);
    bool fits = head.kind == MAP ? head.number <= left / 2
                : head.kind == TEXT || head.kind == BIN || head.kind == ARRAY || head.kind == EXTENSION
                    ? head.number <= left
                    : true;
    unpack->bad = unpack->bad || !fits;
    return unpack->bad ? nothing : head;
}

/* Reads the beginning of a value that must be of this kind. */
static uint64_t expect(struct nnb_unpack *unpack, enum kind kind) {
    struct head head = read_head(unpack);
    if (head.kind != kind) {
        unpack->bad = true;
        return 0;
    }
    return head.number;
}

uint32_t nnb_unpack_map(struct nnb_unpack *unpack) { return (uint32_t)expect(unpack, MAP); }

uint32_t nnb_unpack_array(struct nnb_unpack *unpack) { return (uint32_t)expect(unpack, ARRAY); }

int64_t nnb_unpack_int(struct nnb_unpack *unpack, int64_t least, int64_t most) {
    struct head head = read_head(unpack);
    int64_t value = (int64_t)head.number;
    bool is_whole = head.kind == SIGNED || (head.kind == UNSIGNED && head.number <= INT64_MAX);
    if (!is_whole || value < least || value > most) {
        unpack->bad = true;
        return least;
    }
    return value;
}

double nnb_unpack_number(struct nnb_unpack *unpack) {
    struct head head = read_head(unpack);
    double value = 0.0;
    if (head.kind == REAL) {
        memcpy(&value, &head.number, sizeof value);
    } else if (head.kind == UNSIGNED) {
        value = (double)head.number;
    } else if (head.kind == SIGNED) {
        value = (double)(int64_t)head.number;
    } else {
        unpack->bad = true;
    }
    return value;
}

bool nnb_unpack_bool(struct nnb_unpack *unpack) { return expect(unpack, BOOLEAN) != 0; }

struct nnb_text nnb_unpack_text(struct nnb_unpack *unpack) {
    uint32_t length = (uint32_t)expect(unpack, TEXT);
    struct nnb_text text = {(const char *)unpack->at, length};
    unpack->at += length;
    return text;
}

struct nnb_unpack nnb_unpack_bin(struct nnb_unpack *unpack) {
    uint32_t length = (uint32_t)expect(unpack, BIN);
    struct nnb_unpack inner = {unpack->at, unpack->at + length, unpack->bad};
    unpack->at += length;
    return inner;
}

bool nnb_unpack_nil(struct nnb_unpack *unpack) {
    if (unpack->bad || unpack->at == unpack->end || *unpack->at != 0xc0) {
        return false;
    }
    unpack->at++;
    return true;
}

void nnb_unpack_skip(struct nnb_unpack *unpack) {
    /* Each skipped value takes at least a byte, and there are never more values to skip than bytes. */
    for (uint64_t values = 1; values != 0 && !unpack->bad; values--) {
        struct head head = read_head(unpack);
        switch (head.kind) {
        case TEXT:
        case BIN:
        case EXTENSION:
            unpack->at += head.number;
            break;
        case ARRAY:
            values += head.number;
            break;
        case MAP:
            values += 2 * head.number;
            break;
        default:
            break;
        }
    }
}

struct nnb_unpack nnb_unpack_value(struct nnb_unpack *unpack) {
    const uint8_t *begin = unpack->at;
    nnb_unpack_skip(unpack);
    return (struct nnb_unpack){begin, unpack->bad ? begin : unpack->at, unpack->bad};
}

bool nnb_unpack_ended(const struct nnb_unpack *unpack) {
    return !unpack->bad && unpack->at == unpack->end;
}

bool nnb_text_is(struct nnb_text text, const char *expected) {
    return text.length == strlen(expected) && memcmp(text.at, expected, text.length) == 0;
}
