#include "litert_delegate/tensors.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANK = 8 };
/* Numbers of fields. */
enum { TENSOR_SHAPE = 0, TENSOR_TYPE = 1, TENSOR_BUFFER = 2, TENSOR_NAME = 3, TENSOR_QUANTIZATION = 4, TENSOR_SIGNATURE = 7, TENSOR_HAS_RANK = 8 };
enum { QUANTIZATION_SCALE = 2, QUANTIZATION_ZERO_POINT = 3, QUANTIZATION_DIMENSION = 6 };

static const struct nnb_type types[] = {
    {1, 0, 4},  /* FLOAT32 */
    {2, 2, 4},  /* INT32 */
    {3, 3, 1},  /* UINT8 */
    {4, 4, 8},  /* INT64 */
    {6, 6, 1},  /* BOOL */
    {7, 7, 2},  /* INT16 */
    {9, 9, 1},  /* INT8 */
    {10, 1, 2}, /* FLOAT16 */
    {11, 10, 8}, /* FLOAT64 */
    {13, 12, 8}, /* UINT64 */
    {16, 15, 4}, /* UINT32 */
    {17, 16, 2}, /* UINT16 */
};

const struct nnb_type *nnb_type_find(int32_t type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type == type) {
            return &types[i];
        }
    }
    return NULL;
}

bool nnb_ints_check(const struct tfl_ints *ints, int most, const char *what, struct nnb_reason *reason) {
    if (ints == NULL) {
        return nnb_refuse(reason, "%s are not there", what);
    }
    return (ints->size >= 0 && ints->size <= most) ||
           nnb_refuse(reason, "%d %s, expected 0 to %d", ints->size, what, most);
}

bool nnb_tensor_is_constant(const struct tfl_tensor *tensor) { return tensor->allocation == TFL_READ_ONLY; }

static bool check_quantization(const struct tfl_tensor *tensor, int index, struct nnb_reason *reason) {
    if (tensor->quantization_kind == TFL_UNQUANTIZED) {
        return true;
    }
    const struct tfl_affine *affine = tensor->quantization;
    if (tensor->quantization_kind != TFL_AFFINE || affine == NULL) {
        return nnb_refuse(reason, "tensor %d has quantization of kind %d, expected %d", index, tensor->quantization_kind,
                          TFL_AFFINE);
    }
    if (affine->scales == NULL || affine->scales->size < 1 || affine->zero_points == NULL) {
        return nnb_refuse(reason, "tensor %d has no scales or zero points", index);
    }
    const int scales = affine->scales->size;
    const int zero_points = affine->zero_points->size;
    if (zero_points != scales && zero_points != 1) {
        return nnb_refuse(reason, "tensor %d has %d scales and %d zero points", index, scales, zero_points);
    }
    if (scales == 1) {
        return true;
    }
    const struct tfl_ints *dimensions = tensor->dimensions;
    if (affine->dimension < 0 || affine->dimension >= dimensions->size ||
        dimensions->data[affine->dimension] != scales) {
        return nnb_refuse(reason, "tensor %d has %d scales along dimension %d", index, scales, affine->dimension);
    }
    return true;
}

bool nnb_tensor_bytes(const struct tfl_tensor *tensor, int index, size_t *bytes, struct nnb_reason *reason) {
    const struct nnb_type *type = nnb_type_find(tensor->type);
    if (type == NULL) {
        return nnb_refuse(reason, "tensor %d has elements of type %d", index, tensor->type);
    }
    if (!nnb_ints_check(tensor->dimensions, MOST_RANK, "dimensions", reason)) {
        return false;
    }
    *bytes = type->bytes;
    for (int i = 0; i < tensor->dimensions->size; i++) {
        const int extent = tensor->dimensions->data[i];
        if (extent < 1 || __builtin_mul_overflow(*bytes, (size_t)extent, bytes)) {
            return nnb_refuse(reason, "tensor %d has extent %d along dimension %d", index, extent, i);
        }
    }
    return true;
}

/* Checks the bytes of a constant, which are read; other tensors may not have theirs yet. */
static bool check_bytes(const struct tfl_tensor *tensor, int index, struct nnb_reason *reason) {
    size_t bytes;
    if (!nnb_tensor_bytes(tensor, index, &bytes, reason)) {
        return false;
    }
    if (!nnb_tensor_is_constant(tensor)) {
        return true;
    }
    if (tensor->data == NULL) {
        return nnb_refuse(reason, "tensor %d is a constant without a value", index);
    }
    return bytes == tensor->bytes ||
           nnb_refuse(reason, "tensor %d has %zu bytes, expected %zu by its extents", index, tensor->bytes, bytes);
}

