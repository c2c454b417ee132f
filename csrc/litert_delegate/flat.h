/* Writes flatbuffers, each table before the values that it refers to. After a failure (no memory, or a file
 * too large for its offsets) a writer is marked and does nothing more. */
#ifndef NNB_DELEGATE_FLAT_H
#define NNB_DELEGATE_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nnb_flat {
    uint8_t *data;
    size_t count;
    size_t room;
    bool failed;
};

/* A field of a table: its number in the schema, its bytes (1 or 4), and its value as a number. A field that refers to something
 * has 4 bytes and the value 0, until nnb_flat_refer. */
struct nnb_field {
    uint32_t number;
    uint32_t bytes;
    uint32_t value;
};

void nnb_flat_free(struct nnb_flat *flat);

/* Begins a file with this identifier of 4 letters; its first table is the root. */
void nnb_flat_begin(struct nnb_flat *flat, const char *identifier);

/* Continues a file that was written before; its places stay valid. */
void nnb_flat_resume(struct nnb_flat *flat, const void *bytes, size_t count);

/* Each function writes a value at the end and returns its place. */
size_t nnb_flat_table(struct nnb_flat *flat, const struct nnb_field *fields, size_t count);
size_t nnb_flat_numbers(struct nnb_flat *flat, const void *numbers, size_t count, size_t bytes_of_one, size_t alignment);
size_t nnb_flat_places(struct nnb_flat *flat, size_t count);
size_t nnb_flat_text(struct nnb_flat *flat, const char *text);

/* Makes a field of a table, or an entry of nnb_flat_places, refer to the value at a place. */
void nnb_flat_refer(struct nnb_flat *flat, size_t table, uint32_t number, size_t to);
void nnb_flat_enter(struct nnb_flat *flat, size_t places, size_t index, size_t to);

#endif
