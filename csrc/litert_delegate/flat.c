#include "litert_delegate/flat.h"

#include <stdlib.h>
#include <string.h>

/* nnburst is for little-endian machines, as the format is. */
enum { OFFSET = 4, SHORT = 2, HEADER = 8, MOST_FIELDS = 32, MOST_BYTES = 0x7fffffff };

void nnb_flat_free(struct nnb_flat *flat) {
    free(flat->data);
    *flat = (struct nnb_flat){0};
}

static bool reserve(struct nnb_flat *flat, size_t more) {
    if (flat->failed || more > MOST_BYTES || flat->count + more > MOST_BYTES) {
        flat->failed = true;
        return false;
    }
    if (flat->count + more > flat->room) {
        size_t room = 2 * (flat->count + more) + 1024;
        uint8_t *data = realloc(flat->data, room);
        if (data == NULL) {
            flat->failed = true;
            return false;
        }
        flat->data = data;
        flat->room = room;
    }
    return true;
}

/* Appends bytes, zeros for NULL; returns their place. */
static size_t append(struct nnb_flat *flat, const void *bytes, size_t count) {
    size_t place = flat->count;
    if (count != 0 && reserve(flat, count)) {
        if (bytes != NULL) {
            memcpy(flat->data + place, bytes, count);
        } else {
            memset(flat->data + place, 0, count);
        }
        flat->count += count;
    }
    return place;
}

/* Pads, so that the place `ahead` bytes further is a multiple of `size`. */
static void align(struct nnb_flat *flat, size_t size, size_t ahead) {
    size_t over = (flat->count + ahead) % size;
    (void)append(flat, NULL, over == 0 ? 0 : size - over);
}

static void put(struct nnb_flat *flat, size_t place, uint32_t value) {
    if (!flat->failed) {
        memcpy(flat->data + place, &value, sizeof value);
    }
}

void nnb_flat_begin(struct nnb_flat *flat, const char *identifier) {
    *flat = (struct nnb_flat){0};
    (void)append(flat, NULL, OFFSET);
    (void)append(flat, identifier, HEADER - OFFSET);
}

void nnb_flat_resume(struct nnb_flat *flat, const void *bytes, size_t count) {
    *flat = (struct nnb_flat){0};
    (void)append(flat, bytes, count);
}

size_t nnb_flat_table(struct nnb_flat *flat, const struct nnb_field *fields, size_t count) {
    uint16_t places[2 + MOST_FIELDS] = {0};
    uint16_t highest = 0;
    uint16_t bytes = OFFSET;
    for (uint32_t size = OFFSET; size != 0; size = size == OFFSET ? 1 : 0) { /* the widest first, so each is aligned */
        for (size_t i = 0; i < count; i++) {
            if (fields[i].bytes == size && fields[i].number < MOST_FIELDS) {
                places[2 + fields[i].number] = bytes;
                bytes = (uint16_t)(bytes + size);
                highest = fields[i].number + 1 > highest ? (uint16_t)(fields[i].number + 1) : highest;
            }
        }
    }
    const bool is_root = flat->count == HEADER;
    const uint16_t table_bytes = (uint16_t)((2 + highest) * SHORT);
    places[0] = table_bytes;
    places[1] = bytes;
    align(flat, OFFSET, table_bytes);
    (void)append(flat, places, table_bytes);
    const size_t table = append(flat, NULL, bytes);
    put(flat, table, table_bytes);
    for (size_t i = 0; i < count && !flat->failed; i++) {
        memcpy(flat->data + table + places[2 + fields[i].number], &fields[i].value, fields[i].bytes);
    }
    if (is_root) {
        put(flat, 0, (uint32_t)table);
    }
    return table;
}

size_t nnb_flat_numbers(struct nnb_flat *flat, const void *numbers, size_t count, size_t bytes_of_one, size_t alignment) {
    align(flat, alignment < OFFSET ? OFFSET : alignment, OFFSET);
    size_t place = append(flat, NULL, OFFSET);
    size_t bytes = count;
    if (__builtin_mul_overflow(count, bytes_of_one, &bytes)) {
        flat->failed = true;
    }
    put(flat, place, (uint32_t)count);
    (void)append(flat, numbers, bytes);
    return place;
}

size_t nnb_flat_places(struct nnb_flat *flat, size_t count) { return nnb_flat_numbers(flat, NULL, count, OFFSET, OFFSET); }

size_t nnb_flat_text(struct nnb_flat *flat, const char *text) {
    size_t place = nnb_flat_numbers(flat, text, strlen(text), 1, OFFSET);
    (void)append(flat, NULL, 1);
    return place;
}

void nnb_flat_refer(struct nnb_flat *flat, size_t table, uint32_t number, size_t to) {
    uint32_t back;
    uint16_t place;
    if (flat->failed) {
        return;
    }
    memcpy(&back, flat->data + table, sizeof back);
    memcpy(&place, flat->data + table - back + (2 + number) * SHORT, sizeof place);
    put(flat, table + place, (uint32_t)(to - table - place));
}

void nnb_flat_enter(struct nnb_flat *flat, size_t places, size_t index, size_t to) {
    size_t at = places + OFFSET + index * OFFSET;
    put(flat, at, (uint32_t)(to - at));
}