bool nnb_tensor_check(const struct tfl_context *context, int index, struct nnb_reason *reason) {
    if (index < 0 || (size_t)index >= context->tensor_count) {
        return nnb_refuse(reason, "tensor %d, there are %zu", index, context->tensor_count);
    }
    const struct tfl_tensor *tensor = &context->tensors[index];
    if (tensor->is_variable) {
        return nnb_refuse(reason, "tensor %d is a variable", index);
    }
    if (tensor->sparsity != NULL) {
        return nnb_refuse(reason, "tensor %d is sparse", index);
    }
    return check_bytes(tensor, index, reason) && check_quantization(tensor, index, reason);
}

static size_t write_quantization(const struct tfl_affine *affine, struct nnb_flat *flat) {
    const size_t count = (size_t)affine->scales->size;
    const struct nnb_field fields[] = {
        {QUANTIZATION_SCALE, 4, 0},
        {QUANTIZATION_ZERO_POINT, 4, 0},
        {QUANTIZATION_DIMENSION, 4, (uint32_t)affine->dimension},
    };
    const size_t table = nnb_flat_table(flat, fields, sizeof fields / sizeof *fields);
    const size_t scales = nnb_flat_numbers(flat, affine->scales->data, count, sizeof(float), sizeof(float));
    nnb_flat_refer(flat, table, QUANTIZATION_SCALE, scales);
    int64_t *zero_points = calloc(count, sizeof *zero_points);
    if (zero_points == NULL) {
        flat->failed = true;
        return table;
    }
    for (size_t i = 0; i < count; i++) {
        zero_points[i] = affine->zero_points->data[affine->zero_points->size == 1 ? 0 : i];
    }
    const size_t points = nnb_flat_numbers(flat, zero_points, count, sizeof *zero_points, sizeof *zero_points);
    nnb_flat_refer(flat, table, QUANTIZATION_ZERO_POINT, points);
    free(zero_points);
    return table;
}

/* The extents that the file leaves open, as -1; NULL if it leaves none open. */
static const int32_t *signature_of(const struct tfl_tensor *tensor, enum nnb_role role) {
    static const int32_t open[1 + MOST_RANK] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
    if (role == NNB_OUTPUT || role == NNB_UNKNOWN_OUTPUT) {
        return open; /* for the driver to find out if they do not follow from the inputs' extents alone */
    }
    const struct tfl_ints *own = tensor->signature; /* which operators compare with the extents that a run finds out */
    return role == NNB_INNER && own != NULL && own->size == tensor->dimensions->size ? own->data : NULL;
}

void nnb_tensor_write_extents(const struct tfl_tensor *tensor, size_t table, struct nnb_form form, struct nnb_flat *flat) {
    const int32_t *signature = signature_of(tensor, form.role);
    const size_t more = form.is_expanded;
    const size_t rank = more + (size_t)tensor->dimensions->size;
    int32_t extents[1 + MOST_RANK] = {1};
    for (size_t i = 0; i < rank; i++) {
        if (form.role == NNB_UNKNOWN_OUTPUT) {
            extents[i] = 0;
        } else if (i >= more) {
            extents[i] = tensor->dimensions->data[i - more];
        }
    }
    nnb_flat_refer(flat, table, TENSOR_SHAPE, nnb_flat_numbers(flat, extents, rank, sizeof(int32_t), sizeof(int32_t)));
    if (signature != NULL) {
        nnb_flat_refer(flat, table, TENSOR_SIGNATURE,
                       nnb_flat_numbers(flat, signature, rank, sizeof(int32_t), sizeof(int32_t)));
    }
}

size_t nnb_tensor_write(const struct tfl_tensor *tensor, uint32_t number, uint32_t buffer, struct nnb_form form,
                        struct nnb_flat *flat) {
    const bool is_quantized = tensor->quantization_kind == TFL_AFFINE;
    char name[24];
    (void)snprintf(name, sizeof name, "t%u", number); /* names must differ, and the network's need not */
    struct nnb_field fields[] = {
        {TENSOR_SHAPE, 4, 0},
        {TENSOR_TYPE, 1, nnb_type_find(tensor->type)->number},
        {TENSOR_BUFFER, 4, buffer},
        {TENSOR_NAME, 4, 0},
        {TENSOR_HAS_RANK, 1, 1},
        {0}, /* two that may be missing */
        {0},
    };
    size_t count = sizeof fields / sizeof *fields - 2;
    if (is_quantized) {
        fields[count++] = (struct nnb_field){TENSOR_QUANTIZATION, 4, 0};
    }
    if (signature_of(tensor, form.role) != NULL) {
        fields[count++] = (struct nnb_field){TENSOR_SIGNATURE, 4, 0};
    }
    const size_t table = nnb_flat_table(flat, fields, count);
    nnb_tensor_write_extents(tensor, table, form, flat);
    nnb_flat_refer(flat, table, TENSOR_NAME, nnb_flat_text(flat, name));
    if (is_quantized) {
        nnb_flat_refer(flat, table, TENSOR_QUANTIZATION, write_quantization(tensor->quantization, flat));
    }
    return table;
}
