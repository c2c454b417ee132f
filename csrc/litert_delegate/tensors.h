/* Checks which of the engine's tensors can be written into a file, and writes them. */
#ifndef NNB_DELEGATE_TENSORS_H
#define NNB_DELEGATE_TENSORS_H

#include "litert_delegate/flat.h"
#include "litert_delegate/tflite.h"
#include "plugin/driver.h"

/* A type of elements whose tensors can be written. */
struct nnb_type {
    uint8_t type;   /* the engine's number */
    uint8_t number; /* the format's */
    uint8_t bytes;  /* of an element */
};

/* Finds a type; NULL for types that cannot be written. */
const struct nnb_type *nnb_type_find(int32_t type);

/* Whether a list of numbers exists and has at most `most` entries. */
bool nnb_ints_check(const struct tfl_ints *ints, int most, const char *what, struct nnb_reason *reason);

/* Whether a tensor of the context can be written. */
bool nnb_tensor_check(const struct tfl_context *context, int index, struct nnb_reason *reason);

/* The bytes of a tensor by its type and extents, which must be 1 or more. */
bool nnb_tensor_bytes(const struct tfl_tensor *tensor, int index, size_t *bytes, struct nnb_reason *reason);

/* Whether a tensor's value is in the network's file. */
bool nnb_tensor_is_constant(const struct tfl_tensor *tensor);

/* The role of a tensor in a file. Extents of inputs and constants are known. An output's follow from the
 * inputs'; the engine's may be old. */
enum nnb_role { NNB_KNOWN, NNB_INNER, NNB_OUTPUT, NNB_UNKNOWN_OUTPUT };

/* The form in which a tensor is written. An expanded one has an extent of 1 before its own. */
struct nnb_form {
    enum nnb_role role;
    bool is_expanded;
};

/* Writes a tensor that was checked, as number `number` of its file with the value of buffer `buffer`. */
size_t nnb_tensor_write(const struct tfl_tensor *tensor, uint32_t number, uint32_t buffer, struct nnb_form form,
                        struct nnb_flat *flat);

/* Writes the present extents of a tensor that was written at `table`. */
void nnb_tensor_write_extents(const struct tfl_tensor *tensor, size_t table, struct nnb_form form, struct nnb_flat *flat);

#endif
